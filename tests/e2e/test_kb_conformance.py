"""loom-kb passes what the official conformance suite asks of every server, in both revisions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from mcp import Client

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals"),
]


@pytest.fixture
def generic(load: Callable[[Path], ModuleType]):
    return load(Path(__file__).parents[1] / "fixtures" / "conformance.py").GENERIC


# They call diagnostic tools of the suite, which only a server of fixtures has.
OF_FIXTURES = frozenset(
    {
        "sep-2575-server-rejects-undeclared-capability",
        "sep-2575-missing-capability-http-400",
        "sep-2575-server-sends-tools-list-changed-on-subscription",
        "sep-2575-server-sends-prompts-list-changed-on-subscription",
    }
)


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
async def test_it_passes_the_scenarios_that_need_no_fixture(http_url, suite, generic, revision, tmp_path):
    async with Client(http_url) as client:  # without a document there would be no resource to look at
        added = await client.call_tool("add", {"text": "# 灯塔\n\n青岛港的灯塔。", "title": "灯塔"})
        assert added.structured_content["job"]["state"] == "done"

    _, found = suite.run(http_url, revision, tmp_path)

    objections = {name: found[name].objections(without=OF_FIXTURES) for name in generic[revision]}
    assert {name: lines for name, lines in objections.items() if lines} == {}
    assert [name for name in generic[revision] if not found[name].passed] == []
