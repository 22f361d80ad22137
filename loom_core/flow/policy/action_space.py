"""Action space of a message: the actions that a model may choose, and validation of its choice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loom_core.errors import InvalidInputError
from loom_core.flow.executor.inputs import check_known, normalise_formats, validate_inputs
from loom_core.flow.understanding.choices import properties_of
from loom_core.llm.text import compact_json
from loom_core.tools.arguments import ToolArguments

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig, SkillConfig
    from loom_core.runs.run import Pending
    from loom_core.tools.interface import Tool

__all__ = ["ActionSpace", "DecisionAction"]

DecisionAction: TypeAlias = Literal[
    "respond", "flow", "skill", "tool", "clarify", "answer", "approve", "deny", "cancel"
]

_MAX_LENGTH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpace:
    """The possible actions for one message.

    Attributes:
        flows: flows that may be started.
        flow_text: their description for a model.
        skills: skills that may apply, by priority.
        tools: tools that may be called without a skill.
        hints: flows that the message names without asking for them, as far as its words show.
        pending: pending question of a run, if any.
        asking: flow of that run; None for a tool's question.
    """

    flows: Sequence[FlowConfig] = ()
    flow_text: str = ""
    skills: Sequence[SkillConfig] = ()
    tools: Sequence[Tool] = ()
    hints: Sequence[FlowConfig] = ()
    pending: Pending | None = None
    asking: FlowConfig | None = None

    @property
    def actions(self) -> list[DecisionAction]:
        """The action types."""
        there: dict[DecisionAction, object] = {
            "respond": True,
            "flow": self.flows,
            "skill": self.skills,
            "tool": self.tools,
            "clarify": True,
        }
        if self.pending is not None:
            is_question = self.pending.kind == "question"
            there |= {"answer": is_question or self.asking, "cancel": True}
            there |= {"approve": not is_question, "deny": not is_question}
        return [action for action, given in there.items() if given]

    @property
    def targets(self) -> list[str]:
        """The targets, "" included."""
        flows = [each.flow_id for each in self.flows]
        named = [*flows, *(each.id for each in self.skills), *(each.name for each in self.tools)]
        return ["", *dict.fromkeys(named)]

    def validate(self, action: str, target: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Validate the parameters of a choice against its target's schema.

        Raises:
            InvalidInputError: the choice does not exist, or the parameters are invalid.
        """
        if action not in self.actions:
            raise InvalidInputError(f"There is no action {action!r}.", advice=_join_names(self.actions))
        match action:
            case "flow":
                flow = next((each for each in self.flows if each.flow_id == target), None)
                if flow is None:
                    raise _unknown_error("flow", target, [each.flow_id for each in self.flows])
                return _inputs(flow, parameters)
            case "skill":
                if not any(each.id == target for each in self.skills):
                    raise _unknown_error("skill", target, [each.id for each in self.skills])
                return {}
            case "tool":
                tool = next((each for each in self.tools if each.name == target), None)
                if tool is None:
                    raise _unknown_error("tool", target, [each.name for each in self.tools])
                prepared = tool.prepare_arguments(parameters)
                return dict(parameters if prepared is None else prepared)
            case "answer":
                return self._answer(parameters)
            case _:
                return {}

    def _answer(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        pending = self.pending
        assert pending is not None
        asked = properties_of(pending.schema)
        known = {**(properties_of(self.asking.input_schema) if self.asking else {}), **asked}
        if not parameters:
            raise InvalidInputError("An answer has parameters.", advice=_join_names(known))
        if strange := [name for name in parameters if name not in known]:
            raise _unknown_error("input", strange[0], list(known))
        shared = {name: pending.schema[name] for name in ("$defs", "definitions") if name in pending.schema}
        schema = {"type": "object", "properties": known, **shared}
        given = {name: value for name, value in parameters.items() if value is not None}
        return ToolArguments("answer", schema).validate(normalise_formats(schema, given))

    def render(self) -> str:
        """Render the action space for a model."""
        parts = [self.flow_text.strip()] if self.flows else []
        if self.skills:
            lines = [
                f"{number}. `{each.id}`: {_line(each.condition)} → {_line(each.action)}"
                for number, each in enumerate(self.skills, 1)
            ]
            parts.append("\n".join(["## Skills (id: when it applies → what is done then)", "", *lines]))
        if self.tools:
            lines = [
                f"- `{each.name}`: {_line(each.description)} Parameters: {compact_json(each.args_schema)}"
                for each in self.tools
            ]
            parts.append("\n".join(["## Tools", "", *lines]))
        if self.hints:
            named = ", ".join(f"`{each.flow_id}`" for each in self.hints)
            parts.append(
                f"The message names {named}, though maybe without asking for it: it is negated, asked about, "
                "or only mentioned. Choose it only if the user wants to start it now."
            )
        if self.pending is not None:
            parts.append(self._render_pending(self.pending))
        return "\n\n".join(parts)

    def _render_pending(self, pending: Pending) -> str:
        about = f" for the flow `{self.asking.flow_id}`" if self.asking else ""
        lines = ["## What the user was just asked", "", f"{_line(pending.reason)} ({pending.kind}{about})"]
        if pending.kind == "question":
            lines.append(f"Fields of an answer: {compact_json(pending.schema)}")
        if pending.arguments:
            lines.append(f"What it goes on with so far: {compact_json(pending.arguments)}")
        if self.asking:
            inputs = properties_of(self.asking.input_schema)
            lines.append(f"Inputs that can be corrected: {compact_json(inputs)}")
        return "\n".join(lines)


def _inputs(flow: FlowConfig, parameters: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in parameters.items() if value is not None and value != ""}
    if not given:
        return {}
    check_known(flow, list(given))
    return validate_inputs(flow, given, whole=False)


def _unknown_error(what: str, name: str, known: Sequence[str]) -> InvalidInputError:
    return InvalidInputError(f"There is no {what} {name!r}.", advice=_join_names(known))


def _join_names(known: Sequence[str] | Mapping[str, Any]) -> str:
    return f"There are: {', '.join(known)}."


def _line(text: str) -> str:
    one = " ".join(text.split())
    return one if len(one) <= _MAX_LENGTH else f"{one[:_MAX_LENGTH]}…"
