"""The steps of a flow, and the check that they have not changed since a run began."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.flow.config.models_step import Action, StepConfig, iter_steps

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig, FlowFile

__all__ = [
    "REQUEST_STEP",
    "Digests",
    "FlowChangedError",
    "compute_digests",
    "find_changed_step",
    "flow_steps",
    "hands_over",
    "server_tools",
    "step_title",
]

REQUEST_STEP = "request"
"""The id of the only step of a flow that has no steps in the file."""

Digests = list[tuple[str, str]]
"""Digests of steps by id, in order; each covers everything that decides the step's behaviour."""


class FlowChangedError(ConfigError):
    """The steps that a run has completed are not those of the flow any more."""


def flow_steps(file: FlowFile, flow: FlowConfig) -> Sequence[StepConfig]:
    """Return the steps of a flow; a flow without steps has one, its request."""
    if flow.steps:
        return flow.steps
    ends = [Action(type="end", response=flow.response)] if flow.response else []
    request, outputs = file.endpoint_of(flow), {name: f"{each}?" for name, each in flow.outputs.items()}
    return [StepConfig(stepId=REQUEST_STEP, operation=request, outputs=outputs, onSuccess=ends)]


def hands_over(file: FlowFile | None) -> bool:
    """Return whether an enabled flow hands conversations over to operators."""
    flows = file.flows if file is not None else []
    return any(step.handover for flow in flows if flow.enabled for step in iter_steps(flow.steps))


def server_tools(file: FlowFile, *, unasked: bool = False) -> list[str]:
    """Return the tools of MCP servers (`server:tool`) that steps and skills name.

    Args:
        file: the flows.
        unasked: only those that need no approval (`confirm: false`).
    """
    named = [
        (step.tool, step.confirm) for flow in file.flows if flow.enabled for step in iter_steps(flow.steps)
    ]
    named += [(tool, skill.confirm) for skill in file.skills if skill.enabled for tool in skill.tools]
    tools = [tool for tool, confirm in named if ":" in tool and (confirm is False or not unasked)]
    return list(dict.fromkeys(tools))


def step_title(file: FlowFile, flow_id: str, step_id: str) -> str:
    """Return a step's title: its description, else its number; a single request has its flow's title."""
    flow = file.flow(flow_id)
    if flow is None:
        return "#"
    if not flow.steps:
        return flow.title
    numbered = enumerate(iter_steps(flow.steps), 1)
    return next(
        (step.description or f"#{number}" for number, step in numbered if step.step_id == step_id), "#"
    )


def compute_digests(steps: Sequence[StepConfig]) -> Digests:
    """Compute the digests of steps, without texts that only people read; see `Digests`."""
    return [(step.step_id, _digest(step)) for step in steps]


def find_changed_step(before: Digests, now: Digests, done: Sequence[str]) -> str:
    """Return which changed step prevents a run from continuing; empty if none does.

    All steps up to the furthest one that has started must be the same, in the same order; later steps may
    have changed.

    Args:
        before: digests when the run began.
        now: digests of the current file.
        done: ids of the steps that have started.
    """
    places = [place for place, (step_id, _) in enumerate(before) if step_id in done]
    for place in range(max(places, default=-1) + 1):
        if place >= len(now) or now[place] != before[place]:
            return before[place][0]
    return ""


def _digest(step: StepConfig) -> str:
    told = _without_texts(step).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    text = json.dumps(told, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _without_texts(step: StepConfig) -> StepConfig:
    """Return a step without its texts that only people read, and without those of the steps inside it."""
    return step.model_copy(update={"description": "", "say": ""}).map_inner(
        lambda steps: [_without_texts(each) for each in steps]
    )
