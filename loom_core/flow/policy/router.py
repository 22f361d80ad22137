"""Which flow a message asks for by its words; and what the model is told of flows, where words do not say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from anyio import to_thread

from loom_core.flow.expressions.values import MISSING
from loom_core.flow.triggers.matcher import TriggerMatch, TriggerMatcher
from loom_core.flow.understanding.choices import choices_of
from loom_core.flow.understanding.found_inputs import found_inputs
from loom_core.flow.understanding.typed_text import typed

if TYPE_CHECKING:
    from loom_core.flow.config.models import Ambiguous, FlowConfig
    from loom_core.tools.interface import JsonValue

__all__ = ["FlowRouter", "RouteKind", "RouteMatch"]

RouteKind: TypeAlias = Literal["flow", "ambiguous", "none"]

_LONGEST = 500  # characters of a description that a model reads
_MOST_EXAMPLES = 3
_CONTROL = re.compile(r"[\s\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True)
class RouteMatch:
    """What the words of a message say.

    Attributes:
        kind: `flow`: one is meant; `ambiguous`: several are, alike; `none`: none, as far as words say.
        flow: the one that is meant.
        flows: those of which one is meant, the likeliest first; of `flow` that one.
        parameters: inputs of `flow` that the message holds, in the types of its schema.
        policy: of `ambiguous`, what decides: `llm` or `ask`.
        hints: flows that the message names without asking for them, as far as its words say (they are
            negated, or asked about): the model, or the user, may say that they are meant.
        matches: every pattern that fits, with its place.
    """

    kind: RouteKind
    flow: FlowConfig | None = None
    flows: tuple[FlowConfig, ...] = ()
    parameters: dict[str, JsonValue] = field(default_factory=dict[str, "JsonValue"])
    policy: Ambiguous = "first"
    hints: tuple[FlowConfig, ...] = ()
    matches: tuple[TriggerMatch, ...] = ()


class FlowRouter:
    """Finds the flow that a message asks for, by trigger patterns.

    Args:
        flows: the flows; those that are switched off do not count.
        ambiguous: what becomes of a message that fits several flows alike, unless the likeliest of them says
            otherwise.

    Raises:
        ConfigError: a pattern cannot be used.
    """

    def __init__(self, flows: Iterable[FlowConfig], *, ambiguous: Ambiguous = "first") -> None:
        self._flows = {flow.flow_id: flow for flow in flows if flow.enabled}
        self._policy: Ambiguous = ambiguous
        self._matcher = TriggerMatcher(self._flows.values())

    def match(self, message: str) -> RouteMatch:
        """What the words of a message say.

        Of several flows the one with the highest priority is meant. Of equals, one whose stretch of the
        message holds those of all others; else what the likeliest one's `ambiguous` says, or the router's:
        `first` takes the one with the longest stretch, and of these the first in the file.
        """
        matches = tuple(self._matcher.match(message))
        best: dict[str, TriggerMatch] = {}
        for match in matches:
            best.setdefault(match.flow_id, match)
        certain = [match for match in best.values() if match.certain]
        hints = tuple(self._flows[match.flow_id] for match in best.values() if not match.certain)
        if not certain:
            return RouteMatch("none", hints=hints, matches=matches)
        first = certain[0]
        rivals = [match for match in certain if match.priority == first.priority]
        flow = self._flows[first.flow_id]
        policy = flow.ambiguous or self._policy
        if policy != "first" and not _holds_all(first, rivals):
            flows = tuple(self._flows[match.flow_id] for match in rivals)
            return RouteMatch("ambiguous", flows=flows, policy=policy, hints=hints, matches=matches)
        parameters = self.inputs_of(flow, message, matches)
        return RouteMatch("flow", flow, (flow,), parameters, hints=hints, matches=matches)

    async def matched(self, message: str) -> RouteMatch:
        """As `match`, in a thread where a message may take long."""
        if self._matcher.is_quick(message):
            return self.match(message)
        return await to_thread.run_sync(self.match, message)

    def match_by_pattern(self, message: str) -> FlowConfig | None:
        """The flow that a message asks for, if its words leave no doubt."""
        return self.match(message).flow

    def parameters_of(self, flow: FlowConfig, matches: Sequence[TriggerMatch]) -> dict[str, JsonValue]:
        """Inputs of a flow that its patterns have found: those in no doubt first, then the longest.

        What does not fit the type of its input is left out, so that it is asked for.
        """
        named = flow.input_schema.get("properties")
        schemas = named if isinstance(named, dict) else {}
        found: dict[str, JsonValue] = {}
        for match in matches:
            if match.flow_id != flow.flow_id:
                continue
            for name, text in match.groups.items():
                if name not in schemas or name in found:
                    continue
                value = typed(text, schemas[name])
                if value is not MISSING:
                    found[name] = value
        return found

    def inputs_of(
        self, flow: FlowConfig, message: str, matches: Sequence[TriggerMatch]
    ) -> dict[str, JsonValue]:
        """The same, with those that stand anywhere else in the message; see `found_inputs`."""
        found = self.parameters_of(flow, matches)
        named = flow.input_schema.get("properties")
        schemas = {
            name: schema
            for name, schema in (named if isinstance(named, dict) else {}).items()
            if isinstance(schema, dict) and name not in found
        }
        return {**{each.name: each.value for each in found_inputs(message, schemas)}, **found}

    def build_flow_descriptions(self) -> str:
        """What a model is told of the flows; empty if there are none."""
        if not self._flows:
            return ""
        return "\n".join(["## Available Flows", "", *map(_described, self._flows.values()), ""])


def _holds_all(first: TriggerMatch, rivals: Sequence[TriggerMatch]) -> bool:
    return all(
        match is first
        or (first.start <= match.start and match.end <= first.end and match.length < first.length)
        for match in rivals
    )


def _described(flow: FlowConfig) -> str:
    name = "" if flow.title == flow.flow_id else f" ({_line(flow.title)})"
    lines = [f"- **{flow.flow_id}**{name}: {_line(flow.description) or '(no description)'}"]
    named = flow.input_schema.get("properties")
    required = flow.input_schema.get("required")
    for key, schema in (named if isinstance(named, dict) else {}).items():
        facts = [_kind(schema)] + ["required"] * (isinstance(required, list) and key in required)
        about = schema.get("description") if isinstance(schema, dict) else None
        said = f": {_line(about)}" if isinstance(about, str) else ""
        lines.append(f"  - input `{_line(key)}` ({', '.join(facts)}){said}")
    if flow.examples:
        lines.append(
            "  - examples: " + "; ".join(f'"{_line(each)}"' for each in flow.examples[:_MOST_EXAMPLES])
        )
    return "\n".join(lines)


def _kind(schema: JsonValue) -> str:
    if not isinstance(schema, dict):
        return "any"
    if choices := choices_of(schema):
        return _line(
            "one of "
            + ", ".join(f"{each.value} ({each.title})" if each.title else str(each.value) for each in choices)
        )
    kind = schema.get("type", "any")
    return _line(" or ".join(map(str, kind)) if isinstance(kind, list) else str(kind))


def _line(text: str) -> str:
    one = _CONTROL.sub(" ", text).strip()
    return one if len(one) <= _LONGEST else f"{one[:_LONGEST]}…"
