"""Fields of JSON objects that came from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from loom_core.testing.vendors.refusal import Refused

__all__ = ["Json", "mapping", "mappings"]

Json: TypeAlias = Mapping[str, Any]


def mapping(of: Json, name: str) -> Json:
    """The object in a field; an empty one where there is none.

    Raises:
        Refused: there is something else.
    """
    value: object = of.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise Refused(f"Invalid type for '{name}': expected an object.", param=name)
    return cast("Json", value)


def mappings(of: Json, name: str) -> list[Json]:
    """The objects in a field; none where it is not there.

    Raises:
        Refused: there is something else.
    """
    value: object = of.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(
        isinstance(item, Mapping) for item in cast("list[object]", value)
    ):
        raise Refused(f"Invalid type for '{name}': expected a list of objects.", param=name)
    return cast("list[Json]", value)
