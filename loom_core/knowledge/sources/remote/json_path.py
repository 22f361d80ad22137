"""JSON paths as people write them in a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import AfterValidator

from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from loom_core.tools.interface import JsonValue

__all__ = ["JsonPath", "PathSetting", "validate_path"]

_LONGEST = 300
_DEEPEST = 20


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path to a value inside another: keys of objects and indexes of lists.

    It is written with dots (`data.items`, `hits.0.text`), or, if a key holds a dot, as a JSON Pointer
    (RFC 6901; `/data/a.b`): there `~1` is a slash and `~0` a tilde. Keys may be in any script.

    Attributes:
        steps: the keys and indexes; empty for the value itself.
    """

    steps: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> JsonPath:
        """Parse a path; an empty one is the value itself.

        Raises:
            ConfigError: a key is empty, or the path is too long.
        """
        if text.startswith("/"):
            steps = [step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/")]
        else:
            steps = text.split(".") if text else []
        if len(text) > _LONGEST or len(steps) > _DEEPEST or not all(steps):
            raise ConfigError(
                f"{text[:_LONGEST]!r} is not a path into JSON.",
                advice="Write keys with dots between them (data.items), or a JSON Pointer (/data/items).",
            )
        return cls(tuple(steps))

    def find(self, value: JsonValue) -> JsonValue:
        """Return the value at the path, or None if it does not exist."""
        for step in self.steps:
            if isinstance(value, Mapping):
                value = value.get(step)
            elif isinstance(value, Sequence) and not isinstance(value, str) and step.isdecimal():
                place = int(step) if len(step) < 10 else len(value)
                value = value[place] if place < len(value) else None
            else:
                return None
        return value

    def assign(self, into: dict[str, Any], value: JsonValue) -> None:
        """Assign the value at the path; missing objects are created.

        Raises:
            ConfigError: the path is empty, or leads through a value that is not an object.
        """
        if not self.steps:
            raise ConfigError("An empty path names no field.", advice="Write the name of the field.")
        for step in self.steps[:-1]:
            inner: object = into.setdefault(step, {})
            if not isinstance(inner, dict):
                raise ConfigError(
                    f"The field {step!r} has a value already, so that nothing can be put into it.",
                    advice="Check the names of the fields against each other.",
                )
            into = cast("dict[str, Any]", inner)
        into[self.steps[-1]] = value


def validate_path(text: str) -> str:
    """Validate a path of a setting, and return it.

    Raises:
        ValueError: it is invalid; Pydantic says where it is.
    """
    try:
        JsonPath.of(text)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return text


PathSetting = Annotated[str, AfterValidator(validate_path)]
"""A setting that is a path; see `JsonPath`."""
