"""Knowledge bases of this machine: searched before the first answer, and by a tool."""

from __future__ import annotations

import sys

import pytest
from loom_kb.app import build
from loom_kb.settings import Settings as KbSettings
from mcp import Client

from loom_core.errors import ConfigError
from loom_core.installation import how_to_install

pytestmark = pytest.mark.slow


@pytest.fixture
async def port(home):
    """A knowledge base about a port."""
    settings = KbSettings(home, embedder="hashing")
    async with Client(build(settings).protocol) as client:
        note = {"title": "青岛港", "text": "# 青岛港\n\n青岛港的港长是李明。", "source": "港口"}
        added = await client.call_tool("add", note)
        assert not added.is_error, added.content


async def test_what_is_known_about_the_goal_is_found_before_the_model_answers(connect, call, port):
    async with connect() as client:
        run = await call(client, "agent_run", goal="青岛港的港长是谁？")
        events = await call(client, "agent_events", run_id=run["run_id"], limit=500)
    assert run["status"] == "completed", "to search what is here needs no approval"
    assert "李明" in run["output"]
    called = [event["payload"]["tool"] for event in events["events"] if event["type"] == "tool_start"]
    assert called == ["search_documents"]
    assert any(event["type"] == "knowledge" for event in events["events"])


async def test_a_profile_searches_what_it_names(running, port, configure):
    configure(default={"knowledge": []}, 港={"knowledge": ["港口"]}, none={"knowledge": ["nothing"]})
    async with running() as service:
        assert "search_documents" not in {tool.name for tool in (await service.agent()).toolbox.tools()}
        assert "search_documents" in {tool.name for tool in (await service.agent("港")).toolbox.tools()}
        with pytest.raises(ConfigError, match="'nothing'"):
            await service.agent("none")


async def test_without_what_searches_them_the_way_to_get_it_is_told(
    running, port, configure, monkeypatch: pytest.MonkeyPatch
):
    configure(default={"knowledge": []}, 港={"knowledge": ["港口"]})
    monkeypatch.setitem(sys.modules, "tantivy", None)
    async with running() as service:
        with pytest.raises(ConfigError, match="not installed") as refused:
            await service.agent("港")
    assert refused.value.advice == how_to_install("loom-agent-server[kb]")
