"""Disambiguation: a question without a run, about which of several flows is meant, or whether one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from loom_core.flow.responses.reply import CHOICE
from loom_core.flow.understanding.choices import number_in_list
from loom_core.flow.understanding.small_talk import is_cancel
from loom_core.flow.understanding.yes_no import yes_or_no
from loom_core.knowledge.text.scripts import normalise
from loom_core.runs.run import Pending

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig
    from loom_core.flow.responses.phrases import Phrases

__all__ = ["DECLINED", "Disambiguation"]

DECLINED = ""
"""The choice of a user who wants none of the options."""

_MAX_LENGTH = 40


@dataclass(frozen=True, slots=True)
class Disambiguation:
    """A disambiguation question: candidate flows for a message.

    Attributes:
        message: the message.
        flows: ids of the candidates, the most likely first.
        parameters: inputs in the message, by flow.
        reason: why the question is asked, such as the model's words.
    """

    message: str
    flows: tuple[str, ...]
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON for the session's state."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Disambiguation:
        """Restore it from `to_json`."""
        return cls(kept["message"], tuple(kept["flows"]), kept["parameters"], kept["reason"])

    def question(self, flows: Sequence[FlowConfig], phrases: Phrases, *, unwanted: bool = False) -> Pending:
        """Build the question.

        Args:
            flows: the candidates.
            phrases: phrases in the user's language.
            unwanted: whether the message negates the request.
        """
        names = _names(flows)
        if len(flows) == 1:
            text = (phrases.unwanted if unwanted else phrases.whether).format(flow=names[0])
            choice: dict[str, Any] = {"type": "boolean", "title": text}
        else:
            lines = [f"{number}. {name}" for number, name in enumerate(names, 1)]
            text = "\n".join([phrases.which, *lines])
            choice = {"type": "string", "enum": names, "title": phrases.which}
        schema = {"type": "object", "properties": {"choice": choice}, "required": ["choice"]}
        return Pending(id=CHOICE, kind="question", reason=text, schema=schema)

    @staticmethod
    def message_of(content: Mapping[str, Any]) -> str:
        """Return the message for a filled-in form of this question."""
        choice = content.get("choice")
        return {True: "yes", False: "no"}[choice] if isinstance(choice, bool) else str(choice or "no")

    def resolve_choice(self, message: str, flows: Sequence[FlowConfig]) -> str | None:
        """Return the id of the chosen flow; `DECLINED`; or None if the message is no choice."""
        if is_cancel(message):
            return DECLINED
        said = yes_or_no(message)
        if said is False:
            return DECLINED
        if len(flows) == 1 and said:
            return flows[0].flow_id
        form = normalise(message).strip(" .。!！?？，,\"'“”「」")
        if not form or len(form) > _MAX_LENGTH:
            return None
        named = [
            flow.flow_id for flow in flows if form in {normalise(flow.title), normalise(flow.flow_id)}
        ] or _flows_in(form, flows)
        if len(named) == 1:
            return named[0]
        number = number_in_list(form)
        place = len(flows) if number == -1 else number
        return flows[place - 1].flow_id if place is not None and 1 <= place <= len(flows) else None


def _flows_in(form: str, flows: Sequence[FlowConfig]) -> list[str]:
    held = [flow for flow in flows if normalise(flow.title) in form]
    return [
        flow.flow_id
        for flow in held
        if not any(flow is not other and normalise(flow.title) in normalise(other.title) for other in held)
    ]


def _names(flows: Sequence[FlowConfig]) -> list[str]:
    """Return the titles of flows if they are unique, else the ids."""
    titles = [flow.title for flow in flows]
    return titles if len({*titles}) == len(titles) else [flow.flow_id for flow in flows]
