"""Arguments of a function for models: schema from its signature, strict validation with repair."""

from __future__ import annotations

import inspect
import json
import typing
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from loom_core.errors import InvalidInputError
from loom_core.tools.names import closest
from loom_core.tools.schemas.model_schema import (
    inline_definitions,
    with_keywords,
    without_nulls,
    without_titles,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pydantic_core import ErrorDetails

__all__ = ["FunctionArguments", "plain_function"]

_SHOWN = 60  # characters of an invalid value in an error
_MOST_REASONS = 8  # a list may have thousands of invalid items


# Unknown arguments are refused; `"5"` is accepted as 5 and 5 as `"5"`, as models often mix them up.
_STRICT = ConfigDict(extra="forbid", coerce_numbers_to_str=True)


@dataclass(frozen=True, slots=True)
class FunctionArguments:
    """Arguments that a tool or a prompt accepts.

    Attributes:
        schema: JSON Schema of the arguments, an object that allows no others; null is accepted, too, for
            optional ones.
        context_name: the parameter for the call context, or empty.
        context_type: the class of this parameter.
        model: a Pydantic model of the arguments. A parameter that collides with a model's attribute, such as
            `schema` or `_x`, has another name in it, and its own name as alias.
    """

    schema: dict[str, Any]
    context_name: str
    context_type: type[object]
    model: type[BaseModel]
    _owner: str
    _fields: Mapping[str, str]
    _checked: bool

    @classmethod
    def of(
        cls,
        function: Callable[..., object],
        name: str,
        *,
        context: type[object],
        kind: Literal["tool", "prompt"] = "tool",
        keywords: Mapping[str, Any] | None = None,
        descriptions: Mapping[str, str] | None = None,
        names: Mapping[str, Any] | None = None,
    ) -> FunctionArguments:
        """Read a function's signature.

        Args:
            function: the function to call with the arguments.
            name: its name for models.
            context: type of the parameter that is no argument: it gets the call context. A subclass counts.
            kind: tool or prompt.
            keywords: further JSON Schema keywords, see `with_keywords`. Arguments are then also validated
                against the schema.
            descriptions: descriptions of arguments whose annotation has none.
            names: further names for annotations, in addition to those of the function's module.

        Raises:
            ValueError: a parameter has no annotation, or one that JSON Schema cannot express, or is not a
                plain named one; or the keywords do not form a valid schema.
            NameError: an annotation names something that the function's module does not have.
        """
        hints = _hints(function, names or {})
        bound = cast("partial[object]", function).keywords if isinstance(function, partial) else {}
        fields: dict[str, Any] = {}
        internal: dict[str, str] = {}
        context_name, context_type = "", context
        signature = inspect.signature(cast("Callable[..., object]", function))
        for argument, parameter in signature.parameters.items():
            if argument in bound:  # the program has set it, so models cannot
                continue
            if argument not in hints:
                raise ValueError(f"{kind} {name!r}: parameter {argument!r} has no annotation")
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise ValueError(f"{kind} {name!r}: parameter {argument!r} cannot be given by name")
            if (found := _context_type(hints[argument], context)) is not None:
                context_name, context_type = argument, found
                continue
            default = ... if parameter.default is parameter.empty else parameter.default
            internal[argument] = _field_name(argument)
            fields[internal[argument]] = (Annotated[hints[argument], Field(alias=argument)], default)
        model = _model_of(fields, name, owner=f"{kind} {name!r}")
        schema = without_nulls(without_titles(_schema_of(model, f"{kind} {name!r}")))
        for argument, description in (descriptions or {}).items():
            if argument in schema["properties"]:
                schema["properties"][argument].setdefault("description", description)
        schema = inline_definitions(schema)
        if keywords:
            schema = with_keywords(schema, keywords)
            _problems({}, schema)  # raises if the schema is invalid
        return cls(schema, context_name, context_type, model, name, internal, bool(keywords))

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Parse arguments to the values for the function.

        Raises:
            InvalidInputError: it names missing, unknown and invalid arguments, eight at most, and all valid
                ones.
        """
        try:
            values = self.model.model_validate(given)
        except ValidationError as first:
            try:
                values = self.model.model_validate(_repair(given, first))
            except ValidationError as error:
                raise self._invalid(error) from None
        if self._checked:
            sent = values.model_dump(mode="json", by_alias=True, exclude_unset=True)
            if reasons := _problems(sent, self.schema):
                raise self._invalid_error("; ".join(reasons))
        return {argument: getattr(values, field) for argument, field in self._fields.items()}

    def _invalid(self, error: ValidationError) -> InvalidInputError:
        details = error.errors(include_url=False)
        told = [_explain(detail, self._fields) for detail in details[:_MOST_REASONS]]
        if more := len(details) - len(told):
            told.append(f"and {more:,} more")
        return self._invalid_error("; ".join(told))

    def _invalid_error(self, reasons: str) -> InvalidInputError:
        fields = self.model.model_fields
        listed = ", ".join(
            f"{argument} (required)" if fields[field].is_required() else argument
            for argument, field in self._fields.items()
        )
        return InvalidInputError(
            f"Invalid arguments for `{self._owner}`: {reasons}.",
            advice=f"Valid arguments: {listed}." if listed else "It takes no arguments.",
        )


def plain_function(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function with docstring and annotations: unwrap a partial, or take `__call__`."""
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    if inspect.isroutine(function) or inspect.isclass(function):
        return function
    return cast("Callable[..., object]", getattr(function, "__call__"))  # noqa: B004, B009 - intended


def _hints(function: Callable[..., object], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of the parameters. The return type may be unresolvable here."""
    plain = plain_function(function)
    told = SimpleNamespace(__annotations__=dict(inspect.get_annotations(plain)))
    told.__annotations__.pop("return", None)
    home = getattr(inspect.unwrap(plain), "__globals__", {})
    return typing.get_type_hints(told, globalns=home, localns=dict(names), include_extras=True)


def _model_of(fields: Mapping[str, Any], name: str, *, owner: str) -> type[BaseModel]:
    from pydantic.errors import PydanticUserError

    try:
        return create_model(f"{name}_arguments", __config__=_STRICT, **fields)
    except PydanticUserError as error:
        reason = (error.message or "").splitlines()[0]
        raise ValueError(f"{owner}: an annotation cannot be used: {reason}") from error


def _schema_of(model: type[BaseModel], owner: str) -> dict[str, Any]:
    from pydantic.errors import PydanticInvalidForJsonSchema
    from pydantic.json_schema import GenerateJsonSchema

    class Quiet(GenerateJsonSchema):
        # A default outside of JSON is left out of the schema, and still applies.
        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    try:
        return model.model_json_schema(schema_generator=Quiet)
    except PydanticInvalidForJsonSchema as error:
        raise ValueError(
            f"{owner}: an annotation cannot be expressed in JSON Schema: {error.message}"
        ) from error


def _context_type(hint: object, context: type[object]) -> type[object] | None:
    """Return the class of a parameter for the context, which may be optional; None for an argument."""
    parts = typing.get_args(hint)
    is_optional = len(parts) == 2 and type(None) in parts
    for each in parts if is_optional else (hint,):
        kind = typing.get_origin(each) or each
        if isinstance(kind, type) and issubclass(kind, context):
            return kind
    return None


def _field_name(argument: str) -> str:
    """Return a field name for an argument, another one for each; some names are reserved in models."""
    taken = argument.startswith(("_", "model_", "argument_")) or hasattr(BaseModel, argument)
    return f"argument_{argument}" if taken else argument


def _problems(given: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    from loom_core.llm.json_schema.values import find_problems

    try:
        return find_problems(given, schema)
    except InvalidInputError as error:
        raise ValueError(str(error)) from error


def _repair(given: Mapping[str, Any], error: ValidationError) -> dict[str, Any]:
    """Repair refused arguments as some hosts send them: lists and objects as JSON text, null for left out."""
    repaired = dict(given)
    for name in {detail["loc"][0] for detail in error.errors(include_url=False) if detail["loc"]}:
        value = given.get(str(name))
        if value is None:
            repaired.pop(str(name), None)
        elif isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
            try:
                repaired[str(name)] = json.loads(value)
            except (ValueError, RecursionError):
                continue  # no JSON after all: the error is about the received string
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
