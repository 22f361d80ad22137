"""Outputs for the model if a call did not succeed; each says what to do next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from loom_core.errors import LoomError, unwrap_group
from loom_core.tools.calls import CallStatus, PlannedCall
from loom_core.tools.failures import failure_of
from loom_core.tools.interface import ToolFailure, ToolFailureKind, ToolOutput

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
    "with_attempts",
]

_OTHERWISE = (
    "Do not try the same again: take another way{instead}, or tell the user what you could not do and why. "
    "The operator can permit it by a rule in `permissions`."
)
_NOT_KNOWN = "Whether it took effect is not known: find out before you try again."
_ADVICE: Mapping[ToolFailureKind, str] = {
    "timeout": "Ask for less at once, or try again later; if it needs longer, tell the user.",
    "connection": "Try again later, take another way, or tell the user that the service is not reachable.",
    "unavailable": "Ask for less at once, or try again later; or tell the user that the service is busy.",
    "unauthorized": (
        "Its credentials are missing, or do not allow this: tell the user that the operator has to configure "
        "them. Do not ask for them, or look for others."
    ),
}
_WHAT: Mapping[ToolFailureKind, str] = {
    "timeout": "waited too long for something",
    "connection": "could not reach a service that it needs, or the connection broke",
    "unavailable": "needs a service that has too many requests or cannot answer now",
    "unauthorized": "was refused by a service that it needs",
}


def _error_output(text: str, failure: ToolFailure | None = None) -> ToolOutput:
    return ToolOutput(text, is_error=True, failure=failure)


def explain_denial(tool: str, reason: str, *, alternatives: Sequence[str] = ()) -> ToolOutput:
    """Explain that a rule denied the call.

    Args:
        tool: the tool.
        reason: why.
        alternatives: tools for the same things that only read, by their names for models.
    """
    named = ", ".join(f"`{each}`" for each in alternatives)
    instead = f", such as {named}, which only {'read' if len(alternatives) > 1 else 'reads'}" if named else ""
    otherwise = _OTHERWISE.format(instead=instead or ", such as a tool that only reads")
    return _error_output(f"`{tool}` was not run: it is not permitted. {reason} {otherwise}")


def explain_missing_approval(tool: str, reason: str) -> ToolOutput:
    """Explain that the call needed approval and got none."""
    return _error_output(
        f"`{tool}` was not run: it has to be approved by a person and was not. {reason} "
        + _OTHERWISE.format(instead=", such as a tool that only reads")
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
        "time limit (`timeout_seconds` of the scheduler, or the tool's own).",
        ToolFailure("timeout"),
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


def explain_failure(
    tool: str, error: BaseException, *, repeatable: bool = True
) -> tuple[CallStatus, ToolOutput]:
    """Explain an error: of a `LoomError` all of its text, of others only the type.

    Args:
        tool: the tool.
        error: the error.
        repeatable: whether the call may be repeated although its outcome is not known.
    """
    error = unwrap_group(error) if isinstance(error, Exception) else error
    failure = failure_of(error)
    if isinstance(error, LoomError):
        return "error", _error_output(str(error), failure)
    if failure is None:
        return "error", _error_output(
            f"`{tool}` failed unexpectedly: {type(error).__name__}. Other arguments may work; else take "
            "another way."
        )
    doubt = "" if repeatable or not failure.is_transient else f" {_NOT_KNOWN}"
    said = f"`{tool}` {_WHAT[failure.kind]} ({type(error).__name__}).{doubt} {_ADVICE[failure.kind]}"
    return "timeout" if failure.kind == "timeout" else "error", _error_output(said, failure)


def with_attempts(output: ToolOutput, made: int) -> ToolOutput:
    """Return the output of the last attempt; if it failed for a reason that passes, with their number."""
    if made < 2 or output.failure is None or not output.failure.is_transient:
        return output
    separator = "\n\n" if "\n" in output.text else " "
    return replace(output, text=f"{output.text.rstrip()}{separator}It was tried {made} times.")
