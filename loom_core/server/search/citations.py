"""Citations: passages as text for a model, with their sources, quoted as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from pydantic import BaseModel, Field

from loom_core.knowledge.retrieval.confidence import Match, MatchVerdict
from loom_core.knowledge.text.control_characters import escape_controls
from loom_core.knowledge.uris import readable
from loom_core.llm.text import as_data
from loom_core.server.protocol.results import TextBudget

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MatchInfo", "citation", "passages_text", "reading_text"]

_QUOTE = "passage"
_QUOTE_END = f"\n</{_QUOTE}>"
_NARROW = "limit, filters, or a more exact question; read one with fetch(id)"
_NOTHING = "Nothing was found. Try other words, fewer filters, or another source."


class MatchInfo(BaseModel):
    """How well the passages of an answer fit the question."""

    verdict: MatchVerdict = Field(
        description="weak: they may not answer it; none: nothing fits, none are given."
    )
    confidence: float = Field(description="Probability that they answer it, 0 to 1.")
    missing: list[str] = Field(
        default=[], description="Words of the question that none of the best passages holds."
    )

    @classmethod
    def of(cls, match: Match) -> Self:
        """Create it from a match; `missing` only if it matters."""
        missing = [] if match.verdict == "strong" else list(match.missing)
        return cls(verdict=match.verdict, confidence=match.confidence, missing=missing)

    def note(self) -> str:
        """See `Match.note`."""
        return escape_controls(Match(self.confidence, tuple(self.missing)).note)


class _Citable(Protocol):
    """A retrieved passage.

    Attributes:
        number: its citation number, from 1.
        id: its id for `fetch`.
        title: title of its document; may be empty.
        heading_path: the headings above it.
        uri: URI of its document; may be empty.
        start: start offset in the document, in characters; None if unknown.
        end: end offset, likewise.
        page: page or slide, from 1; None if unknown.
        text: its text.
    """

    @property
    def number(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def heading_path(self) -> Sequence[str]: ...
    @property
    def uri(self) -> str: ...
    @property
    def start(self) -> int | None: ...
    @property
    def end(self) -> int | None: ...
    @property
    def page(self) -> int | None: ...
    @property
    def text(self) -> str: ...


class _Readable(Protocol):
    """An excerpt of a document.

    Attributes:
        title: title of the document; may be empty.
        uri: URI of the document; may be empty.
        source: name of its source.
        text: text of the excerpt.
        start: its start offset, in characters.
        end: its end offset, likewise.
        length: length of the whole text, in characters.
    """

    @property
    def title(self) -> str: ...
    @property
    def uri(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def length(self) -> int: ...


CitableT = TypeVar("CitableT", bound=_Citable)


def citation(passage: _Citable) -> str:
    """Format the source of a passage in a line: `[1] title › heading (uri#start-end, page 3)`."""
    place = escape_controls(" › ".join([passage.title or "untitled", *passage.heading_path]))
    stretch = "" if passage.start is None else f"#{passage.start}-{passage.end}"
    page = f"page {passage.page}" if passage.page else ""
    address = ", ".join(filter(None, [f"{readable(passage.uri)}{stretch}" if passage.uri else "", page]))
    return f"[{passage.number}] {place}{f' ({address})' if address else ''}"


def passages_text(
    passages: Sequence[CitableT],
    told: Callable[[CitableT], Sequence[str]],
    *,
    match: MatchInfo | None = None,
    notes: Sequence[str] = (),
    tokens: int,
) -> tuple[str, int]:
    """Format passages, best first, each after its citation and id; notes follow.

    The note on how well they match comes first, so that a model reads it before the passages.

    Args:
        passages: the passages.
        told: returns the lines between a passage's citation and its text.
        match: how well they match, if known.
        notes: lines after the passages.
        tokens: limit of the passages' text.

    Returns:
        The text, and how many passages are in it.
    """
    fit = match.note() if match else ""
    if not passages:
        return "\n".join([fit or _NOTHING, *notes]), 0
    budget = TextBudget(tokens, narrow=_NARROW)
    for passage in passages:
        head = [f"{citation(passage)} id={escape_controls(passage.id)}", *told(passage)]
        quoted = "\n".join([*head, as_data(_QUOTE, passage.text)])
        budget.add(quoted.removesuffix(_QUOTE_END), end=_QUOTE_END)
    return "\n\n".join(filter(None, [fit, budget.text(), *notes])), budget.shown


def reading_text(stretch: _Readable) -> str:
    """Format an excerpt of a document, with its source, and the offset of the rest."""
    shown = f"{stretch.start:,} to {stretch.end:,} of {stretch.length:,}"
    place = (
        f"{escape_controls(stretch.title or 'untitled')} ({escape_controls(stretch.uri or stretch.source)})"
    )
    more = f"\n[truncated: {shown} characters shown; go on with start={stretch.end}]"
    quoted = as_data(_QUOTE, stretch.text)
    return f"{place}, characters {shown}\n\n{quoted}{more if stretch.end < stretch.length else ''}"
