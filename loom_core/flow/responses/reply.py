"""The reply to a message: its text, how it was routed, and pending questions; and the outcome of a turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from loom_core.flow.understanding.language import Language
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.runs.run import Pending, RunStatus

__all__ = [
    "CHOICE",
    "Citation",
    "FlowReply",
    "ReplyStatus",
    "RouteAction",
    "RouteHow",
    "RoutingOutcome",
    "TurnOutcome",
    "WaitingRun",
]

CHOICE = "$choice"
"""The id of a disambiguation question, which belongs to no run. A message answers it, such as one made by
`Disambiguation.message_of` from a form."""

RouteAction: TypeAlias = Literal[
    "flow",  # a flow was started
    "skill",  # skills work on it
    "tool",  # a tool is called for it
    "respond",  # it was answered in words
    "clarify",  # the user is asked which flow is meant
    "answer",  # it was applied as the answer to a waiting run
    "correct",  # it corrected an input of a run
    "approve",  # it approved a pending action
    "deny",  # it denied one
    "cancel",  # a run was cancelled
    "retry",  # a failed run was retried
    "pass_on",  # it was passed on to an operator
    "greet",  # small talk was returned
]
"""The action taken for a message."""

RouteHow: TypeAlias = Literal["rules", "model", "pending", "choice", "manners", "given", "none"]
"""How a message was routed: by trigger patterns; by a model; to a waiting run; as the answer to a
disambiguation question; as small talk; by the program, which named the flow; or not at all."""

ReplyStatus: TypeAlias = "RunStatus"
"""As of a run. `completed` also without a run; `input_required` also for a disambiguation question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingOutcome:
    """How a message was routed.

    Attributes:
        action: the action.
        how: how it was decided.
        flow_id: id of the flow.
        pattern: the best matching trigger pattern.
        start: start of its match in the message.
        end: end of its match.
        skills: ids of the skills that apply.
        tool: the tool.
        candidates: ids of the candidate flows.
        confidence: the model's confidence, from 0 to 1; None without a model.
        reason: why, in the model's words.
        dropped: inputs of the model that the user did not say, so that the run asks for them.
        problem: why a configured model did not decide or answer, or why the knowledge sources failed, for
            operators; empty for none.
    """

    action: RouteAction
    how: RouteHow
    flow_id: str = ""
    pattern: str = ""
    start: int = 0
    end: int = 0
    skills: tuple[str, ...] = ()
    tool: str = ""
    candidates: tuple[str, ...] = ()
    confidence: float | None = None
    reason: str = ""
    dropped: tuple[str, ...] = ()
    problem: str = ""

    def with_problem(self, problem: str) -> RoutingOutcome:
        """Return the same route with another problem."""
        return replace(self, problem=" ".join(filter(None, (self.problem, problem))))


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that an answer is based on.

    Attributes:
        id: its marker in the answer, in brackets, if a model wrote it.
        source: its source.
        title: title of the document; may be empty.
        text: the passage.
    """

    id: str
    source: str
    title: str
    text: str

    @classmethod
    def of(cls, item: KnowledgeItem) -> Citation:
        """Return the citation of a passage."""
        return cls(item.id, item.source, str(item.metadata.get("title") or ""), item.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """The outcome of a turn.

    Attributes:
        route: how it was routed.
        text: the text; before that of a run, if there is one.
        run_id: the run that was started or got the message, and that the turn waits for.
        after: sequence number of its last event before that.
        asked: a question without a run.
        again: whether the run's question is only repeated.
        citations: the passages that the text is based on.
        late: results of earlier runs, which the user has not been told; they come first.
        told: ids of these runs.
    """

    route: RoutingOutcome
    text: str = ""
    run_id: str = ""
    after: int = 0
    asked: Pending | None = None
    again: bool = False
    citations: tuple[Citation, ...] = ()
    late: str = ""
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WaitingRun:
    """An interrupted run of the session that still waits.

    Attributes:
        run_id: id of the run.
        flow_id: its flow; empty if it has none.
        title: its title for people.
        pending: its pending question.
    """

    run_id: str
    flow_id: str
    title: str
    pending: tuple[Pending, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReply:
    """The reply to a message.

    Attributes:
        status: status of the run.
        text: the text for the user.
        language: language of the assistant.
        late: results of earlier runs that ended after their message was answered; the text starts with it.
        told: ids of all runs whose results are in the reply.
        session_id: the conversation, for the next message.
        route: how the message was routed.
        flow_id: its flow; empty for none.
        run_id: its run; empty for none.
        pending: pending questions; the next message is parsed as the answer to the first one.
        citations: the passages that the answer is based on.
        structured: outputs of the run, as data.
        waiting: the interrupted run to which the conversation returns.
        timings: durations in seconds of `rules`, `decision`, `knowledge`, `answer` and `run`, as far as they
            took place, and the `total`.
    """

    status: ReplyStatus
    text: str
    session_id: str
    route: RoutingOutcome
    flow_id: str = ""
    run_id: str = ""
    pending: tuple[Pending, ...] = ()
    citations: tuple[Citation, ...] = ()
    structured: Any = None
    waiting: WaitingRun | None = None
    timings: Mapping[str, float] = field(default_factory=dict[str, float])
    language: Language = "en"
    late: str = ""
    told: tuple[str, ...] = ()

    def after(self, text: str, *, told: tuple[str, ...]) -> FlowReply:
        """Return the reply with a text about other runs in front."""
        late = "\n\n".join(filter(None, (text, self.late)))
        whole = "\n\n".join(filter(None, (text, self.text)))
        return replace(self, text=whole, late=late, told=(*told, *self.told))

    def __str__(self) -> str:
        return self.text
