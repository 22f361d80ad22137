"""Notices of Loom in the language of the goal."""

from __future__ import annotations

from pathlib import Path

import pytest

from loom_core.agent.notices import Notices
from loom_core.cjk import is_chinese
from loom_core.tools.function_tool import tool
from loom_core.tools.permission.permissions import Permissions
from loom_core.tools.permission.rule import PermissionRule

_ROOT = Path(__file__).parents[3]


@tool
async def send(text: str) -> str:
    """Send."""
    return text


def test_every_reason_that_is_translated_is_given_somewhere() -> None:
    packages = (_ROOT / "loom_core", _ROOT / "servers" / "agent")
    paths = [path for package in packages for path in package.rglob("*.py") if path.name != "notices.py"]
    source = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    reasons = Notices.for_goal("查一查").sentences
    assert [reason for reason in reasons if f'"{reason}"' not in source] == []
    assert all(map(is_chinese, reasons.values()))


def test_a_rule_is_named_in_the_language_of_the_goal_and_what_its_author_wrote_stays() -> None:
    def reason(**rule: str) -> str:
        rules = [PermissionRule(action="ask", tool="send", **rule)]
        return Permissions(rules).decide(send, {"text": "x"}).reason

    assert Notices.for_goal("发送").translate(reason()) == "规则如此规定：ask send."
    assert Notices.for_goal("send it").translate(reason()) == "A rule says so: ask send."
    assert Notices.for_goal("发送").translate(reason(reason="Ask Anna.")) == "Ask Anna."


@pytest.mark.parametrize(
    ("by", "reason", "english", "chinese"),
    [
        ("", "", "The run was aborted.", "该运行已中止。"),
        ("the user", "", "The run was aborted by the user.", "该运行已中止（操作者：用户）。"),
        ("anna", "够了", "The run was aborted by anna: 够了", "该运行已中止（操作者：anna）：够了"),
        (
            "",
            "The task was cancelled.",
            "The run was aborted: The task was cancelled.",
            "该运行已中止：任务已取消。",
        ),
    ],
)
def test_an_abort_is_told_with_by_whom_and_why(by: str, reason: str, english: str, chinese: str) -> None:
    assert Notices.for_goal("go").describe_abort(by=by, reason=reason) == english
    assert Notices.for_goal("查一查").describe_abort(by=by, reason=reason) == chinese
