"""Agents: the loop of model and tools with a journal of every step, and compositions of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.agent.agent import Agent
    from loom_core.agent.attachments import load_attachments
    from loom_core.agent.compaction_settings import Compaction
    from loom_core.agent.guardrails import AnswerValidator, DenyPattern, PiiRedaction
    from loom_core.agent.hooks import AskAgain, Hooks, Veto
    from loom_core.agent.loop_guard import LoopGuard
    from loom_core.agent.request import RunOptions
    from loom_core.agent.result import RunError, RunResult
    from loom_core.agent.run_context import RunContext
    from loom_core.agent.skills.skill_set import SkillSet
    from loom_core.agent.steps import AgentStep, ForkOptions, StepCall, read_steps
    from loom_core.agent.teams.agent_tool import AgentTool
    from loom_core.agent.teams.chain import Chain
    from loom_core.agent.teams.composition import Composition, Runnable
    from loom_core.agent.teams.multi_agent import MultiAgentSystem
    from loom_core.agent.teams.router import Choice, Route, Router
    from loom_core.agent.teams.step import CompositionResult, StepError, StepEvent, StepResult
    from loom_core.agent.teams.workflow import Results, Workflow, WorkflowStep
    from loom_core.agent.user_memory.memory import UserMemory
    from loom_core.agent.user_memory.note import NewNote, Note
    from loom_core.runs.commands import Abort, ApprovalDecision, Command, InputResponse, Pause, Reply, Resume
    from loom_core.runs.compressor import Compressor
    from loom_core.runs.events import EventType, StreamEvent
    from loom_core.runs.host import RunHost
    from loom_core.runs.journal import Journal, PostgresPlace
    from loom_core.runs.memory import InMemoryMemory, Memory, SQLiteMemory
    from loom_core.runs.run import Attachment, Budget, Pending, Run, RunRequest, RunStatus, RunUsage

__all__ = [
    "Abort",
    "Agent",
    "AgentStep",
    "AgentTool",
    "AnswerValidator",
    "ApprovalDecision",
    "AskAgain",
    "Attachment",
    "Budget",
    "Chain",
    "Choice",
    "Command",
    "Compaction",
    "Composition",
    "CompositionResult",
    "Compressor",
    "DenyPattern",
    "EventType",
    "ForkOptions",
    "Hooks",
    "InMemoryMemory",
    "InputResponse",
    "Journal",
    "LoopGuard",
    "Memory",
    "MultiAgentSystem",
    "NewNote",
    "Note",
    "Pause",
    "Pending",
    "PiiRedaction",
    "PostgresPlace",
    "Reply",
    "Results",
    "Resume",
    "Route",
    "Router",
    "Run",
    "RunContext",
    "RunError",
    "RunHost",
    "RunOptions",
    "RunRequest",
    "RunResult",
    "RunStatus",
    "RunUsage",
    "Runnable",
    "SQLiteMemory",
    "SkillSet",
    "StepCall",
    "StepError",
    "StepEvent",
    "StepResult",
    "StreamEvent",
    "UserMemory",
    "Veto",
    "Workflow",
    "WorkflowStep",
    "load_attachments",
    "read_steps",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
