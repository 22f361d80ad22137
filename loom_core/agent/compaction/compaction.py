"""Making room in a history that is about to be too long for its model."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from loom_core.agent.compaction.clearing import clear_old_results
from loom_core.agent.compaction.summarizer import Summarizer
from loom_core.agent.compaction.summary import is_summary, summary_message
from loom_core.cjk import is_chinese
from loom_core.errors import ConfigError, LLMError, LoomError
from loom_core.llm.accounting.sizing import estimate_message, estimate_tool
from loom_core.llm.hosted.breaker import CircuitBreaker
from loom_core.llm.interface import Usage
from loom_core.llm.messages import (
    AssistantMessage,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom_core.llm.interface import LLMProvider, ToolSpec
    from loom_core.llm.messages import Message

__all__ = [
    "DEFAULT_RESERVE",
    "CompactionResult",
    "Compactor",
    "ContextUsage",
    "HistorySplit",
    "TokenCounts",
    "TokenScale",
    "has_goal",
    "newest_start",
    "split_history",
    "tokens_after",
]

DEFAULT_RESERVE = 4096
"""Tokens of a window that are left for an answer of which nobody says how long it may be."""

_log = logging.getLogger(__name__)

_LEAST_GAIN = 0.9  # of what was there before is what may be left at most
_MOST_RESERVED = 4  # the answer is left a quarter of the window at most
_SUMMARY_SHARE = 8  # a summary has an eighth of the room at most


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """A history with room in it.

    Attributes:
        history: the conversation, oldest first.
        before: tokens before.
        after: tokens now, as far as can be estimated.
        dropped: how many messages are no longer there as they were: summarised, or shortened.
        kept: how many are there as they were.
        summary: the sections that stand for what was summarised; empty where it was enough to shorten old
            results of tools.
        usage: what the summary took.
    """

    history: tuple[Message, ...]
    before: int
    after: int
    dropped: int
    kept: int
    summary: str = ""
    usage: Usage = Usage()  # noqa: RUF009 - frozen

    @property
    def ratio(self) -> float:
        """How much is left of what there was."""
        return self.after / self.before if self.before else 1.0


class Compactor:
    """Measures the history of a run, and makes it shorter when it has to be. Each run has one of its own.

    First, long results of tools that are not the latest are shortened to their beginnings, which costs
    nothing and is often enough. Otherwise what is older is summarised (see `Summariser`), and what is newer
    stays as it is, to the letter: no call is parted from its result, no reasoning from its answer. The goal
    and what is pinned are there word for word. If no good summary can be had, nothing changes.

    What other frameworks call `should_compress(token_count, max_tokens)` is `due(measure(…))` here, and
    `compress(messages)` is `compact(history, goal=…)`; events and metrics say `compression`.
    """

    def __init__(
        self,
        llm: LLMProvider,
        *,
        window: int,
        reserve: int = DEFAULT_RESERVE,
        warn_at: float = 0.80,
        apply_at: float = 0.92,
        target: float = 0.5,
        summary_tokens: int = 4000,
        seconds: float = 120.0,
        llm_window: int | None = None,
        breaker: CircuitBreaker | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Say who summarises, and when.

        Args:
            llm: the model that summarises; a cheap and fast one will do.
            window: tokens of a conversation and its answer that the model of the run takes; see `window_of`.
            reserve: tokens of these that are left for the answer, a quarter of the window at most.
            warn_at: how full the rest is when a warning is due.
            apply_at: how full it is when the history has to be made shorter.
            target: how full it is to be then, or how much is to be left of what there was, if that is less.
            summary_tokens: how long a summary may be; an eighth of the room at most.
            seconds: how long the model that summarises may take for one answer.
            llm_window: tokens that the model that summarises takes; by default what `window_of` says.
            breaker: when to leave summarising alone; by default for a minute after three failures in a row,
                then for longer.
            clock: seconds since 1970.

        Raises:
            ConfigError: a number is out of range.
        """
        if window <= 0 or reserve < 0 or summary_tokens <= 0 or seconds <= 0:
            raise ConfigError(
                f"The context window is {window} tokens, {reserve} of them reserved; a summary has "
                f"{summary_tokens} tokens and {seconds:g} s.",
                advice="Use numbers above 0.",
            )
        if not 0 < target < warn_at <= apply_at <= 1:
            raise ConfigError(
                f"Compaction aims at {target:g}, warns at {warn_at:g} and applies at {apply_at:g}.",
                advice="Use numbers that grow in this order, above 0 and up to 1.",
            )
        self._room = window - min(reserve, window // _MOST_RESERVED)
        self._warn_at = warn_at
        self._apply_at = apply_at
        self._target = target
        self._summary_tokens = min(summary_tokens, max(1, self._room // _SUMMARY_SHARE))
        self._summariser = Summarizer(llm, tokens=self._summary_tokens, seconds=seconds, window=llm_window)
        self._breaker = breaker or CircuitBreaker(failures=3, first_pause=60.0, longest_pause=900.0)
        self._clock = clock
        self._sizes = TokenCounts()

    def measure(
        self, history: Sequence[Message], *, reported: Usage | None = None, tools: Sequence[ToolSpec] = ()
    ) -> ContextUsage:
        """How full the window is with a history.

        Args:
            history: the conversation as it is sent next, oldest first.
            reported: what the last answer in it took; None where there is none, or where the history has
                changed since it was given, as after a compaction: then all is estimated.
            tools: what the model may call.
        """
        sizes = self._sizes.of(history)
        reads = tokens_after(history, sizes, reported) if reported and reported.input_tokens > 0 else None
        if reads is None:
            return ContextUsage(sum(sizes) + sum(map(estimate_tool, tools)), self._room)
        # A server that leaves out what is too long for it reports only what it has read.
        return ContextUsage(max(reads, sum(sizes) // 2), self._room)

    def due(self, fill: ContextUsage) -> Literal["nothing", "warning", "compaction"]:
        """What has to be done when the window is so full."""
        if fill.ratio >= self._apply_at:
            return "compaction"
        return "warning" if fill.ratio >= self._warn_at else "nothing"

    async def compact(
        self,
        history: Sequence[Message],
        *,
        goal: str,
        pinned: Sequence[str] = (),
        fill: ContextUsage | None = None,
        spent: Callable[[Usage], None] | None = None,
    ) -> CompactionResult | None:
        """Make a history shorter, whether that is due or not.

        Args:
            history: the conversation, oldest first; leading system messages may be there or not.
            goal: what the user wants from the run that is going on.
            pinned: what is to be kept word for word besides, wherever it was said.
            fill: what `measure` said of this history; by default it is estimated.
            spent: called with what each answer of the model that summarises takes, also where nothing comes
                of it.

        Returns:
            The shorter history; None where nothing is to be gained, no summary can be had, or after such
            failures for a while. The reason is logged, and the history is to be used as it is.
        """
        sizes = self._sizes.of(history)
        scale = TokenScale.of(sizes, fill)
        shorter = self._clear_results(history, sizes, scale)
        if shorter is not None and shorter.after <= self._target_tokens(scale):
            return shorter
        # Where no summary can be had, shortened results are better than nothing, if they make real room.
        otherwise = shorter if shorter and shorter.after < self._warn_at * self._room else None
        parts = self._split(history, sizes, scale, goal)
        if parts is None or self._breaker.state == "open":
            return otherwise
        try:
            with self._breaker.request(title="the summary of conversations"):
                return await self._summarize(parts, goal, pinned, scale, spent)
        except LLMError as error:
            _log.warning("a conversation is not summarised: %s", error)
            return otherwise

    def _target_tokens(self, scale: TokenScale) -> float:
        return self._target * min(self._room, scale.before)

    def _limit_tokens(self, scale: TokenScale) -> float:
        """Tokens that may be left at most: less than would bring the next compaction at once."""
        return min(self._apply_at * self._room, _LEAST_GAIN * scale.before)

    def _clear_results(
        self, history: Sequence[Message], sizes: Sequence[int], scale: TokenScale
    ) -> CompactionResult | None:
        """The history with old results shortened, or None where that makes no difference."""
        newest = newest_start(history, sizes, room=scale.estimate(self._target_tokens(scale)) / 2)
        shorter = clear_old_results(history, until=newest)
        changed = sum(new is not old for new, old in zip(shorter, history, strict=True))
        after = scale.tokens(sum(map(estimate_message, shorter)))
        if not changed or after >= self._limit_tokens(scale):
            return None
        return CompactionResult(
            history=shorter, before=scale.before, after=after, dropped=changed, kept=len(shorter) - changed
        )

    def _split(
        self, history: Sequence[Message], sizes: Sequence[int], scale: TokenScale, goal: str
    ) -> HistorySplit | None:
        """The parts of a history, or None where a summary could not make enough room."""
        systems = sum(
            size for message, size in zip(history, sizes, strict=True) if isinstance(message, SystemMessage)
        )
        room = scale.estimate(self._target_tokens(scale)) - systems - self._summary_tokens
        parts = split_history(history, sizes, goal=goal, room=room)
        if parts is None:
            return None
        stays = sum(map(estimate_message, (*parts.lead, *parts.kept)))
        if scale.tokens(stays) >= self._limit_tokens(scale):
            _log.warning("a conversation cannot be made shorter: what has to stay is too long by itself")
            return None
        return parts

    async def _summarize(
        self,
        parts: HistorySplit,
        goal: str,
        pinned: Sequence[str],
        scale: TokenScale,
        spent: Callable[[Usage], None] | None,
    ) -> CompactionResult:
        taken: list[Usage] = []

        def take(usage: Usage) -> None:
            taken.append(usage)
            if spent is not None:
                spent(usage)

        chinese = _in_chinese(goal, parts)
        try:
            summary = await self._summariser.summarize(parts.dropped, goal=goal, chinese=chinese, spent=take)
        except LLMError as error:
            raise error.retold(error.message, failure="unreadable") from error  # any failure counts
        except LoomError as error:
            raise LLMError(error.message, advice=error.advice, failure="unreadable") from error
        stays = sum(map(estimate_message, (*parts.lead, *parts.kept)))

        def message(after: int) -> UserMessage:
            return summary_message(
                summary,
                goal="" if _is_present(goal, parts) else goal,
                pinned=[each for each in pinned if not _is_present(each, parts)],
                before=scale.before,
                after=after,
                at=self._clock(),
                chinese=chinese,
            )

        after = scale.tokens(stays + estimate_message(message(scale.before)))
        if after >= self._limit_tokens(scale):
            raise LLMError(
                f"With a summary, {after:,} tokens of {scale.before:,} would be left, too many for "
                f"{self._room:,}.",
                failure="unreadable",
            )
        return CompactionResult(
            history=(*parts.lead, message(after), *parts.kept),
            before=scale.before,
            after=after,
            dropped=len(parts.dropped),
            kept=len(parts.lead) + len(parts.kept),
            summary=summary,
            usage=Usage.total(taken),
        )


def _in_chinese(goal: str, parts: HistorySplit) -> bool:
    """Whether the conversation is in Chinese, by what the user says."""
    said = [message.text for message in (*parts.lead, *parts.dropped) if isinstance(message, UserMessage)]
    return is_chinese(goal if goal.strip() else "\n".join(said[-3:]))


def _is_present(wish: str, parts: HistorySplit) -> bool:
    """Whether a message of the user that stays says the goal, or something else that they wish."""
    return not wish.strip() or any(has_goal(message, wish) for message in (*parts.lead, *parts.kept))


_LONG_GOAL = 40  # characters: a goal as long as this stands in no other message by chance


@dataclass(frozen=True, slots=True)
class HistorySplit:
    """A history in three parts. Each message is in one of them, as it was.

    Attributes:
        lead: what stays in front: system messages, and the message with the goal if that lies before the cut.
        dropped: what is summarised.
        kept: what stays behind the summary.
    """

    lead: tuple[Message, ...]
    dropped: tuple[Message, ...]
    kept: tuple[Message, ...]


def split_history(
    history: Sequence[Message], sizes: Sequence[int], *, goal: str, room: float
) -> HistorySplit | None:
    """Cut a history so that as much as possible is kept, but no more than there is room for.

    The cut lies before a message of the user, and not behind the goal: what belongs to the goal stays whole.
    Only where that is too much by itself, the cut lies within it, before an answer of the model. So no result
    is parted from its call, and at least the newest answer is kept with all that followed it.

    Args:
        history: the conversation, oldest first.
        sizes: tokens of each message.
        goal: what the user wants.
        room: tokens that the kept part may have.

    Returns:
        The parts, or None where there is nothing to cut off.
    """
    behind = _suffix_sums(sizes)
    begins = next((place for place, each in enumerate(history) if not isinstance(each, SystemMessage)), 0)
    # An earlier summary is always in the part that is summarised.
    begins = max([begins, *(place for place, each in enumerate(history) if is_summary(each))])
    turn = _turn_start(history, goal)
    places = [place for place in _split_points(history) if place > begins]
    turns = [place for place in places if place <= turn and isinstance(history[place], UserMessage)]
    inside = [place for place in places if place > turn and isinstance(history[place], AssistantMessage)]
    chosen = next((place for place in (*turns, *inside) if behind[place] <= room), None)
    if chosen is None:
        chosen = inside[-1] if inside else turns[-1] if turns else None
    if chosen is None:
        return None
    lead = tuple(
        each
        for place, each in enumerate(history[:chosen])
        if isinstance(each, SystemMessage) or (place == turn and has_goal(each, goal))
    )
    stays = set(map(id, lead))
    dropped = tuple(each for each in history[:chosen] if id(each) not in stays)
    if all(map(is_summary, dropped)):
        return None
    return HistorySplit(lead, dropped, tuple(history[chosen:]))


def newest_start(history: Sequence[Message], sizes: Sequence[int], *, room: float) -> int:
    """Where the newest part begins that there is room for: at an answer, the last one at the latest."""
    behind = _suffix_sums(sizes)
    answers = [place for place, each in enumerate(history) if isinstance(each, AssistantMessage)]
    last = answers[-1] if answers else len(history)
    return next((place for place in answers if behind[place] <= room), last)


def _suffix_sums(sizes: Sequence[int]) -> list[int]:
    """Tokens from each place to the end."""
    return [*accumulate(reversed(sizes))][::-1]


def _split_points(history: Sequence[Message]) -> list[int]:
    """Where a cut parts no result from its call: before answers, and before users whom no result follows."""
    places: list[int] = []
    results_follow = False
    for place in range(len(history) - 1, -1, -1):
        match history[place]:
            case AssistantMessage():
                results_follow = False
                places.append(place)
            case ToolMessage():
                results_follow = True
            case UserMessage() if not results_follow:
                places.append(place)
            case _:
                pass
    return places[::-1]


def _turn_start(history: Sequence[Message], goal: str) -> int:
    """Where the current turn begins: at the message with the goal, else at the last one of the user."""
    users = [
        place
        for place in range(len(history) - 1, -1, -1)
        if isinstance(history[place], UserMessage) and not is_summary(history[place])
    ]
    return next((place for place in users if has_goal(history[place], goal)), users[0] if users else 0)


def has_goal(message: Message, goal: str) -> bool:
    """Whether a message is the one in which the user says what is wanted."""
    if not isinstance(message, UserMessage) or is_summary(message) or not goal.strip():
        return False
    texts = [message.text, *(part.text for part in message.parts if isinstance(part, TextPart))]
    wanted = goal.strip()
    return any(wanted == text.strip() for text in texts) or (
        len(wanted) >= _LONG_GOAL and goal in message.text
    )


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """How full a model's window is.

    Attributes:
        used: tokens of the conversation, with system messages and tools.
        window: tokens that there is room for: the model's window without what is reserved for the answer.
    """

    used: int
    window: int

    @property
    def ratio(self) -> float:
        """The part that is used; above 1 where it is too much."""
        return self.used / self.window


@dataclass(frozen=True, slots=True)
class TokenScale:
    """How estimates of a history's messages become tokens of the conversation.

    Attributes:
        before: tokens of the conversation as it is.
        factor: tokens for an estimated one, where the estimate is too high.
        beside: tokens that are not in the messages, or not in their estimates: tools, for one.
    """

    before: int
    factor: float
    overhead: float

    @classmethod
    def of(cls, sizes: Sequence[int], fill: ContextUsage | None) -> TokenScale:
        """The scale of a history, by the sizes of its messages and what was measured, if it was."""
        estimated = sum(sizes)
        if fill is None or not estimated:
            return cls(estimated, 1.0, 0.0)
        factor = min(1.0, fill.used / estimated)
        return cls(fill.used, factor, fill.used - factor * estimated)

    def tokens(self, estimated: float) -> int:
        """Tokens of a conversation whose messages are estimated at so many."""
        return round(self.overhead + self.factor * estimated)

    def estimate(self, tokens: float) -> float:
        """What messages may be estimated at, so that the conversation has so many tokens."""
        return max(0.0, tokens - self.overhead) / self.factor if self.factor else 0.0


class TokenCounts:
    """Tokens of the messages of a history that grows: each is estimated once."""

    def __init__(self) -> None:
        self._known: list[tuple[Message, int]] = []

    def of(self, history: Sequence[Message]) -> list[int]:
        """Those of each message."""
        same = 0
        for (message, _), other in zip(self._known, history, strict=False):
            if message is not other:
                break
            same += 1
        del self._known[same:]
        self._known += [(message, estimate_message(message)) for message in history[same:]]
        return [size for _, size in self._known]


def tokens_after(history: Sequence[Message], sizes: Sequence[int], reported: Usage) -> int | None:
    """Tokens of a history by what the vendor reported of the last answer in it; None where there is none.

    What came before the answer is what was read for it; what came since is estimated.
    """
    places = range(len(history) - 1, -1, -1)
    for place in places:
        if isinstance(answer := history[place], AssistantMessage):
            return reported.input_tokens + _replayed_tokens(answer, reported) + sum(sizes[place + 1 :])
    return None


def _replayed_tokens(answer: AssistantMessage, reported: Usage) -> int:
    """Tokens of an answer that are in the next request: reasoning that the vendor keeps to itself is not."""
    shown = any(isinstance(part, ReasoningPart) for part in answer.parts)
    return max(0, reported.output_tokens - (0 if shown else reported.reasoning_tokens))
