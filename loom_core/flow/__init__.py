"""Conversations with flows: fixed business processes, started by trigger patterns or a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.flow.config.flow_file import LoadedFlows, parse_flow_file, read_flow_file
    from loom_core.flow.config.models import (
        AgentConfigSchema,
        FlowConfig,
        FlowFile,
        SkillConfig,
        SystemToolConfig,
    )
    from loom_core.flow.executor.executor import FlowExecutor
    from loom_core.flow.http.caller import EndpointCaller
    from loom_core.flow.http.tool import ConfigToolLoader, SystemExecutor
    from loom_core.flow.knowledge.sources import KnowledgeBaseExecutor
    from loom_core.flow.orchestrator import WorkflowOrchestrator
    from loom_core.flow.policy.router import FlowRouter
    from loom_core.flow.regression import (
        Difference,
        Expectation,
        RegressionReport,
        check_utterances,
        read_utterances,
    )
    from loom_core.flow.responses.reply import Citation, FlowReply, RoutingOutcome, WaitingRun
    from loom_core.flow.runtime.runtime import build_system_prompt
    from loom_core.flow.turns.explanation import Explanation

__all__ = [
    "AgentConfigSchema",
    "Citation",
    "ConfigToolLoader",
    "Difference",
    "EndpointCaller",
    "Expectation",
    "Explanation",
    "FlowConfig",
    "FlowExecutor",
    "FlowFile",
    "FlowReply",
    "FlowRouter",
    "KnowledgeBaseExecutor",
    "LoadedFlows",
    "RegressionReport",
    "RoutingOutcome",
    "SkillConfig",
    "SystemExecutor",
    "SystemToolConfig",
    "WaitingRun",
    "WorkflowOrchestrator",
    "build_system_prompt",
    "check_utterances",
    "parse_flow_file",
    "read_flow_file",
    "read_utterances",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
