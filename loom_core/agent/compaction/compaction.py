"""Compaction: shorten a history that is about to exceed the context window of its model."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

import anyio

from loom_core.agent.compaction.summarizer import Summarizer, blob_address
from loom_core.agent.compaction.summary import is_summary, summary_message
from loom_core.cjk import is_chinese
from loom_core.errors import ConfigError, LLMError, LoomError
from loom_core.llm.accounting.metering import estimate_message, estimate_tool
from loom_core.llm.hosted.limits import CircuitBreaker
from loom_core.llm.interface import Usage
from loom_core.llm.messages import (
    AssistantMessage,
    Message,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from loom_core.llm.interface import LLMProvider, ToolSpec
    from loom_core.runs.compressor import Compressor

__all__ = [
    "DEFAULT_RESERVE",
    "CompactionResult",
    "Compactor",
    "ContextUsage",
    "HistorySplit",
    "TokenCounts",
    "TokenScale",
    "clear_old_results",
    "has_goal",
    "newest_start",
    "split_history",
    "tokens_after",
]

DEFAULT_RESERVE = 4096
"""Tokens of a context window reserved for an answer, if no limit is configured."""

_log = logging.getLogger(__name__)

_LEAST_GAIN = 0.9  # maximum ratio of tokens after and before
_MOST_RESERVED = 4  # the answer gets at most a quarter of the window
_SUMMARY_TOKENS = 4000
_SUMMARY_SHARE = 8  # a summary gets at most an eighth of the room


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """Result of a compaction.

    Attributes:
        history: the conversation, oldest first.
        before: tokens before.
        after: tokens now, estimated.
        dropped: number of messages that were summarized or shortened.
        kept: number of unchanged messages.
        summary: the sections that replace the summarized messages; empty if it was enough to clear old tool
            results.
        usage: usage of the summary.
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
        """Ratio of the tokens after and before."""
        return self.after / self.before if self.before else 1.0


