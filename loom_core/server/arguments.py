"""The arguments of a tool: their schema from a signature, and a strict but friendly reading of them."""

from __future__ import annotations

import difflib
import inspect
import json
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError, create_model

from loom_core.errors import InvalidInputError
from loom_core.server.context import ToolContext
from loom_core.server.schema import without_titles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

__all__ = ["ToolArguments", "closest"]

_SHOWN = 60  # characters of a wrong value that are repeated to the caller


# Unknown arguments are refused; `"5"` is read as 5 and 5 as `"5"`, for models often mix them up.
_STRICT = ConfigDict(extra="forbid", coerce_numbers_to_str=True)


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """What a tool accepts.

    Attributes:
        schema: JSON Schema of the arguments, an object that allows no others.
        context_name: the parameter that wants the `ToolContext`, or empty.
    """

    schema: dict[str, Any]
    context_name: str
    _tool: str
    _model: type[BaseModel]

    @classmethod
    def of(cls, function: Callable[..., object], tool: str) -> ToolArguments:
        """Read a function's signature.

        Raises:
            ValueError: a parameter has no annotation, or is not a plain named one.
            NameError: an annotation names something that the function's module does not have.
        """
        hints = typing.get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {}
        context_name = ""
        for name, parameter in inspect.signature(function).parameters.items():
            if name not in hints:
                raise ValueError(f"tool {tool!r}: parameter {name!r} has no annotation")
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise ValueError(f"tool {tool!r}: parameter {name!r} cannot be given by name")
            if hints[name] is ToolContext:
                context_name = name
            else:
                default = ... if parameter.default is parameter.empty else parameter.default
                fields[name] = (hints[name], default)
        model = create_model(f"{tool}_arguments", __config__=_STRICT, **fields)
        return cls(without_titles(model.model_json_schema()), context_name, tool, model)

    def parse(self, given: dict[str, Any]) -> dict[str, Any]:
        """The values to call the function with.

        Raises:
            InvalidInputError: names every argument that is missing, unknown or wrong, and all valid ones.
        """
        try:
            values = self._model.model_validate(given)
        except ValidationError as first:
            try:
                values = self._model.model_validate(_unquoted(given, first))
            except ValidationError as error:
                raise self._invalid(error) from None
        return {name: getattr(values, name) for name in self._model.model_fields}

    def _invalid(self, error: ValidationError) -> InvalidInputError:
        fields = self._model.model_fields
        reasons = "; ".join(_explain(detail, fields) for detail in error.errors(include_url=False))
        listed = ", ".join(
            f"{name} (required)" if field.is_required() else name for name, field in fields.items()
        )
        return InvalidInputError(
            f"Invalid arguments for `{self._tool}`: {reasons}.",
            advice=f"Valid arguments: {listed}." if listed else "It takes no arguments.",
        )


def closest(name: str, names: Iterable[str]) -> str:
    """`, did you mean …` for a misspelt name, or nothing if none is near."""
    found = difflib.get_close_matches(name, list(names), n=1)
    return f", did you mean `{found[0]}`" if found else ""


def _unquoted(given: dict[str, Any], error: ValidationError) -> dict[str, Any]:
    """The arguments again, with the refused strings read as JSON: some hosts send lists and objects so."""
    repaired = dict(given)
    for name in {detail["loc"][0] for detail in error.errors(include_url=False) if detail["loc"]}:
        value = given.get(str(name))
        if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            try:
                repaired[str(name)] = json.loads(value)
            except (ValueError, RecursionError):
                continue  # not JSON after all: the message is about the string that was sent
    return repaired


def _explain(detail: ErrorDetails, names: Iterable[str]) -> str:
    place = ".".join(str(part) for part in detail["loc"]) or "arguments"
    if detail["type"] == "missing":
        return f"`{place}` is required"
    if detail["type"] == "extra_forbidden":
        return f"`{place}` is not an argument{closest(place, names)}"
    reason = detail["msg"]
    value = repr(detail["input"])
    if len(value) > _SHOWN:
        value = value[:_SHOWN] + "…"
    return f"`{place}`: {reason[:1].lower()}{reason[1:]}, got {value}"
