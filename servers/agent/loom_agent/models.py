"""Data models of the inputs and outputs of the tools."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from loom_core.runs.run import RunStatus
from loom_core.server.runs.models import EventInfo, PendingInfo

__all__ = [
    "BudgetInput",
    "DecisionInput",
    "EventsResult",
    "FoundTool",
    "RunInfo",
    "RunLine",
    "RunsResult",
    "SearchResult",
    "UsageInfo",
]


def _drop_description(schema: dict[str, Any]) -> None:
    """Remove the description of the model from its schema: the argument has one."""
    schema.pop("description", None)


class _Input(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra=_drop_description)


class BudgetInput(_Input):
    """Limits of a run, within those of the profile."""

    iterations: int | None = Field(default=None, ge=1, le=1000, description="Turns of the model.")
    tokens: int | None = Field(default=None, ge=1, description="Input and output.")
    cost: float | None = Field(default=None, gt=0, description="US dollars.")
    tool_calls: int | None = Field(default=None, ge=0)
    seconds: float | None = Field(default=None, gt=0, description="Of work, not of waiting.")


class DecisionInput(_Input):
    """The user's decision about one pending request of a run."""

    id: str = Field(min_length=1, description="`id` of the entry.")
    action: Literal["approve", "deny", "edit", "answer"] = Field(
        description="`edit`: call with other `arguments`; `answer`: a question, with `content`."
    )
    arguments: dict[str, Any] | None = Field(default=None, description="All of them, with `edit`.")
    content: dict[str, Any] | None = Field(default=None, description="As `answer_schema` says.")
    reason: str = Field(default="", description="Of `deny`.")
    scope: Literal["once", "run"] = Field(
        default="once",
        description="`run`: all calls of the tool in this run.",
    )


class UsageInfo(BaseModel):
    """Resources that a run has used."""

    iterations: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    seconds: float = Field(description="Of work.")


class RunInfo(BaseModel):
    """A run as it stands."""

    run_id: str
    session_id: str = Field(
        description="Give it to `agent_run` or `agent_reply` to go on with the conversation."
    )
    profile: str
    goal: str = Field(description="Its beginning; the resource loom://runs/{run_id} has all of it.")
    status: RunStatus
    output: str = Field(description="The final answer, or as much as there is of it.")
    answered_by: str = Field(description="The member that answered, of a router or a handoff.")
    structured: dict[str, Any] | None = Field(
        description="The final answer as data, where `output_schema` asked for it."
    )
    problem: str = Field(description="Why it failed, was aborted or cannot go on now, and what to do.")
    pending: list[PendingInfo] = Field(description="What it waits for, oldest first.")
    usage: UsageInfo
    cost: float | None = Field(description="US dollars; null where the price is not known.")
    last_seq: int = Field(description="Of its last event.")
    next: str = Field(description="What to do now.")


class RunLine(BaseModel):
    """A run in a list."""

    run_id: str
    session_id: str
    profile: str
    goal: str = Field(description="Its beginning.")
    status: RunStatus
    created: float = Field(description="Seconds since 1970.")
    updated: float
    pending: int = Field(description="How many decisions it waits for.")


class RunsResult(BaseModel):
    """Answer of `agent_runs`."""

    runs: list[RunLine]


class EventsResult(BaseModel):
    """Answer of `agent_events`."""

    run_id: str
    status: RunStatus
    events: list[EventInfo]
    last_seq: int = Field(description="Of the last event here: ask for those after it.")
    more: bool = Field(description="Whether there are more already.")


class FoundTool(BaseModel):
    """A tool that the agent can call."""

    name: str
    description: str
    arguments: dict[str, Any] = Field(description="JSON Schema.")
    permission: Literal["allow", "ask", "deny"] = Field(
        description="Action for its calls, as far as it does not depend on their arguments."
    )


class SearchResult(BaseModel):
    """Answer of `tool_search`."""

    tools: list[FoundTool]
    total: int = Field(description="How many the profile has.")
    notes: list[str] = Field(description="What is missing, and why.")
