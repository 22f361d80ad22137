"""A value that somebody has said, or has not, and what a schema wants there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

__all__ = ["Refused", "Schema"]

Schema: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Refused:
    """What was said for an input, and that the schema does not take.

    Attributes:
        name: of the input.
        value: the number that was said; None where it was none.
        schema: what is wanted.
    """

    name: str
    value: float | None
    schema: Schema

    @property
    def title(self) -> str:
        """What people call the input."""
        return str(self.schema.get("title") or self.name)

    @property
    def low(self) -> float | None:
        """The least that will do, or what it has to be more than."""
        return self._bound("minimum", "exclusiveMinimum")

    @property
    def high(self) -> float | None:
        """The most that will do, or what it has to be less than."""
        return self._bound("maximum", "exclusiveMaximum")

    @property
    def is_whole(self) -> bool:
        """Whether a whole number is wanted."""
        return self.schema.get("type") == "integer"

    def _bound(self, name: str, exclusive: str) -> float | None:
        step = 1 if self.is_whole else 0
        if isinstance(bound := self.schema.get(exclusive), int | float):
            return bound + (step if exclusive == "exclusiveMinimum" else -step)
        return bound if isinstance(bound := self.schema.get(name), int | float) else None
