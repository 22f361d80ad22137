"""The inputs of a flow: defaults, missing inputs, validation, and names for people."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import InvalidInputError
from loom_core.flow.expressions.expression import MISSING
from loom_core.flow.responses.phrases import Phrases
from loom_core.flow.understanding.choices import choices_of, properties_of
from loom_core.flow.understanding.formats import has_format, is_in_format, read_by_format
from loom_core.flow.understanding.slots import RejectedValue
from loom_core.tools.arguments import ToolArguments

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.config.models_step import StepConfig
    from loom_core.flow.understanding.language import Language

__all__ = [
    "input_form",
    "input_names_of",
    "missing_inputs",
    "names_input",
    "normalise_formats",
    "uses_input",
    "validate_inputs",
    "with_defaults",
    "with_properties",
]

_DECISIONS = {"success_criteria", "on_success", "on_failure", "outputs"}
_IN_PARTS = frozenset("required dependentRequired allOf anyOf oneOf if then else not minProperties".split())


def with_defaults(schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs with defaults for those that are missing or null."""
    inputs = {name: value for name, value in given.items() if value is not None}
    for name, part in properties_of(schema).items():
        if "default" in part and name not in inputs:
            inputs[name] = part["default"]
    return inputs


def missing_inputs(schema: Mapping[str, Any], inputs: Mapping[str, Any]) -> list[str]:
    """Return the names of required inputs that are missing."""
    required = cast("Sequence[str]", schema.get("required", ()))
    return [name for name in required if name not in inputs]


def validate_inputs(
    flow: FlowConfig, given: Mapping[str, Any], *, whole: bool = True, schema: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Validate inputs against the schema of a flow, and repair small mistakes.

    Args:
        flow: the flow.
        given: the inputs.
        whole: whether required ones must be present; otherwise each is checked by itself.
        schema: a schema to use instead of the flow's.

    Raises:
        InvalidInputError: they are invalid.
    """
    try:
        json.dumps(dict(given), allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError):
        raise InvalidInputError(
            f"The inputs for {flow.title} have a value that JSON does not support: a lone "
            "surrogate, or a number that is not finite or too long.",
            advice="Give plain values.",
        ) from None
    schema = flow.input_schema if schema is None else schema
    if not schema:
        return dict(given)
    if not whole:
        schema = {name: part for name, part in schema.items() if name not in _IN_PARTS}
    return ToolArguments(flow.title, schema).validate(normalise_formats(schema, given))


def normalise_formats(schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs with each value of a `format` in its standard form: 明天 as a date.

    Raises:
        InvalidInputError: a text is no such value, or not certainly one.
    """
    inputs = dict(given)
    for name, part in properties_of(schema).items():
        value = inputs.get(name)
        if not isinstance(value, str) or not has_format(part) or is_in_format(value, part):
            continue
        read = read_by_format(value, part)
        if read is MISSING or not is_in_format(read, part):
            refused = RejectedValue(name, None, part)
            raise InvalidInputError(
                f"{name!r} cannot be {value!r}.", advice=Phrases("en").describe_valid_values(refused)
            )
        inputs[name] = read
    return inputs


def input_form(schema: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return the JSON Schema of an answer that gives some inputs and may correct others."""
    properties = schema.get("properties", {})
    form: dict[str, Any] = {
        "type": "object",
        "properties": {name: properties.get(name, {}) for name in names},
        "required": list(names),
    }
    return form | {name: schema[name] for name in ("$defs", "definitions") if name in schema}


def input_names_of(schema: Mapping[str, Any], names: Sequence[str], language: Language | None = None) -> str:
    """Return the titles of some inputs; with a language, the titles of their choices too."""
    properties = properties_of(schema)
    called: list[str] = []
    for name in names:
        told = properties.get(name, {})
        titles = [each.label_in(language) for each in choices_of(told) if each.title] if language else []
        listed = Phrases(language).options.format(options="/".join(titles)) if language and titles else ""
        called.append(f"{told.get('title') or told.get('description') or name}{listed}")
    return ", ".join(called) if all(each.isascii() for each in called) else "、".join(called)


def uses_input(step: StepConfig, name: str, *, ended: bool) -> bool:
    """Return whether a step has used an input.

    Texts of a step that only talks or decides do not count; its criteria and outputs do when it has ended.
    """
    if step.kind in {"say", "ask", "confirm", "none"}:
        decided = step.model_dump(mode="json", include=_DECISIONS) if ended else {}
        return names_input(json.dumps(decided, ensure_ascii=False), name)
    if step.operation is not None and step.request().sends_inputs:
        return True
    if (step.tool or step.workflow_id) and not step.parameters:
        return True
    own = step.map_inner(lambda _: [])  # the steps inside it use inputs by themselves
    return names_input(json.dumps(own.model_dump(mode="json"), ensure_ascii=False), name)


def names_input(text: str, name: str) -> bool:
    """Return whether a template, or JSON of templates, has an input."""
    quoted = re.escape(name)
    return (
        re.search(rf"\$inputs(?![.\[\w])|\$inputs\.{quoted}(?!\w)|\$inputs\[\\?[\"']{quoted}", text)
        is not None
    )


def with_properties(schema: Mapping[str, Any], more: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of inputs with some replaced or added, which keep their titles and formats."""
    if not more:
        return schema
    known = properties_of(schema)
    parts: dict[str, Any] = {}
    for name, part in more.items():
        before = known.get(name, {})
        kept = {key: before[key] for key in ("title", "format") if key in before}
        if not all(is_in_format(each.value, kept) for each in choices_of(part)):
            del kept["format"]
        parts[name] = {**kept, **part}
    return {**schema, "properties": {**schema.get("properties", {}), **parts}}


def check_known(flow: FlowConfig, names: Sequence[str]) -> None:
    """Raise an error for inputs that no schema names.

    Raises:
        InvalidInputError: an input is unknown.
    """
    known = properties_of(flow.input_schema)
    strange = [name for name in names if name not in known]
    if strange and known:
        raise InvalidInputError(
            f"{flow.title} has no input {strange[0]!r}.", advice=f"It has: {', '.join(known)}."
        )
