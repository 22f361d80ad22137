"""The agent: a loop of model and tools whose every step is in a journal, and what is composed of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.agent.agent import Agent
    from loom_core.agent.agent_tool import AgentTool
    from loom_core.agent.chain import Chain
    from loom_core.agent.compaction_settings import Compaction
    from loom_core.agent.composition import Composition, Runnable
    from loom_core.agent.events import EventType, StreamEvent
    from loom_core.agent.hooks import Hooks, Veto
    from loom_core.agent.host import RunHost
    from loom_core.agent.journal import Journal
    from loom_core.agent.memory import InMemoryMemory, Memory, SQLiteMemory
    from loom_core.agent.multi_agent import MultiAgentSystem
    from loom_core.agent.orders import Abort, Answered, Decided, Order, Pause, Reply, Resume
    from loom_core.agent.request import RunOptions
    from loom_core.agent.result import RunError, RunResult
    from loom_core.agent.router import Choice, Route, Router
    from loom_core.agent.run import Budget, Pending, Run, RunRequest, RunStatus, Spent
    from loom_core.agent.step import CompositionResult, StepError, StepEvent, StepResult
    from loom_core.agent.workflow import Results, Workflow, WorkflowStep

__all__ = [
    "Abort",
    "Agent",
    "AgentTool",
    "Answered",
    "Budget",
    "Chain",
    "Choice",
    "Compaction",
    "Composition",
    "CompositionResult",
    "Decided",
    "EventType",
    "Hooks",
    "InMemoryMemory",
    "Journal",
    "Memory",
    "MultiAgentSystem",
    "Order",
    "Pause",
    "Pending",
    "Reply",
    "Results",
    "Resume",
    "Route",
    "Router",
    "Run",
    "RunError",
    "RunHost",
    "RunOptions",
    "RunRequest",
    "RunResult",
    "RunStatus",
    "Runnable",
    "SQLiteMemory",
    "Spent",
    "StepError",
    "StepEvent",
    "StepResult",
    "StreamEvent",
    "Veto",
    "Workflow",
    "WorkflowStep",
]

if not TYPE_CHECKING:
    __getattr__ = exports(
        __name__,
        {
            "Abort": ".orders",
            "Agent": ".agent",
            "AgentTool": ".agent_tool",
            "Answered": ".orders",
            "Budget": ".run",
            "Chain": ".chain",
            "Choice": ".router",
            "Compaction": ".compaction_settings",
            "Composition": ".composition",
            "CompositionResult": ".step",
            "Decided": ".orders",
            "EventType": ".events",
            "Hooks": ".hooks",
            "InMemoryMemory": ".memory",
            "Journal": ".journal",
            "Memory": ".memory",
            "MultiAgentSystem": ".multi_agent",
            "Order": ".orders",
            "Pause": ".orders",
            "Pending": ".run",
            "Reply": ".orders",
            "Results": ".workflow",
            "Resume": ".orders",
            "Route": ".router",
            "Router": ".router",
            "Run": ".run",
            "RunError": ".result",
            "RunHost": ".host",
            "RunOptions": ".request",
            "RunRequest": ".run",
            "RunResult": ".result",
            "RunStatus": ".run",
            "Runnable": ".composition",
            "SQLiteMemory": ".memory",
            "Spent": ".run",
            "StepError": ".step",
            "StepEvent": ".step",
            "StepResult": ".step",
            "StreamEvent": ".events",
            "Veto": ".hooks",
            "Workflow": ".workflow",
            "WorkflowStep": ".workflow",
        },
    )
