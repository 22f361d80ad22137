"""Executor of flows: step by step, with a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.flow.executor.definition import FlowChangedError
    from loom_core.flow.executor.dependencies import FlowLimits
    from loom_core.flow.executor.executor import FlowExecutor
    from loom_core.flow.executor.loop import FlowTimeoutError, StepFailedError


__all__ = [
    "FlowChangedError",
    "FlowExecutor",
    "FlowLimits",
    "FlowTimeoutError",
    "StepFailedError",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
