"""Servers of the factory conform to both revisions of the protocol, by the official suite."""

from __future__ import annotations

import pytest
from mcp import Client

pytestmark = pytest.mark.slow

# The suite asks for these, and some of its scenarios pass on a server that has none of them.
TOOLS = {
    *("test_simple_text", "test_image_content", "test_audio_content", "test_embedded_resource"),
    *("test_multiple_content_types", "test_error_handling", "test_tool_with_progress"),
    *("test_tool_with_logging", "test_logging_tool", "test_streaming_elicitation"),
    *("test_trigger_tool_change", "test_trigger_prompt_change"),
    *("json_schema_2020_12_tool", "test_custom_headers", "test_missing_capability"),
    *("test_sampling", "test_elicitation"),
    *("test_elicitation_sep1034_defaults", "test_elicitation_sep1330_enums"),
    *("test_input_required_result_elicitation", "test_input_required_result_sampling"),
    *("test_input_required_result_list_roots", "test_input_required_result_request_state"),
    *("test_input_required_result_multi_round", "test_input_required_result_capabilities"),
    *("test_multiple_inputs", "test_tampered_state"),  # the suite's own names are too long, see asking.py
    *("greet", "slow_compute", "failing_job", "protocol_error_job", "confirm_delete", "multi_input"),
    "test_tool_with_task",
}
PROMPTS = {
    *("test_simple_prompt", "test_prompt_with_arguments", "test_prompt_with_embedded_resource"),
    *("test_prompt_with_image", "test_input_required_result_prompt"),
}
RESOURCES = {"test://static-text", "test://static-binary", "test://watched-resource"}

# Pending in the suite, too: it wants streams that are resumed, which the next revision has done away with.
UNSCORED = {"2025-11-25": {"server-sse-polling"}, "2026-07-28": set[str]()}


async def test_the_server_has_everything_that_the_suite_looks_for(fixtures_url):
    async with Client(fixtures_url) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        assert {prompt.name for prompt in (await client.list_prompts()).prompts} == PROMPTS
        assert {resource.uri for resource in (await client.list_resources()).resources} == RESOURCES
        (template,) = (await client.list_resource_templates()).resource_templates
        assert template.uri_template == "test://template/{id}/data"
        said = await client.call_tool("test_simple_text", {})
        failed = await client.call_tool("test_error_handling", {})

    assert [content.text for content in said.content] == ["This is a simple text response for testing."]
    assert (said.is_error, failed.is_error) == (False, True)
    assert [content.text for content in failed.content] == [
        "This tool intentionally returns an error for testing"
    ]


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_every_scenario_of_a_revision_passes(fixtures_url, suite, revision, tmp_path):
    status, found = suite.run(fixtures_url, revision, tmp_path)

    required = suite.required(revision)
    assert len(required) >= 30
    assert set(required) <= found.keys()
    objections = {
        name: scenario.objections()
        for name, scenario in found.items()
        if name not in UNSCORED[revision] and scenario.objections()
    }
    # The suite itself leaves this one out: it has yet to learn where the extension sends its messages.
    assert [line for line in objections.pop("tasks-status-notifications", []) if "SKIPPED" not in line] == []
    assert objections == {}
    assert [name for name in required if not found[name].passed] == []
    assert UNSCORED[revision].isdisjoint(required)
    assert status == 0
