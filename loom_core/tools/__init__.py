"""Tools for models: interface, function tools, permissions, and the tool-call pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.tools.auditing.audit import AuditLog
    from loom_core.tools.builtin import BuiltinToolsConfig, builtin_tools
    from loom_core.tools.calls import CallHost, CallResult, PlannedCall
    from loom_core.tools.execution.pipeline import ToolPipeline
    from loom_core.tools.execution.retries import ToolRetries
    from loom_core.tools.execution.scheduler import Scheduler
    from loom_core.tools.function_tool import FunctionTool, tool
    from loom_core.tools.interface import (
        CallContext,
        OutputFile,
        Question,
        QuestionAnswer,
        Tool,
        ToolAnnotations,
        ToolFailure,
        ToolOutput,
        ToolRetry,
    )
    from loom_core.tools.permission.permissions import Permissions
    from loom_core.tools.permission.rule import PermissionRule
    from loom_core.tools.toolbox import Toolbox

__all__ = [
    "AuditLog",
    "BuiltinToolsConfig",
    "CallContext",
    "CallHost",
    "CallResult",
    "FunctionTool",
    "OutputFile",
    "PermissionRule",
    "Permissions",
    "PlannedCall",
    "Question",
    "QuestionAnswer",
    "Scheduler",
    "Tool",
    "ToolAnnotations",
    "ToolFailure",
    "ToolOutput",
    "ToolPipeline",
    "ToolRetries",
    "ToolRetry",
    "Toolbox",
    "builtin_tools",
    "tool",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
