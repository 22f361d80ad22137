"""Where the language model of the retrievers that widen a question comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from loom_core import config
from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase, MultiQueryRAG
from loom_core.llm.mock import MockProvider
from loom_core.plugins import create

EXPANDING = ("decomposition", "hyde", "multi_query")


@pytest.fixture(autouse=True)
def as_at_the_beginning() -> Iterator[None]:
    yield
    config.reset()


def _model() -> MockProvider:
    return MockProvider(lambda _: json.dumps(["福建省的海滨城市是哪个？"]))


def _texts(passages) -> list[str]:
    return passages[0].get("hyde_queries") or passages[0]["generated_queries"]


@pytest.mark.parametrize("name", EXPANDING)
async def test_the_model_of_the_knowledge_base_is_asked_before_the_default_one(name: str):
    model = _model()
    config.set_default_llm(MockProvider([]))
    kb = GraphRAGKnowledgeBase.from_config(embedding_provider=create_embedder("hashing"), llm_provider=model)
    retriever = kb.retriever(name)
    kb.close()
    assert retriever._llm is model
    assert kb.retriever(name, llm_provider=(own := _model()))._llm is own


@pytest.mark.parametrize("name", EXPANDING)
async def test_the_default_model_is_asked_where_no_source_has_one(harbours, name: str):
    model = _model()
    config.set_default_llm(model)
    found = await create("retriever", name, [harbours]).retrieve("Where do ships stop?")
    assert len(_texts(found)) == 1
    assert model.calls


def test_retrievers_share_the_model_that_is_made_of_a_configured_default(harbours):
    config.set_default_llm("deepseek")
    first, second = (create("retriever", name, [harbours]) for name in ("hyde", "multi_query"))
    assert first._llm is second._llm
    assert first._llm.name == "deepseek"


@pytest.mark.parametrize("name", EXPANDING)
def test_without_any_model_they_are_refused_with_what_to_do(harbours, name: str):
    with pytest.raises(ConfigError, match=f"'{name}' needs a language model.*llm_provider.*set_default_llm"):
        create("retriever", name, [harbours])


def test_a_pattern_that_writes_wordings_is_refused_without_any_model(harbours):
    with pytest.raises(ConfigError, match="needs a language model"):
        MultiQueryRAG(None, [harbours])


def test_a_base_that_widens_the_question_gets_the_same_model(harbours):
    config.set_default_llm(_model())
    retriever = create("retriever", "hyde", [harbours], base_retriever="multi_query")
    assert retriever._base._llm is retriever._llm
