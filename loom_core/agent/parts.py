"""What drives the runs of an agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from loom_core.llm.interface import ChatOptions
from loom_core.runs.human_broker import HumanInputPolicy

if TYPE_CHECKING:
    from loom_core.agent.compaction.compaction import Compactor
    from loom_core.agent.hooks import Hooks
    from loom_core.agent.loop_guard import LoopGuard
    from loom_core.knowledge.sources.context_retriever import ContextRetriever
    from loom_core.llm.interface import LLMProvider
    from loom_core.runs.memory import Memory
    from loom_core.runs.run import Run
    from loom_core.tools.execution.pipeline import ToolPipeline
    from loom_core.tools.toolbox import Toolbox

__all__ = ["AgentParts", "Instructions"]

Instructions: TypeAlias = "str | Callable[[Run], str | Awaitable[str]]"
"""Instructions for the model: a text, or a function of the run, `async` or not, that is called before every
turn. As long as it says the same, what vendors have cached of the conversation fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """What drives the runs of an agent, shared by all of them.

    Attributes:
        llm: the model.
        toolbox: the tools.
        pipeline: makes what plans and runs the calls of a run.
        memory: keeps the conversations.
        knowledge: looks for passages before the model answers; None for nothing.
        compactor: makes what shortens the conversation of a run when it becomes too long; None for nothing.
        guard: makes what notices that a run goes round in circles; None for nothing.
        hooks: the program's own, in order.
        system_prompt: what the program tells the model first, in parts.
        asking: whom runs ask.
        options: what every request to the model says besides.
    """

    llm: LLMProvider
    toolbox: Toolbox
    pipeline: Callable[[Run], ToolPipeline]
    memory: Memory
    knowledge: ContextRetriever | None = None
    compactor: Callable[[], Awaitable[Compactor]] | None = None
    guard: Callable[[], LoopGuard] | None = None
    hooks: tuple[Hooks, ...] = ()
    system_prompt: tuple[Instructions, ...] = ()
    asking: HumanInputPolicy = field(default_factory=HumanInputPolicy)
    options: ChatOptions = field(default_factory=ChatOptions)
