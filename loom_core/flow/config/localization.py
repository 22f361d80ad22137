"""Localization of a flow file: for bilingual texts, select the part in one language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from loom_core.flow.understanding.language import Language, in_language

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowFile
    from loom_core.flow.config.models_endpoint import ConfigSection
    from loom_core.flow.config.models_step import StepConfig

__all__ = ["localize"]

_SHOWN = frozenset({"title", "description"})

_S = TypeVar("_S", bound="ConfigSection")


def localize(file: FlowFile, language: Language) -> FlowFile:
    """Localize a file: names, titles, questions and answers, as far as they are bilingual."""
    flows = [
        _localize(flow, language, "name", "response").model_copy(
            update={
                "input_schema": _localize_schema(flow.input_schema, language),
                "endpoint": flow.endpoint and _localize(flow.endpoint, language, "failure"),
                "steps": _localize_steps(flow.steps, language),
            }
        )
        for flow in file.flows
    ]
    update = {
        "basic_settings": _localize(file.basic_settings, language, "name", "greeting"),
        "flows": flows,
        "skills": [_localize(skill, language, "confirm") for skill in file.skills],
        "system_tools": [_localize(tool, language, "confirm") for tool in file.system_tools],
    }
    return file.model_copy(update=update)


def _localize_steps(steps: Sequence[StepConfig], language: Language) -> list[StepConfig]:
    return [_localize_step(step, language) for step in steps]


def _localize_step(step: StepConfig, language: Language) -> StepConfig:
    update: dict[str, Any] = {
        "on_success": [_localize(action, language, "response") for action in step.on_success],
        "on_failure": [_localize(action, language, "response") for action in step.on_failure],
        "operation": step.operation and _localize(step.operation, language, "failure"),
        "confirm": step.confirm and _localize(step.confirm, language, "question"),
        "wait_for": step.wait_for and _localize(step.wait_for, language, "text"),
        "handover": step.handover and _localize(step.handover, language, "text"),
    }
    if step.ask is not None:
        schema = None if step.ask.answer is None else _localize_schema(step.ask.answer, language)
        options = step.ask.options and _localize(step.ask.options, language, "none")
        asked = _localize(step.ask, language, "question")
        update["ask"] = asked.model_copy(update={"answer": schema, "options": options})
    told = _localize(step, language, "description", "say").model_copy(update=update)
    return told.map_inner(lambda steps: _localize_steps(steps, language))


def _localize_schema(schema: Mapping[str, Any], language: Language) -> dict[str, Any]:
    """Localize the titles and descriptions in a schema."""
    told = _localize_title(schema, language)
    if isinstance(named := schema.get("properties"), Mapping):
        parts = cast("Mapping[str, object]", named).items()
        told["properties"] = {name: _localize_title(part, language) for name, part in parts}
    return told


def _localize_title(part: object, language: Language) -> Any:  # noqa: ANN401 - JSON
    if not isinstance(part, Mapping):
        return part
    return {
        name: in_language(value, language) if name in _SHOWN and isinstance(value, str) else value
        for name, value in cast("Mapping[str, object]", part).items()
    }


def _localize(section: _S, language: Language, *names: str) -> _S:
    """Localize those of some fields of a part of the file that are texts."""
    texts = {name: text for name in names if isinstance(text := getattr(section, name), str)}
    return section.model_copy(update={name: in_language(text, language) for name, text in texts.items()})
