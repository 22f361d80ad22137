"""Malformed questions, limits, ids and filters for a knowledge base."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core.embedding.registry import create_embedder
from loom_core.errors import InvalidInputError
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.rag import GraphRAGKnowledgeBase, Strategy

pytestmark = pytest.mark.hostile("MCP requests")

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
CHANNELS = ("dense", "bm25", "keyword", "graph")

DOCUMENTS = {
    "note:harbour": ("Harbour", "The harbour master of Visby approves every mooring. See the fee table."),
    "file:///notes/%E6%B8%AF%E5%8F%A3.md": ("港口", "青岛港位于山东省，港口主任批准每一次停泊。"),
    "note:party": ("Party 🎉", "🎉🎈 The party 派对 is at the pier 👩‍👩‍👧‍👦. Bring 🍰!"),
    "note:code": ("mooring.py", "```python\ndef moor(ship: Ship) -> None:\n    quay.tie(ship, knots=3)\n```"),
    "note:rtl": ("ميناء", "الميناء مغلق اليوم. הנמל סגור היום."),
}
ODD_QUESTIONS = {
    "nothing": "",
    "blanks": " \t\r\n\u3000\u200b",
    "punctuation": "?!… ，。——《》“”",
    "operators": 'AND OR NOT "mooring* (ship~ +fee -table ^2 title:x [a TO b]',
    "quotes of SQL": "'; DROP TABLE chunks; --",
    "a format": "{0} %s %n ${x} {{y}}",
    "a pattern": "(a+)+$ \\d{1,} [",
    "mixed scripts": "Who 批准 the mooring في الميناء הנמל シップ 🚢?",
    "emoji": "🎉👩‍👩‍👧‍👦🏴‍☠️",
    "a lone surrogate": "mooring \ud83d",
    "surrogates alone": "\udcff\ud800",
    "NUL": "moor\0ing",
    "control characters": "".join(map(chr, range(32))) + "\x7f\x9f mooring",
    "right to left": "\u202eالميناء مغلق\u202c הנמל",
    "combining marks": "m" + "\u0301" * 500,
    "100 kB in one word": "a" * 100_000,
    "100 kB of words": "mooring fee " * 8_000,
    "100 kB of Chinese": "青岛港口" * 8_500,
    "100 kB of emoji": "🎉" * 25_000,
    "100 kB of punctuation": "?" * 100_000,
    "a byte order mark": "\ufeffmooring",
    "noncharacters": "\ufffe\uffff\U0010ffff",
}


@pytest.fixture(scope="module")
def harbour() -> Iterator[GraphRAGKnowledgeBase]:
    """English, Chinese, emoji, code and Arabic, with vectors. No one changes it."""
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), name="harbour"
    )
    asyncio.run(
        knowledge_base.add_texts(
            [text for _, text in DOCUMENTS.values()],
            titles=[title for title, _ in DOCUMENTS.values()],
            uris=list(DOCUMENTS),
            metadatas=[{"tags": ["port", "港"], "rank": n, "date": f"2024-0{n + 1}"} for n in range(5)],
        )
    )
    yield knowledge_base
    knowledge_base.close()


async def answer_or_refusal(
    knowledge_base: GraphRAGKnowledgeBase, question: str, **arguments: object
) -> list[KnowledgeItem] | None:
    """Return the checked passages; None where the question was refused with advice."""
    try:
        items = (await knowledge_base.search(question, **arguments)).items
    except InvalidInputError as refusal:
        if not refusal.message or not refusal.advice or len(str(refusal)) > 1000:
            raise
        return None
    assert all(isinstance(item, KnowledgeItem) and 0 <= item.relevance <= 1 for item in items)
    assert len({item.id for item in items}) == len(items) <= int(str(arguments.get("limit", 5)))
    return items


# -- documents --------------------------------------------------------------------------------------


async def test_the_character_0_is_left_out_of_what_is_stored():
    """PostgreSQL could not hold it."""
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=None, name="zero")
    await knowledge_base.add_texts(
        ["Bob\0Smith pays."], titles=["Fe\0es"], metadatas=[{"ta\0gs": ["r\0ed", "x"], "deep": {"\0": "\0"}}]
    )
    (item,) = await knowledge_base.query("Who pays?", filters={"tags": "red"})
    assert (item.content, item.metadata["title"]) == ("BobSmith pays.", "Fees")
    database = knowledge_base.store.database
    for (table,) in database.rows("SELECT name FROM sqlite_master WHERE type = 'table'"):
        texts = [value for row in database.rows(f"SELECT * FROM {table}") for value in row]
        assert not any("\0" in text for text in texts if isinstance(text, str)), table
    knowledge_base.close()


@pytest.mark.parametrize("uri", ["text:a\0", "text:\ud800"])
async def test_an_address_that_no_database_can_hold_is_refused_and_unknown(harbour, uri: str):
    with pytest.raises(InvalidInputError, match="cannot be the address of a document"):
        await harbour.add_texts(["x"], uris=[uri])
    assert await harbour.remove([uri]) == []


# -- questions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("question", ODD_QUESTIONS.values(), ids=ODD_QUESTIONS)
async def test_an_odd_question_is_answered_or_refused(harbour, question: str, strategy: Strategy):
    items = await answer_or_refusal(harbour, question, strategy=strategy)
    assert (items is None) == (not question.strip())


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("question", ODD_QUESTIONS.values(), ids=ODD_QUESTIONS)
async def test_every_channel_bears_an_odd_question(harbour, question: str, channel):
    try:
        items = await harbour.ask(channel, question, limit=3)
    except InvalidInputError as refusal:
        told = refusal.advice
    else:
        told = "answered"
        assert len({item.id for item in items}) == len(items) <= 3
    assert told
    assert (told == "answered") == bool(question.strip())


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_what_can_be_understood_of_an_odd_question_is_found(harbour, strategy: Strategy):
    for question in (
        "mooring \ud83d harbour master",
        "\ufeffmooring",
        "\x00 harbour\x07 master \x9f",
        "'; mooring; --",
    ):
        items = await answer_or_refusal(harbour, question, strategy=strategy)
        assert items
        assert items[0].source in {"note:harbour", "note:code"}


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    question=st.text(st.characters(exclude_categories=()), max_size=80)
    | st.lists(
        st.sampled_from([*"港口停泊🎉\0\ud83d\u202e\"'*", "mooring", " ", "quay.tie"]), max_size=12
    ).map("".join),
    limit=st.sampled_from([1, 3, 100]),
    strategy=st.sampled_from(STRATEGIES),
)
async def test_any_text_is_answered_or_refused(harbour, question: str, limit: int, strategy: Strategy):
    items = await answer_or_refusal(harbour, question, limit=limit, strategy=strategy)
    assert (items is None) == (not question.strip())


# -- limits and ids ---------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("limit", [0, -1, 101, 10**6, -(10**30)])
async def test_a_limit_out_of_bounds_is_refused_with_the_bounds(harbour, limit: int, strategy: Strategy):
    with pytest.raises(InvalidInputError, match=f"limit is {limit}") as refused:
        await harbour.search("mooring", limit=limit, strategy=strategy)
    assert refused.value.advice == "Use 1 to 100."


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_the_largest_limit_brings_no_passage_twice(harbour, strategy: Strategy):
    items = await answer_or_refusal(harbour, "mooring 港口 party", limit=100, strategy=strategy)
    assert items is not None
    assert len(items) <= len(DOCUMENTS)


@pytest.mark.parametrize(
    "id_", ["", "d0", "note:harbour", "d0.none", "\0", "\ud83d", "' OR 1=1 --", "港" * 5000]
)
async def test_an_id_that_is_not_there_is_none(harbour, id_: str):
    assert await harbour.get_by_id(id_) is None


# -- filters ----------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=10)
    | st.sampled_from(["港", "2024", "2024-02", "港口", "note:"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["gte", "gt", "lte", "lt", "ne", "contains", "$in"]), inner, max_size=2
        )
    ),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    filters=st.dictionaries(
        st.sampled_from(["source", "document", "path", "language", "type", "title", "tags", "rank", "date"])
        | st.text(st.characters(exclude_categories=()), max_size=5),
        VALUES,
        max_size=3,
    ),
    strategy=st.sampled_from(STRATEGIES),
)
async def test_any_filters_are_applied_or_refused(harbour, filters, strategy: Strategy):
    allowed = await answer_or_refusal(harbour, "mooring 港口", limit=100, filters=filters, strategy=strategy)
    if allowed is not None:
        everything = await answer_or_refusal(harbour, "mooring 港口", limit=100, strategy=strategy)
        assert everything is not None
        assert filters or allowed == everything


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_an_unknown_field_is_refused_with_those_there_are(harbour, strategy: Strategy):
    with pytest.raises(InvalidInputError, match="no filter 'titel'") as refused:
        await harbour.search("mooring", filters={"titel": "x"}, strategy=strategy)
    assert refused.value.advice.startswith("Did you mean 'title'? Use: source, path, language,")


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_filters_hold_for_every_passage_of_every_strategy(harbour, strategy: Strategy):
    for filters, sources in (
        ({"path": "港口"}, {"file:///notes/%E6%B8%AF%E5%8F%A3.md"}),
        (
            {"date": {"gte": "2024-02", "lt": "2024-04"}},
            {"file:///notes/%E6%B8%AF%E5%8F%A3.md", "note:party"},
        ),
        ({"rank": {"ne": [0, 1, 2, 3, 4]}}, set()),
    ):
        items = await answer_or_refusal(
            harbour, "mooring 港口 party 派对", limit=100, filters=filters, strategy=strategy
        )
        assert items is not None
        assert {item.source for item in items} <= sources


async def test_an_empty_knowledge_base_answers_nothing():
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=create_embedder("hashing"))
    for strategy in STRATEGIES:
        assert await answer_or_refusal(knowledge_base, "mooring \ud83d", limit=100, strategy=strategy) == []
    assert await answer_or_refusal(knowledge_base, "mooring", filters={"tags": "x"}) is None
    assert await answer_or_refusal(knowledge_base, "mooring", filters={"title": "x"}) == []
    knowledge_base.close()


@pytest.mark.slow
async def test_a_text_longer_than_any_document_may_be_is_refused_at_once():
    knowledge_base = GraphRAGKnowledgeBase.from_config()
    with pytest.raises(InvalidInputError, match="20,000,001 characters"):
        await knowledge_base.add_texts(["short", "字" * 20_000_001])
    assert knowledge_base.store.jobs.list() == []
    knowledge_base.close()
