"""A wire that answers from a script, for what stands above the wire."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Literal, TypeAlias

import anyio
from anyio.lowlevel import checkpoint

from loom_core.errors import LLMError
from loom_core.llm.interface import ChatRequest, LLMResponse, StreamChunk

__all__ = ["ScriptedWire"]

Piece: TypeAlias = StreamChunk | LLMError | Literal["silence"]
Step: TypeAlias = LLMResponse | LLMError | Literal["silence"] | Sequence[Piece]


class ScriptedWire:
    """A `WireClient` that takes one step of its script for each request.

    Attributes:
        requests: every request so far, oldest first.
        open: requests that are not over.
        closed: how often it was closed.
    """

    def __init__(self, *steps: Step) -> None:
        """Set the script.

        Args:
            steps: a whole answer, an error, or `silence`, which never ends; for a stream its pieces, of which
                each may be an error or `silence`, too.
        """
        self.requests: list[ChatRequest] = []
        self.open = 0
        self.closed = 0
        self._steps = list(steps)

    async def complete(self, request: ChatRequest) -> LLMResponse:
        """The next step, which has to be a whole answer or end otherwise."""
        self.requests.append(request)
        step = self._steps.pop(0)
        self.open += 1
        try:
            await checkpoint()
            if isinstance(step, LLMError):
                raise step
            if not isinstance(step, LLMResponse):
                await anyio.sleep_forever()
                raise AssertionError
            return step
        finally:
            self.open -= 1

    async def stream(self, request: ChatRequest) -> AsyncGenerator[StreamChunk]:
        """The next step, piece by piece."""
        self.requests.append(request)
        step = self._steps.pop(0)
        pieces: Sequence[Piece]
        match step:
            case LLMResponse():
                pieces = (StreamChunk("done", response=step),)
            case LLMError() | "silence":
                pieces = (step,)
            case _:
                pieces = step
        self.open += 1
        try:
            for piece in pieces:
                await checkpoint()
                if isinstance(piece, LLMError):
                    raise piece
                if isinstance(piece, str):
                    await anyio.sleep_forever()
                    raise AssertionError
                yield piece
        finally:
            self.open -= 1

    async def aclose(self) -> None:
        """Count it."""
        self.closed += 1
