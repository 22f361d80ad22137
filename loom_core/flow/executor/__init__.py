"""Executor of flows: step by step, with a journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.flow.executor.definition import FlowChangedError
    from loom_core.flow.executor.executor import FlowExecutor
    from loom_core.flow.executor.failing import FlowTimeError, StepFailedError
    from loom_core.flow.executor.loop import FlowLoop
    from loom_core.flow.executor.parts import FlowLimits, FlowParts
    from loom_core.flow.executor.state import FlowState

__all__ = [
    "FlowChangedError",
    "FlowExecutor",
    "FlowLimits",
    "FlowLoop",
    "FlowParts",
    "FlowState",
    "FlowTimeError",
    "StepFailedError",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
