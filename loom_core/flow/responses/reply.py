"""The reply to a message: its text, how it was decided, and what is waited for; and the result of a turn."""

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
    "Route",
    "RouteAction",
    "RouteHow",
    "TurnOutcome",
    "WaitingRun",
]

CHOICE = "$choice"
"""The id of a question that no run asks: which flow is meant, or whether one is. It is answered by a message,
such as `Offer.message_of` makes of what its schema wants."""

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
"""What was done with a message."""

RouteHow: TypeAlias = Literal["rules", "model", "pending", "choice", "manners", "given", "none"]
"""What decided: trigger patterns; a model; that a run waits for something; that a question without a run was
answered; that it is nothing but manners; the program, which named the flow; or nothing did."""

ReplyStatus: TypeAlias = "RunStatus"
"""As of a run. `completed` too where no run was needed; `input_required` also where a question without a run
is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How it was decided what to do with a message.

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
        """The same, where something else went wrong, too."""
        return replace(self, problem=" ".join(filter(None, (self.problem, problem))))


@dataclass(frozen=True, slots=True)
class Citation:
    """A passage that an answer rests on.

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
        """That of a passage that was found."""
        return cls(item.id, item.source, str(item.metadata.get("title") or ""), item.content)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """The result of a turn: what a message came to.

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
class WaitingRun:
    """A run of the session that was interrupted and still waits.

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
    waiting: WaitingRun | None = None
    timings: Mapping[str, float] = field(default_factory=dict[str, float])
    language: Language = "en"
    late: str = ""
    told: tuple[str, ...] = ()

    def after(self, text: str, *, told: tuple[str, ...]) -> FlowReply:
        """The same behind what was said before it, which tells of other runs."""
        late = "\n\n".join(filter(None, (text, self.late)))
        whole = "\n\n".join(filter(None, (text, self.text)))
        return replace(self, text=whole, late=late, told=(*told, *self.told))

    def __str__(self) -> str:
        return self.text
