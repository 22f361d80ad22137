"""Process-wide defaults for agents.

    from loom_core import config

    config.set_default_llm("deepseek")
    config.set_max_iterations(30)
    config.enable_metrics(True)
    agent = Agent(tools=[search])

An agent takes the defaults when it is created; later changes do not affect existing agents. The defaults may
be set and read in any thread or task: all are replaced at once, so no reader sees half of a change.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from loom_core.errors import ConfigError
from loom_core.llm.default import set_default
from loom_core.observability.metrics import process_metrics

if TYPE_CHECKING:
    from loom_core.llm.interface import LLMProvider
    from loom_core.runs.memory import Memory

__all__ = [
    "Defaults",
    "defaults",
    "enable_metrics",
    "reset",
    "set_default_llm",
    "set_default_memory",
    "set_max_iterations",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The defaults for agents.

    Attributes:
        llm: the model of an agent: a provider, which all agents share, or a configuration for
            `create_provider`, from which each agent creates its own; None for none. Retrievers that need a
            model use it, too, if their knowledge base has none.
        memory: memory for the conversations of all agents; None if each agent has its own.
        max_iterations: maximum number of model turns in a run, for an agent without a budget.
    """

    llm: LLMProvider | str | None = None
    memory: Memory | None = None
    max_iterations: int = 50


_lock = threading.Lock()
_defaults = Defaults()


def defaults() -> Defaults:
    """Return the current defaults."""
    return _defaults


def set_default_llm(llm: LLMProvider | str | None) -> None:
    """Set the model of agents and retrievers that get none; see `Defaults.llm`.

    Raises:
        ConfigError: it is not a model, or the vendor is unknown.
    """
    from loom_core.llm.config import ProviderConfig
    from loom_core.llm.factory import check_provider
    from loom_core.llm.interface import LLMProvider

    if llm is not None and not isinstance(cast("object", llm), LLMProvider | str):
        raise ConfigError(
            f"{llm!r} is not a model.", advice='Give a provider, or the name of a vendor such as "deepseek".'
        )
    if isinstance(llm, str):
        check_provider(ProviderConfig.of(llm))
    set_default(llm)
    _set(llm=llm)


def set_default_memory(memory: Memory | None) -> None:
    """Set the memory that keeps the conversations of agents without one; see `Defaults.memory`.

    Raises:
        ConfigError: it is not a memory.
    """
    from loom_core.runs.memory import Memory

    if memory is not None and not isinstance(cast("object", memory), Memory):
        raise ConfigError(f"{memory!r} is not a memory.", advice="Give `SQLiteMemory(…)`, or None.")
    _set(memory=memory)


def set_max_iterations(most: int) -> None:
    """Set the maximum number of model turns in a run, for agents without a budget.

    Raises:
        ConfigError: it is not a whole number above 0.
    """
    if not isinstance(cast("object", most), int) or isinstance(most, bool) or most < 1:
        raise ConfigError(f"A run cannot take {most!r} turns.", advice="Use a whole number from 1 on.")
    _set(max_iterations=most)


def enable_metrics(on: bool = True) -> None:
    """Enable or disable the metrics of this process (`LoomMetrics`).

    Raises:
        ConfigError: it is neither True nor False; a text such as `"no"` would count as true.
    """
    if not isinstance(cast("object", on), bool):
        raise ConfigError(f"Metrics cannot be {on!r}.", advice="Use True or False.")
    process_metrics.enable(on)


def reset() -> None:
    """Reset all defaults and disable metrics; the values counted so far stay."""
    global _defaults
    with _lock:
        _defaults = Defaults()
    set_default(None)
    enable_metrics(False)


def _set(**changes: object) -> None:
    global _defaults
    with _lock:
        _defaults = replace(_defaults, **changes)  # pyright: ignore[reportArgumentType] - by name
