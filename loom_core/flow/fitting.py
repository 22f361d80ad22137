"""Which inputs the schema of a flow takes, of those that were found for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loom_core.errors import InvalidInputError
from loom_core.flow.executor.inputs import checked_inputs
from loom_core.flow.fields import refused_value

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.phrases import Phrases

__all__ = ["fitting_inputs", "refused_numbers"]


def fitting_inputs(flow: FlowConfig, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that the schema of a flow takes, each by itself."""
    known = flow.input_schema.get("properties")
    fitting: dict[str, Any] = {}
    for name, value in parameters.items():
        if not isinstance(known, Mapping) or name not in known:
            continue
        try:
            fitting |= checked_inputs(flow, {name: value}, whole=False)
        except InvalidInputError:
            continue
    return fitting


def refused_numbers(flow: FlowConfig, parameters: Mapping[str, Any], *, phrases: Phrases) -> str:
    """What is said of numbers that the schema of a flow does not take; empty if it takes all."""
    schemas: Any = flow.input_schema.get("properties") or {}
    refused = [
        refused_value(str(value), name, schemas[name])
        for name, value in parameters.items()
        if name in schemas and isinstance(value, int | float)
    ]
    return "\n".join(phrases.refused_value(each) for each in refused if each)
