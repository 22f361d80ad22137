"""Outputs for the model if a call did not succeed; each says what to do next."""

from __future__ import annotations

from loom_core.errors import LoomError, unwrap_group
from loom_core.tools.calls import CallStatus, PlannedCall
from loom_core.tools.interface import ToolOutput

__all__ = [
    "explain_abort",
    "explain_change",
    "explain_denial",
    "explain_duplicate",
    "explain_failure",
    "explain_missing_approval",
    "explain_self_cancellation",
    "explain_timeout",
    "explain_unrecordable",
]

_OTHERWISE = (
    "Do not try the same again: take another way, such as a tool that only reads, or tell the user what you "
    "could not do and why. The operator can permit it by a rule."
)


def _error_output(text: str) -> ToolOutput:
    return ToolOutput(text, is_error=True)


def explain_denial(tool: str, reason: str) -> ToolOutput:
    """Explain that a rule or a person denied the call."""
    return _error_output(f"`{tool}` was not run: it is not permitted. {reason} {_OTHERWISE}")


def explain_missing_approval(tool: str, reason: str) -> ToolOutput:
    """Explain that the call needed approval and got none."""
    return _error_output(
        f"`{tool}` was not run: it has to be approved by a person and was not. {reason} {_OTHERWISE}"
    )


def explain_change(tool: str) -> ToolOutput:
    """Explain that the tool has changed since the plan or the approval."""
    return _error_output(
        f"`{tool}` was not run: the tool has changed meanwhile. Look at it again, then call it."
    )


def explain_duplicate(call_id: str) -> ToolOutput:
    """Explain that the turn has another call with this id."""
    return _error_output(
        f"It was not run: another call of this turn has the id {call_id!r}, and its result counts."
    )


def explain_unrecordable(tool: str, problem: str) -> ToolOutput:
    """Explain that the call may change something, and cannot be recorded."""
    return _error_output(
        f"`{tool}` was not run: {problem} Only tools that read are run until this works again; tell the user."
    )


def explain_timeout(tool: str, seconds: float) -> ToolOutput:
    """Explain that the call timed out."""
    return _error_output(
        f"`{tool}` was stopped after {seconds:g} seconds; it may have done a part of it. Split the task into "
        "smaller ones, or ask for less at once; where that cannot be, tell the user that it needs a longer "
        "time limit."
    )


def explain_abort(planned: PlannedCall, *, begun: bool) -> ToolOutput:
    """Explain that the run was stopped."""
    if not begun:
        return _error_output(f"`{planned.name}` was not run: the run was stopped before.")
    harmless = planned.tool is not None and planned.tool.annotations.read_only
    effect = "" if harmless else " Whether it took effect is not known."
    return _error_output(f"`{planned.name}` was stopped while it ran, as the run was stopped.{effect}")


def explain_self_cancellation(tool: str) -> ToolOutput:
    """Explain that the tool cancelled itself."""
    return _error_output(f"`{tool}` cancelled itself. Try it once more, or take another way.")


def explain_failure(tool: str, error: BaseException) -> tuple[CallStatus, ToolOutput]:
    """Explain an error: of a `LoomError` all of its text, of others only the type."""
    error = unwrap_group(error) if isinstance(error, Exception) else error
    if isinstance(error, LoomError):
        return "error", _error_output(str(error))
    if isinstance(error, TimeoutError):
        return "timeout", _error_output(
            f"`{tool}` waited too long for something. Try again, or ask for less at once."
        )
    return "error", _error_output(
        f"`{tool}` failed unexpectedly: {type(error).__name__}. Other arguments may work; else take another "
        "way."
    )
