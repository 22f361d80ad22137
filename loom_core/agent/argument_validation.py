"""Validation of the arguments of an agent, so that mistakes are reported early."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from loom_core.agent.hooks import Hooks
from loom_core.agent.run_context import RunContext
from loom_core.agent.skills.skill_set import SkillSet
from loom_core.agent.user_memory.memory import UserMemory
from loom_core.callbacks import Callback
from loom_core.errors import ConfigError
from loom_core.llm.factory import create_provider
from loom_core.llm.interface import ChatOptions, LLMProvider
from loom_core.runs.journal import Journal
from loom_core.runs.memory import Memory
from loom_core.runs.run import Budget
from loom_core.tools.auditing.audit import AuditLog
from loom_core.tools.execution.retries import ToolRetries
from loom_core.tools.execution.scheduler import Scheduler
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import Tool
from loom_core.tools.permission.permissions import Permissions
from loom_core.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from loom_core.agent.parts import Instructions
    from loom_core.knowledge.interface import KnowledgeBaseProvider
    from loom_core.knowledge.sources.context_retriever import ContextRetriever
    from loom_core.knowledge.sources.federation.federation import Federation
    from loom_core.runs.commands import ApproveFunction
    from loom_core.runs.run import Run

__all__ = [
    "resolve_instructions",
    "resolve_knowledge_base",
    "resolve_model",
    "resolve_permissions",
    "resolve_retries",
    "resolve_skills",
    "resolve_tools",
    "validate_callbacks",
    "validate_hooks",
    "validate_parts",
]

_T = TypeVar("_T")

_log = logging.getLogger(__name__)

_MODEL_OPTIONS = frozenset(ChatOptions.__annotations__) - {"model", "output", "tools"}

# Arguments have the type `object` here: a type checker would find these mistakes, but many programs use none.


def resolve_model(llm: object, *, configurations: bool = True) -> LLMProvider:
    """Return a model, from a provider or a configuration.

    Args:
        llm: the provider, or a configuration for `create_provider`.
        configurations: whether a configuration is allowed.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(llm, LLMProvider):
        return llm
    if isinstance(llm, str) and configurations:
        return create_provider(llm)
    also = ', or the name of a vendor such as "deepseek"' if configurations else ", as of `create_provider`"
    if llm is None and configurations:
        also += "; `config.set_default_llm` sets the default for all agents"
    raise ConfigError(f"{llm!r} is not a model.", advice=f"Give a provider{also}.")


def resolve_tools(tools: object) -> list[Tool]:
    """Return tools, from tools and functions.

    Raises:
        ConfigError: an item is neither.
        ValueError: a function cannot be made a tool.
    """
    return [_resolve_tool(each) for each in _list("tools", tools, of="tools and functions")]


def _resolve_tool(given: object) -> Tool:
    if isinstance(given, Tool):
        return given
    if callable(given) and not isinstance(given, type):
        return tool(given)
    if isinstance(given, str):
        advice = f"`loom_core.plugins.create('tool', {given!r}, …)` creates a registered tool by name."
    elif hasattr(given, "parts") and hasattr(given, "journal"):
        advice = "`AgentTool(agent, description=…)` makes a tool of an agent."
    else:
        advice = "Give tools, or functions with annotated parameters."
    raise ConfigError(f"{given!r} is not a tool.", advice=advice)


def resolve_skills(given: object) -> SkillSet:
    """Return skills, from a set of them or their paths, and log their problems. Blocks.

    Raises:
        ConfigError: the argument is neither, or there is no skill at a path.
    """
    if not isinstance(given, SkillSet):
        paths = _list("skills", given, of="paths of skills")
        for each in paths:
            if not isinstance(each, (str, Path)):
                raise ConfigError(f"{each!r} is not a path of skills.", advice="Give folders.")
        given = SkillSet.load(cast("list[str | Path]", paths))
    for problem in given.problems:
        _log.warning("%s", problem)
    return given


