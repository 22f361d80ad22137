"""Port of a collection that others have filled: what an engine must be able to do. No I/O here."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from loom_core.knowledge.filters import Operator

__all__ = ["Condition", "ForeignCollection", "LexicalCollection", "Metric", "Row", "Value", "VectorSpace"]

Metric = Literal["cosine", "dot", "l2", "other", "none"]
"""Score of a vector search: the cosine, the inner product, the squared Euclidean distance, or
another distance; none where there are no vectors."""

Value = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Condition:
    """A restriction of a search, decided by the engine.

    Attributes:
        path: keys that lead to the field, from outside in.
        operator: the comparison.
        values: the values: any of them for `eq` and `contains`, none of them for `ne`, the only one else.
    """

    path: tuple[str, ...]
    operator: Operator
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class VectorSpace:
    """Facts that a collection declares.

    Attributes:
        metric: how its vectors are compared.
        dimension: that of its vectors, 0 if it is not declared.
        filters: paths of the fields that the engine can decide conditions on, or of objects with any such
            fields; None if they are not declared.
    """

    metric: Metric
    dimension: int = 0
    filters: Collection[tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """An entry of a collection.

    Attributes:
        id: the engine's id, as text.
        fields: its fields without vectors, as they are stored.
        score: how near it is, see `Metric`; for a search by words, the engine's score.
        vector: its vector, where it was asked for.
    """

    id: str
    fields: Mapping[str, Any]
    score: float = 0.0
    vector: Sequence[float] | None = None


class ForeignCollection(Protocol):
    """A collection of a server. All methods block, and any thread may call them; nothing is ever written.

    Raises:
        StoreUnavailableError: the server cannot be asked now.
        IndexDamagedError: there is no such collection, or it does not fit the request.
        SourceError: it has no vector, or several, or cannot be read for another reason.
        InvalidInputError: the engine cannot decide a condition.
    """

    def describe(self) -> VectorSpace:
        """Look the collection up. Must be called before the other methods, and again after an error."""
        ...

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, conditions: Sequence[Condition]
    ) -> list[Row]:
        """Return the entries nearest to a vector, best first: `limit`, if so many fulfil the conditions."""
        ...

    def read(self, limit: int, conditions: Sequence[Condition], *, vectors: bool = False) -> list[Row]:
        """Return the first entries, in the engine's order."""
        ...

    def get(self, id_: str) -> Row | None:
        """Return the entry with an id, or None."""
        ...

    def count(self) -> int:
        """Return how many entries it has, about."""
        ...

    def close(self) -> None:
        """Close connections. The collection is not used afterwards."""
        ...


@runtime_checkable
class LexicalCollection(ForeignCollection, Protocol):
    """A collection whose engine also searches its texts by words. Errors as those of `ForeignCollection`."""

    def search_words(self, query: str, limit: int, conditions: Sequence[Condition]) -> list[Row]:
        """Return the entries that share words with a question, best first, with the engine's score."""
        ...
