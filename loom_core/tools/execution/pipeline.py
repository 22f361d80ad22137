"""Tool pipeline: runs a model's tool calls in six stages."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from time import perf_counter
from typing import Any, cast

import anyio

from loom_core.errors import InvalidInputError, LoomError
from loom_core.llm.messages import ToolCallPart
from loom_core.llm.text import json_values
from loom_core.tools.auditing.audit import AuditEntry
from loom_core.tools.calls import CallHost, CallResult, PlannedCall, Stage, TaskHost
from loom_core.tools.execution import outcomes
from loom_core.tools.execution.call_run import CLEANUP_SECONDS, CallEnvironment, CallRun
from loom_core.tools.execution.retries import RetryHost
from loom_core.tools.interface import CallContext, Tool
from loom_core.tools.permission.permissions import PermissionDecision, ToolIdentity
from loom_core.tools.toolbox import is_allowed

__all__ = ["ToolPipeline"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class ToolPipeline(CallEnvironment):
    """Plans and runs the tool calls of one run. Cheap to create: each run has its own.

    Attributes:
        toolbox: the tools.
        permissions: the permissions; see `Permissions.for_run`.
        scheduler: gives slots to calls; one for all runs. By default a new one.
        output_tokens: approximate limit of an output for the model, in tokens; the rest is spilled.
        audit: audit log of decisions, and of calls that may change something.
        run_id: the run of the calls.
        source: the caller, in the form of the rules.
        caller: display name of the caller, for the audit.
        priority: priority of the run, see `Scheduler.slot`.
        data: data of the run, for the arguments that the toolbox injects.
        read_files: reads the files of outputs for the model; without it, it reads the text about them only.
    """

    def remember(self, tool: Tool | ToolIdentity) -> None:
        """Remember that a person approved a tool for the rest of the run; see `Permissions.remember`."""
        self.permissions.remember(tool)

    def chosen_arguments(self, tool: Tool, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a model may see of the arguments of a call; see `Toolbox.chosen_arguments`."""
        return self.toolbox.chosen_arguments(tool, arguments)

    async def approve(
        self, planned: PlannedCall, *, by: str, seen: str, for_run: bool, keep: bool
    ) -> PlannedCall:
        """Record a person's approval of a call, and so of its tool; all approvals go through here.

        Args:
            planned: the call.
            by: who approved it, for the audit.
            seen: `Tool.fingerprint` when the person was asked; empty if unknown.
            for_run: whether the tool is approved for the rest of the run.
            keep: whether it holds for later runs, too, if the tool keeps approvals (`Tool.keeps_approval`).

        Returns:
            The call, allowed; or refused, if its tool has changed since the question.
        """
        tool = planned.tool
        if tool is None or planned.result is not None:
            return planned
        if seen and tool.fingerprint != seen:
            return planned.refuse(outcomes.explain_change(tool.name))
        if for_run:
            self.remember(tool)
        if keep and tool.keeps_approval and tool.approval_reason:
            try:
                await tool.approve()
            except LoomError as error:
                _log.warning("the approval of %s is not stored: %s", tool.name, error)
        return replace(planned, verdict="allow", by=by)

    async def plan(
        self, calls: Sequence[ToolCallPart], *, allowed: Sequence[str] | None = None
    ) -> list[PlannedCall]:
        """Discover, validate and authorize all calls of a turn, in order, before any of them runs.

        The only effect is to record the decisions in the audit. A call whose `result` is None may run: at
        once if the verdict is `allow`, after a person's approval if it is `ask`.

        Args:
            calls: the model's calls. Of several with the same id only the first may run.
            allowed: name patterns; other tools count as missing; None for all.

        Returns:
            A plan for each call, in their order.

        Raises:
            ConfigError: a pattern is invalid.
        """
        seen = set[str]()
        planned: list[PlannedCall] = []
        entries: list[AuditEntry] = []
        for call in calls:
            if call.id in seen:
                copy = PlannedCall(call=call, tool=None, arguments={}, verdict="deny")
                planned.append(copy.refuse(outcomes.explain_duplicate(call.id)))
                continue
            seen.add(call.id)
            plan, decision = self._plan(call, allowed)
            planned.append(plan)
            if plan.tool is not None:
                self.toolbox.offer((plan.tool.wire_name,))
            if decision is not None and self.audit is not None:
                entries.append(self.decision_entry(plan, decision))
        if self.audit is not None and entries:
            await self.audit.try_write(*entries)
        return planned

    def _plan(
        self, call: ToolCallPart, allowed: Sequence[str] | None
    ) -> tuple[PlannedCall, PermissionDecision | None]:
        """Plan one call; the decision is None where the call was refused before it was authorized."""
        stages: dict[Stage, float] = {}
        tool: Tool | None = None
        stage: Stage = "discover"
        begun = perf_counter()
        try:
            tool = self.toolbox.find(call.name, allowed=allowed)
            now = perf_counter()
            stages["discover"], begun, stage = now - begun, now, "validate"
            arguments = self.toolbox.prepare_arguments(
                tool, _check_depth(_parse_arguments(call), call.name), data=self.data
            )
        except Exception as error:  # noqa: BLE001 - a third-party tool may fail here
            stages[stage] = perf_counter() - begun
            if not isinstance(error, LoomError):
                _log.exception("%s failed while it validated its arguments", call.name)
            _, output = outcomes.explain_failure(call.name if tool is None else tool.name, error)
            unread = PlannedCall(call=call, tool=tool, arguments={}, verdict="deny", stages=stages)
            return unread.refuse(output), None
        now = perf_counter()
        stages["validate"], begun = now - begun, now
        decision = self.permissions.decide(tool, arguments, source=self.source)
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
            alternatives = self.read_only_alternatives(tool, allowed=allowed)
            said = outcomes.explain_denial(tool.name, decision.reason, alternatives=alternatives)
            planned = planned.refuse(said, status="denied")
        return planned, decision

    def read_only_alternatives(self, tool: Tool, *, allowed: Sequence[str] | None = None) -> list[str]:
        """Return up to three read-only tools for the same things as a tool that may not be called.

        They share words of the name with it, such as `read_file` with `write_file`.

        Args:
            tool: the tool; nothing replaces one that only reads itself.
            allowed: as for `plan`.

        Returns:
            Their names for models, the most similar first.

        Raises:
            ConfigError: a pattern is invalid.
        """
        if tool.annotations.read_only:
            return []
        words = _words(tool)
        shared = {
            each.wire_name: len(words & _words(each))
            for each in self.toolbox.tools()
            if each.annotations.read_only and is_allowed(each, allowed) and self._may_run(each)
        }
        similar = sorted((name for name in shared if shared[name]), key=lambda name: -shared[name])
        return similar[:_MOST_ALTERNATIVES]

    def _may_run(self, tool: Tool) -> bool:
        return self.permissions.decide(tool, {}, source=self.source).action == "allow"

    async def execute(
        self,
        planned: Sequence[PlannedCall],
        *,
        host: CallHost,
        approved: frozenset[str] = frozenset(),
        depth: int = 0,
        retrying: RetryHost | None = None,
        tasks: TaskHost | None = None,
        context: CallContext | None = None,
    ) -> list[CallResult]:
        """CheckCancel, execute and format. Every call gets a result, in the order of `planned`.

        Concurrency-safe calls run concurrently; any other call waits for those before it, and those after it
        wait for it: so effects happen in the model's order. Right before each call, the tool and its
        permission are checked again; a call that is denied by then does not run, even if approved.

        If the surrounding scope is cancelled, running calls are stopped, calls without a result get one with
        the status `aborted`, the host records each, and the cancellation continues.

        Args:
            planned: the result of `plan`, updated with people's decisions: `approve`, or
                `PlannedCall.refuse`.
            host: the run that the calls belong to.
            approved: ids of calls that a person has approved.
            depth: number of agents above.
            retrying: host of retries of calls that failed for a reason that passes; None for no retries.
            tasks: host of calls that other servers continue as tasks; None if no run keeps them.
            context: what the tools get to know of the run, with its own `depth`; each call completes it.

        Raises:
            Exception: an error of the host, after everything else was stopped.
        """
        context = context or CallContext(depth=depth)
        calls = [
            CallRun(
                each,
                host,
                self,
                approved=each.call.id in approved,
                context=context,
                retrying=retrying,
                tasks=tasks,
            )
            for each in planned
        ]
        try:
            for call in calls:
                if call.is_decided:
                    await call.end_as_planned()
            for wave in _waves([call for call in calls if not call.is_decided]):
                if len(wave) == 1:
                    await wave[0].run()
                    continue
                async with anyio.create_task_group() as group:
                    for call in wave:
                        group.start_soon(call.run)
        except BaseException as error:
            await _abort_all(calls)
            if isinstance(error, ExceptionGroup):
                raise _first(cast("ExceptionGroup[Exception]", error)) from None
            raise
        finally:
            await self._write_audit()
        return [call.result for call in calls if call.result is not None]

    async def _write_audit(self) -> None:
        """Write the queued audit entries of the calls, also after a cancellation."""
        if self.audit is not None and self.audit.has_waiting:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLEANUP_SECONDS):
                await self.audit.try_write()


