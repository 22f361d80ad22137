"""Addresses of resources and ids of runs as someone writes them who looks for what is not theirs."""

from __future__ import annotations

import pytest
from mcp import MCPError

_IDS = [
    "..", "../../agent.json", "%2e%2e%2fagent.json", "run_x'; DROP TABLE runs; --", "%", "_", "*", "\x00",
    "运行", "\u202e", "a" * 100_000, "{id}", "${HOME}", "~", "C:\\", "run_x/events/../..", "", " ", "-1",
    "9" * 400, "NaN", "null", "\n",
]  # fmt: skip
_FORMS = ["loom://runs/{}", "loom://runs/{}/events", "loom://runs/{}/blobs/1", "loom://{}"]
_TOOLS = {
    "agent_wait": {},
    "agent_events": {},
    "agent_control": {"action": "abort"},
    "agent_decide": {"call_id": "call_x", "decision": "approve"},
    "agent_reply": {"message": "x"},
}


@pytest.mark.hostile("MCP requests")
@pytest.mark.parametrize("form", _FORMS)
async def test_no_address_leads_to_anything_but_runs(connect, form):
    async with connect() as client:
        for text in _IDS:
            with pytest.raises(MCPError) as refused:
                await client.read_resource(form.format(text))
            assert len(refused.value.error.message) < 2_000, text[:100]
            assert "Internal error" not in refused.value.error.message, text[:100]


@pytest.mark.hostile("MCP requests")
async def test_a_number_of_an_output_is_a_plain_number(connect):
    async with connect() as client:
        for number in ("-1", "٣", "1e9", "0x1", "9" * 400, "1/../../2", "١"):
            with pytest.raises(MCPError, match=r"no run|no blob|no resource"):
                await client.read_resource(f"loom://runs/run_none/blobs/{number}")


@pytest.mark.hostile("MCP requests")
@pytest.mark.parametrize("tool", _TOOLS)
async def test_an_id_of_a_run_that_is_none_is_refused_in_a_few_words(connect, refused, tool):
    async with connect() as client:
        for text in _IDS:
            said = await refused(client, tool, run_id=text, **_TOOLS[tool])
            assert len(said) < 2_000, text[:100]
            assert "Internal error" not in said, text[:100]
