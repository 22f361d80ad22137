"""Server runner: serve over stdio or HTTP, with settings from the command.

Nothing heavy is imported here before standard output is safe.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
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

# The SDK logs the begin and end of each session, with its id, which is secret.
_SESSION_LOGS = ("mcp.server.streamable_http", "mcp.server.streamable_http_manager")

_INTERRUPTED = 130  # exit code


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
    """Serve until stopped. It owns the process: call it in the main thread.

    Over stdio, standard output is claimed before `build` is called: import the server's own modules in
    `build`, and nothing that they print can disturb the protocol. Logging goes to standard error unless the
    program has configured it already.

    Args:
        build: creates the server.
        introduction: the server's introduction: with it, the handshake over stdio is answered at once, before
            the server is created.
        http: settings of the HTTP server; None to serve over stdio.
        on_ready: called with the URL once HTTP is being served.
        metrics_file: metrics file for a collector; None for none. Without it and without HTTP, metrics are
            disabled.
        log_level: lowest severity to log.
        log_format: lines for people, or JSON.
        service: the server's name in lines of JSON.
        deadline: seconds for running calls and the lifespan to end on shutdown; then the process is ended by
            force with exit code 1. Acknowledged changes are on disk.

    Raises:
        SystemExit: with code 130: it was interrupted before it served, or twice.
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
    except KeyboardInterrupt:
        _end_quietly()
        _log.info("interrupted")
        if sys.platform != "win32":  # there, a loop cannot receive signals: it is the usual way to stop
            raise SystemExit(_INTERRUPTED) from None
    _end_quietly()
    gc.freeze()  # the process ends: no garbage collection of what is left of a thousand sessions


def _end_quietly() -> None:
    """Let a further SIGINT end the process by the system's default: Python would show a traceback."""
    is_main = threading.current_thread() is threading.main_thread()
    if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _build_server(build: Callable[[], LoomServer]) -> LoomServer:
    # Imports create many objects and hardly any garbage: without collection the start is a tenth faster.
    gc.disable()
    try:
        from loom_core.server.calls.request_state import keys_from_environment

        keys_from_environment()  # report invalid keys now, not to the first client that needs them
        return build()
    finally:
        gc.freeze()
        gc.enable()


def _start_deadline(seconds: float) -> None:
    """End the process by force if it does not end in time, as a hanging thread cannot be interrupted."""

    def end() -> None:
        time.sleep(seconds)
        _log.error("still busy %g s after the order to stop; ending by force", seconds)
        os._exit(1)

    threading.Thread(target=end, name="deadline", daemon=True).start()


# Switch interval of the GIL. A query releases the GIL some dozens of times, and next to a busy thread, such
# as an ingest, it waits for this interval each time. With Python's default of 5 ms, queries during an ingest
# were 2.3 to 5.5 times as slow as without one (p95), with this 1.9 to 2.8 times; the ingest was equally fast.
_SWITCH_SECONDS = 0.0005

# Garbage collection threshold. Documents and answers are many objects with hardly any cycles. Python's
# default of 700 took a tenth of the CPU time of an ingest; 20,000 saves no more than this value.
_ALLOCATIONS = 5_000


def set_for_serving() -> None:
    """Tune the interpreter of this process for serving: switch interval and garbage collection."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(_ALLOCATIONS)
