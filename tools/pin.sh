#!/usr/bin/env bash
# Write requirements/*.txt: every dependency with its version and the hashes of its files.
#
#   tools/pin.sh            after a change of a pyproject.toml: what is pinned already stays as it is
#   tools/pin.sh --upgrade  everything as new as it can be
#
# dev.txt is what CI installs; loom-kb.txt is what loom-kb needs to run, in the same versions.
set -euo pipefail
cd "$(dirname "$0")/.."

pin() {
    local output=$1
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --custom-compile-command tools/pin.sh --no-emit-package loom-mcp-core --no-emit-package loom-kb \
        --output-file "requirements/$output" "$@"
}

pin dev.txt pyproject.toml requirements/ci.in --group dev --extra kb "$@"
pin loom-kb.txt servers/kb/pyproject.toml --constraint requirements/dev.txt "$@"
