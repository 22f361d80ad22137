"""Which passages go into one request to a language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.model import Chunk

__all__ = ["Portion", "portions"]


@dataclass(frozen=True, slots=True)
class Portion:
    """Passages of one request.

    Attributes:
        numbers: of the chunks among those that were given, from 0.
        chunks: the chunks.
        chinese: whether they are in Chinese, and so is what is said of them.
    """

    numbers: tuple[int, ...]
    chunks: tuple[Chunk, ...]
    chinese: bool

    def only(self, number: int) -> Portion:
        """One of its chunks alone."""
        return Portion((number,), (self.chunks[self.numbers.index(number)],), self.chinese)


def portions(chunks: Sequence[Chunk], *, tokens: int, most: int) -> list[Portion]:
    """Divide chunks into requests, in order, those in Chinese apart; chunks without a word go nowhere.

    Args:
        chunks: the chunks.
        tokens: of chunks in one request, by `estimate_tokens`; one that is longer goes alone.
        most: chunks in one request.
    """
    divided: list[Portion] = []
    for chinese in (False, True):
        numbers: list[int] = []
        left = 0
        for number, chunk in enumerate(chunks):
            if (chunk.language == "zh") != chinese or not any(map(str.isalnum, chunk.text)):
                continue
            size = estimate_tokens(chunk.text)
            if numbers and (size > left or len(numbers) == most):
                divided.append(_portion(chunks, numbers, chinese=chinese))
                numbers = []
            if not numbers:
                left = tokens
            numbers.append(number)
            left -= size
        if numbers:
            divided.append(_portion(chunks, numbers, chinese=chinese))
    return divided


def _portion(chunks: Sequence[Chunk], numbers: Sequence[int], *, chinese: bool) -> Portion:
    return Portion(tuple(numbers), tuple(chunks[number] for number in numbers), chinese)
