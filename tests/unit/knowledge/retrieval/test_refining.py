"""Search options beyond the question: duplicates, variety, sections, reranking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import anyio
import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.errors import InvalidInputError, LLMError
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.rag import GraphRAGKnowledgeBase, RAGConfig, SearchOptions
from loom_core.knowledge.retrieval.config import WaitSettings

HARBOUR = (
    "The harbour master decides who may moor at the northern quay. Boats of more than nine metres need "
    "a permit, which the office beside the lighthouse gives out on weekdays."  # plain-english: data
)
MANUAL = """# Harbour manual

## Mooring

Every boat moors with the bow to the quay. {filler}

A mooring rope has to be doubled when the wind is above seven. {filler}

No boat moors at the ferry's quay. {filler}

## 收费

小船停泊免费，大船每天收费一百元。
"""
FILLER = "The words that follow are here to make the passage long enough to stand on its own. " * 14


class Backwards:
    """A reranker that turns the order around, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []

    async def rerank(self, query: str, items: Sequence[KnowledgeItem], *, limit: int) -> list[KnowledgeItem]:
        self.asked.append((query, len(items), limit))
        turned = list(reversed(items))[:limit]
        return [replace(item, relevance=1 - n / len(items)) for n, item in enumerate(turned)]


class Failing:
    async def rerank(self, query: str, items: Sequence[KnowledgeItem], *, limit: int) -> list[KnowledgeItem]:
        raise LLMError("The model is away.", advice="Wait for it.")


class Sleeping:
    """A reranker that never answers."""

    def __init__(self) -> None:
        self.began, self.ended = anyio.Event(), anyio.Event()

    async def rerank(self, query: str, items: Sequence[KnowledgeItem], *, limit: int) -> list[KnowledgeItem]:
        self.began.set()
        try:
            await anyio.sleep_forever()
        finally:
            self.ended.set()
        raise AssertionError


async def knowledge_base_of(texts: dict[str, str], **arguments) -> GraphRAGKnowledgeBase:
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), **arguments
    )
    await knowledge_base.add_texts(list(texts.values()), uris=[f"test:{name}" for name in texts])
    return knowledge_base


@pytest.fixture
async def copies() -> Iterator[GraphRAGKnowledgeBase]:
    """Three times the same passage, and two others."""
    knowledge_base = await knowledge_base_of(
        {
            "a": HARBOUR,
            "b": HARBOUR,
            "c": HARBOUR.replace("weekdays", "Weekdays!"),
            "d": "A lighthouse stands beside the harbour.",  # plain-english: data
            "e": "The southern quay has no harbour master.",
        }
    )
    yield knowledge_base
    knowledge_base.close()


# -- near duplicates --------------------------------------------------------------------------------


async def test_near_duplicates_make_room_for_others(copies):
    found = await copies.query("harbour master permit quay", 3)
    assert len({item.content.casefold()[:40] for item in found}) == 3
    (best,) = [item for item in found if "duplicates" in item.metadata]
    others = [await copies.get_by_id(id_) for id_ in best.metadata["duplicates"]]
    assert len(others) == 2
    assert all(other.content.startswith("The harbour master decides") for other in others)


async def test_near_duplicates_are_kept_for_who_wants_them(copies):
    keep = SearchOptions(near_duplicates="keep")
    answer = await copies.search("permit for boats of nine metres", limit=3, options=keep)
    assert {item.content.casefold()[:40] for item in answer.items} == {HARBOUR.casefold()[:40]}
    kept = await knowledge_base_of({"a": HARBOUR, "b": HARBOUR}, config=RAGConfig(near_duplicates="keep"))
    assert len(await kept.query("harbour", 5)) == 2
    drop = SearchOptions(near_duplicates="drop")
    assert len((await kept.search("harbour", options=drop)).items) == 1
    kept.close()


# -- variety ----------------------------------------------------------------------------------------


async def test_diversity_brings_other_passages_forward():
    knowledge_base = await knowledge_base_of(
        {
            "1": "Ferry timetable: the ferry to Visby leaves at nine in the morning every day.",
            "2": "Ferry timetable: the ferry to Visby leaves at nine in the evening every Sunday.",
            "3": "Ferry timetable: the ferry to Visby leaves at ten in the evening every Sunday.",
            "4": "The ferry serves coffee and cake.",
        }
    )
    question = "ferry timetable to Visby evening Sunday"
    plain = [item.source for item in (await knowledge_base.search(question, limit=2)).items]
    varied = [
        item.source
        for item in (
            await knowledge_base.search(question, limit=2, options=SearchOptions(diversity=0.9))
        ).items
    ]
    assert set(plain) == {"test:2", "test:3"}
    assert varied[0] == plain[0]
    assert varied[1] == "test:4"
    none = await knowledge_base.search("ferry", options=SearchOptions(diversity=0.5), filters={"path": "no"})
    assert none.items == []
    knowledge_base.close()


# -- sections ---------------------------------------------------------------------------------------


