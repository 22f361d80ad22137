"""Pydantic models of tools' arguments, built from their JSON Schema.

Constraints that Pydantic can express in the same way become part of the model: required and optional
arguments, defaults, descriptions, nested objects, lists, choices, unions, null, references, also to
themselves, and the limits of lengths and sizes. All others (`oneOf`, `not`, `if`, patterns, …) are checked by
validation against the schema, which every value must pass first: the model accepts exactly what the schema
accepts.

A format such as `date-time` is an annotation and refuses nothing, as in JSON Schema 2020-12: such a value
stays a text.
"""

from __future__ import annotations

import copy
import keyword
import logging
import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Annotated, Any, ForwardRef, Literal, TypeAlias, Union, cast
from unicodedata import normalize

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    create_model,
    model_validator,
)
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticCustomError, SchemaError

from loom_core.errors import InvalidInputError
from loom_core.llm.json_schema.references import resolve_reference
from loom_core.tools.arguments import ToolArguments
from loom_core.tools.schemas.form import parts_of

__all__ = ["schema_model"]

_Schema: TypeAlias = Mapping[str, Any]

_ANY: Any = Any
_MAX_CLASSES = 200
_CHOICES = frozenset({"$ref", "const", "enum"})
_WORDS = re.compile(r"[^\W_]+")
_UNBUILDABLE = (
    PydanticUserError,
    SchemaError,
    NameError,
    RecursionError,
    TypeError,
    ValueError,
    OverflowError,
)

# Limits that mean the same here and there: Pydantic's name, and the types of values that they are for.
_LIMITS: Mapping[str, tuple[str, frozenset[str]]] = {
    "minLength": ("min_length", frozenset({"string"})),
    "maxLength": ("max_length", frozenset({"string"})),
    "minItems": ("min_length", frozenset({"array"})),
    "maxItems": ("max_length", frozenset({"array"})),
    "minimum": ("ge", frozenset({"integer", "number"})),
    "maximum": ("le", frozenset({"integer", "number"})),
    "exclusiveMinimum": ("gt", frozenset({"integer", "number"})),
    "exclusiveMaximum": ("lt", frozenset({"integer", "number"})),
}

_log = logging.getLogger(__name__)


def schema_model(name: str, schema: Mapping[str, Any]) -> type[BaseModel]:
    """Build a model of a tool's arguments.

    `model.model_validate(arguments)` gives them as attributes; a name that cannot be an attribute (`a-b`,
    `class`, `model_dump`) gets a `_` or a number at its end, and is the alias. Additional properties that the
    schema allows are kept.
    `.model_dump(by_alias=True, exclude_unset=True)` gives the arguments back.

    Args:
        name: name of the tool, and of the model's class.
        schema: a schema without a `schema_problem`.
    """
    maker = _ModelBuilder(schema)
    try:
        return maker.build(name, maker.fields(schema))
    except _UNBUILDABLE as error:  # the schema is not trusted
        _log.debug("the arguments of %s are checked by their schema alone: %s", name, error)
        return maker.build(name, {})


