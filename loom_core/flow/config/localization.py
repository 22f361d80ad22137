"""Localization of a flow file: for bilingual texts, select the part in one language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from loom_core.flow.config.models_endpoint import EndpointConfig
from loom_core.flow.understanding.language import Language, in_language

if TYPE_CHECKING:
    from pydantic import JsonValue

    from loom_core.flow.config.models import FlowConfig, FlowFile, SkillConfig, SystemToolConfig
    from loom_core.flow.config.models_endpoint import ConfigSection
    from loom_core.flow.config.models_step import StepConfig

__all__ = ["localize"]

_SHOWN = frozenset({"title", "description"})

_S = TypeVar("_S", bound="ConfigSection")


def localize(file: FlowFile, language: Language) -> FlowFile:
    """Localize a file: names, titles, questions and answers, as far as they are bilingual."""
    settings = _replace_changed(file.basic_settings, language, "name", "greeting")
    update = {
        "basic_settings": settings,
        "flows": [_localize_flow(flow, language) for flow in file.flows],
        "skills": [_localize_confirm(skill, language) for skill in file.skills],
        "system_tools": [_localize_confirm(tool, language) for tool in file.system_tools],
    }
    return file.model_copy(update=update)


_C = TypeVar("_C", "SkillConfig", "SystemToolConfig")


def _localize_confirm(part: _C, language: Language) -> _C:
    """Localize the question before a call of a skill or a tool."""
    return _replace_changed(part, language, "confirm") if isinstance(part.confirm, str) else part


def _localize_flow(flow: FlowConfig, language: Language) -> FlowConfig:
    told = _replace_changed(flow, language, "name", "response")
    return told.model_copy(
        update={
            "input_schema": _localize_schema(flow.input_schema, language),
            "endpoint": _localize_endpoint(flow.endpoint, language),
            "steps": _localize_steps(flow.steps, language),
        }
    )


def _localize_steps(steps: Sequence[StepConfig], language: Language) -> list[StepConfig]:
    return [_localize_step(step, language) for step in steps]


def _localize_step(step: StepConfig, language: Language) -> StepConfig:
    update: dict[str, Any] = {
        "on_success": [_replace_changed(action, language, "response") for action in step.on_success],
        "on_failure": [_replace_changed(action, language, "response") for action in step.on_failure],
        "operation": _localize_endpoint(step.operation, language),
    }
    if step.ask is not None:
        schema = None if step.ask.answer is None else _localize_schema(step.ask.answer, language)
        options = step.ask.options and _replace_changed(step.ask.options, language, "none")
        asked = _replace_changed(step.ask, language, "question")
        update["ask"] = asked.model_copy(update={"answer": schema, "options": options})
    if step.confirm:
        update["confirm"] = _replace_changed(step.confirm, language, "question")
    if step.wait_for is not None:
        update["wait_for"] = _replace_changed(step.wait_for, language, "text")
    if step.handover is not None:
        update["handover"] = _replace_changed(step.handover, language, "text")
    told = _replace_changed(step, language, "description", "say").model_copy(update=update)
    return told.map_inner(lambda steps: _localize_steps(steps, language))


def _localize_endpoint(endpoint: EndpointConfig | None, language: Language) -> EndpointConfig | None:
    return None if endpoint is None else _replace_changed(endpoint, language, "failure")


def _localize_schema(schema: Mapping[str, JsonValue], language: Language) -> dict[str, Any]:
    """Localize the titles and descriptions in a schema."""
    named = schema.get("properties")
    if not isinstance(named, Mapping):
        return _localize_title(schema, language)
    parts = {
        name: _localize_title(cast("Mapping[str, JsonValue]", part), language)
        if isinstance(part, Mapping)
        else part
        for name, part in cast("Mapping[str, JsonValue]", named).items()
    }
    return {**_localize_title(schema, language), "properties": parts}


def _localize_title(part: Mapping[str, JsonValue], language: Language) -> dict[str, Any]:
    return {
        name: in_language(value, language) if name in _SHOWN and isinstance(value, str) else value
        for name, value in part.items()
    }


def _replace_changed(section: _S, language: Language, *names: str) -> _S:
    """Localize some fields of a part of the file."""
    return section.model_copy(update={name: in_language(getattr(section, name), language) for name in names})
