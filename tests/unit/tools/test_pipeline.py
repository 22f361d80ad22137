from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.errors import NotFoundError, RecordError
from loom_core.llm.messages import ImagePart, ToolCallPart
from loom_core.tools.audit import AuditLog
from loom_core.tools.audit_file import verify
from loom_core.tools.calls import CallResult, PlannedCall
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import Answer, CallContext, Question, Tool, ToolAnnotations, ToolOutput
from loom_core.tools.permission_rule import PermissionRule
from loom_core.tools.permissions import Permissions
from loom_core.tools.pipeline import ToolPipeline
from loom_core.tools.scheduler import Scheduler
from loom_core.tools.toolbox import Toolbox

_HARMLESS = ToolAnnotations(read_only=True, open_world=False)
_CHANGES = ToolAnnotations(destructive=False, open_world=False)

_Does = Callable[[Mapping[str, Any], CallContext], Awaitable[ToolOutput]]


async def _echo(arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
    return ToolOutput(json.dumps(arguments, ensure_ascii=False))


class _Doing(Tool):
    """A tool that does what a function does."""

    def __init__(
        self,
        name: str,
        does: _Does = _echo,
        *,
        annotations: ToolAnnotations = _HARMLESS,
        schema: Mapping[str, Any] | None = None,
        says: str = "做些事",
        needs_seconds: float = 0.0,
    ) -> None:
        self._name = name
        self._does = does
        self._annotations = annotations
        self._schema = schema or {"type": "object"}
        self._says = says
        self._needs_seconds = needs_seconds

    @property
    def name(self) -> str:
        return self._name

    @property
    def wire_name(self) -> str:
        return self._name.replace(":", "__")

    @property
    def description(self) -> str:
        return self._says

    @property
    def args_schema(self) -> Mapping[str, Any]:
        return self._schema

    @property
    def annotations(self) -> ToolAnnotations:
        return self._annotations

    @property
    def needs_seconds(self) -> float:
        return self._needs_seconds

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        assert context is not None
        return await self._does(arguments, context)


class _Watcher:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.results: dict[str, CallResult] = {}
        self.spilled: list[str] = []
        self.steps: list[tuple[float, float | None, str]] = []
        self.answer = Answer("accept", {"城市": "北京"})
        self.fails: dict[str, Exception] = {}

    async def starting(self, planned: PlannedCall) -> None:
        self._say("starting", planned.call.id)

    async def finished(self, planned: PlannedCall, result: CallResult) -> None:
        self.results.setdefault(planned.call.id, result)
        self._say("finished", planned.call.id)

    async def progress(self, planned: PlannedCall, done: float, total: float | None, message: str) -> None:
        self.steps.append((done, total, message))
        self._say("progress", planned.call.id)

    async def ask(self, planned: PlannedCall, question: Question) -> Answer:
        self._say("ask", planned.call.id)
        return self.answer

    async def spill(self, planned: PlannedCall, text: str) -> str:
        self.spilled.append(text)
        return "loom://runs/run_1/blobs/1"

    def _say(self, what: str, call_id: str) -> None:
        self.told.append(f"{what} {call_id}")
        if (error := self.fails.get(what)) is not None:
            raise error


def _pipeline(*tools: Tool, **more: Any) -> ToolPipeline:
    permissions = more.pop("permissions", None) or Permissions(otherwise="allow")
    return ToolPipeline(Toolbox(tools), permissions=permissions, **more)


def _call(name: str, id_: str = "call_1", **arguments: Any) -> ToolCallPart:
    return ToolCallPart(id_, name, arguments)


async def _ran(
    pipeline: ToolPipeline, *calls: ToolCallPart, watcher: _Watcher | None = None, approved: str = ""
) -> list[CallResult]:
    planned = await pipeline.plan(calls)
    return await pipeline.execute(
        planned, watcher=watcher or _Watcher(), approved=frozenset(approved.split())
    )


async def _text(tool: Tool, **arguments: Any) -> str:
    (result,) = await _ran(_pipeline(tool), _call(tool.wire_name, **arguments))
    return result.message.text


async def test_a_call_goes_through_six_stages() -> None:
    watcher = _Watcher()

    (result,) = await _ran(
        _pipeline(_Doing("文件:读取")), _call("文件__读取", path="笔记.md"), watcher=watcher
    )

    assert (result.status, result.tool, result.call_id) == ("success", "文件:读取", "call_1")
    assert result.message.text == '{"path": "笔记.md"}'
    assert not result.message.failed
    assert watcher.told == ["starting call_1", "finished call_1"]
    assert list(result.stages) == ["discover", "validate", "authorize", "check_cancel", "execute", "format"]
    assert all(seconds >= 0 for seconds in result.stages.values())


async def test_a_tool_that_there_is_not_is_answered_with_the_nearest() -> None:
    watcher = _Watcher()

    (result,) = await _ran(_pipeline(_Doing("fs:read")), _call("fs__reed"), watcher=watcher)

    assert (result.status, result.tool) == ("error", "fs__reed")
    assert result.message.text == "There is no tool 'fs__reed'. Did you mean `fs__read`?"
    assert result.message.failed
    assert watcher.told == ["finished call_1"]


async def test_a_tool_that_the_run_may_not_use_counts_as_not_there() -> None:
    pipeline = _pipeline(_Doing("fs:read"), _Doing("天气:查询"))

    planned = await pipeline.plan([_call("fs__read", "1"), _call("天气__查询", "2")], allowed=["天气:*"])

    assert [each.result is None for each in planned] == [False, True]


_PATH = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "count": {"type": "integer", "default": 3},
        "options": {"type": "object"},
    },
    "required": ["path"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (_call("读", paht="a"), "`path` is required"),
        (_call("读", path=5), "`path` must be a string, got 5 (a number)"),
        (ToolCallPart("1", "读", unreadable='{"path": "a'), "no JSON object: Unterminated string"),
        (ToolCallPart("1", "读", unreadable='["a"]'), "they are a list"),
        (ToolCallPart("1", "读", unreadable="7"), "they are a single value"),
        (ToolCallPart("1", "读", unreadable="[" * 100_000), "no JSON object"),
        (ToolCallPart("1", "读", unreadable="读" * 1000), " … 读"),
    ],
)
async def test_wrong_arguments_are_answered_with_what_would_be_right(call: ToolCallPart, told: str) -> None:
    watcher = _Watcher()

    (result,) = await _ran(_pipeline(_Doing("读", schema=_PATH)), call, watcher=watcher)

    assert result.status == "error"
    assert told in result.message.text
    assert len(result.message.text) < 700
    assert watcher.told == [f"finished {call.id}"]


