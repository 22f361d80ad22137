"""Call async functions from synchronous code: in scripts, and in notebooks, whose event loop already runs.

All such calls of a process share one event loop in a background thread, so connections and locks that belong
to a loop stay usable from call to call and from thread to thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from functools import cache
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import anyio

from loom_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ["run_blocking"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_starting = threading.Lock()


def run_blocking(function: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call an async function and wait for its result; it sees the caller's context variables.

    An interrupt (Ctrl-C) cancels the call and is raised again once the call has cleaned up.

    Raises:
        InvalidInputError: the caller is an async function that `run_blocking` runs; it can await instead.
        Exception: whatever the function raises, unchanged.
    """
    with _starting:
        loop = _background_loop(os.getpid())
    if _runs_here(loop):
        raise InvalidInputError(
            "A synchronous method was called where it would wait for itself: from an async function that "
            "another synchronous method runs.",
            advice="Await the async method of the same name, without `_sync`.",
        )
    scopes: list[anyio.CancelScope] = []

    async def call() -> _T:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            return await function(*args, **kwargs)
        raise asyncio.CancelledError

    def cancel() -> None:
        if scopes:
            scopes[0].cancel()
        else:  # it has not begun
            running.cancel()

    running = asyncio.run_coroutine_threadsafe(call(), loop)
    try:
        return running.result()
    except KeyboardInterrupt:
        loop.call_soon_threadsafe(cancel)
        concurrent.futures.wait([running])
        raise


def _runs_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


@cache
def _background_loop(_process: int) -> asyncio.AbstractEventLoop:
    """Start the event loop of a process; a forked child has no threads of its parent, so it starts one."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="loom-blocking", daemon=True).start()
    return loop
