"""Regular expression engines that search a message in bounded time.

RE2 takes time in proportion to the length of a message, for any pattern; but counted repetitions make the
factor large. So such patterns are matched only at the beginning of a long message, or rejected. Patterns that
RE2 does not support are matched by a backtracking engine, for a few milliseconds at most.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from loom_core.errors import UnreadableTextError
from loom_core.flow.triggers.pattern_text import LONGEST_MESSAGE, PatternText, translate_pattern
from loom_core.tools.patterns import linear_search

if TYPE_CHECKING:
    import re2
    import regex

__all__ = ["MatchClock", "PatternSearch", "PatternSet", "PatternSpan", "compile_pattern"]

_MAX_STATES = 1500
_WORK = 400_000  # bytes of a message times states of a pattern: at most a few milliseconds
_SECONDS = 0.003  # for one backtracking pattern
_ALL_SECONDS = 0.03  # for all of them, on one message
_MAX_SECONDS = 0.1  # of processor time, for all patterns of any kind, on one message
_CHARGED_SECONDS = 0.01  # maximum for one pattern: anything more is a pause of the process
_MEMORY = (16 << 20, 64 << 20, 256 << 20)
_ONE_MEMORY = 8 << 20
_PROBE = "\U0010fffd\U000ffffd\U0010fffc"  # private-use characters that are in no message

_ESCAPE = re.compile(r"\\.", re.DOTALL)  # so that a doubled backslash counts as one

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PatternSpan:
    """The span of a pattern's match, and those of the named groups that took part."""

    start: int
    end: int
    groups: dict[str, tuple[int, int]]


class MatchClock:
    """Time limit for matching one message. Used by one thread.

    It counts processor time, and limits the share of each pattern: garbage collection or a pause of the
    process must not change the meaning of a message.

    Attributes:
        left: remaining seconds for backtracking engines.
    """

    def __init__(self) -> None:
        self.left = _ALL_SECONDS
        self._all_left = _MAX_SECONDS
        self._read = time.thread_time()

    def has_time(self) -> bool:
        """Return whether there is time for another pattern; call it once before each."""
        now = time.thread_time()
        self._all_left -= min(now - self._read, _CHARGED_SECONDS)
        self._read = now
        return self._all_left > 0


class PatternSearch(Protocol):
    """A compiled pattern."""

    def find(self, text: str, clock: MatchClock) -> Iterator[PatternSpan]:
        """Yield the spans of all matches, in order."""
        ...


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> tuple[PatternText, PatternSearch]:
    """Compile a pattern for the engine that supports it.

    Raises:
        UnreadableTextError: it is invalid; with reason, line and column.
    """
    text = translate_pattern(pattern)
    search = _compile_backtracking(text) if text.backtracking or not _has_re2() else _compile_linear(text)
    if next(search.find("", MatchClock()), None) is not None:
        raise text.error("it matches every message, even an empty one")
    return text, search


def _has_re2() -> bool:
    try:
        import_module("re2")
    except ImportError:
        return False
    return True


def _options(memory: int) -> re2.Options:
    import re2

    options = re2.Options()
    options.case_sensitive = False
    options.log_errors = False  # it would write to standard error
    options.max_mem = memory
    return options


