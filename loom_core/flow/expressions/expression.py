"""Expressions: names of values, such as `$steps.submit.outputs.id` and `$response.body#/data/0`.

The root is followed by keys in any script: `.key`, `["any key"]` and `[0]`, and at the end a JSON Pointer
(RFC 6901) after `#`. Arazzo 1.1 has the roots `$inputs`, `$outputs`, `$steps`, `$response` and
`$statusCode`; `$context`, `$message`, `$item` and `$index` are extensions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from loom_core.errors import LoomError, UnreadableTextError

if TYPE_CHECKING:
    from loom_core.tools.interface import JsonValue

__all__ = [
    "MISSING",
    "ROOT",
    "Expression",
    "ExpressionValues",
    "Missing",
    "MissingOutputError",
    "ResponseLike",
    "check_expression",
    "evaluate",
    "look_up",
    "output_expression",
    "parse_expression",
    "parse_pointer",
    "read_output",
]


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING
"""Marker for a value that does not exist, as opposed to null."""


class ResponseLike(Protocol):
    """A response to a request."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers; names are case-insensitive."""
        ...

    @property
    def body(self) -> JsonValue:
        """The body: JSON or text."""
        ...


@dataclass(frozen=True, slots=True)
class ExpressionValues:
    """The values that expressions of a flow can refer to.

    Attributes:
        inputs: `$inputs.days`.
        steps: the outputs of each completed step: `$steps.submit.outputs.id`.
        outputs: the flow's own, at its end: `$outputs.id`.
        response: the response to the step's request, if any: `$response.body#/id`, `$statusCode`.
        context: variables of the conversation: `$context.tenantId`.
        message: the user's message: `$message`.
        item: the item that a step of `for_each` runs for: `$item#/id`.
        index: its number, from 0: `$index`.
    """

    inputs: Mapping[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    steps: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict[str, "Mapping[str, JsonValue]"])
    outputs: Mapping[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    response: ResponseLike | None = None
    context: Mapping[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    message: str = ""
    item: JsonValue | Missing = MISSING
    index: int | Missing = MISSING


_MAX_LENGTH = 1000
_MAX_DEPTH = 50
_MAX_SIZE = 9  # digits of a list index

ROOT = re.compile(r"\$(inputs|outputs|steps|response|statusCode|context|message|item|index)(?![\w-])")
"""Pattern of an expression's beginning."""

_KEY = re.compile(r"\.((?:\w|-(?=\w|-))+)")
_PLACE = re.compile(r"\[([0-9]+)\]")
_QUOTED = re.compile(r"""\[("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\]""")
_HEADER = re.compile(r"\.([A-Za-z0-9!#$%&'*+.^_`|~-]+)")
_POINTER_END = re.compile(r"[\s{}()<>=!&|,]|\Z")


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression: the name of a value.

    Attributes:
        source: the original text.
        root: `inputs`, `outputs`, `steps`, `body`, `header`, `statusCode`, `context`, `message`, `item`
            or `index`.
        path: the keys and indexes after it, as texts; for `steps`, it starts with the step's id and the
            output's name, for `header` with its name.
    """

    source: str
    root: str
    path: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Expression:
        """Parse an expression.

        Raises:
            UnreadableTextError: a `ConfigError`; with the column.
        """
        return _parse_whole(text)

    def value(self, values: ExpressionValues) -> JsonValue | Missing:
        """Resolve the expression; return `MISSING` if there is no such value."""
        match self.root:
            case "message":
                return values.message
            case "index":
                return values.index
            case "item":
                return MISSING if values.item is MISSING else look_up(values.item, self.path)
            case "steps":
                step = values.steps.get(self.path[0])
                return MISSING if step is None else look_up(step, self.path[1:])
            case "inputs":
                return look_up(values.inputs, self.path)
            case "outputs":
                return look_up(values.outputs, self.path)
            case "context":
                return look_up(values.context, self.path)
            case _:
                return self._of_response(values)

    def _of_response(self, values: ExpressionValues) -> JsonValue | Missing:
        if values.response is None:
            return MISSING
        if self.root == "statusCode":
            return values.response.status
        if self.root == "body":
            return look_up(values.response.body, self.path)
        wanted = self.path[0].lower()
        named = (value for name, value in values.response.headers.items() if name.lower() == wanted)
        return next(named, MISSING)


def evaluate(expression: str, values: ExpressionValues) -> JsonValue:
    """Resolve an expression; return None if there is no such value.

    Raises:
        UnreadableTextError: it is invalid.
    """
    value = _parse_whole(expression).value(values)
    return None if value is MISSING else value


def check_expression(text: str) -> None:
    """Check that a text is an expression.

    Raises:
        UnreadableTextError: it is invalid; a `ConfigError` with the column.
    """
    _parse_whole(text)


@lru_cache(maxsize=4096)
def _parse_whole(text: str) -> Expression:
    expression, end = parse_expression(text, 0)
    if end != len(text):
        _fail(text, end, f"nothing is allowed after {expression.source}")
    return expression


def parse_expression(text: str, start: int) -> tuple[Expression, int]:
    """Parse the expression at a position of a text, and return it with its end.

    Raises:
        UnreadableTextError: no expression begins there.
    """
    root = ROOT.match(text, start)
    if root is None or len(text) > _MAX_LENGTH * 10:
        _fail(
            text,
            start,
            "expected $inputs, $outputs, $steps, $response, $statusCode, $context, $message, $item or $index",
        )
    name, at = root[1], root.end()
    if name in {"statusCode", "message", "index"}:
        return Expression(text[start:at], name, ()), at
    if name == "response":
        part = _KEY.match(text, at)
        if part and part[1] == "header":
            header = _HEADER.match(text, part.end())
            if header is None:
                _fail(text, part.end(), "expected the name of a header, as in $response.header.location")
            return Expression(text[start : header.end()], "header", (header[1],)), header.end()
        if not part or part[1] != "body":
            _fail(text, at, "$response is followed by .body or .header")
        name, at = "body", part.end()
    path, at = _parse_path(text, at)
    if name == "steps":
        if len(path) < 2 or path[1] != "outputs":
            _fail(text, at, "a step's output is $steps.<stepId>.outputs.<name>")
        path = [path[0], *path[2:]]
    if at - start > _MAX_LENGTH or len(path) > _MAX_DEPTH:
        _fail(text, start, "this expression is too long")
    return Expression(text[start:at], name, tuple(path)), at


def _parse_path(text: str, at: int) -> tuple[list[str], int]:
    path: list[str] = []
    while True:
        if key := _KEY.match(text, at) or _PLACE.match(text, at):
            path.append(key[1])
        elif key := _QUOTED.match(text, at):
            path.append(_unquote(text, at + 1, key[1]))
        elif text.startswith(".", at) and text[at + 1 : at + 2].strip(" .,;:!?)}。，；：！？）"):
            _fail(text, at, 'expected a name; write others as ["any name"]')
        elif text.startswith("[", at):
            _fail(text, at, "in brackets, write an index, or a name in quotes")
        elif text.startswith("#", at):
            pointer, end = _parse_pointer(text, at + 1)
            return path + pointer, end
        else:
            return path, at
        at = key.end()


def _unquote(text: str, at: int, quoted: str) -> str:
    if quoted.startswith("'"):
        quoted = '"' + quoted[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    try:
        return str(json.loads(quoted))
    except ValueError:
        _fail(text, at, "this name is invalid")


def _parse_pointer(text: str, at: int) -> tuple[list[str], int]:
    found = _POINTER_END.search(text, at)
    end = found.start() if found else len(text)
    try:
        return parse_pointer(text[at:end]), end
    except ValueError as error:
        _fail(text, at, f"# is followed by {error}")


def parse_pointer(pointer: str) -> list[str]:
    """Return the path of a JSON Pointer (RFC 6901): keys and indexes, for `look_up`.

    Raises:
        ValueError: it is none.
    """
    if not pointer:
        return []
    if not pointer.startswith("/") or re.search(r"~(?![01])", pointer):
        raise ValueError("a JSON Pointer, such as /data/0/id; ~ is ~0 there, and / in a name ~1")
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")]


def look_up(value: JsonValue, path: Sequence[str]) -> JsonValue | Missing:
    """Return the value at a path of keys and indexes; `MISSING` if there is none."""
    for step in path:
        if isinstance(value, Mapping):
            if step not in value:
                return MISSING
            value = value[step]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            if not (step.isascii() and step.isdecimal()) or len(step) > _MAX_SIZE or step != str(int(step)):
                return MISSING
            if int(step) >= len(value):
                return MISSING
            value = value[int(step)]
        else:
            return MISSING
    return value


def _fail(text: str, at: int, reason: str) -> NoReturn:
    raise UnreadableTextError.at(text, at, reason)


_MAY_LACK = "?"


class MissingOutputError(LoomError):
    """A step has succeeded without an output that others need."""


def output_expression(written: str) -> Expression:
    """Return the expression of an output, without its `?`.

    Raises:
        UnreadableTextError: it is invalid.
    """
    return Expression.of(written.removesuffix(_MAY_LACK))


def read_output(name: str, written: str, values: ExpressionValues, *, succeeded: bool) -> JsonValue:
    """Return the value of an output; None if it is optional and missing.

    An expression with `?` at its end is optional; a failed step need not have outputs.

    Raises:
        MissingOutputError: it is missing, and the step has succeeded.
        UnreadableTextError: the expression is invalid.
    """
    value = output_expression(written).value(values)
    if value is not MISSING:
        return value
    if succeeded and not written.endswith(_MAY_LACK):
        raise MissingOutputError(
            f"Its output {name!r} is missing: {written} does not exist in the response.",
            advice=f"Correct the expression, or write {written}? if it is optional.",
        )
    return None
