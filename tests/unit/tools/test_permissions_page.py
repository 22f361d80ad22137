"""Statements of docs/reference/permissions.md hold."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from loom_core.tools.builtin import read_file_tool, write_file_tool
from loom_core.tools.function_tool import tool
from loom_core.tools.permission.permissions import Permissions
from loom_core.tools.permission.rule import PermissionRule, read_rules

_PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "permissions.md").read_text(encoding="utf-8")
_CALL = re.compile(r"^\| `(\w+) (\w+)=(.*?)` \| (allow|ask|deny) \|", re.MULTILINE)
_MEANING = re.compile(r"^\| `([^`]*)` \| `([^`]*)` \| (matches|no) \| (matches|no) \|$", re.MULTILINE)
_BASE = Path("/home/我/项目")


@tool
def x(value: Any) -> None:
    """Do something."""


def test_the_calls_are_decided_as_the_page_says(tmp_path: Path) -> None:
    written = re.search(r"```json\n(.*?)```", _PAGE, re.DOTALL)
    assert written
    permissions = Permissions(read_rules(json.loads(written[1])), base=tmp_path)
    tools = {each.name: each for each in (read_file_tool(tmp_path), write_file_tool(tmp_path))}

    calls = _CALL.findall(_PAGE)

    assert len(calls) == 5
    for name, argument, value, action in calls:
        assert permissions.decide(tools[name], {argument: value}).action == action, (name, value)


def test_patterns_fit_as_the_page_says() -> None:
    meanings = _MEANING.findall(_PAGE)

    assert len(meanings) == 18
    for pattern, written, denied, allowed in meanings:
        value = json.loads(written) if written.startswith("[") else written
        for action, expected in (("deny", denied), ("allow", allowed)):
            rule = PermissionRule.model_validate({"action": action, "args": {"value": pattern}})
            decision = Permissions([rule], base=_BASE).decide(x, {"value": value})
            assert (decision.rule is rule) == (expected == "matches"), (action, pattern, value)
