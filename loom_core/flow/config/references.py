"""Validation of references in a flow file's texts, to inputs and to outputs of steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeAlias, cast

from pydantic import JsonValue

from loom_core.config_file import ConfigPath, ConfigProblem
from loom_core.errors import UnreadableTextError
from loom_core.flow.expressions.condition import Condition
from loom_core.flow.expressions.expression import Expression, output_expression
from loom_core.flow.expressions.template import check_url, expressions_in
from loom_core.llm.json_schema.values import readable_path

__all__ = [
    "NAME_INPUT",
    "TemplateText",
    "TextKind",
    "input_names",
    "missing_message",
    "reference_problems",
    "texts_in",
    "unreadable_problem",
]


TextKind: TypeAlias = Literal["template", "url", "expression", "output", "condition"]
"""The kind of a text: a template, an address template, an expression, an output expression (may end in `?`),
or a condition."""

NAME_INPUT = "Name it in the `properties` of `input_schema`."
"""Advice where no input has a name."""

_SHOWN = 80
_GRAMMAR = "“Expressions, templates, conditions” in docs/reference/flow-config.md describes the syntax."


@dataclass(frozen=True, slots=True)
class TemplateText:
    """A text with references.

    Attributes:
        path: its path.
        text: the text.
        kind: the kind of the text.
    """

    path: ConfigPath
    text: str
    kind: TextKind = "template"

    def expressions(self) -> tuple[Expression, ...]:
        """Return the expressions in the text.

        Raises:
            UnreadableTextError: it cannot be parsed.
        """
        if self.kind == "condition":
            return Condition.of(self.text).expressions
        if self.kind == "expression":
            return (Expression.of(self.text),)
        if self.kind == "output":
            return (output_expression(self.text),)
        if self.kind == "url":
            check_url(self.text)
        return tuple(expressions_in(self.text))


def texts_in(value: JsonValue | Mapping[str, JsonValue], path: ConfigPath) -> Iterator[TemplateText]:
    """Yield the texts of a JSON value as templates; keys are not templates."""
    if isinstance(value, str):
        yield TemplateText(path, value)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from texts_in(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from texts_in(each, (*path, index))


def reference_problems(
    texts: Iterable[TemplateText],
    inputs: Collection[str] | None,
    outputs: Mapping[str, Collection[str]],
    *,
    own: Collection[str] = (),
    before: Collection[str] | None = None,
    loops: Mapping[str, Sequence[str]] | None = None,
    inside: Sequence[str] = (),
) -> Iterator[ConfigProblem]:
    """Yield texts that cannot be parsed, and references to names that do not exist, or not yet.

    Args:
        texts: the texts with references.
        inputs: names of inputs; None if any name is allowed.
        outputs: names of outputs by the id of their step.
        own: names of outputs of the flow itself.
        before: ids of the steps that may have completed when the texts are filled; None for all.
        loops: ids of the `for_each` steps that each step is inside of, outermost first, by its id.
        inside: the same for the texts.
    """
    for text in texts:
        try:
            expressions = text.expressions()
        except UnreadableTextError as error:
            yield unreadable_problem(text.path, error)
            continue
        for each in expressions:
            if each.root == "inputs" and each.path:
                name = each.path[0]
                if inputs is not None and name not in inputs:
                    yield ConfigProblem(
                        text.path,
                        f"no schema defines the input {name[:_SHOWN]!r}.",
                        missing_message(name, inputs, none=NAME_INPUT),
                    )
            elif each.root == "outputs" and each.path and each.path[0] not in own:
                name = each.path[0][:_SHOWN]
                advice = missing_message(name, own, none="Name it in the `outputs` of the flow.")
                yield ConfigProblem(text.path, f"the flow has no output {name!r}.", advice)
            elif each.root in {"item", "index"} and not inside:
                yield ConfigProblem(
                    text.path,
                    f"{each.source} exists only in the steps of `for_each`.",
                    "Name an input or an output of a step.",
                )
            elif each.root == "steps":
                yield from _step_problems(text.path, each, outputs, before)
                outer = tuple((loops or {}).get(each.path[0], ()))
                if outer != tuple(inside[: len(outer)]):
                    yield ConfigProblem(
                        text.path,
                        f"the step {each.path[0]!r} runs once for each item of {outer[-1]!r}.",
                        f"Its results are in $steps.{outer[-1]}.outputs.results.",
                    )


def _step_problems(
    path: ConfigPath,
    expression: Expression,
    outputs: Mapping[str, Collection[str]],
    before: Collection[str] | None,
) -> Iterator[ConfigProblem]:
    step, *rest = expression.path
    if step not in outputs:
        advice = missing_message(step, outputs, none="Name one of the steps of this flow.")
        yield ConfigProblem(path, f"there is no step {step[:_SHOWN]!r}.", advice)
    elif before is not None and step not in before:
        yield ConfigProblem(
            path,
            f"the step {step!r} does not come before this one, so it has no outputs yet.",
            "Refer to a step before this one, or move it.",
        )
    elif rest and rest[0] not in outputs[step]:
        yield ConfigProblem(
            path,
            f"the step {step!r} has no output {rest[0][:_SHOWN]!r}.",
            missing_message(rest[0], outputs[step], none="Name it in the `outputs` of the step."),
        )


def missing_message(name: str, known: Collection[str], *, none: str) -> str:
    """Return advice for an unknown name.

    Args:
        name: the unknown name.
        known: the existing names.
        none: the advice if there are no names at all.
    """
    near = get_close_matches(name, known, n=1)
    if near:
        return f"Did you mean {near[0]!r}?"
    return f"There are: {', '.join(sorted(known)[:20])}." if known else none


def unreadable_problem(
    path: ConfigPath, error: UnreadableTextError, *, advice: str = _GRAMMAR
) -> ConfigProblem:
    """Return the problem that a text cannot be parsed; by default, an expression or a template."""
    where = f"character {error.column}" if error.line == 1 else f"line {error.line}, character {error.column}"
    inside = path[2:] if len(path) > 2 and isinstance(path[1], int) else path  # of a flow, skill or tool
    key = readable_path(inside)
    return ConfigProblem(path, f"{key}: {error.reason} ({where} of it).", advice)


_PARTS = ("allOf", "anyOf", "oneOf")
_MAX_COUNT = 1000


def input_names(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the property names of a schema, its subschemas included; None if any name is allowed.

    Args:
        schema: of an object.
    """
    names = set[str]()
    waiting: list[object] = [schema]
    for _ in range(_MAX_COUNT):
        if not waiting:
            return frozenset(names)
        part = waiting.pop()
        if not isinstance(part, Mapping):
            continue
        keywords = cast("Mapping[str, Any]", part)
        if keywords.get("patternProperties") or keywords.get("additionalProperties", False) is not False:
            return None
        names |= set(_as_mapping(keywords.get("properties")))
        for keyword in _PARTS:
            each = keywords.get(keyword)
            waiting += cast("list[object]", each) if isinstance(each, list) else []
        waiting += [keywords.get(keyword) for keyword in ("if", "then", "else")]
        if "$ref" in keywords:
            waiting.append(_resolve_reference(schema, keywords["$ref"]))
    return None


def _resolve_reference(schema: Mapping[str, Any], reference: object) -> object:
    """Resolve a reference such as `#/$defs/…`."""
    value: object = schema
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return {"additionalProperties": True}  # nothing is known about it
    for step in reference[2:].split("/"):
        value = _as_mapping(value).get(step.replace("~1", "/").replace("~0", "~"))
    return value


def _as_mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