@pytest.mark.parametrize(
    ("call", "taken"),
    [
        (_call("读", path="a"), {"path": "a", "count": 3}),
        (_call("读", path="a", options='{"深": 1}'), {"path": "a", "count": 3, "options": {"深": 1}}),
        (_call("读", path="a", count="7"), {"path": "a", "count": 7}),
        (ToolCallPart("1", "读", unreadable='```json\n{"path": "a",}\n```'), {"path": "a", "count": 3}),
    ],
)
async def test_arguments_that_are_nearly_right_are_put_right(
    call: ToolCallPart, taken: dict[str, Any]
) -> None:
    (planned,) = await _pipeline(_Doing("读", schema=_PATH)).plan([call])

    assert planned.arguments == taken


async def test_null_for_all_arguments_counts_as_none() -> None:
    (result,) = await _ran(_pipeline(_Doing("x")), ToolCallPart("1", "x", None))  # pyright: ignore[reportArgumentType]

    assert result.message.text == "{}"


async def test_what_a_rule_denies_does_not_run_and_the_model_is_told_why() -> None:
    rule = PermissionRule(action="deny", args={"path": "/etc/**"}, reason="系统文件不能读。")
    watcher = _Watcher()

    (result,) = await _ran(
        _pipeline(_Doing("读"), permissions=Permissions([rule])), _call("读", path="/etc/x"), watcher=watcher
    )

    assert result.status == "denied"
    assert "not permitted. 系统文件不能读。 Do not try the same again" in result.message.text
    assert watcher.told == ["finished call_1"]


