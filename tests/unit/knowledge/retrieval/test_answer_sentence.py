"""Answer sentences: the sentence that stands out is marked, and none where none does."""

from __future__ import annotations

import pytest

from loom_core import KnowledgeBase
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.retrieval.answer_sentence import find_answer_sentence, mark_answer_sentences

_TRIP = "We left Hamburg on Monday. The hotel in Hangzhou costs 820 yuan a night. Anna paid for the train."
_TRIP_ZH = "会议在上海举行。酒店每晚八百二十元，含早餐。火车票由李明支付。"
_OPTIONS = (
    "Options of the program\n\n- `--depth N`: limit of levels\n- `--quiet`: print\n  nothing on success\n"
)


@pytest.mark.parametrize(
    ("question", "text", "sentence"),
    [
        ("What does the hotel cost a night?", _TRIP, "The hotel in Hangzhou costs 820 yuan a night."),
        ("Who paid for the train?", _TRIP, "Anna paid for the train."),
        ("酒店多少钱一晚？", _TRIP_ZH, "酒店每晚八百二十元，含早餐。"),
        ("火車票是誰支付的", _TRIP_ZH, "火车票由李明支付。"),
        ("How do I print nothing?", _OPTIONS, "- `--quiet`: print\n  nothing on success"),
        ("Which levels does depth limit?", _OPTIONS, "- `--depth N`: limit of levels"),
        ("What is the weather like?", _TRIP, ""),
        ("Hamburg or the train?", _TRIP, ""),
        ("What costs 820 yuan?", "What costs 820 yuan? It is a secret. Ask Anna.", ""),
        ("What does the hotel cost?", "The hotel costs 820 yuan.", ""),
        ("the of and", _TRIP, ""),
        ("", "", ""),
    ],
)
def test_the_sentence_with_clearly_more_words_of_the_question_is_found(question, text, sentence):
    assert find_answer_sentence(question, text) == sentence


def test_code_has_no_sentences():
    code = KnowledgeItem("1", _TRIP, "", metadata={"kind": "code"})
    prose = KnowledgeItem("2", _TRIP, "", metadata={"kind": "paragraph"})
    marked = mark_answer_sentences("Who paid for the train?", [code, prose])
    assert [item.metadata.get("answer_sentence") for item in marked] == [None, "Anna paid for the train."]
    assert "answer_sentence" not in prose.metadata


async def test_a_hit_of_a_knowledge_base_has_it():
    with KnowledgeBase("notes", memory=True, embedder=None) as kb:
        await kb.add_texts([_TRIP], titles=["Trip"])
        hit = (await kb.query("What does the hotel cost a night?"))[0]
    assert hit.metadata["answer_sentence"] in hit.content
    assert "820" in hit.metadata["answer_sentence"]
