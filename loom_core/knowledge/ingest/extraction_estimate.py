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
        documents: with something new in them.
        passages: that the model is to read.
        calls: requests to the model.
        input_tokens: of all requests, by `estimate_tokens`.
        output_tokens: of all answers, thinking not included.
        cost: US dollars; None where the price is not known.
        by_size: there was no time to read all documents: for some of them it is judged by their sizes.
        more: nor to find all of them: it is more than this.
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
        """Of requests and answers."""
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
        """Format it in one line, for people."""
        cost = "at an unknown price" if self.cost is None else f"for about US$ {self.cost:,.2f}"
        how = ", judged by the sizes of files" if self.by_size else ""
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
        estimate: what it will take.
    """

    def __init__(self, estimate: ExtractionEstimate) -> None:
        super().__init__(
            f"A language model is to read much: {estimate}. Nothing was done.",
            advice="Confirm it (confirm=True), do less, or raise confirm_tokens and confirm_cost.",
        )
        self.estimate = estimate
