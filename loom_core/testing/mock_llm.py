"""`MockLLM`: a scripted model for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from loom_core.errors import ConfigError, LLMError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import ToolCallPart, ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider, MockResponse, MockScript, echo

__all__ = ["MockCall", "MockLLM", "MockTurn", "call"]


@dataclass(frozen=True, slots=True)
class MockCall:
    """A scripted tool call; see `call`."""

    tool: str
    arguments: dict[str, object] = field(default_factory=dict[str, object])


def call(tool: str, /, **arguments: object) -> MockCall:
    """Script a tool call, by the tool's wire name: `call("read_file", path="notes.md")`."""
    return MockCall(tool, arguments)


MockTurn: TypeAlias = "str | MockCall | Sequence[MockCall] | MockAnswer | LLMError"
"""Scripted turn of a model: an answer; a tool call, or several at once; a `MockAnswer` (with reasoning,
delays, a stream that breaks); or an error."""

_Decide: TypeAlias = "Callable[[ChatRequest], MockTurn]"


class MockLLM(MockProvider):
    """Scripted model: plays its turns in order, whatever the requests.

        llm = MockLLM([call("add", a=1, b=2), "It is 3."])

    Args:
        turns: one turn for each request; or a function of the request that returns a turn. A list may also
            contain functions, each for one turn. By default it echoes the request.
        delay: seconds before each answer and between its pieces.
        model: name of the model.

    Attributes:
        calls: every request so far, oldest first.

    Raises:
        ConfigError: the turns are a string instead of a list, or an item is not a turn.
    """

    def __init__(
        self,
        turns: Sequence[MockTurn | _Decide] | _Decide = echo,
        *,
        delay: float = 0.0,
        model: str = "mock",
    ) -> None:
        self._made = 0
        super().__init__(self._to_script(turns), delay=delay, model=model)

    @property
    def tool_results(self) -> list[str]:
        """Results of its tool calls in the last request, in order."""
        if not self.calls:
            return []
        return [message.text for message in self.calls[-1].messages if isinstance(message, ToolMessage)]

    def _to_script(
        self, turns: Sequence[MockTurn | _Decide] | _Decide
    ) -> Sequence[MockResponse] | Callable[[ChatRequest], MockScript]:
        if callable(turns):
            return self._bind_decider(turns)
        if isinstance(turns, str):  # else each letter would be an answer
            raise ConfigError(f"The turns are the string {turns!r}.", advice="Put it into a list.")
        return [self._bind_decider(turn) if callable(turn) else self._answer(turn) for turn in turns]

    def _bind_decider(self, decide: _Decide) -> Callable[[ChatRequest], MockScript]:
        return lambda request: self._answer(decide(request))

    def _answer(self, turn: MockTurn) -> MockScript:
        if isinstance(turn, str | MockAnswer | LLMError):
            return turn
        calls = (turn,) if isinstance(turn, MockCall) else turn
        if not isinstance(cast("object", calls), Sequence) or not all(
            isinstance(cast("object", one), MockCall) for one in calls
        ):
            raise ConfigError(
                f"A mock model cannot do {turn!r}.",
                advice='Give texts, `call("tool", …)`, lists of these, `MockAnswer(…)`, an `LLMError`, or '
                "functions of the request.",
            )
        return MockAnswer(calls=tuple(map(self._part, calls)))

    def _part(self, made: MockCall) -> ToolCallPart:
        self._made += 1
        return ToolCallPart(f"call_{self._made}", made.tool, made.arguments)
