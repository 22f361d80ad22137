"""What models can call: the interface of tools, tools made of functions, and what decides about calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.tools.audit import AuditLog
    from loom_core.tools.calls import CallResult, CallWatcher, PlannedCall
    from loom_core.tools.function_tool import FunctionTool, tool
    from loom_core.tools.interface import Answer, CallContext, Question, Tool, ToolAnnotations, ToolOutput
    from loom_core.tools.permission_rule import PermissionRule
    from loom_core.tools.permissions import Permissions
    from loom_core.tools.pipeline import ToolPipeline
    from loom_core.tools.scheduler import Scheduler
    from loom_core.tools.toolbox import Toolbox

__all__ = [
    "Answer",
    "AuditLog",
    "CallContext",
    "CallResult",
    "CallWatcher",
    "FunctionTool",
    "PermissionRule",
    "Permissions",
    "PlannedCall",
    "Question",
    "Scheduler",
    "Tool",
    "ToolAnnotations",
    "ToolOutput",
    "ToolPipeline",
    "Toolbox",
    "tool",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Answer": ".interface",
            "AuditLog": ".audit",
            "CallContext": ".interface",
            "CallResult": ".calls",
            "CallWatcher": ".calls",
            "FunctionTool": ".function_tool",
            "PermissionRule": ".permission_rule",
            "Permissions": ".permissions",
            "PlannedCall": ".calls",
            "Question": ".interface",
            "Scheduler": ".scheduler",
            "Tool": ".interface",
            "ToolAnnotations": ".interface",
            "ToolOutput": ".interface",
            "ToolPipeline": ".pipeline",
            "Toolbox": ".toolbox",
            "tool": ".function_tool",
        },
    )
