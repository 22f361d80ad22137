"""The tools that servers promise in OpenAI's strict mode, which allows no open object."""

from __future__ import annotations

import pytest

from loom_core.knowledge.filters import FILTERS_SCHEMA
from loom_core.llm.json_schema.strict import to_strict_schema
from tools.contract import load_accepted

# What these take has the form of the user's own tools, flows or answers: no closed schema can say it.
_OPEN = {
    "kb": set[str](),
    "query": set[str](),
    "agent": {"agent_run", "agent_decide"},
    "flow": {"flow_chat", "flow_run", "flow_resume", "flow_explain"},
}


@pytest.mark.parametrize("server", _OPEN)
def test_every_tool_fits_strict_mode_but_those_that_take_objects_of_any_form(server):
    for surface in load_accepted(server).values():
        tools = surface["tools"]
        listed = tools if isinstance(tools, list) else tools.values()
        open_ = {tool["name"] for tool in listed if to_strict_schema(tool["inputSchema"]) is None}
        assert open_ <= _OPEN[server]
        if isinstance(tools, list) and len(tools) > 2:
            assert open_ == _OPEN[server]


def test_filters_in_strict_mode_are_conditions_of_three_parts():
    schema = to_strict_schema(
        {"type": "object", "properties": {"filters": FILTERS_SCHEMA}, "required": ["filters"]}
    )
    assert schema is not None
    condition = schema["properties"]["filters"]["items"]
    assert condition["additionalProperties"] is False
    assert condition["required"] == ["field", "op", "value"]
