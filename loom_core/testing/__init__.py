"""Test utilities for programs built on Loom: a scripted model, a tester of agents, contracts of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.llm.mock import MockAnswer
    from loom_core.testing.agent_tester import AgentTester, SeenCall
    from loom_core.testing.graph_stores import GraphStoreContract, RemoteGraphStoreContract
    from loom_core.testing.lexical_stores import LexicalIndexContract, LexicalServerContract
    from loom_core.testing.mock_llm import MockCall, MockLLM, MockTurn, call
    from loom_core.testing.recording import Recording
    from loom_core.testing.stores import VectorIndexContract

__all__ = [
    "AgentTester",
    "GraphStoreContract",
    "LexicalIndexContract",
    "LexicalServerContract",
    "MockAnswer",
    "MockCall",
    "MockLLM",
    "MockTurn",
    "Recording",
    "RemoteGraphStoreContract",
    "SeenCall",
    "VectorIndexContract",
    "call",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