async def test_what_has_to_be_approved_runs_if_it_was_and_only_then() -> None:
    pipeline = _pipeline(_Doing("写", annotations=_CHANGES), permissions=Permissions())
    (planned,) = await pipeline.plan([_call("写")])
    assert (planned.verdict, planned.reason, planned.result) == ("ask", "It may change something.", None)

    (refused,) = await pipeline.execute([planned], watcher=_Watcher())
    (result,) = await pipeline.execute([planned], watcher=_Watcher(), approved=frozenset({"call_1"}))

    assert refused.status == "denied"
    assert "has to be approved by a person" in refused.message.text
    assert result.status == "success"


async def test_what_has_changed_since_the_plan_counts_when_it_is_to_run() -> None:
    permissions = Permissions(otherwise="allow")
    live: list[tuple[Tool, ...]] = [(_Doing("s:写", annotations=_CHANGES),)]
    pipeline = ToolPipeline(Toolbox(live=[lambda: live[0]]), permissions=permissions)
    (planned,) = await pipeline.plan([_call("s__写")])

    async def status() -> tuple[str, str]:
        (result,) = await pipeline.execute([planned], watcher=_Watcher(), approved=frozenset({"call_1"}))
        return result.status, result.message.text

    assert (await status())[0] == "success"
    live[0] = (_Doing("s:写", annotations=_CHANGES),)  # the same tool, listed anew
    assert (await status())[0] == "success"
    live[0] = (_Doing("s:写", annotations=_CHANGES, says="现在也上传"),)
    assert "has changed meanwhile" in (await status())[1]
    live[0] = ()
    assert "There is no tool" in (await status())[1]
    live[0] = (_Doing("s:写", annotations=_CHANGES),)
    permissions.rules = (PermissionRule(action="deny"),)
    assert (await status())[0] == "denied"


async def test_of_two_calls_with_one_id_only_the_first_runs() -> None:
    watcher = _Watcher()

    first, second = await _ran(_pipeline(_Doing("x")), _call("x", n=1), _call("x", n=2), watcher=watcher)

    assert (first.message.text, first.status) == ('{"n": 1}', "success")
    assert "another call of this turn has the id 'call_1'" in second.message.text
    assert watcher.told.count("starting call_1") == 1


async def test_what_a_tool_raises_is_told_so_that_a_model_can_act_on_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raising(error: BaseException) -> Tool:
        async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
            raise error

        return _Doing("坏", does)

    ours = NotFoundError("没有这个文件。", advice="先列出文件。")
    assert await _text(raising(ours)) == "没有这个文件。 先列出文件。"
    assert await _text(raising(ExceptionGroup("", [ours]))) == "没有这个文件。 先列出文件。"
    assert "waited too long" in await _text(raising(TimeoutError()))
    assert not caplog.records

    told = await _text(raising(TypeError("password=hunter2")))

    assert told.startswith("`坏` failed unexpectedly: TypeError.")
    assert "hunter2" not in told
    assert "Traceback" in caplog.text


async def test_what_would_end_a_program_ends_only_the_call() -> None:
    class Panic(BaseException):
        """As extensions in other languages raise it."""

    def raising(error: BaseException) -> Tool:
        async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
            raise error

        return _Doing("坏", does)

    @tool(read_only=True, open_world=False)
    def leaving() -> None:
        """Leave."""
        raise SystemExit(2)

    assert "failed unexpectedly: SystemExit" in await _text(leaving)
    assert "failed unexpectedly: Panic" in await _text(raising(Panic()))
    assert "BaseExceptionGroup" in await _text(raising(BaseExceptionGroup("", [Panic(), Panic()])))
    for ours in (KeyboardInterrupt(), BaseExceptionGroup("", [KeyboardInterrupt()])):
        with pytest.raises(type(ours)):
            await _text(raising(ours))


_NOTHING: Any = None


@pytest.mark.parametrize(
    "output",
    [
        None,
        "text",
        ToolOutput(_NOTHING),
        ToolOutput("x", parts=_NOTHING),
        ToolOutput("x", parts=cast("Any", ("图",))),
        ToolOutput("x", metadata=_NOTHING),
    ],
)
async def test_a_tool_that_gives_no_output_costs_its_own_call_only(output: Any) -> None:
    async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        return output

    assert (await _text(_Doing("坏", does))).startswith("`坏` failed unexpectedly: TypeError.")


