"""Input and output models of the tools."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from loom_core.flow.responses.reply import RouteAction, RouteHow
from loom_core.runs.run import RunStatus
from loom_core.server.runs.models import EventInfo, PendingInfo

__all__ = [
    "ChatResult",
    "CitationInfo",
    "ExplainResult",
    "FlowInfo",
    "FlowsResult",
    "HandoverInfo",
    "MatchInfo",
    "OperatorResult",
    "RouteInfo",
    "RunInfo",
    "RunLine",
    "RunResult",
    "RunsResult",
    "SpokenMessageInfo",
    "StepInfo",
    "WaitingInfo",
]


class RouteInfo(BaseModel):
    """How it was decided what to do with a message."""

    action: RouteAction = Field(description="What was done, or would be.")
    how: RouteHow = Field(description="What decided.")
    flow_id: str = Field(description="The flow that is meant.")
    pattern: str = Field(description="The trigger pattern that fits best.")
    start: int = Field(description="Where in the message it fits.")
    end: int
    skills: list[str] = Field(description="Skills that apply.")
    tool: str = Field(description="The tool that is meant.")
    candidates: list[str] = Field(description="Flows of which one may be meant.")
    confidence: float | None = Field(description="How sure the model is; null where none was asked.")
    reason: str
    problem: str = Field(
        description="What went wrong with the model or the knowledge sources, for operators."
    )


class CitationInfo(BaseModel):
    """A passage that an answer rests on."""

    id: str
    source: str
    title: str
    text: str


class WaitingInfo(BaseModel):
    """A run of the session that was interrupted and still waits."""

    run_id: str
    flow_id: str
    pending: list[PendingInfo]


class ChatResult(BaseModel):
    """Answer of `flow_chat`."""

    status: RunStatus
    text: str = Field(description="What the user reads.")
    session_id: str = Field(description="Give it to `flow_chat` with the user's next message.")
    flow_id: str
    run_id: str = Field(description="Empty where no run was needed.")
    pending: list[PendingInfo] = Field(
        description="What is waited for; the next message answers the first of it."
    )
    citations: list[CitationInfo]
    structured: dict[str, Any] | None = Field(description="What the flow gave, as data.")
    waiting: WaitingInfo | None = Field(description="The run that the conversation returns to.")
    route: RouteInfo
    timings: dict[str, float] = Field(description="Seconds.")
    next: str = Field(description="What to do now.")


class StepInfo(BaseModel):
    """A step of a run."""

    step_id: str
    status: str = Field(description="running, success, failure, declined, unknown.")
    outputs: dict[str, Any]
    problem: str


class RunInfo(BaseModel):
    """A run of a flow as it stands."""

    run_id: str
    session_id: str = Field(
        description="Of the conversation that it belongs to; `flow_chat` goes on with it."
    )
    flow_id: str
    status: RunStatus
    output: str = Field(description="What the user reads at its end.")
    structured: dict[str, Any] | None = Field(description="Its outputs, as data.")
    problem: str = Field(description="Why it failed, was aborted or cannot go on now, and what to do.")
    pending: list[PendingInfo] = Field(description="What it waits for, oldest first.")
    steps: list[StepInfo] = Field(description="What it has done, in order.")
    last_seq: int = Field(description="Of its last event.")
    next: str = Field(description="What to do now.")


class RunResult(RunInfo):
    """Answer of `flow_status`."""

    events: list[EventInfo] = Field(description="What happened after `after_seq`, where that was asked for.")


class FlowInfo(BaseModel):
    """A flow."""

    flow_id: str
    name: str
    description: str
    inputs: dict[str, Any] = Field(description="JSON Schema.")
    triggers: list[str] = Field(description="Regular expressions; a message that one fits begins it.")
    examples: list[str]
    changes_something: bool = Field(description="Whether it may change something outside.")
    hidden: bool = Field(description="Whether users are not told that it exists.")
    tool: str = Field(description="What its own tool is called; empty if it has none.")


class RunLine(BaseModel):
    """A run in a list."""

    run_id: str
    session_id: str
    flow_id: str
    message: str = Field(description="Its beginning.")
    status: RunStatus
    created: float = Field(description="Seconds since 1970.")
    updated: float
    pending: int = Field(description="How many things it waits for.")


class RunsResult(BaseModel):
    """Runs in a list."""

    runs: list[RunLine]


class FlowsResult(BaseModel):
    """Answer of `flow_list`."""

    name: str = Field(description="What the assistant is called.")
    flows: list[FlowInfo]
    skills: list[str] = Field(description="Situations that a model recognises, and what it does in them.")
    system_tools: list[str] = Field(description="What a model may call by itself.")
    model: str = Field(description="What decides where no rule does; empty for nothing.")
    unfinished: list[RunLine] = Field(description="Unfinished runs of the caller.")
    problems: list[str] = Field(description="Problems, and what to do about them.")


class HandoverInfo(BaseModel):
    """A conversation that waits for an operator, or that one has."""

    run_id: str = Field(description="Names it for operators.")
    flow_id: str
    queue: str
    about: str
    taken_by: str = Field(description="The operator who has it; empty as long as it waits.")
    created: float = Field(description="Since when the user waits, in seconds since 1970.")
    deadline: float | None = Field(
        description="Until when an operator has to take it, or the one who has it to answer the user."
    )
    agreed_schema: dict[str, Any] = Field(description="JSON Schema of what is returned.")


class SpokenMessageInfo(BaseModel):
    """A message of a conversation."""

    by: Literal["user", "assistant", "operator"] = Field(
        description="`operator`: one that the user has not read yet; later it is part of the assistant's."
    )
    text: str


class OperatorResult(BaseModel):
    """Answer of the tools for operators."""

    conversations: list[HandoverInfo]
    messages: list[SpokenMessageInfo] = Field(description="Of the conversation that was asked for.")
    run: RunLine | None = Field(description="The run, after it was returned.")


class MatchInfo(BaseModel):
    """A trigger pattern that fits a message."""

    flow_id: str
    pattern: str
    start: int = Field(description="Where in the message.")
    end: int
    groups: dict[str, str] = Field(description="What named groups hold.")
    doubt: Literal["", "negation", "question", "mention"] = Field(
        description="Why it does not count as a request."
    )


class ExplainResult(BaseModel):
    """Answer of `flow_explain`."""

    message: str
    decided_by: str = Field(
        description="What would decide: `choice` (of what was offered), `pending` (a run waits for it), "
        "`manners`, `rules`, `model`, or `none`: what is known would be told."
    )
    action: str = Field(description="What would be done; empty where only the model would know.")
    flow_id: str = Field(description="The flow that would be begun.")
    inputs: dict[str, Any] = Field(description="What it would be given.")
    missing: list[str] = Field(description="What it would ask for.")
    run_id: str = Field(description="The run that would be told something.")
    matches: list[MatchInfo] = Field(description="Every pattern that fits.")
    candidates: list[str] = Field(description="Flows of which one may be meant.")
    skills: list[str] = Field(description="Skills that the model finds to apply.")
    tool: str = Field(description="The tool that the model would call.")
    confidence: float | None = Field(description="How sure the model is; null where none was asked.")
    reason: str = Field(description="Why, in the model's words.")
    problem: str = Field(description="Why a configured model did not decide.")
    timings: dict[str, float] = Field(description="Seconds.")
