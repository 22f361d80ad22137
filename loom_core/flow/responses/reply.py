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
    "Outcome",
    "ReplyStatus",
    "Route",
    "RouteAction",
    "RouteHow",
    "Waiting",
]

CHOICE = "$choice"
"""The id of a disambiguation question, which belongs to no run. A message answers it, such as one made by
`Disambiguation.message_of` from a form."""

RouteAction: TypeAlias = Literal[
    "flow",  # a flow was begun
    "skill",  # skills work on it
    "tool",  # a tool is called for it
    "respond",  # it was answered
    "clarify",  # the user is asked what is meant
    "answer",  # it was taken as the answer to what a run waits for
    "correct",  # it corrects what a run was given
    "approve",  # a run may do what it asks about
    "deny",  # it may not
    "cancel",  # a run was ended
    "retry",  # a run that had failed goes on
    "greet",  # manners were returned
]
"""The action taken for a message."""

RouteHow: TypeAlias = Literal["rules", "model", "pending", "choice", "manners", "given", "none"]
"""How a message was routed: by trigger patterns; by a model; to a waiting run; as the answer to a
disambiguation question; as small talk; by the program, which named the flow; or not at all."""

ReplyStatus: TypeAlias = "RunStatus"
"""As of a run. `completed` also without a run; `input_required` also for a disambiguation question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How a message was routed.

    Attributes:
        action: what was done.
        how: what decided.
        flow_id: the flow that is meant.
        pattern: the trigger pattern that fits best.
        start: where in the message it fits.
        end: the index behind that.
        skills: ids of the skills that apply.
        tool: the tool that is meant.
        candidates: ids of flows of which one may be meant.
        confidence: how sure the model is, from 0 to 1; None where none was asked.
        reason: why, in the model's words.
        dropped: inputs that the model gave and the user did not say, so that they are asked for.
        problem: why a model that is there did not decide or answer, or why knowledge could not be asked, for
            operators; empty where nothing went wrong.
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

    def with_problem(self, problem: str) -> Route:
        """Return the same route with another problem."""
        return replace(self, problem=" ".join(filter(None, (self.problem, problem))))


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that an answer is based on.

    Attributes:
        id: as it stands in brackets in the answer, where a model wrote it.
        source: where it is from.
        title: of the document; may be empty.
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
class Outcome:
    """The outcome of a turn.

    Attributes:
        route: how it was decided.
        text: what is said; before what a run says, where there is one.
        run_id: the run that it was begun for or told to, and that is waited for.
        after: seq of its last event before that.
        asked: what is asked without a run.
        again: whether what the run waits for is only asked once more.
        citations: what the text rests on.
        late: how earlier runs have ended, of which the user was not told; said before everything else.
        told: ids of these runs.
    """

    route: Route
    text: str = ""
    run_id: str = ""
    after: int = 0
    asked: Pending | None = None
    again: bool = False
    citations: tuple[Citation, ...] = ()
    late: str = ""
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """An interrupted run of the session that still waits.

    Attributes:
        run_id: which.
        flow_id: its flow; empty if it is none of a flow.
        title: what people call it.
        pending: what it waits for.
    """

    run_id: str
    flow_id: str
    title: str
    pending: tuple[Pending, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowReply:
    """The reply to a message.

    Attributes:
        status: how it stands.
        text: what the user reads.
        language: in which the assistant speaks.
        late: how earlier runs of the conversation have ended, where their message was answered before: the
            text begins with it.
        told: ids of all runs of which the reply says how they have ended.
        session_id: the conversation, for the next message.
        route: how it was decided.
        flow_id: the flow that it is about; empty for none.
        run_id: the run that it is about; empty for none.
        pending: what is waited for; the next message is read as the answer to the first of it.
        citations: what the answer rests on.
        structured: what the run gave, as data.
        waiting: the run that the conversation returns to, where another one came in between.
        timings: seconds that `rules`, `decision`, `knowledge`, `answer`, `run` took, and all of it (`total`);
            those that there were.
    """

    status: ReplyStatus
    text: str
    session_id: str
    route: Route
    flow_id: str = ""
    run_id: str = ""
    pending: tuple[Pending, ...] = ()
    citations: tuple[Citation, ...] = ()
    structured: Any = None
    waiting: Waiting | None = None
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
