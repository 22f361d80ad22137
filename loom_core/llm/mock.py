"""Scripted mock of a language model: for tests and demonstrations."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, Unpack, cast

import anyio

from loom_core.cjk import is_chinese
from loom_core.errors import ConfigError, LLMError
from loom_core.llm.accounting.tracing import chat_span, chat_stream_span
from loom_core.llm.interface import (
    ChatOptions,
    ChatRequest,
    FinishReason,
    LLMProvider,
    LLMResponse,
    StreamChunk,
    Usage,
    call_delta,
)
from loom_core.llm.messages import AssistantMessage, ReasoningPart, TextPart, ToolCallPart, UserMessage
from loom_core.plugin_registry import register
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from loom_core.llm.messages import MessageLike

__all__ = ["MockAnswer", "MockProvider"]

_PIECE = re.compile(r"\s*\S{1,8}\s*|\s+")
_MOST_PIECES = 50  # of a text


@dataclass(frozen=True, slots=True)
class MockAnswer:
    """A scripted response of a `MockProvider`, with more than text.

    Attributes:
        text: the text.
        reasoning: reasoning before it.
        calls: tool calls after it.
        cut_after: the connection breaks after this many chunks of the stream; None for never. A call without
            streaming then fails at once.
        delay: seconds before the response, and between the chunks of a stream; None for the provider's delay.
        finish: why it ends; None for `tool_calls` with calls, else `stop`.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCallPart, ...] = ()
    cut_after: int | None = None
    delay: float | None = None
    finish: FinishReason | None = None


MockScript: TypeAlias = "str | MockAnswer | LLMError"
MockResponse: TypeAlias = "MockScript | Callable[[ChatRequest], MockScript]"


def echo(request: ChatRequest) -> str:
    """Return the user's last text, marked as a mock answer."""
    said = next((each.text for each in reversed(request.messages) if isinstance(each, UserMessage)), "")
    return f"（模拟回答）{said}" if is_chinese(said) else f"(mock answer) {said}"


@register("llm", "mock")
class MockProvider(LLMProvider):
    """Mock provider: answers from a list, in order, or by a function of the request.

    Attributes:
        calls: every request so far, oldest first, failed and cancelled ones included.
    """

    def __init__(
        self,
        responses: Sequence[MockResponse] | Callable[[ChatRequest], MockScript] = echo,
        *,
        delay: float = 0.0,
        model: str = "mock",
    ) -> None:
        """Set the script.

        Args:
            responses: a response for each call, errors are raised; or a function that takes the request and
                returns the response, or raises `LLMError`. A list may hold functions, too, each for one
                call. By default every question is echoed.
            delay: seconds before each response.
            model: name of the model.

        Raises:
            ConfigError: the responses are neither a function nor a list of answers.
        """
        if not callable(responses):
            _check_script(responses)
        self.calls: list[ChatRequest] = []
        self._responses = responses
        self._delay = delay
        self._model = model

    @property
    def name(self) -> str:
        """`mock`."""
        return "mock"

    @property
    def model(self) -> str:
        """Name of the model."""
        return self._model

    async def chat(self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]) -> LLMResponse:
        """Return the next response of the script.

        Raises:
            LLMError: the script has one here, or has no more responses.
        """
        request = ChatRequest.of(messages, options)
        with chat_span(self, request) as told:
            answer = self._next(request)
            await anyio.sleep(self._delay if answer.delay is None else answer.delay)
            if answer.cut_after is not None:
                raise LLMError("The connection broke.", failure="connection", provider=self.name)
            response = self._response(request, answer)
            told.record_response(response)
            return response

    async def chat_stream(
        self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]
    ) -> AsyncGenerator[StreamChunk]:
        """Stream the next response of the script, a few characters at a time; a long one in larger pieces.

        Raises:
            LLMError: the script has one here, or has no more responses, or the response is cut.
        """
        request = ChatRequest.of(messages, options)
        with chat_stream_span(self, request) as told:
            answer = self._next(request)
            response = self._response(request, answer)
            pieces = [
                *(StreamChunk("reasoning", text=piece) for piece in _pieces(answer.reasoning)),
                *(StreamChunk("text", text=piece) for piece in _pieces(answer.text)),
                *(StreamChunk("tool_call", tool_call=call_delta(*call)) for call in enumerate(answer.calls)),
                StreamChunk("usage", usage=response.usage),
                StreamChunk("done", response=response),
            ]
            for number, piece in enumerate(pieces):
                if number == answer.cut_after:
                    raise LLMError("The connection broke.", failure="interrupted", provider=self.name)
                await anyio.sleep(self._delay if answer.delay is None else answer.delay)
                told.record_chunk()
                if piece.response is not None:
                    told.record_response(piece.response)
                yield piece

    def _next(self, request: ChatRequest) -> MockAnswer:
        # Taken before any wait, so that concurrent calls get the responses in call order.
        number = len(self.calls)
        self.calls.append(request)
        if callable(self._responses):
            answer = self._responses(request)
        elif number < len(self._responses):
            answer = self._responses[number]
            answer = answer(request) if callable(answer) else answer
        else:
            raise LLMError(
                f"The mock model has {len(self._responses)} answers and is asked for number {number + 1}.",
                advice="Give it an answer for each call, or a function.",
            )
        if isinstance(answer, LLMError):
            raise answer
        return MockAnswer(answer) if isinstance(answer, str) else answer

    def _response(self, request: ChatRequest, answer: MockAnswer) -> LLMResponse:
        reasoning = (ReasoningPart(answer.reasoning),) if answer.reasoning else ()
        text = (TextPart(answer.text),) if answer.text else ()
        parts = (*reasoning, *text, *answer.calls)
        message = AssistantMessage(parts, provider=self.name, model=request.model or self.model)
        usage = Usage(
            input_tokens=sum(estimate_tokens(message.text) for message in request.messages),
            output_tokens=estimate_tokens(answer.reasoning) + estimate_tokens(answer.text),
            estimated=True,
        )
        finish = answer.finish or ("tool_calls" if answer.calls else "stop")
        return LLMResponse(message, finish=finish, usage=usage)


def _check_script(responses: object) -> None:
    """Refuse anything but a list of responses, in particular a single text."""
    if isinstance(responses, str | bytes) or not isinstance(responses, Sequence):
        raise ConfigError(f"A mock model cannot answer from {responses!r}.", advice="Put it into a list.")
    for each in cast("Sequence[object]", responses):
        if not isinstance(each, str | MockAnswer | LLMError) and not callable(each):
            raise ConfigError(
                f"A mock model cannot answer {each!r}.",
                advice="Give texts, `MockAnswer(…)`, an `LLMError`, or functions of the request.",
            )


def _pieces(text: str) -> list[str]:
    """Split a text into stream pieces: words, or groups of words if it is long."""
    small = _PIECE.findall(text)
    size = math.ceil(len(small) / _MOST_PIECES) or 1
    return ["".join(small[start : start + size]) for start in range(0, len(small), size)]
