"""A language model that answers from a script: for tests, and to show what a model would do."""

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
    """An answer of a `MockProvider` that is more than a text.

    Attributes:
        text: the text.
        reasoning: what comes before it.
        calls: tool calls that come after it.
        cut_after: so many pieces of the stream are handed on, then the connection breaks; None for never.
            A call that is no stream fails at once then.
        delay: seconds before the answer, and between the pieces of a stream; None for the provider's.
    """

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCallPart, ...] = ()
    cut_after: int | None = None
    delay: float | None = None


MockScript: TypeAlias = "str | MockAnswer | LLMError"
MockResponse: TypeAlias = "MockScript | Callable[[ChatRequest], MockScript]"


def echo(request: ChatRequest) -> str:
    """Answer with what the user said last, and that no model has read it."""
    said = next((each.text for each in reversed(request.messages) if isinstance(each, UserMessage)), "")
    return f"（模拟回答）{said}" if is_chinese(said) else f"(mock answer) {said}"


@register("llm", "mock")
class MockProvider(LLMProvider):
    """Answers from a list, in order, or by a function of the request; needs no model.

    Attributes:
        calls: every request so far, oldest first; one that fails or is cancelled counts too.
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
            responses: an answer for each call, an error being raised; or a function that is given the request
                and returns the answer, or raises `LLMError`. A list may hold functions, too, each for one
                call. By default every question is repeated.
            delay: seconds before each answer; a call that is cancelled meanwhile ends at once.
            model: what the model is called.

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
        """What the model is called."""
        return self._model

    async def chat(self, messages: Sequence[MessageLike], **options: Unpack[ChatOptions]) -> LLMResponse:
        """The next answer of the script.

        Raises:
            LLMError: the script has one here, or it is used up.
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
        """The next answer of the script, a few letters at a time; a long one in larger pieces.

        Raises:
            LLMError: the script has one here, or it is used up, or the answer is cut.
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
        # Taken before any wait, so that calls made at once get the answers in the order they were made.
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
        return LLMResponse(message, finish="tool_calls" if answer.calls else "stop", usage=usage)


def _check_script(responses: object) -> None:
    """Refuse what is no list of answers; letters of a text would each be one."""
    if isinstance(responses, str | bytes) or not isinstance(responses, Sequence):
        raise ConfigError(f"A mock model cannot answer from {responses!r}.", advice="Put it into a list.")
    for each in cast("Sequence[object]", responses):
        if not isinstance(each, str | MockAnswer | LLMError) and not callable(each):
            raise ConfigError(
                f"A mock model cannot answer {each!r}.",
                advice="Give texts, `MockAnswer(…)`, an `LLMError`, or functions of the request.",
            )


def _pieces(text: str) -> list[str]:
    """A text as it is streamed: by words, or by as many of them at once as keeps it quick."""
    small = _PIECE.findall(text)
    size = math.ceil(len(small) / _MOST_PIECES) or 1
    return ["".join(small[start : start + size]) for start in range(0, len(small), size)]
