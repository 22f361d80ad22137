from __future__ import annotations

import time

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import ConfigError
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.rerankers.features import FeatureReranker
from loom_core.plugins import create, list_registered


def passages(*texts: str) -> list[KnowledgeItem]:
    return [KnowledgeItem(id=str(n), content=text, source="x", relevance=0.5) for n, text in enumerate(texts)]


async def order(query: str, *texts: str) -> list[str]:
    return [item.id for item in await FeatureReranker().rerank(query, passages(*texts), limit=len(texts))]


def test_it_is_found_by_its_name():
    assert set(list_registered("reranker")) >= {"api", "cross_encoder", "features", "llm"}
    assert isinstance(create("reranker", "features", weight=0.5), FeatureReranker)


async def test_the_passage_with_most_of_the_question_comes_first_whatever_form_its_words_have():
    assert await order(
        "Which parties were organised?",
        "A story without any of it.",
        "The party organises itself every year.",
        "The party was over.",
    ) == ["1", "2", "0"]


async def test_rare_words_say_more_than_common_ones():
    assert (
        await order("wall dynasty", "a wall", "a dynasty", "another wall", "one more wall", "walls and walls")
    )[0] == "1"


async def test_words_inside_other_words_do_not_count():
    assert await order("the cat", "a concatenated list", "scatter", "a cat") == ["2", "0", "1"]


async def test_chinese_words_are_found():
    texts = ("北京是中国的首都。", "长城始建于春秋战国时期，历代都有修筑。", "上海是中国最大的城市。")
    assert (await order("长城是什么时候修建的？", *texts))[0] == "1"
    assert (await order("中国最大的城市是哪一座？", *texts))[0] == "2"


async def test_words_that_stand_together_say_more_than_scattered_ones():
    filler = "and then nothing much happened for quite a while " * 8
    scattered = f"the silver {filler} spoon {filler} factory {filler}"
    together = f"{filler} a silver spoon factory {filler}  {filler}"
    assert await order("silver spoon factory", scattered, together) == ["1", "0"]
    filler = "此后很长一段时间没有发生什么事情，" * 10
    assert await order("银勺工厂", f"银{filler}勺{filler}工厂", f"{filler}银勺工厂{filler}") == ["1", "0"]


async def test_the_question_in_the_same_words_says_more_than_in_another_order():
    assert await order("dog bites man", "man bites dog", "dog bites man") == ["1", "0"]


async def test_a_title_that_is_asked_about_counts():
    body = "It was founded long ago and has many members today."
    items = [
        KnowledgeItem("a", body, "x", relevance=0.5, metadata={"title": "Chess Club"}),
        KnowledgeItem(
            "b", body, "x", relevance=0.5, metadata={"title": "Rowing", "heading_path": ["Members"]}
        ),
        KnowledgeItem("c", body, "x", relevance=0.5),
    ]
    found = await FeatureReranker().rerank("When was the rowing club founded?", items[::-1], limit=3)
    assert [item.id for item in found][-1] == "c"
    found = await FeatureReranker().rerank("When was the chess club founded?", items[::-1], limit=1)
    assert found[0].id == "a"


@pytest.mark.parametrize(
    ("query", "good", "bad"),
    [
        ("error 4711", "error 4711 again", "error 4712 again"),
        ("What does --dry-run do?", "use --dry-run first", "use dry run first"),
        ('Who said "to be or not"?', "he said to be or not", "he said not to be or so"),
        ("《红楼梦》的作者", "红楼梦的作者是曹雪芹", "红楼的作者做了一个梦"),
        ("parse_config", "call parse_config here", "parse the config here"),
        ("ＡＢＣ１２３", "see abc123", "see abc 123"),
    ],
)
async def test_what_must_stand_there_as_it_is_counts(query: str, good: str, bad: str):
    assert await order(query, bad, good) == ["1", "0"]


async def test_a_question_of_numbers_alone_is_judged_by_them():
    assert await order("1 2", "nothing", "2 and 1", "1") == ["1", "2", "0"]


@pytest.mark.parametrize("query", ["", "the of and", "？！", "   "])
async def test_a_question_without_content_changes_nothing(query: str):
    items = passages("one", "two", "three")
    found = await FeatureReranker().rerank(query, items, limit=9)
    assert [item.id for item in found] == ["0", "1", "2"]
    assert [item.metadata["scores"]["rerank"] for item in found] == [0, 0, 0]


async def test_the_weight_says_how_much_the_order_before_counts():
    first = KnowledgeItem("a", "nothing of it", "x", relevance=1.0)
    second = KnowledgeItem("b", "a silver spoon", "x", relevance=0.9)
    for weight, best in ((0.0, "a"), (0.01, "a"), (0.5, "b"), (1.0, "b")):
        (found,) = await FeatureReranker(weight=weight).rerank("silver spoon", [first, second], limit=1)
        assert found.id == best


async def test_relevance_outside_its_range_is_held_in_it():
    items = [KnowledgeItem("a", "x", "x", relevance=17.0), KnowledgeItem("b", "x", "x", relevance=-3.0)]
    found = await FeatureReranker(weight=0).rerank("x", items, limit=2)
    assert [item.relevance for item in found] == [1.0, 0.0]


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_that_is_no_share_is_refused(weight: float):
    with pytest.raises(ConfigError, match="weight"):
        FeatureReranker(weight=weight)


@given(
    st.text(alphabet="ab Iiİß长城。「」\"'1.-_Ａ\ud800\u0301", max_size=20),
    st.lists(st.text(alphabet="ab Iiİß长城。「」\"'1.-_Ａ\ud800\u0301", max_size=20), max_size=6),
    st.floats(0, 1),
    st.integers(0, 8),
)
def test_whatever_is_asked_passages_are_ordered_and_never_changed(
    query: str, texts: list[str], weight: float, limit: int
):
    items = passages(*texts)
    found = anyio.run(lambda: FeatureReranker(weight=weight).rerank(query, items, limit=limit))
    assert len(found) == min(limit, len(items))
    assert {(item.id, item.content) for item in found} <= {(item.id, item.content) for item in items}
    assert len({item.id for item in found}) == len(found)
    assert all(0 <= item.relevance <= 1 and 0 <= item.metadata["scores"]["rerank"] <= 1 for item in found)
    keys = [(-item.relevance, int(item.id)) for item in found]
    assert keys == sorted(keys)


async def test_fifty_passages_take_no_time_worth_speaking_of():
    text = "The party was founded in the old town hall by the mayor, who had long planned to do so. " * 12
    items = passages(*(f"{text} {n}" for n in range(50)))
    reranker = FeatureReranker()
    times: list[float] = []
    for asker in ("a mayor", "the mayor", "an old mayor"):
        started = time.perf_counter()
        await reranker.rerank(f"When did {asker} found the party in the town hall?", items, limit=50)
        times.append(time.perf_counter() - started)
    assert min(times) < 0.25  # a few milliseconds; the rest is for a busy machine