def resolve_knowledge_base(
    given: KnowledgeBaseProvider | Federation | Sequence[KnowledgeBaseProvider],
) -> tuple[Tool, ContextRetriever]:
    """Return the search tool for knowledge bases, and the retriever of passages before the model answers.

    Raises:
        ConfigError: an item is no knowledge base, or two have the same name.
    """
    from loom_core.knowledge.interface import KnowledgeBaseProvider
    from loom_core.knowledge.sources.context_retriever import ContextRetriever
    from loom_core.knowledge.sources.federation.federation import Federation
    from loom_core.knowledge.sources.search_tool import DocumentSearchTool

    if isinstance(given, Federation):
        return DocumentSearchTool(given), ContextRetriever(given)
    bases: list[object] = list(given) if isinstance(given, Sequence) else [given]
    if not bases or not all(isinstance(each, KnowledgeBaseProvider) for each in bases):
        raise ConfigError(
            f"`knowledge_base` cannot be {given!r}.",
            advice="Give a knowledge base, such as `GraphRAGKnowledgeBase.from_config(…)`, a list of some, "
            "or a `Federation`; a retriever goes into `knowledge=ContextRetriever(retriever)`.",
        )
    sources = Federation(cast("list[KnowledgeBaseProvider]", bases))
    return DocumentSearchTool(sources), ContextRetriever(sources)


def validate_hooks(hooks: object) -> tuple[Hooks, ...]:
    """Validate hooks.

    Raises:
        ConfigError: an item is not a `Hooks`.
    """
    return _all_of(Hooks, "hooks", hooks, "an object of a class derived from `Hooks`")


def validate_callbacks(callbacks: object) -> tuple[Callback, ...]:
    """Validate callbacks.

    Raises:
        ConfigError: an item is not a `Callback`.
    """
    wanted = "an object of a class derived from `Callback`, such as `LoggingCallback()`"
    return _all_of(Callback, "callbacks", callbacks, wanted)


def _all_of(kind: type[_T], name: str, given: object, wanted: str) -> tuple[_T, ...]:
    listed = _list(name, given, of=name)
    for each in listed:
        if not isinstance(each, kind):
            raise ConfigError(f"{each!r} is not a `{kind.__name__}`.", advice=f"Give {wanted}.")
    return cast("tuple[_T, ...]", tuple(listed))


def resolve_instructions(
    given: Instructions | Callable[[Run], str | Awaitable[str]] | Callable[[], str | Awaitable[str]],
) -> Instructions:
    """Return a system prompt: a text, or a function of the run's context.

    A function whose parameter is annotated as `RunContext` gets it; any other one with a parameter, the run.

    Raises:
        ConfigError: it is neither, nor a function of the run or without arguments.
    """
    asked: object = given
    if isinstance(asked, str):
        return asked
    if callable(asked):
        if _accepts(asked, object()):
            if _takes_context(asked):
                return cast("Instructions", asked)
            of_run = cast("Callable[[Run], str | Awaitable[str]]", asked)
            return lambda context: of_run(context.run)
        if _accepts(asked):
            plain = cast("Callable[[], str | Awaitable[str]]", asked)
            return lambda _: plain()
    raise ConfigError(
        f"`system_prompt` cannot be {given!r}.",
        advice="Give a text, or a function that returns one, of `RunContext`, of the run, or without "
        "arguments.",
    )


def _takes_context(function: Callable[..., object]) -> bool:
    """Whether the parameter of a function is annotated as `RunContext`, with or without its type of deps."""
    try:
        parameters = signature(function, eval_str=True).parameters
    except NameError:  # the annotation is imported for type checkers only: compare its text
        parameters = signature(function).parameters
    except ValueError:  # some builtins have no signature
        return False
    return any(RunContext.__name__ in str(each.annotation) for each in parameters.values())


