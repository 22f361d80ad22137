"""One turn of the model: asked, streamed, and asked again where the stream breaks."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio

from loom_core.agent.deltas import Deltas
from loom_core.errors import LLMError
from loom_core.llm.interface import ChatOptions

if TYPE_CHECKING:
    from loom_core.agent.record import RunRecord
    from loom_core.llm.interface import ChatRequest, LLMProvider, LLMResponse

__all__ = ["Turn"]

_ATTEMPTS = (
    3  # of an answer that breaks off; what fails before its first piece, the provider tries again itself
)
_WAIT = 0.5  # seconds before the second attempt, and twice as many before the next


class Turn:
    """Has a request answered, and writes down the pieces as they come."""

    def __init__(self, llm: LLMProvider, record: RunRecord) -> None:
        self._llm = llm
        self._record = record
        self._deltas = Deltas(record)

    @property
    def text(self) -> str:
        """What there is of the answer."""
        return self._deltas.text

    async def take(self, request: ChatRequest) -> LLMResponse:
        """The whole answer.

        Raises:
            LLMError: there is none; of failure `too_long` also where it ended as the model's window was full.
            InvalidInputError: the provider does not take the request.
        """
        attempt = 1
        while True:
            try:
                response = await self._streamed(request)
            except LLMError as error:
                if error.failure != "interrupted" or attempt == _ATTEMPTS:
                    raise
                wait = _WAIT * 2 ** (attempt - 1)
                attempt += 1
                self._record.retried(error, attempt=attempt, wait=wait)
                await anyio.sleep(wait)
                continue
            if response.finish == "too_long" and not response.message.tool_calls:
                raise LLMError(
                    "The model's window is full.",
                    advice="Begin a new session, or use a model with a larger window.",
                    failure="too_long",
                    provider=self._llm.name,
                )
            return response

    async def _streamed(self, request: ChatRequest) -> LLMResponse:
        deltas = self._deltas = Deltas(self._record)
        try:
            async with aclosing(self._llm.chat_stream(request.messages, **_options(request))) as stream:
                async for chunk in stream:
                    if chunk.kind == "text" or chunk.kind == "reasoning":
                        deltas.add(chunk.kind, chunk.text)
                    elif chunk.response is not None:
                        return chunk.response
        finally:
            deltas.flush()
        raise LLMError(
            f"The stream of {self._llm.name} ended without its answer.",
            advice="Its last chunk has to be of kind `done`, with the whole answer.",
            failure="unreadable",
            provider=self._llm.name,
        )


def _options(request: ChatRequest) -> ChatOptions:
    options = ChatOptions(
        tools=request.tools,
        tool_choice=request.tool_choice,
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        effort=request.effort,
        output=request.output,
        stop=request.stop,
        extra=request.extra,
    )
    if request.model:
        options["model"] = request.model
    if request.top_p is not None:
        options["top_p"] = request.top_p
    return options
