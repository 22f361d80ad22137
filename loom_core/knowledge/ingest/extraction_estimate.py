"""Estimate of the cost of extraction by a language model, before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.errors import InvalidInputError

if TYPE_CHECKING:
    from loom_core.llm.interface import LLMProvider

__all__ = ["ConfirmationNeededError", "ExtractionEstimate"]


@dataclass(frozen=True, slots=True)
class ExtractionEstimate:
    """Estimate of an extraction: the requests are known, the length of the answers is not.

    Attributes:
        documents: number of documents with new passages.
        passages: number of passages for the model to read.
        calls: number of requests to the model.
        input_tokens: tokens of all requests, by `estimate_tokens`.
        output_tokens: tokens of all answers, without thinking.
        cost: cost in US dollars; None if the price is not known.
        by_size: whether some documents were estimated by their sizes, as there was no time to read them.
        more: whether the total is higher, as there was no time to list all documents.
    """

    documents: int = 0
    passages: int = 0
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0
    by_size: bool = False
    more: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of requests and answers."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: ExtractionEstimate) -> ExtractionEstimate:
        """Return the sum of both."""
        return ExtractionEstimate(
            self.documents + other.documents,
            self.passages + other.passages,
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            None if self.cost is None or other.cost is None else self.cost + other.cost,
            self.by_size or other.by_size,
            self.more or other.more,
        )

    def __str__(self) -> str:
        """Return a description in one line."""
        cost = "at an unknown price" if self.cost is None else f"for about US$ {self.cost:,.2f}"
        how = ", estimated by the sizes of files" if self.by_size else ""
        return (
            f"{'more than ' if self.more else ''}{self.passages:,} passages of {self.documents:,} documents "
            f"in {self.calls:,} requests, about {self.input_tokens:,} tokens to read and "
            f"{self.output_tokens:,} to write, {cost}{how}"
        )

    def cost_of(self, llm: LLMProvider) -> float | None:
        """Return the cost with a model, or None if the price is not known."""
        from loom_core.llm.interface import Usage  # not before a model is asked

        usage = Usage(input_tokens=self.input_tokens, output_tokens=self.output_tokens, estimated=True)
        return llm.cost(usage) if self.calls else 0.0


class ConfirmationNeededError(InvalidInputError):
    """Extraction by a language model needs a user's confirmation; nothing was done.

    Attributes:
        estimate: the estimate of the extraction.
    """

    def __init__(self, estimate: ExtractionEstimate) -> None:
        super().__init__(
            f"A language model would read a large amount: {estimate}. Nothing was done.",
            advice="Confirm it (confirm=True), do less, or raise confirm_tokens and confirm_cost.",
        )
        self.estimate = estimate
