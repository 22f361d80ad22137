"""The context of expressions: the values of a run."""

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
"""Nothing: what an expression gives that leads nowhere, which is not the same as null."""


class ResponseLike(Protocol):
    """An answer to a request."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers, in any case."""
        ...

    @property
    def body(self) -> JsonValue:
        """What it says: JSON, or a text."""
        ...


@dataclass(frozen=True, slots=True)
class ExpressionValues:
    """What expressions of a flow may name.

    Attributes:
        inputs: `$inputs.days`.
        steps: the outputs of each step that has been done: `$steps.submit.outputs.id`.
        outputs: the flow's own, at its end: `$outputs.id`.
        response: the answer to the step's request, if there is one: `$response.body#/id`, `$statusCode`.
        context: variables of the conversation: `$context.tenantId`.
        message: what the user has written: `$message`.
    """

    inputs: Mapping[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    steps: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict[str, "Mapping[str, JsonValue]"])
    outputs: Mapping[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    response: ResponseLike | None = None
    context: Mapping[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    message: str = ""
