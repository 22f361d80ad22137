"""A system prompt that a function says, and knowledge bases that an agent is given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from loom_core.agent import Agent, Run
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.errors import ConfigError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.sources.context_retriever import ContextRetriever
from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument
from loom_core.knowledge.sources.federation.federation import Federation
from loom_core.llm.messages import SystemMessage
from loom_core.llm.mock import MockProvider
from loom_core.testing import AgentTester, MockLLM, call
from loom_core.tools import tool
from loom_core.tools.toolbox import Toolbox


@tool(read_only=True, open_world=False)
def look(what: str) -> str:
    """Look something up."""
    return f"{what}: 二十八"


def _prompts(llm: MockProvider) -> list[str]:
    """The system prompts of all requests."""
    return [
        each.text for request in llm.calls for each in request.messages if isinstance(each, SystemMessage)
    ]


# -- instructions ----------------------------------------------------------------------------------------


async def test_a_function_of_the_run_says_the_system_prompt_before_every_turn() -> None:
    asked: list[str] = []

    def instructions(run: Run) -> str:
        asked.append(run.request.goal)
        return f"第 {len(asked)} 次：{run.request.caller or '本机'}"

    llm = MockLLM([call("look", what="年假"), "28 天。"])
    await Agent(llm, tools=[look], system_prompt=instructions).run("年假有多少天？")
    assert asked == ["年假有多少天？"] * 2
    assert [each.partition("\n")[0] for each in _prompts(llm)] == ["第 1 次：本机", "第 2 次：本机"]
    assert all("Today is" in each for each in _prompts(llm))


async def test_it_may_be_asynchronous_and_take_nothing() -> None:
    async def of_the_run(run: Run) -> str:
        return f"Answer {run.request.goal}."

    async def plain() -> str:
        return "Be brief."

    for given, begins in ((of_the_run, "Answer x."), (plain, "Be brief."), (lambda: "Be kind.", "Be kind.")):
        llm = MockLLM(["y"])
        assert (await Agent(llm, system_prompt=given).run("x")).output == "y"
        assert _prompts(llm)[0].startswith(begins)


async def test_an_extended_agent_says_both() -> None:
    llm = MockLLM(["y"])
    agent = Agent(llm, system_prompt=lambda: "First.").extend(system_prompt="Second.")
    await agent.run("x")
    assert _prompts(llm)[0].startswith("First.\n\nSecond.\n\n")


async def test_a_function_that_says_no_text_fails_the_run_with_what_to_do() -> None:
    def instructions(run: Run) -> Any:
        return None

    result = await Agent(MockLLM(["never"]), system_prompt=instructions).run("x")
    assert result.status == "failed"
    assert "returned None" in result.problem
    assert "Let it return a string" in result.problem


@pytest.mark.parametrize("given", [3, None, ["Be brief."], lambda one, two: "three"])
def test_what_can_be_no_system_prompt_is_refused_when_the_agent_is_made(given: Any) -> None:
    with pytest.raises(ConfigError, match="`system_prompt` cannot be") as refused:
        Agent(MockLLM(), system_prompt=given)
    assert "a function" in refused.value.advice


# -- knowledge bases -------------------------------------------------------------------------------------

_FACT = "工作满三年的员工，年假为二十八天。"


@pytest.fixture
def handbook() -> DocumentsKnowledgeBase:
    return DocumentsKnowledgeBase([TextDocument(text=_FACT, title="年假")], name="手册")


@pytest.fixture
def graph() -> Iterator[GraphRAGKnowledgeBase]:
    base = GraphRAGKnowledgeBase.from_config(embedding_provider=HashingEmbedder(), name="wiki")
    yield base
    base.close()


async def test_a_knowledge_base_is_searched_by_a_tool_and_read_beforehand(
    graph: GraphRAGKnowledgeBase,
) -> None:
    await graph.add_texts([_FACT])
    await graph.query("年假")  # the first question opens the indexes; the agent waits 2 s at most
    llm = MockLLM(
        [call("search_documents", query="三年后有多少天年假？"), lambda request: llm.tool_results[0][:4000]]
    )
    tester = AgentTester(Agent.create(llm, knowledge_base=graph))
    await tester.run("三年后有多少天年假？")
    assert tester.assert_called("search_documents").status == "success"
    tester.assert_answer("二十八天", exactly=False)
    assert "wiki" in str(llm.calls[0].tools)
    assert any(_FACT in message.text for message in llm.calls[-1].messages if message.role == "user")


async def test_several_knowledge_bases_and_a_federation_are_taken(handbook: DocumentsKnowledgeBase) -> None:
    other = DocumentsKnowledgeBase([TextDocument(text="食堂十二点开门。")], name="食堂")
    for given in ([handbook, other], Federation([handbook, other])):
        llm = MockLLM(
            [call("search_documents", query="食堂几点开门？"), lambda request: request.messages[-1].text]
        )
        tester = AgentTester(Agent(llm, knowledge_base=given, tools=[look]))
        await tester.run("食堂几点开门？")
        tester.assert_answer("食堂十二点开门。", exactly=False)
        assert {each.name for each in llm.calls[0].tools} == {"look", "search_documents"}


async def test_it_may_stand_with_a_toolbox_and_a_context_retriever_of_ones_own(
    handbook: DocumentsKnowledgeBase,
) -> None:
    llm = MockLLM(["好"])
    own = ContextRetriever(handbook, top_k=1)
    agent = Agent(llm, toolbox=Toolbox([look]), knowledge_base=handbook, knowledge=own)
    await agent.run("三年后有多少天年假？")
    assert {each.name for each in llm.calls[0].tools} == {"look", "search_documents"}
    assert agent.parts.knowledge is own


@pytest.mark.parametrize("given", ["notes", 3, [], ["notes"]])
def test_what_is_no_knowledge_base_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="`knowledge_base` cannot be") as refused:
        Agent(MockLLM(), knowledge_base=given)
    assert "GraphRAGKnowledgeBase" in refused.value.advice


def test_a_knowledge_base_in_the_place_of_a_retriever_is_told_where_it_belongs(
    handbook: DocumentsKnowledgeBase,
) -> None:
    with pytest.raises(ConfigError, match="a knowledge base is `knowledge_base`"):
        Agent(MockLLM(), knowledge=handbook)  # type: ignore[arg-type]
