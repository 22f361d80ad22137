"""Calls of a model on their way through the stages: found, corrected, permitted, run, answered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from loom_core.llm.messages import ImagePart, ToolCallPart
from loom_core.tools.auditing.audit import AuditLog
from loom_core.tools.execution.pipeline import ToolPipeline
from loom_core.tools.execution.scheduler import Scheduler
from loom_core.tools.interface import CallContext, Question, Tool, ToolOutput
from loom_core.tools.permission.permissions import Permissions
from loom_core.tools.permission.rule import PermissionRule
from loom_core.tools.toolbox import Toolbox
from tests.fixtures.tool_turns import CHANGES, Doing, Host, pipeline_of, ran, tool_call


async def test_a_call_goes_through_six_stages() -> None:
    host = Host()

    (result,) = await ran(pipeline_of(Doing("文件:读取")), tool_call("文件__读取", path="笔记.md"), host=host)

    assert (result.status, result.tool, result.call_id) == ("success", "文件:读取", "call_1")
    assert result.message.text == '{"path": "笔记.md"}'
    assert not result.message.failed
    assert host.told == ["starting call_1", "finished call_1"]
    assert list(result.stages) == ["discover", "validate", "authorize", "check_cancel", "execute", "format"]
    assert all(seconds >= 0 for seconds in result.stages.values())


async def test_a_tool_that_there_is_not_is_answered_with_the_nearest() -> None:
    host = Host()

    (result,) = await ran(pipeline_of(Doing("fs:read")), tool_call("fs__reed"), host=host)

    assert (result.status, result.tool) == ("error", "unknown")
    assert result.message.text == "There is no tool 'fs__reed'. Did you mean `fs__read`?"
    assert result.message.failed
    assert host.told == ["finished call_1"]


async def test_a_tool_that_the_run_may_not_use_counts_as_not_there() -> None:
    pipeline = pipeline_of(Doing("fs:read"), Doing("天气:查询"))

    planned = await pipeline.plan(
        [tool_call("fs__read", "1"), tool_call("天气__查询", "2")], allowed=["天气:*"]
    )

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
        (tool_call("读", paht="a"), "`path` is required"),
        (tool_call("读", path=5), "`path` must be a string, got 5 (a number)"),
        (ToolCallPart("1", "读", unreadable='{"path": "a'), "not a JSON object: Unterminated string"),
        (ToolCallPart("1", "读", unreadable='["a"]'), "they are a list"),
        (ToolCallPart("1", "读", unreadable="7"), "they are a single value"),
        (ToolCallPart("1", "读", unreadable="[" * 100_000), "not a JSON object"),
        (ToolCallPart("1", "读", unreadable="读" * 1000), " … 读"),
    ],
)
async def test_wrong_arguments_are_answered_with_what_would_be_right(call: ToolCallPart, told: str) -> None:
    host = Host()

    (result,) = await ran(pipeline_of(Doing("读", schema=_PATH)), call, host=host)

    assert result.status == "error"
    assert told in result.message.text
    assert len(result.message.text) < 700
    assert host.told == [f"finished {call.id}"]


@pytest.mark.parametrize(
    ("call", "taken"),
    [
        (tool_call("读", path="a"), {"path": "a", "count": 3}),
        (tool_call("读", path="a", options='{"深": 1}'), {"path": "a", "count": 3, "options": {"深": 1}}),
        (tool_call("读", path="a", count="7"), {"path": "a", "count": 7}),
        (ToolCallPart("1", "读", unreadable='```json\n{"path": "a",}\n```'), {"path": "a", "count": 3}),
    ],
)
async def test_arguments_that_are_nearly_right_are_put_right(
    call: ToolCallPart, taken: dict[str, Any]
) -> None:
    (planned,) = await pipeline_of(Doing("读", schema=_PATH)).plan([call])

    assert planned.arguments == taken


async def test_null_for_all_arguments_counts_as_none() -> None:
    (result,) = await ran(pipeline_of(Doing("x")), ToolCallPart("1", "x", None))  # pyright: ignore[reportArgumentType]

    assert result.message.text == "{}"


async def test_what_a_rule_denies_does_not_run_and_the_model_is_told_why() -> None:
    rule = PermissionRule(action="deny", args={"path": "/etc/**"}, reason="系统文件不能读。")
    host = Host()

    (result,) = await ran(
        pipeline_of(Doing("读"), permissions=Permissions([rule])),
        tool_call("读", path="/etc/x"),
        host=host,
    )

    assert result.status == "denied"
    assert "not permitted. 系统文件不能读。 Do not try the same again" in result.message.text
    assert host.told == ["finished call_1"]


async def test_what_has_to_be_approved_runs_if_it_was_and_only_then() -> None:
    pipeline = pipeline_of(Doing("写", annotations=CHANGES), permissions=Permissions())
    (planned,) = await pipeline.plan([tool_call("写")])
    assert (planned.verdict, planned.reason, planned.result) == ("ask", "It may change something.", None)

    (refused,) = await pipeline.execute([planned], host=Host())
    (result,) = await pipeline.execute([planned], host=Host(), approved=frozenset({"call_1"}))

    assert refused.status == "denied"
    assert "has to be approved by a person" in refused.message.text
    assert result.status == "success"


async def test_what_has_changed_since_the_plan_counts_when_it_is_to_run() -> None:
    permissions = Permissions(otherwise="allow")
    live: list[tuple[Tool, ...]] = [(Doing("s:写", annotations=CHANGES),)]
    pipeline = ToolPipeline(Toolbox(live=[lambda: live[0]]), permissions=permissions)
    (planned,) = await pipeline.plan([tool_call("s__写")])

    async def status() -> tuple[str, str]:
        (result,) = await pipeline.execute([planned], host=Host(), approved=frozenset({"call_1"}))
        return result.status, result.message.text

    assert (await status())[0] == "success"
    live[0] = (Doing("s:写", annotations=CHANGES),)  # the same tool, listed again
    assert (await status())[0] == "success"
    live[0] = (Doing("s:写", annotations=CHANGES, says="现在也上传"),)
    assert "has changed meanwhile" in (await status())[1]
    live[0] = ()
    assert "There is no tool" in (await status())[1]
    live[0] = (Doing("s:写", annotations=CHANGES),)
    permissions.rules = (PermissionRule(action="deny"),)
    assert (await status())[0] == "denied"


async def test_of_two_calls_with_one_id_only_the_first_runs() -> None:
    host = Host()

    first, second = await ran(pipeline_of(Doing("x")), tool_call("x", n=1), tool_call("x", n=2), host=host)

    assert (first.message.text, first.status) == ('{"n": 1}', "success")
    assert "another call of this turn has the id 'call_1'" in second.message.text
    assert host.told.count("starting call_1") == 1


async def test_arguments_without_a_bottom_are_refused(tmp_path: Path) -> None:
    def nested(times: int) -> Any:
        deep: Any = "底"
        for _ in range(times):
            deep = [deep]
        return deep

    x = Doing("x", schema={"type": "object", "properties": {"n": {"type": "integer"}, "deep": {}}})
    pipeline = pipeline_of(x, audit=AuditLog(tmp_path / "audit.jsonl"))

    fine, deep = await ran(
        pipeline, tool_call("x", "1", deep=nested(90)), tool_call("x", "2", n="5", deep=nested(900))
    )

    assert fine.status == "success"
    assert "nested more than 100 times" in deep.message.text


@pytest.mark.slow
async def test_others_run_while_a_very_long_output_is_looked_through() -> None:
    async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        return ToolOutput("\x1b[31m很长的一行\x1b[0m\r\n" * 300_000)

    turns, ended = 0, anyio.Event()

    async def count() -> None:
        nonlocal turns
        while not ended.is_set():
            turns += 1
            await anyio.lowlevel.checkpoint()

    host = Host()
    async with anyio.create_task_group() as group:
        group.start_soon(count)
        (result,) = await ran(pipeline_of(Doing("x", does)), tool_call("x"), host=host)
        ended.set()

    assert turns > 10
    assert host.spilled == ["很长的一行\n" * 300_000]
    assert len(result.message.text) < 30_000


async def test_a_search_finds_and_runs_with_what_the_run_may_use() -> None:
    shell: tuple[Tool, ...] = (Doing("shell"),)
    box = Toolbox(
        [Doing(f"fs:{does}") for does in ("read", "write", "list")], live=[lambda: shell], most_shown=2
    )
    pipeline = ToolPipeline(box, permissions=Permissions())
    allowed = ["fs:*"]
    assert [spec.name for spec in box.specs(allowed=allowed)] == ["tool_search"]

    planned = await pipeline.plan([tool_call("tool_search", query="shell read")], allowed=allowed)
    (result,) = await pipeline.execute(planned, host=Host())

    assert result.status == "success"
    assert "fs__read" in result.message.text
    assert "`shell`" not in result.message.text
    assert "fs__read" in [spec.name for spec in box.specs(allowed=allowed)]


async def test_a_tool_says_how_far_it_is_and_asks() -> None:
    async def does(_arguments: Mapping[str, Any], context: CallContext) -> ToolOutput:
        assert context.progress is not None
        assert context.ask is not None
        await context.progress(1, 2, "一半")
        answer = await context.ask(Question("哪个城市?"))
        return ToolOutput(f"{answer.content['城市']} {context.depth}")

    host = Host()
    pipeline = pipeline_of(Doing("x", does))
    (result,) = await pipeline.execute(await pipeline.plan([tool_call("x")]), host=host, depth=2)

    assert result.message.text == "北京 2"
    assert host.steps == [(1, 2, "一半")]
    assert host.told == ["starting call_1", "progress call_1", "ask call_1", "finished call_1"]


async def test_long_output_is_spilled_and_images_are_kept() -> None:
    image = ImagePart(b"png")

    async def does(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        return ToolOutput("\x1b[1m行\x1b[0m\n" * 500, parts=(image,))

    host = Host()
    (result,) = await ran(pipeline_of(Doing("x", does), output_tokens=50), tool_call("x"), host=host)

    assert host.spilled == ["行\n" * 500]
    assert result.blob == "loom://runs/run_1/blobs/1"
    assert result.blob in result.message.text
    assert image in result.message.parts
    assert result.output.text.startswith("\x1b")


async def test_safe_calls_run_side_by_side_and_results_come_in_the_models_order() -> None:
    both = [anyio.Event(), anyio.Event()]

    async def meets(arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        both[arguments["n"]].set()
        await both[1 - arguments["n"]].wait()
        return ToolOutput(str(arguments["n"]))

    with anyio.fail_after(30):
        results = await ran(
            pipeline_of(Doing("x", meets)), tool_call("x", "a", n=0), tool_call("x", "b", n=1)
        )

    assert [(each.call_id, each.message.text) for each in results] == [("a", "0"), ("b", "1")]


async def test_an_agent_within_a_call_has_places_of_its_own() -> None:
    scheduler = Scheduler(max_concurrency=1, max_total=1)
    inner = pipeline_of(Doing("x"), scheduler=scheduler)

    async def runs_an_agent(_arguments: Mapping[str, Any], _context: CallContext) -> ToolOutput:
        (result,) = await ran(inner, tool_call("x"))
        return ToolOutput(result.status)

    with anyio.fail_after(30):
        (result,) = await ran(
            pipeline_of(Doing("agent", runs_an_agent), scheduler=scheduler), tool_call("agent")
        )

    assert result.message.text == "success"
