#!/bin/sh
# Makes what docker-compose.yml and nodes.yml read from secrets/: tokens of the servers for each other and for
# Prometheus, passwords, and a key. What is there already stays. For a new token, revoke the old one and remove its file first:
#
#   docker compose run --rm kb token revoke agents
set -eu
cd "$(dirname "$0")/../.."
umask 077
mkdir -p secrets # no other user may enter it, so its files can be readable, as the users in the containers need

# secret NAME COMMAND…: keeps what a command says; nothing if it fails.
secret() {
    file=secrets/$1
    shift
    if [ ! -e "$file" ]; then
        "$@" >"$file.new"
        chmod 0444 "$file.new"
        mv "$file.new" "$file"
    fi
}

# token SERVICE NAME [OPTION…]: the token of a server for a caller of this name.
token() {
    service=$1
    shift
    docker compose run --rm --no-deps -T "$service" token create "$@" </dev/null
}

random() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

secret MODEL_KEY true # stays empty until you write the key of a language model into it
secret grafana_password random
secret LOOM_DATABASE_SECRET random
secret LOOM_STATE_KEYS random
secret LOOM_KB_TOKEN token kb agents --scope read
for service in kb query flow agent; do
    secret "metrics_$service" token "$service" prometheus --scope admin
done
