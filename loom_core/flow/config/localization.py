"""Localization of a flow file: for bilingual texts, select the part in one language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from loom_core.flow.config.models_endpoint import EndpointConfig
from loom_core.flow.understanding.language import Language, in_language

if TYPE_CHECKING:
    from pydantic import JsonValue

    from loom_core.flow.config.models import FlowConfig, FlowFile, SkillConfig, SystemToolConfig
    from loom_core.flow.config.models_endpoint import Section
    from loom_core.flow.config.models_step import StepConfig

__all__ = ["spoken"]

_SHOWN = frozenset({"title", "description"})

_S = TypeVar("_S", bound="Section")


def spoken(file: FlowFile, language: Language) -> FlowFile:
    """Localize a file: names, titles, questions and answers, as far as they are bilingual."""
    settings = _changed(file.basic_settings, language, "name", "greeting")
    update = {
        "basic_settings": settings,
        "flows": [_flow(flow, language) for flow in file.flows],
        "skills": [_confirming(skill, language) for skill in file.skills],
        "system_tools": [_confirming(tool, language) for tool in file.system_tools],
    }
    return file.model_copy(update=update)


_C = TypeVar("_C", "SkillConfig", "SystemToolConfig")


def _confirming(part: _C, language: Language) -> _C:
    """Localize the question before a call of a skill or a tool."""
    return _changed(part, language, "confirm") if isinstance(part.confirm, str) else part


def _flow(flow: FlowConfig, language: Language) -> FlowConfig:
    told = _changed(flow, language, "name", "response")
    return told.model_copy(
        update={
            "input_schema": _schema(flow.input_schema, language),
            "endpoint": _endpoint(flow.endpoint, language),
            "steps": _steps(flow.steps, language),
        }
    )


def _steps(steps: Sequence[StepConfig], language: Language) -> list[StepConfig]:
    return [_step(step, language) for step in steps]


def _step(step: StepConfig, language: Language) -> StepConfig:
    update: dict[str, Any] = {
        "parallel": [_steps(branch, language) for branch in step.parallel],
        "on_success": [_changed(action, language, "response") for action in step.on_success],
        "on_failure": [_changed(action, language, "response") for action in step.on_failure],
        "operation": _endpoint(step.operation, language),
    }
    if step.ask is not None:
        schema = None if step.ask.answer is None else _schema(step.ask.answer, language)
        asked = _changed(step.ask, language, "question")
        update["ask"] = asked.model_copy(update={"answer": schema})
    if step.confirm:
        update["confirm"] = _changed(step.confirm, language, "question")
    return _changed(step, language, "description").model_copy(update=update)


def _endpoint(endpoint: EndpointConfig | None, language: Language) -> EndpointConfig | None:
    return None if endpoint is None else _changed(endpoint, language, "failure")


def _schema(schema: Mapping[str, JsonValue], language: Language) -> dict[str, Any]:
    """Localize the titles and descriptions in a schema."""
    named = schema.get("properties")
    if not isinstance(named, Mapping):
        return _titled(schema, language)
    parts = {
        name: _titled(cast("Mapping[str, JsonValue]", part), language) if isinstance(part, Mapping) else part
        for name, part in cast("Mapping[str, JsonValue]", named).items()
    }
    return {**_titled(schema, language), "properties": parts}


def _titled(part: Mapping[str, JsonValue], language: Language) -> dict[str, Any]:
    return {
        name: in_language(value, language) if name in _SHOWN and isinstance(value, str) else value
        for name, value in part.items()
    }


def _changed(section: _S, language: Language, *names: str) -> _S:
    """Localize some fields of a part of the file."""
    return section.model_copy(update={name: in_language(getattr(section, name), language) for name in names})
