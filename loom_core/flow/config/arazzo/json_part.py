"""Reading a document of a known form that nobody has checked yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from loom_core.errors import ConfigError
from loom_core.llm.json_schema.values import readable_path

__all__ = ["JsonPart"]

_LONGEST = 200


class JsonPart:
    """A value in a document, and the way to it.

    Args:
        value: the value.
        name: what the document is called in messages.
        path: the way to it.
    """

    def __init__(self, value: object, *, name: str, path: tuple[str | int, ...] = ()) -> None:
        self.value = value
        self._name = name
        self._path = path

    def wrong(self, message: str, advice: str = "Correct it there.") -> ConfigError:
        """The error that says what is wrong here."""
        return ConfigError(f"{self._name}: {readable_path(self._path)[:_LONGEST]} {message}", advice=advice)

    def at(self, key: str | int, value: object) -> JsonPart:
        """A value that stands, or is as if it stood, in this one."""
        return JsonPart(value, name=self._name, path=(*self._path, key))

    def get(self, key: str) -> JsonPart:
        """The member of a name; that is None if there is none."""
        return self.at(key, self.members().get(key))

    def members(self) -> Mapping[str, Any]:
        """An object; an empty one for None.

        Raises:
            ConfigError: it is something else.
        """
        if self.value is None:
            return {}
        value: object = self.value
        if not isinstance(value, Mapping):
            raise self.wrong("should be an object.")
        members = cast("Mapping[Any, Any]", value)
        if not all(isinstance(key, str) for key in members):
            raise self.wrong("has a name that is no text.")
        return members

    def items(self) -> Iterator[JsonPart]:
        """The elements of a list; none for None.

        Raises:
            ConfigError: it is something else.
        """
        if self.value is None:
            return
        value: object = self.value
        if not isinstance(value, list):
            raise self.wrong("should be a list.")
        for index, each in enumerate(cast("list[object]", value)):
            yield self.at(index, each)

    def text(self, key: str, *, required: bool = False) -> str:
        """The text of a name; empty if there is none.

        Raises:
            ConfigError: it is something else, or it is required.
        """
        value = self.members().get(key)
        if value is None and not required:
            return ""
        if not isinstance(value, str) or (required and not value):
            raise self.get(key).wrong("should be a text." if value is not None else "is missing.")
        return value

    def number(self, key: str, otherwise: float) -> float:
        """The number of a name.

        Raises:
            ConfigError: it is something else.
        """
        value = self.members().get(key)
        if value is None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.get(key).wrong("should be a number.")
        return value
