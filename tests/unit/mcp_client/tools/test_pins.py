from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp_types import Tool

from loom_core.errors import ConfigError
from loom_core.mcp_client.configuration.trust import ToolPin, ToolPins
from loom_core.mcp_client.tools.pins import Approvals, definition_hash, pin_of

pytestmark = pytest.mark.hostile("MCP servers")

_DEFINITION: dict[str, Any] = {
    "name": "读取",
    "description": "Read a file.",
    "inputSchema": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
}


def _hash(**changes: Any) -> str:
    return definition_hash(Tool.model_validate({**_DEFINITION, **changes}))


@pytest.mark.parametrize(
    "change",
    [
        {"name": "read"},
        {"description": "Read a file, and send it."},
        {"inputSchema": {"type": "object"}},
        {"annotations": {"readOnlyHint": False}},
        {"title": "Read"},
    ],
)
def test_a_tool_that_says_something_else_is_another_one(change: dict[str, Any]) -> None:
    assert _hash(**change) != _hash()


def test_a_tool_in_other_words_is_the_same_where_words_do_not_count() -> None:
    def known(**changes: Any) -> str:
        return definition_hash(Tool.model_validate({**_DEFINITION, **changes}), words=False)

    a = {"type": "string", "description": "来源", "enum": ["笔记", "合同"]}
    worded = {"type": "object", "properties": {"a": a, "b": {"type": "string", "title": "B"}}}

    assert known(description="Sources: 笔记, 合同.", title="Read", inputSchema=worded) == known()
    assert known(annotations={"readOnlyHint": False}) != known()
    for more in ({"description": {"type": "string"}}, {"enum": {"enum": ["x"]}}, {"a": {"type": "integer"}}):
        schema = {**worded, "properties": {**worded["properties"], **more}}
        assert known(inputSchema=schema) != known()


def test_the_order_of_its_arguments_and_its_looks_do_not_count() -> None:
    other = {"properties": {"b": {"type": "string"}, "a": {"type": "string"}}, "type": "object"}

    assert _hash(inputSchema=other, icons=[{"src": "https://example.com/a.png"}]) == _hash()


async def test_a_tool_needs_no_approval_until_it_changes(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path)
    assert approvals.reason("文件", "读取", "1") == "It has not been approved yet."

    await approvals.approve("文件", {"读取": ToolPin(digest="1")})

    assert approvals.reason("文件", "读取", "1") == ""
    assert "have changed since" in approvals.reason("文件", "读取", "2")
    assert approvals.reason("文件", "写入", "1")
    assert approvals.reason("other", "读取", "1")


async def test_what_another_process_approves_is_known_at_once(tmp_path: Path) -> None:
    here = Approvals(tmp_path)
    assert here.reason("s", "a", "1")

    await Approvals(tmp_path).approve("s", {"a": ToolPin(digest="1")})

    assert here.reason("s", "a", "1") == ""
    ToolPins(tmp_path).forget("s", ["a"])
    assert here.reason("s", "a", "1") == "It has not been approved yet."


async def test_a_tool_is_approved_as_a_person_was_shown_it(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path)
    shown = ToolPin(digest="1", says={"description": "读"})
    await approvals.approve("文件", {"读取": shown})

    await approvals.approve_as_seen("文件:读取", "1")
    assert ToolPins(tmp_path).find("文件", "读取") == shown  # it is known better already
    await approvals.approve_as_seen("文件:读取", "2")
    await approvals.approve_as_seen("keep_note", "3")  # of Loom's own

    assert ToolPins(tmp_path).of("文件") == {"读取": ToolPin(digest="2")}
    assert "keep_note" not in (tmp_path / "trust.json").read_text(encoding="utf-8")


def test_what_a_tool_says_is_kept_with_its_approval_unless_it_is_huge() -> None:
    pin = pin_of(Tool.model_validate(_DEFINITION), digest="1")
    huge = pin_of(Tool.model_validate({**_DEFINITION, "description": "长" * 100_000}), digest="1")

    assert pin.says["description"] == "Read a file."
    assert huge == ToolPin(digest="1")


async def test_nothing_is_approved_where_that_cannot_be_read(tmp_path: Path) -> None:
    approvals = Approvals(tmp_path)
    await approvals.approve("s", {"a": ToolPin(digest="1")})
    (tmp_path / "trust.json").write_text("{")

    assert "cannot be read" in approvals.reason("s", "a", "1")
    with pytest.raises(ConfigError):
        await approvals.approve("s", {"a": ToolPin(digest="1")})
