"""How full the window of a model is with a conversation, and how much shorter one would be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.llm.messages import AssistantMessage, ReasoningPart
from loom_core.llm.sizing import message_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.interface import Usage
    from loom_core.llm.messages import Message

__all__ = ["Fill", "Scale", "Sizes", "tokens_after"]


@dataclass(frozen=True, slots=True)
class Fill:
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
class Scale:
    """How estimates of a history's messages become tokens of the conversation.

    Attributes:
        before: tokens of the conversation as it is.
        factor: tokens for an estimated one, where the estimate is too high.
        beside: tokens that are not in the messages, or not in their estimates: tools, for one.
    """

    before: int
    factor: float
    beside: float

    @classmethod
    def of(cls, sizes: Sequence[int], fill: Fill | None) -> Scale:
        """The scale of a history, by the sizes of its messages and what was measured, if it was."""
        estimated = sum(sizes)
        if fill is None or not estimated:
            return cls(estimated, 1.0, 0.0)
        factor = min(1.0, fill.used / estimated)
        return cls(fill.used, factor, fill.used - factor * estimated)

    def tokens(self, estimated: float) -> int:
        """Tokens of a conversation whose messages are estimated at so many."""
        return round(self.beside + self.factor * estimated)

    def estimate(self, tokens: float) -> float:
        """What messages may be estimated at, so that the conversation has so many tokens."""
        return max(0.0, tokens - self.beside) / self.factor if self.factor else 0.0


class Sizes:
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
        self._known += [(message, message_size(message)) for message in history[same:]]
        return [size for _, size in self._known]


def tokens_after(history: Sequence[Message], sizes: Sequence[int], reported: Usage) -> int | None:
    """Tokens of a history by what the vendor reported of the last answer in it; None where there is none.

    What came before the answer is what was read for it; what came since is estimated.
    """
    places = range(len(history) - 1, -1, -1)
    for place in places:
        if isinstance(answer := history[place], AssistantMessage):
            return reported.input_tokens + _goes_back(answer, reported) + sum(sizes[place + 1 :])
    return None


def _goes_back(answer: AssistantMessage, reported: Usage) -> int:
    """Tokens of an answer that are in the next request: reasoning that the vendor keeps to itself is not."""
    shown = any(isinstance(part, ReasoningPart) for part in answer.parts)
    return max(0, reported.output_tokens - (0 if shown else reported.reasoning_tokens))
