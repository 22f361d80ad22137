#!/usr/bin/env bash
# Write requirements/*.txt: every dependency with its version and the hashes of its files.
#
#   tools/pin.sh            after a change of a pyproject.toml: what is pinned already stays as it is
#   tools/pin.sh --upgrade  everything as new as it can be
#
# dev.txt is what CI installs; loom-kb.txt, loom-query-server.txt, loom-agent-server.txt and loom-flow-server.txt are
# what these servers need to run, in the same versions. The others are environments of their own: peers.txt for servers that tests speak with,
# stores.txt for databases that tests start, small-model.txt for a language model,
# tagger.txt for the training of the entity tagger,
# agent-frameworks.txt for agent frameworks that a benchmark compares with Loom, clients.txt and clients-v1.txt for MCP
# clients that a benchmark drives, image.txt for what builds the container
# image, which has image-extras.txt besides what its server needs, operating.txt for what checks the files for operators, docs.txt for what
# makes the site.
set -euo pipefail
cd "$(dirname "$0")/.."

pin() {
    local output=$1
    shift
    uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --custom-compile-command tools/pin.sh --no-emit-package loom-mcp-core --no-emit-package loom-kb --no-emit-package loom-query-server --no-emit-package loom-agent-server --no-emit-package loom-flow-server \
        --output-file "requirements/$output" "$@"
}

pin dev.txt pyproject.toml requirements/ci.in --group dev --extra kb "$@"
pin loom-kb.txt servers/kb/pyproject.toml --constraint requirements/dev.txt "$@"
pin loom-query-server.txt servers/query/pyproject.toml --constraint requirements/dev.txt "$@"
pin loom-agent-server.txt servers/agent/pyproject.toml --constraint requirements/dev.txt "$@"
pin loom-flow-server.txt servers/flow/pyproject.toml --constraint requirements/dev.txt "$@"
pin image-extras.txt pyproject.toml --extra otel --extra postgres --constraint requirements/dev.txt "$@"
pin image.txt requirements/image.in "$@"
pin operating.txt requirements/operating.in "$@"
pin docs.txt requirements/docs.in --constraint requirements/dev.txt "$@"
pin peers.txt requirements/peers.in "$@"
pin stores.txt requirements/stores.in "$@"
pin small-model.txt requirements/small-model.in --no-deps "$@"
pin tagger.txt requirements/tagger.in --constraint requirements/dev.txt "$@"
pin agent-frameworks.txt requirements/agent-frameworks.in "$@"
pin clients.txt requirements/clients.in "$@"
pin clients-v1.txt requirements/clients-v1.in "$@"
