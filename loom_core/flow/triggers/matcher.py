"""Matcher of all trigger patterns of all flows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Protocol

from loom_core.errors import ConfigError, UnreadableTextError
from loom_core.flow.triggers.engines import MatchClock, PatternSearch, PatternSet, compile_pattern
from loom_core.flow.triggers.negation import NegationKind, detect_negation
from loom_core.flow.triggers.pattern_text import NormalText, PatternText

__all__ = ["TriggerMatch", "TriggerMatcher", "TriggerSource", "check_pattern"]

_MAX_MATCHES = 50  # a message that matches everything asks for nothing
_MAX_PLACES = 5  # matches of a pattern, until one is certain
_QUICK_LENGTH = 300  # characters of a message that are always fast
_QUICK_PATTERNS = 500
_QUICK_BACKTRACKING = 3


class TriggerSource(Protocol):
    """A flow with trigger patterns."""

    @property
    def flow_id(self) -> str:
        """Id of the flow."""
        ...

    @property
    def trigger_patterns(self) -> Sequence[str]:
        """Regular expressions."""
        ...

    @property
    def priority(self) -> int:
        """Priority; of several matches, the highest wins."""
        ...

    @property
    def enabled(self) -> bool:
        """Whether the flow is enabled."""
        ...

    @property
    def only_informs(self) -> bool:
        """Whether the flow changes and asks nothing."""
        ...


@dataclass(frozen=True, slots=True)
class TriggerMatch:
    """A match of a trigger pattern in a message.

    Attributes:
        flow_id: id of the flow.
        pattern: the original pattern.
        start: start of the match in the message.
        end: end of the match.
        groups: texts of its named groups in the message; only those that took part.
        negation: why the message may not ask for the flow; empty if it does. A match in doubt is only a hint:
            the model or the user has to confirm it.
        priority: priority of the flow.
    """

    flow_id: str
    pattern: str
    start: int
    end: int
    groups: dict[str, str] = field(default_factory=dict[str, str])
    negation: NegationKind = ""
    priority: int = 0

    @property
    def negated(self) -> bool:
        """Whether the message negates the request."""
        return self.negation == "negation"

    @property
    def certain(self) -> bool:
        """Whether the message asks for it, as far as its words show."""
        return not self.negation

    @property
    def length(self) -> int:
        """Number of matched characters."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class _Trigger:
    flow: TriggerSource
    text: PatternText
    search: PatternSearch


def check_pattern(pattern: str) -> tuple[str, ...]:
    """Check a pattern, and return the names of its groups.

    Raises:
        UnreadableTextError: it is invalid; a `ConfigError` with reason, line and column.
    """
    return compile_pattern(pattern)[0].groups


class TriggerMatcher:
    r"""Matcher of the patterns of all flows; thread-safe.

    Case, width of letters, and traditional or simplified characters make no difference. `\w` matches letters
    of every script, `\d` the digits 0 to 9, also in full width. Only the first 4 KB of a message are
    matched; less for patterns with large counts. A message takes some microseconds; a long adversarial one
    may take two seconds with thousands of patterns with counts, and some patterns may be skipped: if
    `is_quick` is False, match it in a thread.

    Args:
        flows: the flows; disabled ones are ignored.

    Raises:
        ConfigError: a pattern is invalid, with the id of its flow and the column.
    """

    def __init__(self, flows: Iterable[TriggerSource]) -> None:
        self._triggers = [
            _Trigger(flow, *_compile_pattern(flow.flow_id, pattern))
            for flow in flows
            if flow.enabled
            for pattern in flow.trigger_patterns
        ]
        self._set = PatternSet([trigger.text for trigger in self._triggers])
        backtracking = sum(bool(trigger.text.backtracking) for trigger in self._triggers)
        self._is_small = len(self._triggers) <= _QUICK_PATTERNS and backtracking <= _QUICK_BACKTRACKING

    def is_quick(self, message: str) -> bool:
        """Return whether a message is fast enough to be matched on the event loop."""
        return self._is_small and len(message) <= _QUICK_LENGTH

    def match(self, message: str) -> list[TriggerMatch]:
        """Return all matches.

        The order is: certain matches first; then the highest priority, the longest match, and the order of
        the configuration. A flow may have several matches. If a message has more than 50 matches, the first
        50 by priority are returned.
        """
        normal = NormalText.of(message)
        if not normal.text:
            return []
        clock = MatchClock()
        triggers = [self._triggers[number] for number in self._set.candidates(normal.text)]
        triggers.sort(key=lambda trigger: -trigger.flow.priority)
        in_time = takewhile(lambda _: clock.has_time(), triggers)
        fitting = (match for trigger in in_time if (match := _match(trigger, normal, clock)))
        found = list(islice(fitting, _MAX_MATCHES))
        found.sort(key=lambda match: (not match.certain, -match.priority, -match.length))
        return found


def _compile_pattern(flow_id: str, pattern: str) -> tuple[PatternText, PatternSearch]:
    try:
        return compile_pattern(pattern)
    except UnreadableTextError as error:
        raise ConfigError(
            f"The flow {flow_id!r} has an invalid trigger pattern: {pattern[:200]!r}, "
            f"column {error.column}: {error.reason}.",
            advice="Correct it; the syntax is that of RE2, with look-around and back references in addition.",
        ) from None


def _match(trigger: _Trigger, normal: NormalText, clock: MatchClock) -> TriggerMatch | None:
    """Return the first match that is certain; else the first."""
    first: TriggerMatch | None = None
    for found in islice(trigger.search.find(normal.text, clock), _MAX_PLACES):
        why = detect_negation(
            normal.text,
            found.start,
            found.end,
            pattern=trigger.text.source,
            only_informs=trigger.flow.only_informs,
        )
        if why and first:
            continue
        start, end = normal.span(found.start, found.end)
        groups = {name: normal.original[slice(*normal.span(*span))] for name, span in found.groups.items()}
        match = TriggerMatch(
            trigger.flow.flow_id, trigger.text.source, start, end, groups, why, trigger.flow.priority
        )
        if not why:
            return match
        first = match
    return first
