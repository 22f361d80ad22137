"""Loom: knowledge bases, models, tools and agents for the Model Context Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_core.agent import Agent, Chain, Router, Workflow

__all__ = ["Agent", "Chain", "Router", "Workflow"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """What most programs begin with; see `exports`, which is itself a module of this package."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from loom_core import agent

        return getattr(agent, name)
