"""Questions whose second passage is in another source, which does not find it by the question."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from loom_core.errors import NetError
from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument
from loom_core.knowledge.sources.federation.federation import Federation

QUESTION = "Which town did the director of The Silent Harbour grow up in?"
FILMS = {
    "The Silent Harbour": "The Silent Harbour is a film directed by Mara Lindqvist.",
    "A Loud Sea": "A Loud Sea is another film.",
}
PEOPLE = {
    "Mara Lindqvist": "She came to Visby as a child.",
    "Tom Hale": "He has never left Lübeck.",
}


class Service(KnowledgeBaseProvider):
    """A service that knows nothing but words: texts by title, found by a capitalised word of the question.

    `again` runs before every answer but the first.
    """

    def __init__(
        self, name: str, texts: dict[str, str], again: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._name = name
        self._texts = texts
        self._again = again
        self.asked: list[str] = []
        self.filters: list[dict[str, Any] | None] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return "A service"

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        self.asked.append(query)
        self.filters.append(filters)
        if self._again is not None and len(self.asked) > 1:
            await self._again()
        words = set(re.findall(r"\b[A-Z]\w+", query)) - {"The", "Which", "When"}
        found = [title for title in self._texts if words & set(title.split())]
        return [KnowledgeItem(t, self._texts[t], f"note:{t}", 0.0, {"title": t}) for t in found[:limit]]

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        return None


async def never() -> None:
    await anyio.Event().wait()


async def broken() -> None:
    raise NetError("The network is down.", advice="Check the cable.")


async def bug() -> None:
    raise ZeroDivisionError("division by zero")


async def test_a_passage_that_only_another_sources_passage_leads_to_is_found():
    films, people = Service("films", FILMS), Service("people", PEOPLE)
    answer = await Federation([films, people]).query(QUESTION)
    assert [item.id for item in answer.items][:2] == ["films:The Silent Harbour", "people:Mara Lindqvist"]
    assert "people:Tom Hale" not in [item.id for item in answer.items]
    found = answer.items[1]
    assert found.metadata["why"] == [
        "“The Silent Harbour” (films) mentions “Mara Lindqvist”, which this passage is about"
    ]
    assert 0 < found.relevance <= 0.9
    assert not answer.partial


async def test_only_sources_that_may_tell_more_are_asked_once_more():
    films, people, towns = (
        Service("films", FILMS),
        Service("people", PEOPLE),
        Service("towns", {"Visby": "A town."}),
    )
    await Federation([films, people, towns]).query(QUESTION)
    assert films.asked == [QUESTION]
    assert people.asked == towns.asked == [QUESTION, "Mara Lindqvist town director grow"]


async def test_a_question_that_is_answered_costs_no_second_one():
    sources = [Service("films", FILMS), Service("people", PEOPLE)]
    await Federation(sources).query("The Silent Harbour is directed by?")
    assert [len(source.asked) for source in sources] == [1, 1]
    only = Service("films", FILMS)
    await Federation([only, sources[1]]).query(QUESTION, source="films")
    assert only.asked == [QUESTION]


@pytest.mark.parametrize("trouble", [broken, bug])
async def test_a_source_that_fails_at_the_second_question_has_answered_the_first(trouble, caplog):
    caplog.set_level("INFO")
    towns = Service("towns", {"Silent": "The silent town."}, again=trouble)
    answer = await Federation([Service("films", FILMS), towns, Service("people", PEOPLE)]).query(QUESTION)
    ids = {item.id for item in answer.items}
    assert {"films:The Silent Harbour", "people:Mara Lindqvist", "towns:Silent"} <= ids
    assert not answer.partial
    assert len(towns.asked) == 2
    assert "the follow-up query to the source 'towns' failed" in caplog.text


async def test_both_questions_together_take_no_longer_than_a_source_may():
    ends: list[float] = []

    class Slow(Service):
        async def query(
            self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
        ) -> list[KnowledgeItem]:
            ends.append(anyio.current_effective_deadline())
            return await super().query(query, limit, filters)

    slow = Slow("slow", {"Silent": "The silent town."}, again=never)
    federation = Federation([Service("films", FILMS), slow, Service("people", PEOPLE)], deadlines={"slow": 1})
    answer = await federation.query(QUESTION)
    assert len(slow.asked) == 2
    assert ends[0] == ends[1]
    assert "people:Mara Lindqvist" in {item.id for item in answer.items}
    assert not answer.partial


async def test_a_source_that_failed_is_not_asked_once_more():
    class Down(Service):
        async def query(
            self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
        ) -> list[KnowledgeItem]:
            self.asked.append(query)
            raise NetError("The network is down.")

    down = Down("down", {})
    answer = await Federation([Service("films", FILMS), down, Service("people", PEOPLE)]).query(QUESTION)
    assert len(down.asked) == 1
    assert answer.notes[0] == "2 of 3 sources answered."
    assert "people:Mara Lindqvist" in {item.id for item in answer.items}


async def test_the_second_question_has_the_filters_of_the_first():
    people = Service("people", PEOPLE)
    await Federation([Service("films", FILMS), people]).query(QUESTION, filters={"lang": "en"})
    assert people.filters == [{"lang": "en"}] * 2


async def test_cancelling_the_question_cancels_the_second_one():
    reached, ended = anyio.Event(), anyio.Event()

    async def wait() -> None:
        reached.set()
        try:
            await anyio.Event().wait()
        finally:
            ended.set()

    federation = Federation([Service("films", FILMS), Service("people", PEOPLE, again=wait)])
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(federation.query, QUESTION)
            await reached.wait()
            tasks.cancel_scope.cancel()
    assert ended.is_set()


async def test_two_steps_over_two_bases_in_chinese():
    films = DocumentsKnowledgeBase(
        [TextDocument(text="《静港》是一部电影，由林若曦执导。", title="静港", uri="film:1")], name="电影"
    )
    noise = [
        TextDocument(text=f"导演第{n}号生于哪里没有人知道。", title=f"导演{n}", uri=f"person:{n}")
        for n in range(30)
    ]
    person = TextDocument(text="她在厦门的一个渔民家庭长大。", title="林若曦", uri="person:x")
    people = DocumentsKnowledgeBase([*noise, person], name="人物")
    try:
        answer = await Federation([films, people]).query("《静港》的导演生于哪里？", limit=2)
        assert [item.source for item in answer.items] == ["film:1", "person:x"]
        assert (
            answer.items[1].metadata["why"][0]
            == "“静港” (电影) mentions “林若曦”, which this passage is about"
        )
    finally:
        films.close()
        people.close()
