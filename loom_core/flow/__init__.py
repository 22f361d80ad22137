"""Conversations with flows: fixed pieces of business, begun by rules or a model, run step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.flow.explaining import Explanation
    from loom_core.flow.orchestrator import WorkflowOrchestrator
    from loom_core.flow.regression import (
        Difference,
        Expectation,
        RegressionReport,
        check_utterances,
        read_utterances,
    )
    from loom_core.flow.reply import Citation, FlowReply, Route, Waiting

__all__ = [
    "Citation",
    "Difference",
    "Expectation",
    "Explanation",
    "FlowReply",
    "RegressionReport",
    "Route",
    "Waiting",
    "WorkflowOrchestrator",
    "check_utterances",
    "read_utterances",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Citation": ".reply",
            "Difference": ".regression",
            "Expectation": ".regression",
            "Explanation": ".explaining",
            "FlowReply": ".reply",
            "RegressionReport": ".regression",
            "Route": ".reply",
            "Waiting": ".reply",
            "WorkflowOrchestrator": ".orchestrator",
            "check_utterances": ".regression",
            "read_utterances": ".regression",
        },
    )