class _ModelBuilder:
    """Builder of models for one schema and the objects in it."""

    def __init__(self, root: _Schema) -> None:
        self._root = root
        self._named: dict[str, type[BaseModel]] = {}  # by the class's name
        self._references: dict[str, Any] = {}
        self._followed = not _moves_references(root)

    def build(self, name: str, fields: dict[str, Any]) -> type[BaseModel]:
        """Build the model of all arguments, which validates against the schema first."""
        arguments = ToolArguments(name, self._root)

        def check(value: object) -> object:
            if not isinstance(value, Mapping):
                return value  # Pydantic reports the error
            try:
                arguments.check(cast("_Schema", value))
            except InvalidInputError as error:
                raise PydanticCustomError("json_schema", "{message}", {"message": str(error)}) from None
            return cast("object", value)

        model = create_model(
            name,
            __config__=_config(self._root),
            __validators__={"_fits_schema": cast("Any", model_validator(mode="before")(check))},
            **fields,
        )
        for each in (*self._named.values(), model):
            each.model_rebuild(_types_namespace=self._named)
        return model

    def fields(self, schema: _Schema) -> dict[str, Any]:
        """Return the fields of an object's model."""
        required = frozenset(schema.get("required", ()))
        properties = cast("_Schema", schema.get("properties", {}))
        fields: dict[str, Any] = {}
        taken = set(properties)
        for name, part in properties.items():
            field = _attribute(name, taken)
            taken.add(field)
            fields[field] = self._field(name, part, required=name in required, same=field == name)
        return fields

    def _field(self, name: str, part: object, *, required: bool, same: bool) -> tuple[Any, Any]:
        says = _as_schema(part)
        options: dict[str, Any] = {} if same else {"alias": name}
        if isinstance(description := says.get("description"), str):
            options["description"] = description
        if required:
            return self._type(part, name), Field(**options)
        default = says.get("default")
        options["default_factory"] = _copies(default)
        kind = self._type(part, name)
        return (Union[kind, None] if default is None else kind), Field(**options)  # noqa: UP007

    def _type(self, part: object, name: str) -> Any:  # noqa: ANN401 - annotations have no better type
        schema = _as_schema(part)
        if not schema:
            return _ANY
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "const" in schema or "enum" in schema:
            return _choice(schema.get("enum", [schema.get("const")]))
        alone = schema.get("allOf", ())
        if len(alone) == 1 and "type" not in schema and "properties" not in schema:
            return self._type(alone[0], name)
        types = schema.get("type")
        if types is None:
            forms = cast("list[object]", schema.get("anyOf") or schema.get("oneOf") or [])
            if "properties" in schema:  # they bind objects only, and other values are allowed here, too
                return Annotated[
                    Union[self._object(schema, name), _ANY],  # noqa: UP007
                    Field(union_mode="left_to_right"),
                ]
            return _either(self._type(form, name) for form in forms)
        names = [types] if isinstance(types, str) else types
        return _either(self._plain(each, schema, name) for each in names)

    def _plain(self, kind: str, schema: _Schema, name: str) -> Any:  # noqa: ANN401 - see _type
        annotation: Any
        match kind:
            case "object":
                return self._object(schema, name)
            case "array":
                items = _ANY if "prefixItems" in schema else self._type(schema.get("items"), name)
                annotation = list[items]
            case "string":
                annotation = StrictStr
            case "integer":
                annotation = Annotated[StrictInt, BeforeValidator(_whole)]
            case "number":
                annotation = StrictInt | StrictFloat
            case "boolean":
                annotation = StrictBool
            case _:
                return None
        limits = _limits(kind, schema)
        return Annotated[annotation, Field(**limits)] if limits else annotation

    def _object(self, schema: _Schema, name: str) -> Any:  # noqa: ANN401 - see _type
        if schema.get("properties") and len(self._named) < _MAX_CLASSES:
            title = self._title(name)
            self._named[title] = create_model(title, __config__=_config(schema), **self.fields(schema))
            return self._named[title]
        values = schema.get("additionalProperties")
        if isinstance(values, Mapping) and not schema.keys() & {"properties", "patternProperties"}:
            return dict[str, self._type(cast("_Schema", values), name)]
        return dict[str, _ANY]

    def _title(self, name: str) -> str:
        """Reserve a class name for an object."""
        words = "".join(word[:1].upper() + word[1:] for word in _WORDS.findall(normalize("NFKC", name)))
        title = words if words.isidentifier() and not keyword.iskeyword(words) else f"Object{words}"
        number = 1
        while title in self._named:
            number += 1
            title = f"{title.rstrip('0123456789')}{number}"
        self._named[title] = BaseModel
        return title

    def _reference(self, reference: str) -> Any:  # noqa: ANN401 - see _type
        target = resolve_reference(self._root, reference) if self._followed else None
        if not isinstance(target, Mapping):
            return _ANY
        if reference not in self._references:
            schema = cast("_Schema", target)
            name = reference.rpartition("/")[2].strip("#") or "arguments"
            if schema.get("type") == "object" and schema.get("properties") and not schema.keys() & _CHOICES:
                title = self._title(name)
                self._references[reference] = ForwardRef(title)
                self._named[title] = create_model(title, __config__=_config(schema), **self.fields(schema))
            else:
                self._references[reference] = _ANY  # while it is made: what refers to itself and is no object
                self._references[reference] = self._type(schema, name)
        return self._references[reference]


def _as_schema(part: object) -> _Schema:
    """Return a subschema; an empty one for `true` and `false`, which Pydantic cannot express."""
    return cast("_Schema", part) if isinstance(part, Mapping) else {}


def _config(schema: _Schema) -> ConfigDict:
    closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
    return ConfigDict(extra="forbid" if closed else "allow", protected_namespaces=())


def _attribute(name: str, taken: Container[str]) -> str:
    """Return a valid attribute name; the same one if possible."""
    plain = (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and not name.startswith("_")
        and not hasattr(BaseModel, name)
        and normalize("NFKC", name) == name
    )
    if plain:
        return name
    words = "_".join(_WORDS.findall(normalize("NFKC", name))).strip("_")
    stem = f"{words}_" if words.isidentifier() else f"field_{words}_"
    field, number = stem, 1
    while field in taken or hasattr(BaseModel, field):
        number += 1
        field = f"{stem}{number}"
    return field


def _choice(values: list[object]) -> Any:  # noqa: ANN401 - see _type
    plain = [value for value in values if value is None or isinstance(value, str | int)]
    if not values or len(plain) < len(values):
        return _ANY
    return Annotated[cast("Any", Literal)[tuple(plain)], BeforeValidator(_whole)]


def _either(kinds: Iterable[Any]) -> Any:  # noqa: ANN401 - see _type
    """Return a union of types; `Any` if there are none."""
    return cast("Any", Union)[tuple(kinds) or (_ANY,)]


def _limits(kind: str, schema: _Schema) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for limited, (option, kinds) in _LIMITS.items():
        if kind in kinds and limited in schema:
            limit = schema[limited]
            limits[option] = int(limit) if option.endswith("length") else limit
    return limits


def _whole(value: object) -> object:
    """Convert a number without a fraction to an integer; JSON Schema does not distinguish them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _copies(value: object) -> Callable[[], object]:
    return lambda: copy.deepcopy(value)


def _moves_references(root: _Schema) -> bool:
    """Return whether a subschema has an `$id`, which its references are relative to."""
    waiting = list(parts_of(root))
    while waiting:
        if isinstance(part := waiting.pop(), Mapping):
            if "$id" in part or "id" in part:
                return True
            waiting += parts_of(cast("_Schema", part))
    return False
