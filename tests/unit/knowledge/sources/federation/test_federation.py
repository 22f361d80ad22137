"""Several sources asked as one: what each costs the others when it fails, and what its ids lead to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

from loom_core.errors import (
    ConfigError,
    InvalidInputError,
    NetError,
    NotFoundError,
    SourceError,
    SourceStartingError,
)
from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase, TextDocument
from loom_core.knowledge.sources.federation.federation import Federation, SourceReport


class Shelf(KnowledgeBaseProvider):
    """A source of a program: texts by id, found by a shared word; `before` runs before every answer."""

    def __init__(
        self, name: str, texts: dict[str, str], before: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._name = name
        self._texts = texts
        self._before = before
        self.limits: list[int] = []

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return f"Texts about {self._name}"

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        if self._before is not None:
            await self._before()
        if filters:
            raise InvalidInputError(f"There is no filter {next(iter(filters))!r}.")
        self.limits.append(limit)
        words = set(query.lower().split())
        found = [(id_, text) for id_, text in self._texts.items() if words & set(text.lower().split())]
        return [KnowledgeItem(id_, text, f"{self._name}:{id_}") for id_, text in found[:limit]]

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        if self._before is not None:
            await self._before()
        text = self._texts.get(knowledge_id)
        return None if text is None else KnowledgeItem(knowledge_id, text, f"{self._name}:{knowledge_id}")


async def never() -> None:
    await anyio.Event().wait()


async def broken() -> None:
    raise NetError("The network is down.", advice="Check the cable.")


async def bug() -> None:
    raise ZeroDivisionError("division by zero")


async def broken_inside() -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(broken)


ROPE = Shelf("shop", {"1": "rope of hemp", "2": "sail of linen"})
TOWN = Shelf("城市", {"a:b": "rope makers of Visby"})


def ids(items: Sequence[KnowledgeItem]) -> list[str]:
    return [item.id for item in items]


async def test_all_sources_answer_together_and_every_id_leads_back():
    federation = Federation([ROPE, TOWN])
    answer = await federation.query("rope makers")
    assert ids(answer.items) == ["城市:a:b", "shop:1"]
    assert [item.metadata["knowledge_base"] for item in answer.items] == ["城市", "shop"]
    assert [(r.source, r.state, r.count) for r in answer.reports] == [
        ("shop", "answered", 1), ("城市", "answered", 1),
    ]  # fmt: skip
    assert (answer.partial, answer.notes) == (False, [])
    for item in answer.items:
        found = await federation.get_by_id(item.id)
        assert found is not None
        assert (found.id, found.content) == (item.id, item.content)
    assert await federation.get_by_id("shop:3") is None


async def test_an_id_without_its_source_is_looked_for_in_all_of_them():
    federation = Federation([Shelf("down", {"2": "never"}, broken), ROPE, TOWN])
    found = await federation.get_by_id("a:b")
    assert found is not None
    assert found.id == "城市:a:b"
    assert await federation.get_by_id("nowhere") is None
    with pytest.raises(NetError):
        await federation.get_by_id("down:2")


async def test_the_longest_name_that_an_id_begins_with_is_its_source():
    federation = Federation([Shelf("a", {"b:1": "first"}), Shelf("a:b", {"1": "second"})])
    found = await federation.get_by_id("a:b:1")
    assert found is not None
    assert found.content == "second"


async def test_a_source_that_fails_or_is_late_is_named_and_costs_the_others_nothing(caplog):
    down, slow, buggy = Shelf("down", {}, broken), Shelf("slow", {}, never), Shelf("buggy", {}, bug)
    federation = Federation([ROPE, down, slow, buggy], deadlines={"slow": 0.05})
    with anyio.fail_after(30):
        answer = await federation.query("rope")
    assert ids(answer.items) == ["shop:1"]
    assert [(r.source, r.state) for r in answer.reports] == [
        ("shop", "answered"), ("down", "failed"), ("slow", "late"), ("buggy", "failed"),
    ]  # fmt: skip
    assert answer.partial
    first, second, third, fourth = answer.notes
    assert first == "1 of 4 sources answered."
    assert second == "down: The network is down. Check the cable."
    assert third == "slow: It did not answer within 0.05 s. Ask again, or allow it more time."
    assert fourth.startswith("buggy: It failed with an unexpected error (ZeroDivisionError);")
    assert "the source 'buggy' failed" in caplog.text


async def test_the_report_of_each_source_is_told_as_soon_as_it_is_known():
    heard: list[SourceReport] = []
    first_is_told = anyio.Event()

    async def told(report: SourceReport) -> None:
        heard.append(report)
        first_is_told.set()

    federation = Federation([Shelf("second", {"1": "rope"}, first_is_told.wait), ROPE])
    with anyio.fail_after(30):
        answer = await federation.query("rope", on_report=told)
    assert [report.source for report in heard] == ["shop", "second"]
    assert set(heard) == set(answer.reports)


async def test_if_no_source_answers_it_is_an_error_that_names_them_all():
    federation = Federation([Shelf("down", {}, broken), Shelf("slow", {}, never)], deadline=0.05)
    with pytest.raises(
        SourceError, match=r"No source gave an answer. down: The network is down.*slow: It did"
    ):
        await federation.query("rope")
    with pytest.raises(SourceError, match=r"slow: It did not answer within 0\.05 s"):
        await federation.get_by_id("slow:1")


async def test_the_only_source_that_is_asked_fails_with_its_own_error():
    federation = Federation([ROPE, Shelf("down", {}, broken)])
    with pytest.raises(NetError, match="The network is down") as refused:
        await federation.query("rope", source="down")
    assert refused.value.advice == "Check the cable."


async def test_an_error_out_of_a_task_group_is_the_error_itself():
    answer = await Federation([ROPE, Shelf("down", {}, broken_inside)]).query("rope")
    assert answer.notes[1] == "down: The network is down. Check the cable."


async def test_what_all_sources_refuse_is_the_callers_mistake():
    with pytest.raises(
        InvalidInputError, match=r"shop: There is no filter 'colour'.*城市: There is no filter"
    ):
        await Federation([ROPE, TOWN]).query("rope", filters={"colour": "red"})


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"query": " "}, InvalidInputError),
        ({"query": "rope", "limit": 0}, InvalidInputError),
        ({"query": "rope", "limit": 101}, InvalidInputError),
        ({"query": "rope", "source": "unknown"}, NotFoundError),
        ({"query": "rope", "source": []}, NotFoundError),
    ],
)
async def test_what_cannot_be_asked_is_refused_with_advice(asked, error):
    with pytest.raises(error) as refused:
        await Federation([ROPE, TOWN]).query(**asked)
    assert refused.value.advice


async def test_without_sources_there_is_no_one_to_ask():
    with pytest.raises(NotFoundError, match="There is no source to ask"):
        await Federation([]).query("rope")


async def test_only_the_named_sources_are_asked_and_one_alone_for_no_more_than_is_wanted():
    shop, town = Shelf("shop", {"1": "rope"}), Shelf("town", {"1": "rope walk"})
    federation = Federation([shop, town])
    assert ids((await federation.query("rope", source="town", limit=3)).items) == ["town:1"]
    assert (shop.limits, town.limits) == ([], [3])
    await federation.query("rope", source=["town", "shop", "town"], limit=3)
    assert (shop.limits, town.limits) == ([20], [3, 20])


async def test_sources_are_exchanged_while_it_is_asked():
    started, go_on = anyio.Event(), anyio.Event()

    async def wait() -> None:
        started.set()
        await go_on.wait()

    federation = Federation([Shelf("old", {"1": "rope"}, wait)])
    found: list[str] = []

    async def ask() -> None:
        found.extend(ids((await federation.query("rope")).items))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await started.wait()
            federation.replace([ROPE])
            assert ids((await federation.query("rope")).items) == ["shop:1"]
            go_on.set()
    assert found == ["old:1"]
    with pytest.raises(ConfigError, match="same name"):
        federation.replace([ROPE, ROPE])
    assert [source.name for source in federation.sources] == ["shop"]


@pytest.mark.parametrize(
    "options", [{"deadline": 0}, {"deadlines": {"shop": -1}}, {"deadline": float("nan")}]
)
def test_a_deadline_must_be_above_zero(options):
    with pytest.raises(ConfigError, match="A deadline is"):
        Federation([ROPE], **options)


async def test_cancelling_the_question_cancels_what_the_sources_do():
    ended = anyio.Event()

    async def wait() -> None:
        try:
            await anyio.Event().wait()
        finally:
            ended.set()

    with anyio.move_on_after(0.05) as scope:
        await Federation([Shelf("slow", {}, wait)]).query("rope")
    assert scope.cancelled_caught
    assert ended.is_set()


async def test_the_same_passage_in_two_sources_is_cited_once_with_both_ids():
    text = "The harbour of Visby was opened in 1901 and deepened twice since then by the town."
    wiki = DocumentsKnowledgeBase([TextDocument(text=text, uri="wiki:visby")], name="wiki")
    notes = DocumentsKnowledgeBase([TextDocument(text=f"{text} See the map.", uri="note:1")], name="笔记")
    try:
        federation = Federation([wiki, notes])
        (item,) = (await federation.query("When was the harbour of Visby opened?")).items
        (other,) = item.metadata["also_in"]
        assert {item.id.split(":")[0], other.split(":")[0]} == {"wiki", "笔记"}
        copy = await federation.get_by_id(other)
        assert copy is not None
        assert "harbour of Visby" in copy.content
    finally:
        wiki.close()
        notes.close()


class Starting(Shelf):
    """A source that is ready to be asked once `ready` is set."""

    def __init__(self, name: str, texts: dict[str, str]) -> None:
        super().__init__(name, texts)
        self.ready = anyio.Event()

    async def start(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self.ready.wait()
            return
        raise SourceStartingError(f"{self.name} is still starting.", advice="Ask again in a moment.")


async def test_a_source_that_is_still_starting_is_named_as_that():
    starting = Starting("城市", {"1": "麻绳 rope"})
    federation = Federation([ROPE, starting], deadlines={"城市": 0.05})
    answer = await federation.query("rope")
    assert [(r.source, r.state) for r in answer.reports] == [("shop", "answered"), ("城市", "starting")]
    assert answer.notes[1] == "城市: 城市 is still starting. Ask again in a moment."
    starting.ready.set()
    answer = await federation.query("rope")
    assert {r.state for r in answer.reports} == {"answered"}
    assert set(ids(answer.items)) == {"shop:1", "城市:1"}