class Compactor:
    """Compactor: measures the history of a run, and compacts it when needed. Each run has its own.

    First, it clears old long tool results, which costs nothing and is often enough. Otherwise it summarizes
    the older part (see `Summarizer`) and keeps the newer part verbatim: no call is separated from its result,
    no reasoning from its answer. The goal and pinned texts stay verbatim. Without a good summary, nothing
    changes. A `Compressor` replaces both steps.

    In other frameworks `due(measure(…))` is `should_compress(token_count, max_tokens)`, and
    `compact(history, goal=…)` is `compress(messages)`; events and metrics say `compression`.
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
        seconds: float = 120.0,
        compressor: Compressor | None = None,
        breaker: CircuitBreaker | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Create the compactor of a run.

        Args:
            llm: the model that summarizes; a cheap and fast one is enough.
            window: context window of the run's model, in tokens; see `window_of`.
            reserve: tokens of it reserved for the answer, at most a quarter of the window.
            warn_at: usage of the rest that causes a warning.
            apply_at: usage of the rest that causes a compaction.
            target: usage after a compaction; or, if that is less, this share of the tokens before.
            seconds: timeout of one answer of the summarizing model, or of the compressor.
            compressor: shortens conversations in its own way; None for Loom's.
            breaker: circuit breaker for both ways; by default open for a minute after three consecutive
                failures, then for longer.
            clock: seconds since 1970.

        Raises:
            ConfigError: a number is out of range.
        """
        if window <= 0 or reserve < 0 or seconds <= 0:
            raise ConfigError(
                f"The context window is {window} tokens, {reserve} of them reserved; a summary may take "
                f"{seconds:g} s.",
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
        self._summary_tokens = min(_SUMMARY_TOKENS, max(1, self._room // _SUMMARY_SHARE))
        self._summariser = Summarizer(llm, tokens=self._summary_tokens, seconds=seconds)
        self._compressor = compressor
        self._seconds = seconds
        self._breaker = breaker or CircuitBreaker(failures=3, first_pause=60.0, longest_pause=900.0)
        self._clock = clock
        self._sizes = TokenCounts()

    def measure(
        self, history: Sequence[Message], *, reported: Usage | None = None, tools: Sequence[ToolSpec] = ()
    ) -> ContextUsage:
        """Measure the context usage of a history.

        Args:
            history: the conversation of the next request, oldest first.
            reported: usage of the last answer in it; None if there is none, or if the history has changed
                since, as after a compaction: then everything is estimated.
            tools: the tools for the model.
        """
        sizes = self._sizes.of(history)
        reads = tokens_after(history, sizes, reported) if reported and reported.input_tokens > 0 else None
        if reads is None:
            return ContextUsage(sum(sizes) + sum(map(estimate_tool, tools)), self._room)
        # A server that truncates a long history reports only the tokens it has read.
        return ContextUsage(max(reads, sum(sizes) // 2), self._room)

    def due(self, fill: ContextUsage) -> Literal["nothing", "warning", "compaction"]:
        """Return the action that a context usage requires."""
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
        """Compact a history, whether that is due or not.

        Args:
            history: the conversation, oldest first, with or without leading system messages.
            goal: the goal of the current run.
            pinned: other texts to keep verbatim.
            fill: the result of `measure` for this history; by default it is estimated.
            spent: called with the usage of each answer of the summarizing model, also of unusable ones.

        Returns:
            The compacted history; None if that gains nothing, if no summary is available, if the compressor
            fails, or while the circuit breaker is open. The reason is logged, and the caller keeps the
            history.
        """
        sizes = self._sizes.of(history)
        scale = TokenScale.of(sizes, fill)
        if self._compressor is not None:
            return await self._attempt(partial(self._compress, self._compressor, history, goal, scale))
        shorter = self._clear_results(history, sizes, scale)
        if shorter is not None and shorter.after <= self._target_tokens(scale):
            return shorter
        # Without a summary, cleared results are better than nothing, if they make enough room.
        otherwise = shorter if shorter and shorter.after < self._warn_at * self._room else None
        parts = self._split(history, sizes, scale, goal)
        if parts is None:
            return otherwise
        return await self._attempt(partial(self._summarize, parts, goal, pinned, scale, spent)) or otherwise

    async def _attempt(self, shorten: Callable[[], Awaitable[CompactionResult]]) -> CompactionResult | None:
        """Shorten a history; None if that fails, or while the circuit breaker is open."""
        if self._breaker.state == "open":
            return None
        try:
            with self._breaker.request(title="the compaction of conversations"):
                return await shorten()
        except LLMError as error:
            _log.warning("a conversation is not compacted: %s", error)
            return None

    async def _compress(
        self, compressor: Compressor, history: Sequence[Message], goal: str, scale: TokenScale
    ) -> CompactionResult:
        target = round(scale.estimate(self._target_tokens(scale)))
        shorter = await _call_compressor(compressor, history, goal=goal, target=target, seconds=self._seconds)
        after = scale.tokens(sum(map(estimate_message, shorter)))
        if after >= (limit := self._limit_tokens(scale)):
            raise LLMError(
                f"{type(compressor).__qualname__} made {after:,} tokens of {scale.before:,}; there should be "
                f"fewer than {limit:,.0f}.",
                failure="unreadable",
            )
        old = set(map(id, history))
        kept = sum(id(each) in old for each in shorter)
        return CompactionResult(
            history=shorter, before=scale.before, after=after, dropped=len(history) - kept, kept=kept
        )

    def _target_tokens(self, scale: TokenScale) -> float:
        return self._target * min(self._room, scale.before)

    def _limit_tokens(self, scale: TokenScale) -> float:
        """Return the maximum tokens after a compaction: fewer than would cause the next one at once."""
        return min(self._apply_at * self._room, _LEAST_GAIN * scale.before)

    def _clear_results(
        self, history: Sequence[Message], sizes: Sequence[int], scale: TokenScale
    ) -> CompactionResult | None:
        """Clear old tool results; None if that gains too little."""
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
        """Split a history for a summary; None if that could not make enough room."""
        systems = sum(
            size for message, size in zip(history, sizes, strict=True) if isinstance(message, SystemMessage)
        )
        room = scale.estimate(self._target_tokens(scale)) - systems - self._summary_tokens
        parts = split_history(history, sizes, goal=goal, room=room)
        if parts is None:
            return None
        stays = sum(map(estimate_message, (*parts.lead, *parts.kept)))
        if scale.tokens(stays) >= self._limit_tokens(scale):
            _log.warning("a conversation cannot be compacted: the part to keep is too long by itself")
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
            raise error.reword(error.message, failure="unreadable") from error  # any failure counts
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
                f"With a summary, {after:,} tokens of {scale.before:,} would remain, too many for "
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
    """Whether the conversation is in Chinese, by the messages of the user."""
    said = [message.text for message in (*parts.lead, *parts.dropped) if isinstance(message, UserMessage)]
    return is_chinese(goal if goal.strip() else "\n".join(said[-3:]))


def _is_present(wish: str, parts: HistorySplit) -> bool:
    """Whether a kept message of the user contains the goal, or a pinned text."""
    return not wish.strip() or any(has_goal(message, wish) for message in (*parts.lead, *parts.kept))


_LONG_GOAL = 40  # characters: a goal of this length is in no other message by chance


@dataclass(frozen=True, slots=True)
class HistorySplit:
    """History split into three parts, with unchanged messages.

    Attributes:
        lead: messages kept in front: system messages, and the message with the goal if before the split.
        dropped: messages to summarize.
        kept: messages kept after the summary.
    """

    lead: tuple[Message, ...]
    dropped: tuple[Message, ...]
    kept: tuple[Message, ...]


def split_history(
    history: Sequence[Message], sizes: Sequence[int], *, goal: str, room: float
) -> HistorySplit | None:
    """Split a history so that as much as possible is kept, within the room.

    The split is before a message of the user, and not after the goal: the current turn stays whole. Only if
    the turn is too long by itself, the split is inside it, before an answer of the model. So no result is
    separated from its call, and at least the newest answer is kept, with everything after it.

    Args:
        history: the conversation, oldest first.
        sizes: tokens of each message.
        goal: the goal of the current run.
        room: maximum tokens of the kept part.

    Returns:
        The parts, or None if there is nothing to summarize.
    """
    behind = _suffix_sums(sizes)
    begins = next((place for place, each in enumerate(history) if not isinstance(each, SystemMessage)), 0)
    # An earlier summary is always in the part to summarize.
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
    """Return the start of the newest part that fits the room: at an answer, at the latest the last one."""
    behind = _suffix_sums(sizes)
    answers = [place for place, each in enumerate(history) if isinstance(each, AssistantMessage)]
    last = answers[-1] if answers else len(history)
    return next((place for place in answers if behind[place] <= room), last)


def _suffix_sums(sizes: Sequence[int]) -> list[int]:
    return [*accumulate(reversed(sizes))][::-1]


def _split_points(history: Sequence[Message]) -> list[int]:
    """Return the indexes where a split separates no result from its call."""
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
    """Return the start of the current turn: the message with the goal, else the last one of the user."""
    users = [
        place
        for place in range(len(history) - 1, -1, -1)
        if isinstance(history[place], UserMessage) and not is_summary(history[place])
    ]
    return next((place for place in users if has_goal(history[place], goal)), users[0] if users else 0)


def has_goal(message: Message, goal: str) -> bool:
    """Whether a message of the user contains the goal."""
    if not isinstance(message, UserMessage) or is_summary(message) or not goal.strip():
        return False
    texts = [message.text, *(part.text for part in message.parts if isinstance(part, TextPart))]
    wanted = goal.strip()
    return any(wanted == text.strip() for text in texts) or (
        len(wanted) >= _LONG_GOAL and goal in message.text
    )


@dataclass(frozen=True, slots=True)
class ContextUsage:
    """Context usage: how full a model's context window is.

    Attributes:
        used: tokens of the conversation, with system messages and tools.
        window: tokens of the context window, without the reserve for the answer.
    """

    used: int
    window: int

    @property
    def ratio(self) -> float:
        """The share in use; above 1 if the window is exceeded."""
        return self.used / self.window


@dataclass(frozen=True, slots=True)
class TokenScale:
    """Calibration of token estimates: from the sizes of messages to tokens of the conversation.

    Attributes:
        before: tokens of the current conversation.
        factor: tokens per estimated token, if the estimate is too high.
        overhead: tokens that are not in the messages or their estimates, such as those of tools.
    """

    before: int
    factor: float
    overhead: float

    @classmethod
    def of(cls, sizes: Sequence[int], fill: ContextUsage | None) -> TokenScale:
        """Calibrate the scale of a history, from the sizes of its messages and the measured usage, if any."""
        estimated = sum(sizes)
        if fill is None or not estimated:
            return cls(estimated, 1.0, 0.0)
        factor = min(1.0, fill.used / estimated)
        return cls(fill.used, factor, fill.used - factor * estimated)

    def tokens(self, estimated: float) -> int:
        """Convert the estimate of the messages to tokens of the conversation."""
        return round(self.overhead + self.factor * estimated)

    def estimate(self, tokens: float) -> float:
        """Convert tokens of the conversation to an estimate of its messages."""
        return max(0.0, tokens - self.overhead) / self.factor if self.factor else 0.0


class TokenCounts:
    """Token counts of the messages of a growing history: each message is estimated once."""

    def __init__(self) -> None:
        self._known: list[tuple[Message, int]] = []

    def of(self, history: Sequence[Message]) -> list[int]:
        """Return the tokens of each message."""
        same = 0
        for (message, _), other in zip(self._known, history, strict=False):
            if message is not other:
                break
            same += 1
        del self._known[same:]
        self._known += [(message, estimate_message(message)) for message in history[same:]]
        return [size for _, size in self._known]


def tokens_after(history: Sequence[Message], sizes: Sequence[int], reported: Usage) -> int | None:
    """Return the tokens of a history, from the reported usage of its last answer; None without an answer.

    The messages before the answer are the reported input; the messages after it are estimated.
    """
    places = range(len(history) - 1, -1, -1)
    for place in places:
        if isinstance(answer := history[place], AssistantMessage):
            return reported.input_tokens + _replayed_tokens(answer, reported) + sum(sizes[place + 1 :])
    return None


def _replayed_tokens(answer: AssistantMessage, reported: Usage) -> int:
    """Return the tokens of an answer in the next request: without reasoning that the vendor does not show."""
    shown = any(isinstance(part, ReasoningPart) for part in answer.parts)
    return max(0, reported.output_tokens - (0 if shown else reported.reasoning_tokens))


async def _call_compressor(
    compressor: Compressor, history: Sequence[Message], *, goal: str, target: int, seconds: float
) -> tuple[Message, ...]:
    """Call a compressor, and validate its result; see `Compressor.compress`.

    Raises:
        LLMError: it failed, took longer than `seconds`, or lost the goal, or vendors would reject its result.
    """
    name = type(compressor).__qualname__
    try:
        with anyio.fail_after(seconds):
            shorter = tuple(await compressor.compress(tuple(history), goal=goal, target=target))
    except Exception as error:
        problem = f"{name} failed: {type(error).__name__}: {error}".rstrip(": ")
        raise LLMError(problem, failure="unreadable") from error
    if problem := _find_problem(shorter, history, goal.strip()):
        raise LLMError(f"{name} returned {problem}.", failure="unreadable")
    return shorter


def _find_problem(shorter: Sequence[object], history: Sequence[Message], goal: str) -> str:
    """Return why a conversation cannot replace another one; empty if it can."""
    messages = [each for each in shorter if isinstance(each, Message)]
    if len(messages) < len(shorter):
        return "something that is not a message"
    if not _has_paired_calls(messages):
        return "a call without its result, or a result without its call"
    if _contains(history, goal) and not _contains(messages, goal):
        return "a conversation without the goal"
    return ""


def _has_paired_calls(messages: Sequence[Message]) -> bool:
    """Whether each answer with calls is followed by their results, and no other results are there."""
    unanswered: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.call_id not in unanswered:
                return False
            unanswered.remove(message.call_id)
        elif isinstance(message, AssistantMessage):
            if unanswered:
                return False
            unanswered = {call.id for call in message.tool_calls}
    return not unanswered


def _contains(messages: Sequence[Message], goal: str) -> bool:
    return any(isinstance(message, UserMessage) and goal in message.text for message in messages)


_HEAD = 300  # characters that are kept of a result
_SHORTEST = 1000  # characters: a result up to this length is unchanged


def clear_old_results(history: Sequence[Message], *, until: int) -> tuple[Message, ...]:
    """Clear the long tool results of a history, up to an index.

    A note says how much was removed, and the address of the whole result, if it was stored. Images are
    removed. All other messages are unchanged.

    Args:
        history: the conversation, oldest first.
        until: index of the first unchanged message.
    """
    return tuple(
        _clear_result(message) if place < until and isinstance(message, ToolMessage) else message
        for place, message in enumerate(history)
    )


def _clear_result(message: ToolMessage) -> ToolMessage:
    text = message.text
    images = sum(not isinstance(part, TextPart) for part in message.parts)
    if len(text) <= _SHORTEST and not images:
        return message
    head = text if len(text) <= _SHORTEST else text[:_HEAD].rstrip()
    out: list[str] = []
    if len(text) > _SHORTEST:
        out.append(f"{len(text) - len(head):,} of {len(text):,} characters")
    if images:
        out.append(f"{images} image{'s' * (images > 1)}")
    address = blob_address(text[len(head) :])
    where = f" The whole is at {address}." if address else ""
    note = (
        f"[This is an old result: {' and '.join(out)} were taken out to make room.{where} "
        "Call the tool again if you need them.]"
    )
    return replace(message, parts=(TextPart(f"{head}\n\n{note}" if head else note),))
