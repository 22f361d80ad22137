"""A streamed answer, as a provider reads it from the wire."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import anyio

from loom_core.errors import LLMError, capitalised

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from loom_core.llm.interface import LLMResponse, StreamChunk, Usage

__all__ = ["StreamedAnswer"]


class StreamedAnswer:
    """One answer that comes piece by piece.

    Attributes:
        ends: when it has to be over, by `anyio.current_time`; never, until somebody sets it.
        texts: what came so far of text, reasoning and tool calls, in pieces.
        usage: what the vendor said of its usage so far, if anything.
        response: the whole answer, once it is there.
    """

    def __init__(self, stream: AsyncIterator[StreamChunk], *, title: str, provider: str) -> None:
        """Read nothing yet.

        Args:
            stream: what comes from the wire.
            title: whom people know the vendor as, for messages.
            provider: `LLMError.provider`.
        """
        self.ends = math.inf
        self.texts: list[str] = []
        self.usage: Usage | None = None
        self.response: LLMResponse | None = None
        self._stream = stream
        self._title = capitalised(title)
        self._provider = provider

    async def read(self) -> StreamChunk | None:
        """The next piece, or None when the answer is whole.

        Raises:
            LLMError: it does not come; of failure `interrupted`, if not in time.
        """
        while True:
            chunk = await self._next()
            if chunk is None:
                raise LLMError(
                    f"{self._title} ended its answer without saying that it is finished.",
                    failure="unreadable",
                    provider=self._provider,
                )
            if chunk.response is not None:
                self.response = chunk.response
                return None
            if chunk.kind != "usage":
                self.texts.append(chunk.tool_call.arguments if chunk.tool_call else chunk.text)
                return chunk
            self.usage = chunk.usage

    async def _next(self) -> StreamChunk | None:
        # The wire's own timeout is not enough: a vendor can show signs of life for ever, without an answer.
        with anyio.move_on_after(self.ends - anyio.current_time()):
            return await anext(self._stream, None)
        raise LLMError(
            f"{self._title} did not finish its answer in the time that there was.",
            advice="Ask for less at once, or allow a longer `deadline`.",
            failure="interrupted",
            provider=self._provider,
        )
