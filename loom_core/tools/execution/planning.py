"""The first three stages: which tool a model means, with which arguments, and whether it may run."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, cast

from loom_core.errors import InvalidInputError, LoomError
from loom_core.llm.json_text import json_values
from loom_core.llm.messages import ToolCallPart
from loom_core.tools.calls import CallResult, CallStatus, PlannedCall, Stage
from loom_core.tools.execution import outcomes
from loom_core.tools.interface import Tool, ToolOutput
from loom_core.tools.permission.permissions import Decision, Permissions
from loom_core.tools.toolbox import Toolbox

__all__ = ["Planner", "refused"]

_log = logging.getLogger(__name__)

_SHOWN = 300  # characters of unreadable arguments
_DEEPEST = 100  # lists and objects within each other


class Planner:
    """Plans calls; does nothing else.

    Args:
        toolbox: the tools.
        permissions: what may run.
        source: who calls.
    """

    def __init__(self, toolbox: Toolbox, permissions: Permissions, source: str) -> None:
        self._toolbox = toolbox
        self._permissions = permissions
        self._source = source

    def plan(self, call: ToolCallPart, allowed: Sequence[str] | None) -> tuple[PlannedCall, Decision | None]:
        """A call after Discover, Validate and Authorize, and what was decided; None where it came to none."""
        stages: dict[Stage, float] = {}
        tool: Tool | None = None
        stage: Stage = "discover"
        begun = perf_counter()
        try:
            tool = self._toolbox.find(call.name, allowed=allowed)
            now = perf_counter()
            stages["discover"], begun, stage = now - begun, now, "validate"
            arguments = self._toolbox.prepared(tool, _shallow(_readable(call), call.name))
        except Exception as error:  # noqa: BLE001 - a tool of anybody's may fail while it looks at arguments
            stages[stage] = perf_counter() - begun
            if not isinstance(error, LoomError):
                _log.exception("%s failed while it looked at its arguments", call.name)
            _, output = outcomes.failed(call.name if tool is None else tool.name, error)
            return refused(
                PlannedCall(call=call, tool=tool, arguments={}, verdict="deny"), output, stages
            ), None
        now = perf_counter()
        stages["validate"], begun = now - begun, now
        decision = self._permissions.decide(tool, arguments, source=self._source)
        stages["authorize"] = perf_counter() - begun
        planned = PlannedCall(
            call=call,
            tool=tool,
            arguments=arguments,
            verdict=decision.action,
            reason=decision.reason,
            stages=stages,
            of_tool=decision.of_tool,
        )
        if decision.action == "deny":
            planned = refused(planned, outcomes.denied(tool.name, decision.reason), stages, status="denied")
        return planned, decision


def refused(
    planned: PlannedCall,
    output: ToolOutput,
    stages: Mapping[Stage, float],
    *,
    status: CallStatus = "error",
) -> PlannedCall:
    """A call that does not run, with what the model is told instead."""
    result = CallResult(
        call_id=planned.call.id,
        tool=planned.tool_name,
        status=status,
        output=output,
        message=output.message(planned.call.id),
        stages=stages,
    )
    return PlannedCall(
        call=planned.call,
        tool=planned.tool,
        arguments=planned.arguments,
        verdict="deny",
        reason=planned.reason or output.text,
        result=result,
        stages=stages,
        by=planned.by,
    )


def _readable(call: ToolCallPart) -> Mapping[str, Any]:
    """The arguments of a call; those that are no JSON are read once more, forgiving what can be.

    Raises:
        InvalidInputError: they cannot be read.
    """
    if not call.unreadable:
        return cast("Mapping[str, Any] | None", call.arguments) or {}
    found = json_values(call.unreadable)
    if len(found) == 1 and isinstance(found[0], dict):
        _log.info("the arguments of %s were no JSON, and could be read nevertheless", call.name)
        return cast("dict[str, Any]", found[0])
    text = call.unreadable
    given = text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]}"
    raise InvalidInputError(
        f"The arguments of `{call.name}` are no JSON object: {_json_problem(text)}. Received: {given}",
        advice='Call it again with an object such as {"name": "value"}; write less if it was cut off.',
    )


def _shallow(arguments: Mapping[str, Any], tool: str) -> Mapping[str, Any]:
    """The same, if nothing that goes through them, such as a writer of JSON, can come to its end.

    Raises:
        InvalidInputError: they are nested too deeply.
    """
    level: list[object] = [arguments]
    for _ in range(_DEEPEST):
        level = [inner for part in level for inner in _inside(part) if isinstance(inner, dict | list)]
        if not level:
            return arguments
    raise InvalidInputError(
        f"The arguments of `{tool}` are nested more than {_DEEPEST} times.",
        advice="Call it with flatter ones.",
    )


def _inside(part: object) -> Iterable[object]:
    if isinstance(part, Mapping):
        return cast("Mapping[str, object]", part).values()
    return cast("list[object]", part)


def _json_problem(text: str) -> str:
    """What is wrong with a text as JSON, and where."""
    import json

    try:
        value = json.loads(text)
    except ValueError as error:
        return str(error)
    except RecursionError:
        return "they are nested too deeply"
    return f"they are {'a list' if isinstance(value, list) else 'a single value'}"
