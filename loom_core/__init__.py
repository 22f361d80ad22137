"""Loom: knowledge bases, models, tools and agents for the Model Context Protocol."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_core.agent import Agent, Chain, Router, Workflow
    from loom_core.embedding import create_embedder
    from loom_core.flow import FlowRouter, WorkflowOrchestrator, read_flow_file
    from loom_core.knowledge import GraphRAGKnowledgeBase, KnowledgeBase
    from loom_core.llm import create_model
    from loom_core.tools import tool

__all__ = [
    "Agent",
    "Chain",
    "FlowRouter",
    "GraphRAGKnowledgeBase",
    "KnowledgeBase",
    "Router",
    "Workflow",
    "WorkflowOrchestrator",
    "create_embedder",
    "create_model",
    "read_flow_file",
    "tool",
]

TELEMETRY_SWITCHES = {
    "ORT_DISABLE_TELEMETRY": "1",  # onnxruntime
    "ANONYMIZED_TELEMETRY": "False",  # Chroma
    "HF_HUB_DISABLE_TELEMETRY": "1",  # huggingface_hub
}
"""Variables that turn off the telemetry of dependencies, and their values; see docs/security.md."""


def _switch_off_telemetry() -> None:
    """Set the switches for this process and its children; a value that the user has set stays.

    Importing Loom does this because onnxruntime reads its switch only once, while it is imported.
    """
    unset = [variable for variable in TELEMETRY_SWITCHES if not os.environ.get(variable)]
    if "ORT_DISABLE_TELEMETRY" in unset and "onnxruntime" in sys.modules:
        import logging

        logging.getLogger(__name__).warning(
            "onnxruntime was imported before loom_core; from version 1.29 on it may report to Microsoft from "
            "this process. Import loom_core first, or set ORT_DISABLE_TELEMETRY=1 in the environment."
        )
    for variable in unset:
        os.environ[variable] = TELEMETRY_SWITCHES[variable]


_switch_off_telemetry()

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import a public name on first use; see `exports`, which is itself a module of this package."""
        if name not in __all__:  # perhaps a submodule, which Python looks for next
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from loom_core.exports import exports

        return exports(__name__)[0](name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