async def test_a_tool_that_fails_over_its_arguments_costs_its_own_call_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Careless(_Doing):
        def prepared(self, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
            return {"path": arguments["path"]}

    bad, good = await _ran(_pipeline(Careless("坏"), _Doing("x")), _call("坏", "1"), _call("x", "2"))

    assert bad.message.text.startswith("`坏` failed unexpectedly: KeyError.")
    assert good.status == "success"
    assert "Traceback" in caplog.text


async def test_arguments_without_a_bottom_are_refused(tmp_path: Path) -> None:
    def nested(times: int) -> Any:
        deep: Any = "底"
        for _ in range(times):
            deep = [deep]
        return deep

    x = _Doing("x", schema={"type": "object", "properties": {"n": {"type": "integer"}, "deep": {}}})
    pipeline = _pipeline(x, audit=AuditLog(tmp_path / "audit.jsonl"))

    fine, deep = await _ran(
        pipeline, _call("x", "1", deep=nested(90)), _call("x", "2", n="5", deep=nested(900))
    )

    assert fine.status == "success"
    assert "nested more than 100 times" in deep.message.text


async def test_others_run_while_a_very_long_output_is_looked_through() -> None:
    async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        return ToolOutput("\x1b[31m很长的一行\x1b[0m\r\n" * 300_000)

    turns, ended = 0, anyio.Event()

    async def count() -> None:
        nonlocal turns
        while not ended.is_set():
            turns += 1
            await anyio.lowlevel.checkpoint()

    watcher = _Watcher()
    async with anyio.create_task_group() as group:
        group.start_soon(count)
        (result,) = await _ran(_pipeline(_Doing("x", does)), _call("x"), watcher=watcher)
        ended.set()

    assert turns > 10
    assert watcher.spilled == ["很长的一行\n" * 300_000]
    assert len(result.message.text) < 30_000


async def test_a_search_finds_and_runs_with_what_the_run_may_use() -> None:
    shell: tuple[Tool, ...] = (_Doing("shell"),)
    box = Toolbox(
        [_Doing(f"fs:{does}") for does in ("read", "write", "list")], live=[lambda: shell], most_shown=2
    )
    pipeline = ToolPipeline(box, permissions=Permissions())
    allowed = ["fs:*"]
    assert [spec.name for spec in box.specs(allowed=allowed)] == ["tool_search"]

    planned = await pipeline.plan([_call("tool_search", query="shell read")], allowed=allowed)
    (result,) = await pipeline.execute(planned, watcher=_Watcher())

    assert result.status == "success"
    assert "fs__read" in result.message.text
    assert "`shell`" not in result.message.text
    assert "fs__read" in [spec.name for spec in box.specs(allowed=allowed)]


async def test_a_tool_that_cancels_itself_costs_its_own_call_only() -> None:
    async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        raise asyncio.CancelledError

    first, second = await _ran(_pipeline(_Doing("坏", does), _Doing("x")), _call("坏", "1"), _call("x", "2"))

    assert first.status == "error"
    assert "broke itself off" in first.message.text
    assert second.status == "success"


async def test_what_a_tool_says_failed_is_a_failure() -> None:
    async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        return ToolOutput("磁盘满了", is_error=True)

    (result,) = await _ran(_pipeline(_Doing("x", does)), _call("x"))

    assert (result.status, result.message.failed, result.message.text) == ("error", True, "磁盘满了")


async def test_a_call_that_takes_too_long_is_stopped_and_the_others_are_not() -> None:
    async def endless(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        await anyio.sleep_forever()
        return ToolOutput("")

    pipeline = _pipeline(_Doing("慢", endless), _Doing("x"), scheduler=Scheduler(timeout_seconds=0.01))
    slow, fast = await _ran(pipeline, _call("慢", "1"), _call("x", "2"))

    assert (slow.status, fast.status) == ("timeout", "success")
    assert "was stopped after 0.01 seconds" in slow.message.text
    assert "Split the task" in slow.message.text
    assert "execute" in slow.stages


async def test_a_tool_says_how_far_it_is_and_asks() -> None:
    async def does(_arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        assert context.progress is not None
        assert context.ask is not None
        await context.progress(1, 2, "一半")
        answer = await context.ask(Question("哪个城市?"))
        return ToolOutput(f"{answer.content['城市']} {context.depth}")

    watcher = _Watcher()
    pipeline = _pipeline(_Doing("x", does))
    (result,) = await pipeline.execute(await pipeline.plan([_call("x")]), watcher=watcher, depth=2)

    assert result.message.text == "北京 2"
    assert watcher.steps == [(1, 2, "一半")]
    assert watcher.told == ["starting call_1", "progress call_1", "ask call_1", "finished call_1"]


async def test_long_output_is_spilled_and_images_are_kept() -> None:
    image = ImagePart(b"png")

    async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        return ToolOutput("\x1b[1m行\x1b[0m\n" * 500, parts=(image,))

    watcher = _Watcher()
    (result,) = await _ran(_pipeline(_Doing("x", does), output_tokens=50), _call("x"), watcher=watcher)

    assert watcher.spilled == ["行\n" * 500]
    assert result.blob == "loom://runs/run_1/blobs/1"
    assert result.blob in result.message.text
    assert image in result.message.parts
    assert result.output.text.startswith("\x1b")


async def test_a_stopped_run_waits_until_what_is_spilled_is_kept() -> None:
    class Slow(_Watcher):
        async def spill(self, planned: PlannedCall, text: str) -> str:
            scope.cancel()
            await anyio.lowlevel.checkpoint()
            return await super().spill(planned, text)

    async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        return ToolOutput("长" * 500)

    watcher = Slow()
    with anyio.CancelScope() as scope:
        await _ran(_pipeline(_Doing("x", does), output_tokens=50), _call("x"), watcher=watcher)

    assert watcher.results["call_1"].status == "success"
    assert watcher.results["call_1"].blob


async def test_safe_calls_run_side_by_side_and_results_come_in_the_models_order() -> None:
    both = [anyio.Event(), anyio.Event()]

    async def meets(arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        both[arguments["n"]].set()
        await both[1 - arguments["n"]].wait()
        return ToolOutput(str(arguments["n"]))

    with anyio.fail_after(5):
        results = await _ran(_pipeline(_Doing("x", meets)), _call("x", "a", n=0), _call("x", "b", n=1))

    assert [(each.call_id, each.message.text) for each in results] == [("a", "0"), ("b", "1")]


async def test_an_agent_within_a_call_has_places_of_its_own() -> None:
    scheduler = Scheduler(max_concurrency=1, max_total=1)
    inner = _pipeline(_Doing("x"), scheduler=scheduler)

    async def runs_an_agent(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        (result,) = await _ran(inner, _call("x"))
        return ToolOutput(result.status)

    with anyio.fail_after(5):
        (result,) = await _ran(_pipeline(_Doing("agent", runs_an_agent), scheduler=scheduler), _call("agent"))

    assert result.message.text == "success"


async def test_when_a_run_is_stopped_every_call_has_a_result() -> None:
    begun = anyio.Event()
    watcher = _Watcher()

    async def endless(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        begun.set()
        await anyio.sleep_forever()
        return ToolOutput("")

    pipeline = _pipeline(_Doing("读", endless), _Doing("x"), _Doing("写", endless, annotations=_CHANGES))
    calls = [_call("nope", "0"), _call("x", "1"), _call("读", "2"), _call("写", "3"), _call("x", "4")]
    planned = await pipeline.plan(calls)

    returned = False

    async def execute() -> None:
        nonlocal returned
        await pipeline.execute(planned, watcher=watcher)
        returned = True

    async with anyio.create_task_group() as group:
        group.start_soon(execute)
        await begun.wait()
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()

    assert not returned, "the cancellation goes on"
    assert {id_: result.status for id_, result in watcher.results.items()} == {
        "0": "error", "1": "success", "2": "aborted", "3": "aborted", "4": "aborted",
    }  # fmt: skip
    assert watcher.results["2"].message.text == "`读` was stopped while it ran, as the run was stopped."
    assert watcher.results["3"].message.text == "`写` was not run: the run was stopped before."
    assert sorted(watcher.told) == sorted(
        ["starting 1", "starting 2", *(f"finished {number}" for number in range(5))]
    )


async def test_a_call_that_may_have_changed_something_says_so_when_it_is_stopped() -> None:
    watcher = _Watcher()

    async def endless(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        scope.cancel()
        await anyio.sleep_forever()
        return ToolOutput("")

    with anyio.CancelScope() as scope:
        await _ran(_pipeline(_Doing("写", endless, annotations=_CHANGES)), _call("写"), watcher=watcher)

    assert scope.cancelled_caught
    assert watcher.results["call_1"].message.text.endswith("Whether it took effect is not known.")


async def test_a_turn_that_is_stopped_before_it_begins_does_nothing() -> None:
    watcher = _Watcher()
    pipeline = _pipeline(_Doing("x"))
    planned = await pipeline.plan([_call("x", "1"), _call("x", "2")])

    with anyio.CancelScope() as scope:
        scope.cancel()
        await pipeline.execute(planned, watcher=watcher)

    assert scope.cancelled_caught
    assert watcher.told == ["finished 1", "finished 2"]


@pytest.mark.parametrize("when", ["starting", "finished", "progress", "ask"])
async def test_what_a_watcher_raises_ends_the_turn(when: str, caplog: pytest.LogCaptureFixture) -> None:
    async def does(_arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        assert context.progress is not None
        assert context.ask is not None
        with suppress(RecordError):  # a tool may swallow what it does not know
            await context.progress(1, None, "")
            await context.ask(Question("?"))
        return ToolOutput("好")

    watcher = _Watcher()
    watcher.fails[when] = RecordError("磁盘满了。")
    calls = [_call("x", str(number)) for number in range(3)]

    with pytest.raises(RecordError, match="磁盘满了"):
        await _ran(_pipeline(_Doing("x", does)), *calls, watcher=watcher)
    with pytest.raises(RecordError, match="磁盘满了"):
        await _ran(_pipeline(_Doing("x", does)), *calls[:1], watcher=watcher)

    if when != "finished":
        assert {result.status for result in watcher.results.values()} <= {"aborted"}


def _audited(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


async def test_the_audit_has_every_decision_and_every_call_that_may_change_something(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    permissions = Permissions([PermissionRule(action="deny", tool="删")])
    pipeline = _pipeline(
        _Doing("读"),
        _Doing("写", annotations=_CHANGES),
        _Doing("删"),
        permissions=permissions,
        audit=AuditLog(path),
        run_id="run_1",
        source="user",
    )
    planned = await pipeline.plan(
        [_call("读", "1"), _call("写", "2", token="t"), _call("删", "3"), _call("?", "4")]
    )
    assert [line["decision"] for line in _audited(path)] == ["allow", "ask", "deny"]

    planned[1] = replace(planned[1], by="小李")
    await pipeline.execute(planned, watcher=_Watcher(), approved=frozenset({"2"}))

    later = _audited(path)[3:]
    assert [(line["kind"], line["call"]) for line in later] == [
        ("decision", "2"),
        ("start", "2"),
        ("end", "2"),
    ]
    assert (later[0]["decision"], later[0]["by"], later[0]["run"], later[0]["source"]) == (
        "allow", "小李", "run_1", "user",
    )  # fmt: skip
    assert later[1]["arguments"] == {"token": "[secret]"}
    assert later[2]["outcome"] == "success"
    assert verify(path).problem == ""


async def test_without_an_audit_only_what_reads_is_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = _pipeline(_Doing("读"), _Doing("写", annotations=_CHANGES), audit=AuditLog(tmp_path))

    read, written = await _ran(pipeline, _call("读", "1"), _call("写", "2"))

    assert (read.status, written.status) == ("success", "error")
    assert "Only tools that read are run until this works again" in written.message.text
    assert "cannot be written" in caplog.text


async def test_the_end_of_a_call_that_was_stopped_is_on_the_audit(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    async def endless(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        scope.cancel()
        await anyio.sleep_forever()
        return ToolOutput("")

    pipeline = _pipeline(_Doing("写", endless, annotations=_CHANGES), audit=AuditLog(path))
    with anyio.CancelScope() as scope:
        await _ran(pipeline, _call("写"))

    assert [line.get("outcome") for line in _audited(path)] == [None, None, "aborted"]


_TURNS = st.lists(
    st.tuples(
        st.sampled_from(["safe", "unsafe", "missing"]),
        st.sampled_from(["ends", "fails", "raises", "hangs"]),
        st.integers(0, 3),  # checkpoints
    ),
    max_size=9,
)


class _Turn:
    """Calls of one turn: some hang, some fail, and those that change something do it one after the other."""

    def __init__(self, plan: list[tuple[str, str, int]], each: int) -> None:
        self.scheduler = Scheduler(max_concurrency=each, timeout_seconds=0.002)
        self.watcher = _Watcher()
        self.problems: list[str] = []
        self.calls = [
            _call(f"{kind}_{how}", str(number), n=number) for number, (kind, how, _) in enumerate(plan)
        ]
        self._plan = plan
        self._each = each
        self._running: set[int] = set()
        self._effects: list[int] = []
        tools = [
            _Doing(f"{kind}_{how}", self._do, annotations=does, needs_seconds=0 if how == "hangs" else 60)
            for kind, does in (("safe", _HARMLESS), ("unsafe", _CHANGES))
            for how in ("ends", "fails", "raises", "hangs")
        ]
        self._pipeline = _pipeline(*tools, scheduler=self.scheduler)

    async def run(self, *, cancelled_after: int | None) -> None:
        planned = await self._pipeline.plan(self.calls)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                if cancelled_after is not None:
                    group.start_soon(self._cancel, group.cancel_scope, cancelled_after)
                results = await self._pipeline.execute(planned, watcher=self.watcher)
                assert [result.call_id for result in results] == [call.id for call in self.calls]
                group.cancel_scope.cancel()

    async def _cancel(self, scope: anyio.CancelScope, after: int) -> None:
        for _ in range(after):
            await anyio.lowlevel.checkpoint()
        scope.cancel()

    async def _do(self, arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        number: int = arguments["n"]
        kind, how, length = self._plan[number]
        self._running.add(number)
        if len(self._running) > self._each or (kind == "unsafe" and self._running != {number}):
            self.problems.append(f"{self._running} at once")
        if any(other > number for other in self._effects):
            self.problems.append(f"{number} after {self._effects}")
        try:
            for _ in range(length):
                await anyio.lowlevel.checkpoint()
            if how == "hangs":
                await anyio.sleep_forever()
            if how == "raises":
                raise NotFoundError("没有。")
            return ToolOutput("", is_error=how == "fails")
        finally:
            self._running.discard(number)
            if kind == "unsafe":
                self._effects.append(number)


@settings(max_examples=60, deadline=None)
@given(plan=_TURNS, each=st.integers(1, 3), cancelled_after=st.one_of(st.none(), st.integers(0, 12)))
def test_in_any_turn_effects_come_in_order_and_every_call_has_one_result(
    plan: list[tuple[str, str, int]], each: int, cancelled_after: int | None
) -> None:
    turn = _Turn(plan, each)

    anyio.run(lambda: turn.run(cancelled_after=cancelled_after))

    assert not turn.problems
    assert sorted(told for told in turn.watcher.told if told.startswith("finished")) == sorted(
        f"finished {call.id}" for call in turn.calls
    )
    snapshot = turn.scheduler.snapshot()
    assert (snapshot.running, snapshot.waiting) == (0, 0)
    expected = {"ends": "success", "fails": "error", "raises": "error", "hangs": "timeout"}
    for call, (kind, how, _) in zip(turn.calls, plan, strict=True):
        ended = "error" if kind == "missing" else expected[how]
        assert turn.watcher.results[call.id].status in (
            {ended} if cancelled_after is None else {ended, "aborted"}
        )
