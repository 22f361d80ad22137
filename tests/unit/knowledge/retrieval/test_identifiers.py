"""A passage that holds the identifier asked for comes first, whatever the vectors say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from loom_core.embedding.interface import EmbeddingKind, EmbeddingProvider
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.retrieval.config import SearchOptions

COUNT, GOLD, OTHER = 30, 17, 5
"""Passages of each family and language, and the numbers of those that are asked for."""

FAMILIES = {
    "order": "SO-2024-{:05}",
    "number": "45000123{:02}",
    "CVE": "CVE-2023-12{:02}",
    "ORA": "ORA-009{:02}",
    "ticket": "PAY-48{:02}",
    "part": "AX1{:02}-QZ/45",
    "UUID": "5{:02}e8400-e29b-41d4-a716-446655440000",
    "IPv4": "10.0.{}.1",
    "port": "10.7.7.7:80{:02}",
    "IPv6": "2001:db8:a::{:x}",
    "phone": "138-0013-80{:02}",
    "area code": "(021) 555-12{:02}",
    "hexadecimal": "0x7fff5f{:02x}",
    "commit": "a{:02x}b2c3d4e5f60718293a4b5c6d7e8f90123456789",
    "mixed": "zq234{:02}x18",
    "file": "report_01{:02}.pdf",
    "path": "shop.core.client{:02}.retry",
    "version": "v2.{}.1",
}
PASSAGES = (
    "The {} was entered on Monday by the night shift; its owner has been told by e-mail.",
    "{}于周一由夜班录入，负责人已收到邮件通知。",
)
QUESTIONS = ("Who has been told about {} by now?", "请问{}通知了谁？")


class Contrary(EmbeddingProvider):
    """An embedder by which the passages that are asked for are as far from every question as can be."""

    id = "test/contrary"
    dimension = 4
    languages = None

    def __init__(self, unwanted: Sequence[str]) -> None:
        self._unwanted = tuple(unwanted)

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage"):
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            unwanted = kind == "passage" and any(each in text for each in self._unwanted)
            row[0] = -1.0 if unwanted else 1.0
        return rows


def identifier(family: str, number: int) -> str:
    return FAMILIES[family].format(number)


WORDS = """
apple bread chair door egg fence garden hammer iron jacket kettle lamp mirror needle onion paper queue road
salt table umbrella violin window yard basket candle dress engine flower glove house ink jar knife ladder
mouse nest oven pencil rope
""".split()


@pytest.fixture(scope="module")
def base() -> Iterator[GraphRAGKnowledgeBase]:
    """All families in both languages, in memory. It is only read."""
    names = [identifier(family, number) for family in FAMILIES for number in (GOLD, OTHER)]
    texts = {
        f"bench:{language}/{family}/{number}": PASSAGES[language].format(identifier(family, number))
        for language in (0, 1)
        for family in FAMILIES
        for number in range(COUNT)
    }
    texts |= {f"bench:common/{n}": f"Then call os.path, and the {WORDS[n]} follows." for n in range(40)}
    texts["bench:none"] = "Nothing is there: the value None, in 2019."
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=Contrary(names))
    asyncio.run(knowledge_base.add_texts(list(texts.values()), uris=list(texts)))
    yield knowledge_base
    knowledge_base.close()


async def first(base: GraphRAGKnowledgeBase, question: str, count: int = 2) -> list[str]:
    """URIs of the best passages; every identifier is held by two, one in each language."""
    return [item.source for item in (await base.search(question, limit=10)).items[:count]]


def both(family: str, number: int = GOLD) -> set[str]:
    return {f"bench:{language}/{family}/{number}" for language in (0, 1)}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("family", FAMILIES)
async def test_the_passages_that_hold_it_come_first(base, family: str, question: str):
    answer = await base.search(question.format(identifier(family, GOLD)), limit=10)
    assert {item.source for item in answer.items[:2]} == both(family)
    relevance = [item.relevance for item in answer.items]
    assert relevance == sorted(relevance, reverse=True)
    assert answer.match.verdict != "none"


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    ("family", "asked"),
    [
        ("UUID", "517e8400"),
        ("UUID", "517e84"),
        ("UUID", "517e8400-e2"),
        ("UUID", "517E8400E29B41D4A716446655440000"),
        ("commit", "a11b2c3"),
        ("phone", "13800138017"),
        ("phone", "138 0013 8017"),
        ("phone", "+86 138 0013 8017"),
        ("area code", "021-5551217"),
        ("order", "so-2024-00017"),
        ("order", "ＳＯ－２０２４－０００１７"),
        ("port", "tcp://10.7.7.7:8017"),
    ],
)
async def test_it_may_be_written_in_another_way(base, family: str, asked: str, question: str):
    assert set(await first(base, question.format(asked))) == both(family)


@pytest.mark.parametrize("question", ["What of {} and {}?", "{}和{}怎么样？"])
async def test_passages_with_each_of_several_identifiers_come_first(base, question: str):
    asked = [identifier("ticket", GOLD), identifier("mixed", GOLD)]
    assert set(await first(base, question.format(*asked), 4)) == both("ticket") | both("mixed")


async def test_a_passage_with_more_of_them_comes_before_those_with_one(kb):
    texts = [
        "PAY-4817 waits.",
        "PAY-4805 waits.",
        "PAY-4805 waits for PAY-4817, as the plan says.",
        "PAY-4806",
    ]
    await kb.add_texts(texts, uris=["a:1", "a:2", "a:3", "a:4"])
    assert await first(kb, "PAY-4817, PAY-4805?", 1) == ["a:3"]


@pytest.mark.parametrize("question", QUESTIONS)
async def test_one_that_no_passage_holds_is_named_as_a_caution(base, question: str):
    for missing in (
        "PAY-9999",
        "5ffe8400-e29b-41d4-a716-446655440000",
        "13900139000",
        "shop.core.server.retry",
    ):
        answer = await base.search(question.format(missing), limit=5)
        assert answer.match.verdict == "weak"
        assert f"no passage found contains “{missing}”" in answer.match.note


async def test_a_common_name_and_ordinary_words_do_not_decide(base):
    # Were they to, the passages that are far would be as near as all others.
    for question in (
        f"What is os.path {WORDS[7]}?",
        "Which value is None, in 2019?",
        "What happened in 2019?",
    ):
        answer = await base.search(question, limit=20)
        assert all(item.metadata["scores"].get("vector", 1.0) > 0 for item in answer.items)
    assert (await first(base, f"os.path, the {WORDS[7]}", 1)) == ["bench:common/7"]


async def test_passages_that_differ_in_the_identifier_alone_are_no_duplicates(kb):
    text = (
        "The part {}-1234 was entered on Monday by the night shift and waits for a second look by its owner."
    )
    await kb.add_texts([text.format("AXQ"), text.format("BXQ")], uris=["a:1", "a:2"])
    options = SearchOptions(near_duplicates="drop")
    answer = await kb.search("AXQ-1234 and BXQ-1234", limit=5, options=options)
    assert {item.source for item in answer.items} == {"a:1", "a:2"}


async def test_a_name_that_may_be_a_word_counts_where_one_passage_holds_it_and_words_agree(kb):
    texts = [f"The ticket {name} was entered on Monday." for name in ("ABC-12", "ABC-13", "LM317", "LM318")]
    await kb.add_texts(texts, uris=["a:1", "a:2", "a:3", "a:4"])
    for name, uri in (("ABC-13", "a:2"), ("LM318", "a:4")):
        answer = await kb.search(f"What of the ticket {name}?", limit=4)
        assert answer.items[0].source == uri
        assert answer.items[1].relevance <= answer.items[0].relevance / 2


async def test_filters_hold_for_identifiers(base):
    answer = await base.search(identifier("UUID", GOLD), limit=5, filters={"source": "bench:0/UUID/5"})
    assert [item.source for item in answer.items] == ["bench:0/UUID/5"]
