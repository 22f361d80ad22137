from __future__ import annotations

from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator

from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument
from loom_core.knowledge.sources.federation.federation import Federation
from loom_core.knowledge.sources.search_tool import DocumentSearchTool
from loom_core.tools.interface import CallContext


class Stuck(KnowledgeBaseProvider):
    """A source that waits for what never comes."""

    name = "stuck"
    description = "Never answers"

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        await anyio.Event().wait()
        return []

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        return None


@pytest.fixture
def shelf():
    shelf = DocumentsKnowledgeBase(
        [
            TextDocument(text="Rope is made of hemp.", title="Rope", metadata={"tags": ["gear"]}),
            TextDocument(text="麻绳用麻制成。", title="麻绳", metadata={"tags": ["gear"]}),
        ],
        name="架子",
        description="Ship's gear",
    )
    yield shelf
    shelf.close()


def test_it_says_what_its_sources_hold_and_takes_only_their_names(shelf):
    tool = DocumentSearchTool(shelf)
    assert "- 架子: Ship's gear" in tool.description
    schema = tool.args_schema
    Draft202012Validator.check_schema(schema)
    assert schema["properties"]["source"]["enum"] == ["架子"]
    assert "架子: tags" in schema["properties"]["filters"]["description"]
    assert tool.spec().name == "search_documents"
    assert tool.annotations.read_only
    assert not tool.annotations.open_world, "the sources are those that were configured"
    assert tool.is_concurrency_safe


def test_what_it_says_follows_the_sources(shelf):
    federation = Federation([shelf])
    tool = DocumentSearchTool(federation)
    federation.replace([Stuck()])
    assert tool.args_schema["properties"]["source"]["enum"] == ["stuck"]
    assert "filters" not in tool.args_schema["properties"]


async def test_a_model_gets_cited_passages_and_a_program_gets_data(shelf):
    output = await DocumentSearchTool(shelf).call({"query": "What is rope made of?", "limit": 1})
    assert not output.is_error
    (passage,) = output.structured["passages"]
    assert output.text.startswith(f"[{passage['id']}] Rope")
    assert "<passage>\nRope is made of hemp.\n</passage>" in output.text
    assert output.metadata["reports"][0].state == "answered"


async def test_filters_and_source_are_passed_on(shelf):
    tool = DocumentSearchTool(shelf)
    arguments = {"query": "麻绳", "source": "架子", "filters": {"tags": "gear"}}
    assert "麻绳用麻制成" in (await tool.call(arguments)).text
    conditions = [{"field": "tags", "op": "eq", "value": "gear"}]
    assert "麻绳用麻制成" in (await tool.call({**arguments, "filters": conditions})).text
    odd = await tool.call({"query": "rope", "filters": ["gear"]})
    assert odd.is_error
    assert 'Give each as {"field"' in odd.text
    refused = await tool.call({"query": "rope", "filters": {"colour": "red"}})
    assert refused.is_error
    assert "There is no filter 'colour'" in refused.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "query: Field required"),
        ({"query": ""}, "query: String should have at least 1 character"),
        ({"query": "rope", "limit": 0}, "limit: Input should be greater than or equal to 1"),
        ({"query": "rope", "limit": "5"}, "limit: Input should be a valid integer"),
        ({"query": "rope", "top": 3}, "top: Extra inputs are not permitted"),
        ({"query": "rope", "source": "unknown"}, "There is no source 'unknown'. There are: 架子."),
    ],
)
async def test_wrong_arguments_are_told_so_that_a_model_can_put_them_right(shelf, arguments, said):
    output = await DocumentSearchTool(shelf).call(arguments)
    assert output.is_error
    assert said in output.text


async def test_partial_answers_are_named_as_such(shelf):
    federation = Federation([shelf, Stuck()], deadlines={"stuck": 0.05})
    output = await DocumentSearchTool(federation).call({"query": "rope"})
    partial, problem = output.warnings
    assert partial == "1 of 2 sources answered."
    assert problem.startswith("stuck: It did not answer within 0.05 s.")
    assert f"Warning: {partial}" in output.message("call").text


async def test_a_call_keeps_the_time_that_it_is_given():
    with anyio.fail_after(30):
        output = await DocumentSearchTool(Stuck()).call({"query": "rope"}, context=CallContext(seconds=0.05))
    assert output.is_error
    assert "did not answer within 0.05 s" in output.text


async def test_what_is_cut_is_said(shelf):
    output = await DocumentSearchTool(shelf, max_tokens=30).call({"query": "麻绳 rope hemp"})
    assert "[truncated: 1 of 2 passages shown" in output.text
    nothing = await DocumentSearchTool(shelf).call({"query": "xyzzy"})
    assert nothing.text.startswith("Nothing was found.")
