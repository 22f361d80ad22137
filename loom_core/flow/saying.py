"""What a message says to a run that waits, beside what its words ask for otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from loom_core.flow.fields import is_free
from loom_core.flow.manners import is_aside
from loom_core.flow.reading import Said, read_answer
from loom_core.flow.triggers.doubt import negates
from loom_core.knowledge.turns import calls_for_knowledge

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.router import RouteMatch
    from loom_core.runs.run import Pending, Run

__all__ = ["Reading", "read_said"]

Reading: TypeAlias = Literal["said", "another", "manners", "unclear"]
"""It says something to what is pending; it asks for another flow; it is only manners; words do not tell."""

_MOST_OF_IT = 0.5  # of a message that a pattern fits, if a text is asked for that may be anything


def read_said(message: str, run: Run, match: RouteMatch, *, flow: FlowConfig | None) -> tuple[Reading, Said]:
    """What a message says to a run that waits, by its words.

    Args:
        message: what the user says.
        run: which waits.
        match: what the trigger patterns say.
        flow: the one that asks; None if a tool does.
    """
    pending = run.pending[0]
    own = {run.request.profile, pending.tool}
    if any(each.flow_id in own and each.negated for each in match.matches) and not _is_certain(match, own):
        return "said", Said("cancel")
    said = read_answer(message, pending, inputs=flow.input_schema if flow else {})
    if said.kind in {"approve", "deny", "cancel", "correct"}:
        return "said", said
    fits_whole = said.kind == "answer" and _is_free(said, pending)
    is_most_of_it = _share(match, message) >= _MOST_OF_IT
    if match.flow is not None and (not fits_whole or is_most_of_it or is_aside(message)):
        if match.flow.flow_id not in own:
            return "another", said
        given: dict[str, Any] = dict(match.parameters)
        if said.kind == "answer" and not fits_whole:
            given.update(said.values)
        given = {name: value for name, value in given.items() if pending.arguments.get(name) != value}
        return ("said", Said("answer", given)) if given else ("manners", said)
    elsewhere = any(each.flow_id not in own for each in (*match.flows, *match.hints))
    if fits_whole and ((elsewhere and is_most_of_it) or not said.is_sure):
        # A question, a request, or about another flow, as it seems.
        said = replace(said, kind="unclear", values={}, is_sure=False)
    if not calls_for_knowledge(message) and (fits_whole or said.kind == "unclear"):
        return "manners", said
    if fits_whole and (elsewhere or negates(message)):
        said = replace(said, is_sure=False)
    return ("said" if said.kind == "answer" and said.is_sure else "unclear"), said


def _asked(pending: Pending) -> Mapping[str, Any]:
    return pending.schema.get("properties", {})


def _is_free(said: Said, pending: Pending) -> bool:
    """Whether an answer is a text that could be about anything."""
    asked = _asked(pending)
    texts = (name for name, value in said.values.items() if isinstance(value, str) and name in asked)
    return any(is_free(asked[name]) for name in texts)


def _is_certain(match: RouteMatch, own: set[str]) -> bool:
    return any(each.flow_id in own and each.certain for each in match.matches)


def _share(match: RouteMatch, message: str) -> float:
    """How much of a message the pattern of the flow that is meant, or may be, fits."""
    meant = {flow.flow_id for flow in (match.flows or match.hints)}
    longest = max((each.length for each in match.matches if each.flow_id in meant), default=0)
    return longest / max(len(message.strip()), 1)
