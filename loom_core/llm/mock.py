"""A language model that answers from a script: for tests, and to show what a model would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio

from loom_core.errors import LLMError
from loom_core.llm.interface import LLMProvider, LLMResponse

__all__ = ["MockCall", "MockProvider"]


@dataclass(frozen=True, slots=True)
class MockCall:
    """What a `MockProvider` was asked once: the arguments of `chat`."""

    messages: tuple[dict[str, Any], ...]
    max_tokens: int
    temperature: float


class MockProvider(LLMProvider):
    """Answers from a list, in order, or by a function of the conversation; needs no model.

    Attributes:
        calls: every call so far, oldest first; one that fails or is cancelled counts too.
    """

    def __init__(
        self,
        responses: Sequence[str | LLMError] | Callable[[Sequence[Mapping[str, Any]]], str],
        *,
        delay: float = 0.0,
    ) -> None:
        """Set the script.

        Args:
            responses: an answer for each call, an error being raised; or a function that is given the
                messages and returns the answer, or raises `LLMError`.
            delay: seconds before each answer; a call that is cancelled meanwhile ends at once.
        """
        self.calls: list[MockCall] = []
        self._responses = responses
        self._delay = delay

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 4096,
        temperature: float = 0.7,
    ) -> LLMResponse:
        """The next answer of the script.

        Raises:
            LLMError: the script has one here, or it is used up.
        """
        # Taken before the wait, so that calls made at once get the answers in the order they were made.
        number = len(self.calls)
        self.calls.append(MockCall(tuple(dict(message) for message in messages), max_tokens, temperature))
        await anyio.sleep(self._delay)
        if callable(self._responses):
            return LLMResponse(self._responses(messages), model="mock")
        if number >= len(self._responses):
            raise LLMError(
                f"The mock model has {len(self._responses)} answers and is asked for number {number + 1}.",
                advice="Give it an answer for each call, or a function.",
            )
        response = self._responses[number]
        if isinstance(response, LLMError):
            raise response
        return LLMResponse(response, model="mock")
