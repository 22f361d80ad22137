"""What a language model is to the rest of Loom. No I/O here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["LLMProvider", "LLMResponse"]


@dataclass(frozen=True, slots=True)
class LLMResponse:
    """What a model answered.

    Attributes:
        content: the text of the answer.
        model: which model gave it, or empty where that is not known.
    """

    content: str
    model: str = ""


class LLMProvider(ABC):
    """A language model that answers a conversation."""

    @abstractmethod
    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        max_tokens: int = 4096,
        temperature: float = 0.7,
    ) -> LLMResponse:
        """Answer a conversation.

        Args:
            messages: `{"role": "system" | "user" | "assistant", "content": text}`, oldest first.
            max_tokens: limit of the answer, in the model's tokens.
            temperature: 0 for the likeliest answer, higher for more varied ones.

        Raises:
            LLMError: the model cannot be reached, refuses, or answers with nothing that can be read.
        """
