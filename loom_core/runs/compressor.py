"""Interface of compressors, which shorten conversations in a way of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.messages import Message

__all__ = ["Compressor"]


@runtime_checkable
class Compressor(Protocol):
    """Compressor: shortens a conversation that is about to exceed the context window of its model.

    The runs of an agent share it, and their calls may overlap.
    """

    async def compress(self, messages: Sequence[Message], *, goal: str, target: int) -> Sequence[Message]:
        """Return a shorter conversation, which replaces this one for the rest of the session.

        If it raises an error, takes longer than two minutes, does not make enough room, loses the goal, or
        separates a call from its result, the conversation stays as it is; the log says why.

        Args:
            messages: the conversation, oldest first. It is not to be changed.
            goal: the goal of the current run, which a message of the user has to contain verbatim.
            target: tokens to aim at, as `loom_core.llm.estimate_message` counts them; 0 if the tools alone
                take more than that.
        """
        ...
