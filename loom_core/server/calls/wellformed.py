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
    return cast("T", _replace_surrogates(value))


def _replace_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {cast("str", _replace_surrogates(key)): _replace_surrogates(item) for key, item in items}
    if isinstance(value, list):
        return [_replace_surrogates(item) for item in cast("list[object]", value)]
    return value