def resolve_permissions(permissions: Permissions | Literal["allow", "ask", "deny"]) -> Permissions:
    """Return permissions, from permissions or from the default action for calls without a rule.

    Raises:
        ConfigError: it is neither.
    """
    given: object = permissions
    if isinstance(given, Permissions):
        return given
    if given not in ("allow", "ask", "deny"):
        raise ConfigError(
            f"`permissions` cannot be {given!r}.",
            advice="Give `allow`, `ask` or `deny`; rules go into `Permissions([…])`.",
        )
    return Permissions(otherwise=given)


def resolve_retries(retries: ToolRetries | int) -> ToolRetries:
    """Return the retry policy for tool calls, from a policy or a number of retries.

    Raises:
        ConfigError: it is neither.
        InvalidInputError: the number is negative.
    """
    given: object = retries
    if isinstance(given, ToolRetries):
        return given
    if type(given) is not int:
        raise ConfigError(
            f"`tool_retries` cannot be {given!r}.", advice="Give `ToolRetries(…)`, or the number of retries."
        )
    return ToolRetries(retries=given)


def validate_parts(
    *,
    name: str,
    budget: object,
    journal: object,
    memory: object,
    user_memory: object,
    knowledge: object,
    approve: ApproveFunction | None,
    loop_guard: object,
    toolbox: object,
    scheduler: object,
    audit: object,
    priority: object,
    options: object,
) -> None:
    """Validate the other arguments of an agent.

    Raises:
        ConfigError: an argument is invalid.
    """
    if not cast("object", name) or not isinstance(cast("object", name), str) or name != name.strip():
        raise ConfigError(
            f"An agent cannot be named {name!r}.", advice="Give it a name without surrounding white space."
        )
    _expect("budget", budget, isinstance(budget, Budget), "`Budget(tokens=…)`")
    _expect("journal", journal, isinstance(journal, Journal), "`Journal(Path(…))`, or leave it out")
    stores = "`SQLiteMemory(…)`, which stores conversations; what is remembered of users is `user_memory`"
    _expect("memory", memory, isinstance(memory, Memory), stores)
    remembers = "`UserMemory(…)`; a store of conversations is `memory`"
    _expect("user_memory", user_memory, isinstance(user_memory, UserMemory), remembers)
    _expect(
        "knowledge",
        knowledge,
        hasattr(knowledge, "context_for"),
        "`ContextRetriever(source)`; a knowledge base is `knowledge_base`",
    )
    _expect("approve", approve, callable(approve), "an `async` function of the pending request")
    _expect("loop_guard", loop_guard, callable(loop_guard), "a factory, `lambda: LoopGuard(…)`")
    _expect("toolbox", toolbox, isinstance(toolbox, Toolbox), "`Toolbox(…)`; a list of tools is `tools`")
    _expect("scheduler", scheduler, isinstance(scheduler, Scheduler), "`Scheduler(…)`, or leave it out")
    _expect("audit", audit, isinstance(audit, AuditLog), "`AuditLog(Path(…))`")
    _expect("priority", priority, type(priority) is int, "an integer; the highest goes first")
    known = sorted(_MODEL_OPTIONS)
    fit = isinstance(options, Mapping) and _MODEL_OPTIONS.issuperset(cast("Mapping[str, object]", options))
    _expect("options", cast("object", options), fit, f"a mapping with some of: {', '.join(known)}")


def _accepts(function: Callable[..., object], *arguments: object) -> bool:
    """Whether a function can be called with these arguments, as far as its signature is known."""
    try:
        signature(function).bind(*arguments)
    except TypeError:
        return False
    except ValueError:  # some builtins have no signature
        return True
    return True


def _expect(name: str, given: object, fits: bool, wanted: str) -> None:
    if given is not None and not fits:
        raise ConfigError(f"`{name}` cannot be {given!r}.", advice=f"Give {wanted}.")


def _list(name: str, given: object, *, of: str) -> list[object]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise ConfigError(f"`{name}` is {given!r}.", advice=f"Give a list of {of}.")
    return list(cast("Sequence[object]", given))