def _compile_linear(text: PatternText) -> PatternSearch:
    import re2

    options = _options(_ONE_MEMORY)
    try:
        exact = re2.compile(text.exact, options)
        loose = exact if text.loose == text.exact else re2.compile(text.loose, options)
    except re2.error as error:
        raise _pattern_error(text, error) from None
    # The count is of what multiplies states; a long list of words has few at a time.
    weight = max(1, exact.programsize - loose.programsize // 2)
    if weight > _MAX_STATES:
        raise text.error("it is too large: use smaller counts, or split it into several")
    return _Linear(exact, min(LONGEST_MESSAGE, _WORK // weight))


def _pattern_error(text: PatternText, error: Exception) -> UnreadableTextError:
    said = error.args[0] if error.args else ""
    reason = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    what, _, where = reason.partition(": ")
    if "too large" in reason or "out of memory" in reason:
        return text.error("it is too large: use smaller counts, or split it into several")
    return text.error(reason, max(0, text.exact.find(where)) if where and what else 0)


class _Linear:
    """Search with RE2, in linear time.

    `window` is the maximum number of bytes of a message.
    """

    def __init__(self, pattern: re2.Pattern, window: int) -> None:
        self._pattern = pattern
        self._names = pattern.groupindex
        self._window = window

    def find(self, text: str, clock: MatchClock) -> Iterator[PatternSpan]:
        if len(text) * 4 > self._window:
            text = text.encode()[: self._window].decode("utf-8", "ignore")
        for match in self._pattern.finditer(text):
            groups = {
                name: match.span(number) for name, number in self._names.items() if match.start(number) >= 0
            }
            yield PatternSpan(match.start(), match.end(), groups)


def _compile_backtracking(text: PatternText) -> PatternSearch:
    try:
        import regex
    except ImportError:
        why = text.backtracking or "needs google-re2, which is not installed"
        raise text.error(f"it {why}, for which the package regex is not installed") from None
    try:
        exact = _ESCAPE.sub(lambda found: "\\Z" if found[0] == "\\z" else found[0], text.exact)
        pattern = regex.compile(exact, regex.IGNORECASE | regex.VERSION0)
    except regex.error as error:
        told = cast("Any", error)  # its stubs lack `msg` and `pos`
        raise text.error(told.msg, told.pos or 0) from None
    except (IndexError, KeyError, OverflowError, RecursionError, TypeError, ValueError):
        raise text.error("it is invalid") from None
    return _Backtracking(pattern, text)


class _Backtracking:
    """Search with the package `regex` and a timeout: a pattern that exceeds it does not match."""

    def __init__(self, pattern: regex.Pattern[str], text: PatternText) -> None:
        self._pattern = pattern
        self._text = text
        self._linear = None if text.backtracking else linear_search(f"(?i){text.loose}")
        self._told = False

    def find(self, text: str, clock: MatchClock) -> Iterator[PatternSpan]:
        if self._linear is not None and not self._linear(text):
            return
        at = 0
        while at <= len(text) and (match := self._next(text, at, clock)):
            names = match.groupdict()
            groups = {name: match.span(name) for name, value in names.items() if value is not None}
            yield PatternSpan(match.start(), match.end(), groups)
            at = max(match.end(), at + 1)

    def _next(self, text: str, at: int, clock: MatchClock) -> regex.Match[str] | None:
        if clock.left <= 0:
            return None
        began = time.thread_time()
        try:
            return self._pattern.search(text, at, timeout=min(_SECONDS, clock.left), concurrent=True)
        except TimeoutError:
            if not self._told:
                self._told = True
                _log.warning("A trigger pattern takes too long and is skipped: %r", self._text.source)
            return None
        finally:
            clock.left -= min(time.thread_time() - began, _SECONDS)


class PatternSet:
    """Set of patterns that is matched at once, as a filter before single patterns.

    It returns every pattern that matches, and some that do not; each is then matched by itself. Of the
    maximum bytes of an automaton, the first that is enough is used.
    """

    def __init__(self, patterns: Sequence[PatternText], *, memory: Sequence[int] = _MEMORY) -> None:
        linear = [at for at, text in enumerate(patterns) if not text.backtracking] if _has_re2() else []
        self._others = sorted(set(range(len(patterns))) - set(linear))
        self._sets: list[tuple[re2.Set, list[int]]] = []
        waiting = [linear] if linear else []
        while waiting:
            numbers = waiting.pop()
            made = _set_of([patterns[at].loose for at in numbers], memory)
            if made is not None:
                self._sets.append((made, numbers))
            elif len(numbers) > 1:
                middle = len(numbers) // 2
                waiting += [numbers[middle:], numbers[:middle]]
            else:
                self._others += numbers

    def candidates(self, text: str) -> list[int]:
        """Return the numbers of the patterns that may match, in order."""
        found = list(self._others)
        encoded = text.encode()
        for each, numbers in self._sets:
            found += [numbers[at] for at in each.Match(encoded) or () if at < len(numbers)]  # not the probe
        return sorted(found)


def _set_of(patterns: list[str], memory: Sequence[int]) -> re2.Set | None:
    """Compile all patterns to one automaton; None if there is not enough memory for it."""
    import re2

    for most in memory:
        made = re2.Set.SearchSet(_options(most))
        try:
            for pattern in patterns:
                made.Add(pattern.encode())
            probe = made.Add(_PROBE.encode())
            made.Compile()
        except re2.error:
            continue
        # An automaton with too little memory to run reports only that nothing matches.
        if probe in (made.Match(_PROBE.encode()) or ()):
            return made
    return None
