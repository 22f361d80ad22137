"""The values that expressions can refer to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from loom_core.tools.interface import JsonValue

__all__ = ["MISSING", "ExpressionValues", "Missing", "ResponseLike"]


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