def _first(error: ExceptionGroup[Exception]) -> Exception:
    """Return the first error, if several calls raised one."""
    inner = error.exceptions[0]
    return _first(cast("ExceptionGroup[Exception]", inner)) if isinstance(inner, ExceptionGroup) else inner


def _waves(calls: Sequence[CallRun]) -> Iterator[list[CallRun]]:
    """Group the calls, in order, into batches that may run concurrently."""
    for is_safe, together in groupby(calls, key=lambda call: call.is_concurrency_safe):
        if is_safe:
            yield list(together)
        else:
            yield from ([call] for call in together)


async def _abort_all(calls: Sequence[CallRun]) -> None:
    """Give a result to every call that has none."""
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLEANUP_SECONDS):
        try:
            for call in calls:
                await call.abort()
        except Exception:  # noqa: BLE001 - the error in flight says more
            _log.exception("not every aborted call could be recorded")


_MOST_ALTERNATIVES = 3
_WORD = re.compile(r"[^\W_]+")


def _words(tool: Tool) -> frozenset[str]:
    return frozenset(_WORD.findall(tool.name.casefold()))


_SHOWN = 300  # characters of unreadable arguments
_DEEPEST = 100  # nesting depth


def _parse_arguments(call: ToolCallPart) -> Mapping[str, Any]:
    """Return the arguments of a call; parse invalid JSON again, leniently."""
    if not call.unreadable:
        return cast("Mapping[str, Any] | None", call.arguments) or {}
    found = json_values(call.unreadable)
    if len(found) == 1 and isinstance(found[0], dict):
        _log.info("the arguments of %s were not valid JSON, but could be repaired", call.name)
        return cast("dict[str, Any]", found[0])
    text = call.unreadable
    given = text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} … {text[-_SHOWN // 2 :]}"
    raise InvalidInputError(
        f"The arguments of `{call.name}` are not a JSON object: {_json_problem(text)}. Received: {given}",
        advice='Call it again with an object such as {"name": "value"}; write less if it was cut off.',
    )


def _check_depth(arguments: Mapping[str, Any], tool: str) -> Mapping[str, Any]:
    """Return the arguments if they are not nested too deeply, for example for a JSON encoder."""
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
    """Return the JSON error of a text, with its position."""
    import json

    try:
        value = json.loads(text)
    except ValueError as error:
        return str(error)
    except RecursionError:
        return "they are nested too deeply"
    return f"they are {'a list' if isinstance(value, list) else 'a single value'}"
