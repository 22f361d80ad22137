"""Translation of questions by a dictionary, and what retrieval makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.indexes.engines.memory_lexical import MemoryLexicalIndex
from loom_core.knowledge.indexes.language_vectors import LanguageVectors
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.retrieval.channels import Channels, FirstStage, PreparedQuestion, first_stage
from loom_core.knowledge.retrieval.query_translation import QueryTranslation, translate_query
from loom_core.knowledge.text.analysis import analyse
from loom_core.knowledge.text.bilingual_dictionary import BilingualDictionary, load_dictionary
from loom_core.knowledge.text.languages import detect_language, language_group

DICTIONARY = BilingualDictionary(
    """\
Alan Turing\t\t艾伦·图灵,图灵
avert\t8\t避免,转移
avoid\t3\t避免
database\t5\t数据库
stem cell\t\t干细胞
transaction\t5\t交易,事务
type\t3\t类型,打字
""".encode("utf-16-le")
)


def translated(question: str) -> QueryTranslation:
    language = "zh" if detect_language(question) == "zh" else "alphabetic"
    found = translate_query(question, language, DICTIONARY)
    assert found is not None
    return found


def test_the_translations_of_a_word_share_the_weight_of_one_word():
    found = translated("PostgreSQL 怎样避免事务号？")
    assert found.language == "alphabetic"
    assert found.text == "PostgreSQL avoid transaction"
    name, avoid, transaction = found.terms
    assert name == pytest.approx(dict.fromkeys(["postgresql", "postgr", "sql"], 1 / 3))
    assert avoid == pytest.approx({"avoid": 0.82, "avert": 0.18}, abs=0.01)
    assert transaction == {"transact": 1.0}
    assert [found.tokens.count(token) for token in ("postgresql", "avoid", "avert")] == [1, 3, 1]


@pytest.mark.parametrize("question", ["图灵是谁？", "圖靈是誰？"])
def test_a_name_is_found_across_scripts_simplified_and_traditional(question: str):
    assert translated(question).text == "Alan Turing"


def test_what_the_dictionary_does_not_know_stays_in_the_text_and_is_no_word():
    found = translated("干细胞怎样分化？")
    assert found.text == "stem cell 分化"
    assert found.terms == ({"stem": 1.0, "cell": 1.0},)


def test_words_of_a_question_in_english_are_looked_up_as_phrases_in_their_base_form():
    found = translated("How are stem cells typed in Detroit's databases?")
    assert found.language == "zh"
    assert found.text == "干细胞 类型 Detroit's 数据库"
    cell, typed, name, database = found.terms
    assert (cell, database) == ({"干细胞": 1.0}, {"数据库": 1.0})  # not the words inside them
    assert typed == pytest.approx({"类型": 2 / 3, "打字": 1 / 3})
    assert name == {"detroit": 1.0}


def test_a_possessive_has_the_translation_of_its_noun():
    assert translated("the database's size").text == "数据库"


@pytest.mark.parametrize("question", ["Wer ist es?", "谁？", "布兰德", ""])
def test_a_question_without_a_known_word_has_no_translation(question: str):
    for language in ("zh", "alphabetic"):
        assert translate_query(question, language, DICTIONARY) is None


# -- in retrieval -----------------------------------------------------------------------------------

AHEAD = np.array([1, 0], dtype=np.float32)
PASSAGES = {
    1: "A stem cell divides, and its daughters become other cells.",
    2: "The harbour is closed while a storm lasts.",
    3: "干细胞可以分化成其他细胞。",
    4: "台风来临时，码头关闭。",
}


def staged(
    question: PreparedQuestion, keys: list[int], *, centroids: dict[str, np.ndarray] | None = None
) -> FirstStage:
    """The first stage over passages that are all as near to the question."""
    words = MemoryLexicalIndex()
    words.add((key, analyse(PASSAGES[key])) for key in keys)
    words.commit()
    dense = LanguageVectors(2)
    matrix = np.array([[1, 0]] * len(keys), dtype=np.float32)
    dense.upsert(keys, matrix, {key: language_group(detect_language(PASSAGES[key])) for key in keys})
    channels = Channels(words, dense, centroids=centroids)
    return first_stage(question, channels, lexical_weight=0.4, vector_weight=0.6)


@pytest.mark.parametrize(("text", "answer"), [("干细胞是什么？", 1), ("What are stem cells?", 3)])
def test_words_in_another_language_find_their_passage(text: str, answer: int):
    plain = PreparedQuestion.of(text, vector=AHEAD)
    others = [key for key in PASSAGES if (key > 2) == (answer > 2)]
    assert not staged(plain, others).lexical
    found = staged(replace(plain, translation=translated(text)), others)
    assert max(found.scores, key=lambda key: found.scores[key]) == answer
    assert list(found.translated) == [answer]


def test_passages_in_the_questions_own_language_are_not_scored_by_its_translation():
    plain = PreparedQuestion.of("干细胞是什么？", vector=AHEAD)
    before, after = (
        staged(each, [3, 4]) for each in (plain, replace(plain, translation=translated(plain.text)))
    )
    assert after.scores == before.scores
    assert (after.lexical, after.translated) == (before.lexical, {})


@pytest.mark.parametrize(
    ("question", "keys", "share"),
    [
        ("干细胞", [1, 2, 4], 0.4),
        ("干细胞 打字 交易 数据库", [1, 2, 4], 0.2),
        ("干细胞 打字 交易 数据库", [1, 2], 0.4),
    ],
)
def test_few_translated_words_count_less_next_to_passages_in_the_questions_language(
    question: str, keys: list[int], share: float
):
    asked = PreparedQuestion.of(question, vector=AHEAD)
    scores = staged(replace(asked, translation=translated(question)), keys).scores
    assert scores[1] - scores[2] == pytest.approx(share)  # 0.4 is the weight of words


def test_a_translation_of_which_nothing_is_found_changes_nothing():
    plain = PreparedQuestion.of("打字", vector=AHEAD)
    moved = replace(plain, translation=translated("打字"), translated=np.array([0, 1], dtype=np.float32))
    centroids = {language: np.array([0.6, 0.3], dtype=np.float32) for language in ("zh", "alphabetic")}
    before, after = (staged(each, list(PASSAGES), centroids=centroids) for each in (plain, moved))
    assert after == before


def test_the_vector_of_the_translation_is_for_its_language_alone():
    moved = np.array([0, 1], dtype=np.float32)
    question = PreparedQuestion.of("干细胞", vector=AHEAD)
    question = replace(question, translation=translated("干细胞"), translated=moved)
    assert question.vector_for("alphabetic") is moved
    assert question.vector_for("zh") is question.vector
    found = staged(question, list(PASSAGES))
    assert {found.semantic[key] for key in (1, 2)} == {0.0}
    assert {found.semantic[key] for key in (3, 4)} == {1.0}
    assert {each.best for each in found.nearness} == {1.0}  # the confidence was fitted on questions alone


@pytest.mark.slow
@pytest.mark.skipif("e5-small" not in create_embedder("auto").id, reason="this platform has no e5-small")
async def test_the_dictionary_is_loaded_where_there_are_passages_in_the_other_language():
    load_dictionary.cache_clear()
    notes = GraphRAGKnowledgeBase.from_config(embedding_provider=create_embedder("e5-small"), name="notes")
    await notes.add_texts([PASSAGES[1], PASSAGES[2]])
    await notes.search("What are stem cells?")
    assert not load_dictionary.cache_info().currsize
    answer = await notes.search("干细胞会变成什么？")
    assert load_dictionary.cache_info().currsize
    best = answer.items[0]
    assert best.content == PASSAGES[1]
    assert "holds words of the question in another language" in best.metadata["why"]
    assert best.metadata["scores"]["translation"] > 0
