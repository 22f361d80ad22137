"""Well-formed Unicode: text without lone surrogates."""

from __future__ import annotations

from typing import TypeVar, cast

__all__ = ["well_formed"]

T = TypeVar("T")


def well_formed(value: T) -> T:
    """Replace lone surrogates in a JSON value by `?`.

    They come from file names that are not valid in the system's encoding and from half-read escapes. UTF-8
    cannot hold them, and a single one would stop the transport's writer.
    """
    return cast("T", _repaired(value))


def _repaired(value: object) -> object:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {cast("str", _repaired(key)): _repaired(item) for key, item in items}
    if isinstance(value, list):
        return [_repaired(item) for item in cast("list[object]", value)]
    return value
