"""What a model is told of a call that did not end as it wanted, so that it knows what to do next."""

from __future__ import annotations

from loom_core.errors import LoomError, unwrapped
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
    """A rule or a person does not want it."""
    return _error_output(f"`{tool}` was not run: it is not permitted. {reason} {_OTHERWISE}")


def explain_missing_approval(tool: str, reason: str) -> ToolOutput:
    """It had to be approved, and nobody did."""
    return _error_output(
        f"`{tool}` was not run: it has to be approved by a person and was not. {reason} {_OTHERWISE}"
    )


def explain_change(tool: str) -> ToolOutput:
    """It is not the tool that was planned, or approved, any more."""
    return _error_output(
        f"`{tool}` was not run: the tool has changed meanwhile. Look at it again, and call it anew."
    )


def explain_duplicate(call_id: str) -> ToolOutput:
    """The turn has another call with this id."""
    return _error_output(
        f"It was not run: another call of this turn has the id {call_id!r}, and its result counts."
    )


def explain_unrecordable(tool: str, problem: str) -> ToolOutput:
    """It may change something, and that cannot be recorded."""
    return _error_output(
        f"`{tool}` was not run: {problem} Only tools that read are run until this works again; tell the user."
    )


def explain_timeout(tool: str, seconds: float) -> ToolOutput:
    """It took too long."""
    return _error_output(
        f"`{tool}` was stopped after {seconds:g} seconds; it may have done a part of it. Split the task into "
        "smaller ones, or ask for less at once; where that cannot be, tell the user that it needs a longer "
        "time limit."
    )


def explain_abort(planned: PlannedCall, *, begun: bool) -> ToolOutput:
    """The run was ended meanwhile."""
    if not begun:
        return _error_output(f"`{planned.name}` was not run: the run was stopped before.")
    harmless = planned.tool is not None and planned.tool.annotations.read_only
    effect = "" if harmless else " Whether it took effect is not known."
    return _error_output(f"`{planned.name}` was stopped while it ran, as the run was stopped.{effect}")


def explain_self_cancellation(tool: str) -> ToolOutput:
    """The tool cancelled itself."""
    return _error_output(f"`{tool}` broke itself off. Try it once more, or take another way.")


def explain_failure(tool: str, error: BaseException) -> tuple[CallStatus, ToolOutput]:
    """It raised an error: ours says what to do; of others only the kind is told."""
    error = unwrapped(error) if isinstance(error, Exception) else error
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
