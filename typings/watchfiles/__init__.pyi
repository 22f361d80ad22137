from collections.abc import AsyncGenerator, Callable
from enum import IntEnum
from pathlib import Path

import anyio

class Change(IntEnum):
    added = 1
    modified = 2
    deleted = 3

def awatch(
    *paths: Path | str,
    watch_filter: Callable[[Change, str], bool] | None = ...,
    debounce: int = ...,
    stop_event: anyio.Event | None = ...,
    rust_timeout: int | None = ...,
    yield_on_timeout: bool = ...,
    force_polling: bool | None = ...,
    ignore_permission_denied: bool | None = ...,
) -> AsyncGenerator[set[tuple[Change, str]], None]: ...
