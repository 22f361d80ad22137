"""`flow.json`: models, parser, validation, file watcher, and import and export of Arazzo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.flow.config.arazzo import (
        ArazzoExport,
        export_arazzo,
        import_arazzo,
    )
    from loom_core.flow.config.flow_file import (
        FlowFileWatcher,
        LoadedFlows,
        check_flow_file,
        flow_file_problems,
        flow_file_warnings,
        parse_flow_file,
        read_flow_file,
    )
    from loom_core.flow.config.models import (
        AgentConfigSchema,
        BasicSettings,
        FlowConfig,
        FlowFile,
        KnowledgeEndpointConfig,
        KnowledgeSource,
        NetConfig,
        SkillConfig,
        SystemToolConfig,
        flow_json_schema,
    )
    from loom_core.flow.config.models_endpoint import Criterion, EndpointConfig
    from loom_core.flow.config.models_step import (
        Action,
        AskConfig,
        ConfirmConfig,
        ForEachConfig,
        HandoverConfig,
        LLMConfig,
        Parameter,
        RequestBody,
        StepConfig,
        WaitConfig,
    )
    from loom_core.flow.config.openapi import ImportedFlows

__all__ = [
    "Action",
    "AgentConfigSchema",
    "ArazzoExport",
    "AskConfig",
    "BasicSettings",
    "ConfirmConfig",
    "Criterion",
    "EndpointConfig",
    "FlowConfig",
    "FlowFile",
    "FlowFileWatcher",
    "ForEachConfig",
    "HandoverConfig",
    "ImportedFlows",
    "KnowledgeEndpointConfig",
    "KnowledgeSource",
    "LLMConfig",
    "LoadedFlows",
    "NetConfig",
    "Parameter",
    "RequestBody",
    "SkillConfig",
    "StepConfig",
    "SystemToolConfig",
    "WaitConfig",
    "check_flow_file",
    "export_arazzo",
    "flow_file_problems",
    "flow_file_warnings",
    "flow_json_schema",
    "import_arazzo",
    "parse_flow_file",
    "read_flow_file",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
