# syntax=docker/dockerfile:1
#
# An image of one of Loom's servers, over HTTP with tokens:
#
#   docker build --build-arg SERVER=loom-agent-server --tag loom-agent-server .
#   docker run --init --publish 127.0.0.1:8765:8765 --volume loom:/data loom-agent-server
#
# SERVER is loom-kb, loom-query-server, loom-flow-server or loom-agent-server. docs/deployment.md says the rest.

# A tag, as people can read it; give a digest (PYTHON=3.11-slim-bookworm@sha256:…) where builds must not change.
# This is the version of Python that the tests run with.
ARG PYTHON=3.11-slim-bookworm

FROM python:${PYTHON} AS build
ARG SERVER=loom-kb
ENV PATH=/opt/uv/bin:$PATH XDG_CACHE_HOME=/cache \
    UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_NO_PROGRESS=1 UV_PYTHON_DOWNLOADS=never
WORKDIR /source
COPY requirements/image.txt requirements/
RUN --mount=type=cache,target=/cache \
    python -m venv /opt/uv \
    && /opt/uv/bin/pip install --quiet --require-hashes --requirement requirements/image.txt
# What the server needs changes more seldom than the server, and stays in a layer of its own.
COPY requirements/${SERVER}.txt requirements/image-extras.txt requirements/
RUN --mount=type=cache,target=/cache \
    uv venv --quiet --no-project --python python /opt/loom \
    && uv pip install --quiet --python /opt/loom --require-hashes \
        --requirement "requirements/$SERVER.txt" --requirement requirements/image-extras.txt
COPY . .
RUN --mount=type=cache,target=/cache \
    for package in loom-mcp-core "$SERVER"; do \
        uv build --quiet --wheel --package "$package" --out-dir /wheels \
            --require-hashes --build-constraints requirements/dev.txt || exit 1; \
    done \
    && uv pip install --quiet --python /opt/loom --no-deps /wheels/*.whl \
    && uv pip check --quiet --python /opt/loom \
    && ln -s "$SERVER" /opt/loom/bin/loom-server \
    && mkdir /data

FROM python:${PYTHON}
ARG SERVER=loom-kb
LABEL org.opencontainers.image.title="${SERVER}" \
      org.opencontainers.image.description="${SERVER}, an MCP server of Loom, over HTTP with tokens" \
      org.opencontainers.image.licenses="MIT"
COPY --from=build /opt/loom /opt/loom
COPY --from=build --chown=10001:10001 /data /data
# (The folder of secrets is no secret.)
# hadolint ignore=DL3064
ENV PATH=/opt/loom/bin:$PATH HOME=/data LOOM_HOME=/data LOOM_SECRETS_DIR=/run/secrets \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 ORT_DISABLE_TELEMETRY=1
# A number, as Kubernetes cannot see whether a name is root's. Nothing outside /data and /tmp is ever written.
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8765
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8765/healthz', timeout=4)"]
ENTRYPOINT ["loom-server"]
CMD ["serve", "--http", "--host", "0.0.0.0", "--tokens"]
