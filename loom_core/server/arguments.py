"""The arguments of a tool or prompt: a schema from a signature, and a strict but friendly reading of them."""

from __future__ import annotations

import difflib
import inspect
import json
import re
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ConfigDict, ValidationError, create_model

from loom_core.errors import InvalidInputError
from loom_core.server.context import ToolContext
from loom_core.server.schema import with_keywords, without_nulls, without_titles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic import BaseModel
    from pydantic_core import ErrorDetails

__all__ = ["ToolArguments", "closest"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")  # the server's goes before it, and hosts drop what is over 60
_SHOWN = 60  # characters of a wrong value that are repeated to the caller


# Unknown arguments are refused; `"5"` is read as 5 and 5 as `"5"`, for models often mix them up.
_STRICT = ConfigDict(extra="forbid", coerce_numbers_to_str=True)


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """What a tool or a prompt accepts.

    Attributes:
        schema: JSON Schema of the arguments, an object that allows no others; null is accepted, too, where it
            is the default.
        context_name: the parameter that wants the `ToolContext`, or empty.
    """

    schema: dict[str, Any]
    context_name: str
    _owner: str
    _model: type[BaseModel]
    _checked: bool

    @classmethod
    def of(
        cls,
        function: Callable[..., object],
        name: str,
        *,
        kind: Literal["tool", "prompt"] = "tool",
        keywords: Mapping[str, Any] | None = None,
    ) -> ToolArguments:
        """Read a function's signature.

        Args:
            function: what will be called with the arguments.
            name: what models call it.
            kind: what it is.
            keywords: JSON Schema keywords that the schema gets besides, see `with_keywords`. Arguments that
                have passed the signature are then checked against the schema, too.

        Raises:
            ValueError: the name is not as hosts take it, or the function not async; a parameter has no
                annotation, or is not a plain named one; or the keywords do not make a valid schema.
            NameError: an annotation names something that the function's module does not have.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{kind} {name!r}: a name is lower case letters, digits and _, at most 40 of them"
            )
        if not inspect.iscoroutinefunction(function):
            raise ValueError(
                f"{kind} {name!r}: the function must be async; blocking work belongs in a thread"
            )
        hints = typing.get_type_hints(function, include_extras=True)
        fields: dict[str, Any] = {}
        context_name = ""
        for argument, parameter in inspect.signature(function).parameters.items():
            if argument not in hints:
                raise ValueError(f"{kind} {name!r}: parameter {argument!r} has no annotation")
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise ValueError(f"{kind} {name!r}: parameter {argument!r} cannot be given by name")
            if hints[argument] is ToolContext:
                context_name = argument
            else:
                default = ... if parameter.default is parameter.empty else parameter.default
                fields[argument] = (hints[argument], default)
        model = create_model(f"{name}_arguments", __config__=_STRICT, **fields)
        schema = without_nulls(without_titles(model.model_json_schema()))
        if keywords:
            schema = with_keywords(schema, keywords)
            _problems({}, schema)  # refuses a schema that is wrong
        return cls(schema, context_name, name, model, bool(keywords))

    def parse(self, given: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """The values to call the function with.

        Args:
            given: what the caller sent.
            context: of the call, for a function that wants it.

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
        if self._checked:
            sent = values.model_dump(mode="json", exclude_unset=True)
            if reasons := _problems(sent, self.schema):
                raise self._refused("; ".join(reasons))
        read = {name: getattr(values, name) for name in self._model.model_fields}
        return read | {self.context_name: context} if self.context_name else read

    def _invalid(self, error: ValidationError) -> InvalidInputError:
        fields = self._model.model_fields
        return self._refused(
            "; ".join(_explain(detail, fields) for detail in error.errors(include_url=False))
        )

    def _refused(self, reasons: str) -> InvalidInputError:
        listed = ", ".join(
            f"{name} (required)" if field.is_required() else name
            for name, field in self._model.model_fields.items()
        )
        return InvalidInputError(
            f"Invalid arguments for `{self._owner}`: {reasons}.",
            advice=f"Valid arguments: {listed}." if listed else "It takes no arguments.",
        )


def closest(name: str, names: Iterable[str]) -> str:
    """`, did you mean …` for a misspelt name, or nothing if none is near."""
    found = difflib.get_close_matches(name, list(names), n=1)
    return f", did you mean `{found[0]}`" if found else ""


def _problems(given: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    from loom_core.llm.json_schema.values import problems

    try:
        return problems(given, schema)
    except InvalidInputError as error:
        raise ValueError(str(error)) from error


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
