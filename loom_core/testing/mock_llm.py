"""`MockLLM`: a model that does what a test says, with calls of tools written as they read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from loom_core.errors import ConfigError, LLMError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import ToolCallPart, ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider

__all__ = ["MockCall", "MockLLM", "MockTurn", "call"]


@dataclass(frozen=True, slots=True)
class MockCall:
    """A call of a tool that a model is to make; see `call`."""

    tool: str
    arguments: dict[str, object] = field(default_factory=dict[str, object])


def call(tool: str, /, **arguments: object) -> MockCall:
    """A call of a tool, by the name that models use: `call("read_file", path="notes.md")`."""
    return MockCall(tool, arguments)


MockTurn: TypeAlias = "str | MockCall | Sequence[MockCall] | MockAnswer | LLMError"
"""What a model does when it is asked: gives an answer; makes a call, or several at once; something that needs
more words (`MockAnswer`: thinking, delays, a stream that breaks); or fails."""


class MockLLM(MockProvider):
    """Does one thing after another, whatever it is asked.

        llm = MockLLM([call("add", a=1, b=2), "It is 3."])

    Args:
        turns: what it does each time that it is asked; or a function of the request that says so.
        delay: seconds before each answer and between its pieces.
        model: what it is called.

    Attributes:
        calls: every request so far, oldest first.

    Raises:
        ConfigError: the turns are a text, and no list.
    """

    def __init__(
        self,
        turns: Sequence[MockTurn] | Callable[[ChatRequest], MockTurn],
        *,
        delay: float = 0.0,
        model: str = "mock",
    ) -> None:
        if isinstance(turns, str):  # else each letter would be an answer
            raise ConfigError(f"The turns are the text {turns!r}.", advice="Put it into a list.")
        self._made = 0
        super().__init__(self._of(turns), delay=delay, model=model)

    @property
    def told(self) -> list[str]:
        """What it was told of its calls when it was asked last, in their order."""
        if not self.calls:
            return []
        return [message.text for message in self.calls[-1].messages if isinstance(message, ToolMessage)]

    def _of(
        self, turns: Sequence[MockTurn] | Callable[[ChatRequest], MockTurn]
    ) -> Sequence[str | MockAnswer | LLMError] | Callable[[ChatRequest], str | MockAnswer | LLMError]:
        if callable(turns):
            decide = turns
            return lambda request: self._answer(decide(request))
        return [self._answer(turn) for turn in turns]

    def _answer(self, turn: MockTurn) -> str | MockAnswer | LLMError:
        if isinstance(turn, str | MockAnswer | LLMError):
            return turn
        calls = (turn,) if isinstance(turn, MockCall) else turn
        return MockAnswer(calls=tuple(map(self._part, calls)))

    def _part(self, made: MockCall) -> ToolCallPart:
        self._made += 1
        return ToolCallPart(f"call_{self._made}", made.tool, made.arguments)
