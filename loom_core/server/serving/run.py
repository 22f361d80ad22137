"""Server runner: serve over stdio or HTTP, with settings from the command.

Nothing heavy is imported here before standard output is safe.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from loom_core.observability.metrics import process_metrics
from loom_core.server.serving.http import serve_http
from loom_core.server.serving.http_settings import HttpSettings
from loom_core.server.serving.metrics_file import maintain_metrics
from loom_core.server.serving.stdio import LineReader, claim_stdio, serve_stdio

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.observability.logs import LogFormat
    from loom_core.server.protocol.factory import LoomServer
    from loom_core.server.protocol.handshake import Introduction

__all__ = ["serve", "set_for_serving"]

_log = logging.getLogger(__name__)

# The SDK tells of each session when it begins and when it ends, with its id, which is private.
_SESSION_LOGS = ("mcp.server.streamable_http", "mcp.server.streamable_http_manager")


def serve(
    build: Callable[[], LoomServer],
    *,
    introduction: Introduction | None = None,
    http: HttpSettings | None = None,
    on_ready: Callable[[str], None] = lambda _url: None,
    metrics_file: Path | str | None = None,
    log_level: int = logging.INFO,
    log_format: LogFormat = "text",
    service: str = "",
    deadline: float = 5.0,
) -> None:
    """Serve until stopped; owns the process, and belongs in its main thread.

    Over stdio, standard output is claimed before `build` is called: import the server's own modules in there
    and nothing that they print can disturb the protocol. Logging goes to standard error unless the program
    has configured it already.

    Args:
        build: makes the server.
        introduction: what the server tells of itself: with it the handshake over stdio is answered at once,
            before the server is made.
        http: listen there instead of serving the client at standard input and output.
        on_ready: called with the URL once HTTP is being served.
        metrics_file: where its numbers are kept for a collector; None for nowhere. Without it and without
            HTTP nothing is counted.
        log_level: the least severity that is logged.
        log_format: lines for people, or JSON.
        service: the server's name in lines of JSON.
        deadline: seconds that running calls and the lifespan have to end after the order to stop; then the
            process is ended by force with exit code 1, for what was acknowledged is on disk.

    Raises:
        ConfigError: standard input or output is closed, the address cannot be listened on, the file of
            metrics cannot be written, or a key in `LOOM_STATE_KEYS` is too short.
    """
    wire = None if http else claim_stdio()
    set_for_serving()
    reader = LineReader(wire, introduction) if wire else None
    if reader:
        reader.start()
    from loom_core.observability.logs import start_logging

    start_logging(log_format, level=log_level, service=service)
    for name in _SESSION_LOGS:
        logging.getLogger(name).setLevel(max(log_level, logging.WARNING))
    if http is not None or metrics_file is not None:
        process_metrics.enable()
    try:
        server = _build_server(build)
        on_stop = partial(_start_deadline, deadline)
        if wire:
            serving = partial(serve_stdio, server, wire, reader=reader, on_stop=on_stop)
        else:
            serving = partial(serve_http, server, http, on_ready=on_ready, on_stop=on_stop)
        import anyio

        from loom_core.observability.export import export_traces

        with (
            export_traces(server.protocol.name, version=server.protocol.version or ""),
            nullcontext() if metrics_file is None else maintain_metrics(metrics_file, server),
        ):
            anyio.run(serving)
    except KeyboardInterrupt:  # before there is a loop, and on Windows, where a loop cannot receive signals
        _log.info("interrupted")
    gc.freeze()  # the process ends: nothing is gained by searching what is left of a thousand sessions


def _build_server(build: Callable[[], LoomServer]) -> LoomServer:
    # Imports make many objects and hardly any garbage: not to search for it saves a tenth of the start.
    gc.disable()
    try:
        from loom_core.server.calls.request_state import keys_from_environment

        keys_from_environment()  # report invalid keys now, not to the first client that needs them
        return build()
    finally:
        gc.freeze()
        gc.enable()


def _start_deadline(seconds: float) -> None:
    """End the process by force if it does not end by itself: no thread that hangs can be interrupted."""

    def end() -> None:
        time.sleep(seconds)
        _log.error("still busy %g s after the order to stop; ending by force", seconds)
        os._exit(1)

    threading.Thread(target=end, name="deadline", daemon=True).start()


# A question gives the interpreter's lock away some dozens of times, and next to a thread that computes, such
# as an ingest, it waits so long to get it back each time. Python's own 5 ms made questions during an ingest
# 2.3 to 5.5 times as slow as at rest (p95), this 1.9 to 2.8 times; the ingest's pace did not tell them apart.
_SWITCH_SECONDS = 0.0005

# Documents and answers are many objects with hardly a cycle. To search for garbage at every 700 of them, as
# Python does, took a tenth of what an ingest takes of its process; 20,000 saves no more than this.
_ALLOCATIONS = 5_000


def set_for_serving() -> None:
    """Set this process' interpreter as a server needs it; for who owns the process."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(_ALLOCATIONS)
