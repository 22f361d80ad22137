"""Result cache: tool results with a TTL from the server."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from loom_core.tools.interface import ToolOutput

__all__ = ["ResultCache", "canonical"]

_LONGEST_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class _Kept:
    output: ToolOutput
    size: int
    until: float


class ResultCache:
    """LRU cache of results with a TTL and a memory limit.

    Args:
        characters: maximum size of all results; a result of more than a tenth of it is not cached.
        clock: monotonic seconds.
    """

    def __init__(self, *, characters: int = 10_000_000, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = characters
        self._clock = clock
        self._kept: OrderedDict[tuple[Hashable, str], _Kept] = OrderedDict()
        self._size = 0

    def get(self, tool: Hashable, arguments: Mapping[str, Any]) -> ToolOutput | None:
        """Return the cached result of the same call, if it has not expired."""
        key = (tool, canonical(arguments))
        kept = self._kept.get(key)
        if kept is None:
            return None
        if kept.until <= self._clock():
            self._drop(key)
            return None
        self._kept.move_to_end(key)
        return kept.output

    def put(self, tool: Hashable, arguments: Mapping[str, Any], output: ToolOutput, *, ttl_ms: int) -> None:
        """Cache a result for `ttl_ms` milliseconds, a day at most. Errors are not cached."""
        key = (tool, canonical(arguments))
        if ttl_ms <= 0 or output.is_error:
            return
        size = len(key[1]) + len(output.text) + len(canonical(output.structured))
        size += sum(len(each.data) for each in (*output.parts, *output.files))
        if size > self._most // 10:
            return
        self._drop(key)
        self._kept[key] = _Kept(output, size, self._clock() + min(ttl_ms, _LONGEST_MS) / 1000)
        self._size += size
        while self._size > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: tuple[Hashable, str]) -> None:
        if kept := self._kept.pop(key, None):
            self._size -= kept.size


def canonical(value: object) -> str:
    """Serialize a JSON value canonically, with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