async def test_a_passage_is_shown_with_its_section():
    knowledge_base = await knowledge_base_of({"manual": MANUAL.format(filler=FILLER)})
    question = "doubled mooring rope wind"
    (passage, *_) = (await knowledge_base.search(question, limit=1)).items
    (section,) = (
        await knowledge_base.search(question, limit=1, options=SearchOptions(expand_to="section"))
    ).items
    assert section.id == passage.id
    assert passage.content in section.content
    assert len(section.content) > len(passage.content)
    m = section.metadata
    assert (m["passage_start"], m["passage_end"]) == (passage.metadata["start"], passage.metadata["end"])
    document = knowledge_base.store.documents.get("test:manual")
    assert document is not None
    assert knowledge_base.store.documents.text(document.key)[m["start"] : m["end"]] == section.content
    assert "收费" not in section.content
    knowledge_base.close()


async def test_sections_may_be_a_knowledge_base_s_own_setting():
    knowledge_base = await knowledge_base_of(
        {"manual": MANUAL.format(filler=FILLER)}, config=RAGConfig(expand_to="section")
    )
    assert "passage_start" in (await knowledge_base.query("mooring rope", 1))[0].metadata
    plain = await knowledge_base.search("mooring rope", options=SearchOptions(expand_to="passage"))
    assert all("passage_start" not in item.metadata for item in plain.items)
    knowledge_base.close()


# -- reranking --------------------------------------------------------------------------------------


async def test_a_reranker_orders_the_best_candidates_again(films):
    reranker = Backwards()
    plain = (await films.search("film director", limit=20)).items
    turned = (await films.search("film director", limit=5, options=SearchOptions(reranker=reranker))).items
    assert [item.id for item in turned] == [item.id for item in reversed(plain)][:5]
    assert reranker.asked == [("film director", len(plain), 5)]


async def test_a_knowledge_base_with_a_reranker_uses_it_unless_told_not_to():
    reranker = Backwards()
    knowledge_base = await knowledge_base_of({"a": "A red boat.", "b": "A boat."}, reranker=reranker)
    assert len(await knowledge_base.query("red boat", 1)) == 1
    await knowledge_base.search("red boat", options=SearchOptions(rerank=True))
    assert len(reranker.asked) == 2
    await knowledge_base.search("red boat", options=SearchOptions(rerank=False))
    assert len(reranker.asked) == 2
    knowledge_base.close()


async def test_reranking_without_a_reranker_is_refused(films):
    with pytest.raises(InvalidInputError, match="no reranker"):
        await films.search("film", options=SearchOptions(rerank=True))


async def test_where_the_reranker_fails_the_order_stays_and_the_reason_is_told(films):
    plain = await films.search("film director")
    answer = await films.search("film director", options=SearchOptions(reranker=Failing()))
    assert [item.id for item in answer.items] == [item.id for item in plain.items]
    assert answer.notes == ("not reranked: The model is away. Wait for it.",)


async def test_a_reranker_is_not_waited_for_for_ever():
    config = RAGConfig(waits=WaitSettings(reranker=0.01))
    knowledge_base = GraphRAGKnowledgeBase.from_config(config=config)
    await knowledge_base.add_texts([f"Film {n} has a director." for n in range(3)])
    answer = await knowledge_base.search("film director", options=SearchOptions(reranker=Sleeping()))
    assert len(answer.items) == 3
    assert answer.notes == ("not reranked: it took over 0.01 s",)
    knowledge_base.close()


async def test_a_search_that_is_cancelled_ends_its_reranker(films):
    reranker = Sleeping()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(films.search, "film", options=SearchOptions(reranker=reranker)))
        await reranker.began.wait()
        tasks.cancel_scope.cancel()
    assert reranker.ended.is_set()


async def test_a_document_that_goes_meanwhile_is_shown_as_it_was_found():
    class Removing:
        """Removes the first document while it is asked to rerank."""

        async def rerank(
            self, query: str, items: Sequence[KnowledgeItem], *, limit: int
        ) -> list[KnowledgeItem]:
            await knowledge_base.remove([items[0].source])
            return list(items[:limit])

    knowledge_base = await knowledge_base_of({"a": "A red boat.", "b": "A blue ship."})
    options = SearchOptions(reranker=Removing(), expand_to="section", diversity=0.5)
    answer = await knowledge_base.search("red boat", options=options)
    assert answer.items[0].content == "A red boat."
    assert "passage_start" not in answer.items[0].metadata
    knowledge_base.close()


async def test_all_options_go_together(films):
    options = SearchOptions(
        near_duplicates="drop", diversity=0.3, expand_to="section", reranker=Backwards(), rerank=True
    )
    answer = await films.search("电影导演 film director", limit=4, options=options)
    assert len(answer.items) == 4
    assert len({item.id for item in answer.items}) == 4


# -- what may be asked for --------------------------------------------------------------------------


@pytest.mark.parametrize("diversity", [-0.1, 1.1, float("nan")])
def test_a_diversity_out_of_bounds_is_refused(diversity: float):
    with pytest.raises(InvalidInputError, match="diversity is"):
        SearchOptions(diversity=diversity)


@pytest.mark.parametrize("wrong", [{"near_duplicates": "some"}, {"expand_to": "book"}])
def test_an_unknown_word_is_refused_with_those_there_are(wrong):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))) as caught:
        SearchOptions(**wrong)
    assert "Use one of:" in caught.value.advice
