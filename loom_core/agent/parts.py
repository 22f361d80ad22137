"""Components of an agent, shared by its runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from loom_core.llm.interface import ChatOptions
from loom_core.runs.commands import HumanInputPolicy

if TYPE_CHECKING:
    from pydantic import BaseModel

    from loom_core.agent.compaction.compaction import Compactor
    from loom_core.agent.hooks import Hooks
    from loom_core.agent.loop_guard import LoopGuard
    from loom_core.agent.run_context import RunContext
    from loom_core.agent.user_memory.memory import UserMemory
    from loom_core.knowledge.sources.context_retriever import ContextRetriever
    from loom_core.llm.interface import LLMProvider
    from loom_core.llm.messages import Message
    from loom_core.runs.memory import Memory
    from loom_core.runs.run import Run
    from loom_core.tools.execution.pipeline import ToolPipeline
    from loom_core.tools.execution.retries import ToolRetries
    from loom_core.tools.toolbox import Toolbox

__all__ = ["AgentParts", "Instructions"]

Instructions: TypeAlias = "str | Callable[[RunContext[Any]], str | Awaitable[str]]"
"""Instructions for the model: a text, or a function of the run's context, `async` or not, that is called
before every turn. As long as it returns the same text, the vendor's prompt cache stays valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """Components of an agent, shared by all its runs.

    Attributes:
        llm: the model.
        toolbox: the tools.
        pipeline: creates the tool pipeline of a run.
        memory: stores the conversations.
        history: the conversation that a new session begins with.
        user_memory: notes about users across sessions; None for none.
        retries: the retry policy for tool calls.
        answer_model: Pydantic model of the final answer, whose validators check it in addition to its schema;
            None for none.
        knowledge: retrieves passages before the model answers; None for no retrieval.
        compactor: creates the compactor of a run; None for no compaction.
        guard: creates the loop guard of a run; None for no guard.
        hooks: the program's hooks, in order.
        system_prompt: the program's instructions, in parts.
        asking: the policy for human input.
        options: options for every request to the model.
        deps: the program's dependencies, see `RunContext`.
    """

    llm: LLMProvider
    toolbox: Toolbox
    pipeline: Callable[[Run], ToolPipeline]
    memory: Memory
    history: Sequence[Message] = ()
    user_memory: UserMemory | None = None
    retries: ToolRetries
    answer_model: type[BaseModel] | None = None
    knowledge: ContextRetriever | None = None
    compactor: Callable[[], Awaitable[Compactor]] | None = None
    guard: Callable[[], LoopGuard] | None = None
    hooks: tuple[Hooks, ...] = ()
    system_prompt: tuple[Instructions, ...] = ()
    asking: HumanInputPolicy = field(default_factory=HumanInputPolicy)
    options: ChatOptions = field(default_factory=ChatOptions)
    deps: object = None
