"""JSON that a server sent: what is not of the form that was expected counts as not there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, cast

__all__ = ["as_count", "as_items", "as_mapping", "as_text"]


def as_text(value: object) -> str:
    """A text, else an empty one."""
    return value if isinstance(value, str) else ""


def as_mapping(value: object) -> Mapping[str, Any]:
    """An object, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def as_items(value: object) -> Sequence[object]:
    """A list, else an empty one."""
    return cast("Sequence[object]", value) if isinstance(value, list) else ()


def as_count(value: object) -> int:
    """A number of things, else 0."""
    return max(0, int(value)) if isinstance(value, int | float) and isfinite(value) else 0
