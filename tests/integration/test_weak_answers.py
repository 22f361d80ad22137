"""Questions that the documents do not answer, as people and models meet them: with the packaged embedder."""

from __future__ import annotations

from importlib.resources import as_file, files

import pytest
import pytest_asyncio
from loom_kb.command_line.demo import QUESTIONS
from loom_kb.service import KnowledgeService
from loom_kb.settings import Settings
from loom_kb.texts import query_text

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.sources.federation.federation import Federation
from loom_core.knowledge.sources.local import LocalKnowledgeBase
from loom_core.knowledge.sources.unified_tool import SourceInfo

pytestmark = [
    pytest.mark.skipif("e5-small" not in create_embedder("auto").id, reason="this platform has no e5-small"),
    pytest.mark.asyncio(loop_scope="module"),
]

UNANSWERED = (
    "How do I bake sourdough bread?",
    "Which visa do I need to work in Canada?",
    "What are the side effects of ibuprofen?",
    "怎样做红烧肉？",
    "布洛芬有什么副作用？",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(tmp_path_factory: pytest.TempPathFactory):
    service = KnowledgeService(
        Settings(home=tmp_path_factory.mktemp("home"), roots=(), embedder="e5-small", version="1")
    )
    with as_file(files("loom_kb") / "demo_documents") as folder:
        (knowledge_base,), _ = await service.add(await service.request_files([folder]), source="demo")
    await knowledge_base.worker.drain()
    (notes,), _ = await service.add(
        service.request_texts(["Anna Berg approved the budget on 3 March."], titles=["Budget"]),
        source="notes",
    )
    await notes.worker.drain()
    yield service
    service.library.close()


@pytest.mark.parametrize("question", [*QUESTIONS, "Who invented the punched card?", "Jacquard"])
async def test_what_is_answered_comes_without_a_caution(service: KnowledgeService, question: str):
    result = await service.query(question, source="demo")
    assert result.match.verdict == "strong"
    assert result.passages[0].relevance == pytest.approx(result.match.confidence, abs=0.01)
    assert not query_text(result, detailed=False, max_tokens=6000)[0].startswith("Weak")


@pytest.mark.parametrize("question", UNANSWERED)
@pytest.mark.parametrize("source", ["demo", "notes", None])
async def test_what_is_not_answered_is_said_before_any_passage(
    service: KnowledgeService, question: str, source
):
    result = await service.query(question, source=source)
    text, shown = query_text(result, detailed=False, max_tokens=6000)
    assert text.startswith(("Weak match: ", "No match: "))
    assert (result.match.verdict == "none") == (shown == 0)
    assert all(passage.relevance <= result.match.confidence for passage in result.passages)


async def test_one_document_is_no_excuse_for_padding(service: KnowledgeService):
    assert (await service.query("Who approved the budget?", source="notes")).match.verdict == "strong"
    assert (await service.query("谁批准了预算？", source="notes")).passages
    assert (await service.query("How do I bake sourdough bread?", source="notes")).passages == []


async def test_filters_give_what_they_leave_with_a_caution(service: KnowledgeService):
    result = await service.query(UNANSWERED[0], source="notes", filters={"title": "Budget"})
    assert len(result.passages) == 1
    assert result.match.verdict == "none"


async def test_a_federation_passes_the_confidence_of_its_sources_on(service: KnowledgeService):
    sources = [LocalKnowledgeBase(service.library, SourceInfo(name)) for name in ("demo", "notes")]
    federation = Federation(sources)
    answered = await federation.query("Who approved the budget?")
    assert answered.match.verdict == "strong"
    assert answered.items[0].relevance == pytest.approx(answered.match.confidence, abs=0.01)
    assert (await federation.query(UNANSWERED[0])).match.verdict in {"weak", "none"}
