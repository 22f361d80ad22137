"""Rule-based extraction from passages in English, Chinese and code."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_core.knowledge.ingest.extraction import RuleExtractor, RuleSettings
from loom_core.knowledge.model import Chunk, Extraction
from loom_core.knowledge.text.languages import detect_language

PIECES = [
    "Ada Lovelace",
    "the Bank of England",
    "IBM",
    "J. R. R. Tolkien",
    "O’Neill's",
    "北京大学",
    "《红楼梦》",
    "是",
    "是中国的作家",
    "（又称红学）",
    "曹雪芹",
    " is a ",
    " was born in ",
    "He ",
    "他",
    "HTTPServer",
    "snake_case",
    "\u00a0",
    "\n",
    ". ",
    "。",
    "“The Hobbit”",
    "，",
    " and ",
]
texts = (
    st.text(max_size=120)
    | st.text(st.sampled_from("ABab .,“”\"'’&-·《》是的他（）()\u00a0\n"), max_size=60)
    | st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
)


def extract(text: str, *, settings: RuleSettings | None = None, **fields: Any) -> Extraction:
    fields.setdefault("language", detect_language(text))
    return RuleExtractor(settings).extract_one(Chunk(text=text, start=0, end=len(text), **fields))


def mentioned(text: str, **fields: Any) -> dict[str, str]:
    return {m.name: m.type for m in extract(text, **fields).mentions}


def related(text: str, **fields: Any) -> set[tuple[str, str, str]]:
    return {(r.subject, r.predicate, r.object) for r in extract(text, **fields).relations}


# -- mentions ---------------------------------------------------------------------------------------


def test_capitalised_phrases_are_mentions():
    text = "In 1952 Paul McCartney joined the Bank of England with J. R. R. Tolkien in New York."
    assert mentioned(text).keys() == {"Paul McCartney", "Bank of England", "J. R. R. Tolkien", "New York"}


def test_possessives_and_trailing_words_do_not_belong_to_a_name():
    assert mentioned("We saw Mercury's orbit and the Dalai Lama, In lead roles.").keys() == {
        "Mercury",
        "Dalai Lama",
    }


def test_the_first_word_of_a_sentence_is_an_unsure_name():
    found = {m.name: m.confidence for m in extract("Trains stop in Zell. When Paris is near. NASA!").mentions}
    assert found["Trains"] == 0.3
    assert found["Zell"] == found["NASA"] == 0.7
    assert found["Paris"] > 0.3


def test_months_and_words_like_figure_are_no_names():
    assert mentioned("On Monday in May, see Figure and Table. Yes.") == {}


def test_quoted_titles_are_works():
    assert mentioned("She wrote “The hobbit and me,” in haste.")["The hobbit and me"] == "work"


def test_chinese_names_are_told_by_their_kind():
    found = mentioned("鲁迅在北京写了《阿Q正传》，后来去了厦门大学。")
    assert found["鲁迅"] == "person"
    assert found["北京"] == "place"
    assert found["阿Q正传"] == "work"
    assert found["厦门大学"] == "organisation"


def test_identifiers_are_code_mentions():
    found = mentioned("Call `parse_config` before the iPhone starts; 详见 load_file。")
    assert found["parse_config"] == found["iPhone"] == found["load_file"] == "code"


def test_capital_letters_mean_nothing_in_source_code():
    code = "class HTTPServer:\n    # Starts Here And There\n    def parse_config(self): ..."
    found = mentioned(code, language="code", kind="code", name="HTTPServer")
    assert found.keys() == {"HTTPServer", "parse_config"}


def test_overlapping_mentions_are_one():
    found = extract("“The Old Man and the Sea” is by Ernest Hemingway").mentions
    assert [m.name for m in found] == ["The Old Man and the Sea", "Ernest Hemingway"]


# -- abouts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "confidence"),
    [("given", 1.0), ("metadata", 0.9), ("heading", 0.9), ("filename", 0.4), ("none", 0.4)],
)
def test_a_title_says_what_a_passage_is_about_as_surely_as_it_is_known(source: str, confidence: float):
    (about,) = extract("nothing else", title="Ada Lovelace", title_source=source).abouts
    assert (about.name, about.source, about.confidence) == ("Ada Lovelace", "title", confidence)


def test_headings_say_so_too_the_nearest_most_of_all():
    abouts = extract("text", heading_path=("Engines", "Steam Engines")).abouts
    assert [(a.name, a.source, a.confidence) for a in abouts] == [
        ("Steam Engines", "heading", 0.8),
        ("Engines", "heading", 0.5),
    ]


@pytest.mark.parametrize("heading", ["Introduction", "See also", "简介", "12", "—", "参考文献"])
def test_headings_that_any_document_has_say_nothing(heading: str):
    assert extract("text", heading_path=(heading,)).abouts == ()


def test_what_a_code_passage_defines_is_its_subject():
    (about,) = extract("def f(): ...", language="code", kind="code", name="Record.open").abouts
    assert (about.name, about.source) == ("Record.open", "definition")


def test_without_anything_better_the_first_mention_is_an_unsure_subject():
    (about,) = extract("to Zell and back to Basel").abouts
    assert (about.name, about.source, about.confidence) == ("Zell", "first_phrase", 0.3)


# -- relations --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "subject", "what"),
    [
        (
            "Amélie is a romantic comedy film directed by Jean-Pierre Jeunet.",
            "Amélie",
            "romantic comedy film",
        ),
        ("The Eiffel Tower (French: Tour) is a lattice tower in Paris.", "Eiffel Tower", "lattice tower"),
        ("Ada Lovelace was an English mathematician, and more.", "Ada Lovelace", "English mathematician"),
        ("鲁迅是中国现代文学的奠基人。", "鲁迅", "奠基人"),
        ("知识图谱（Knowledge Graph）是指一种语义网络，很有用。", "知识图谱", "一种语义网络"),
        ("《红楼梦》是清代作家曹雪芹创作的长篇小说。", "红楼梦", "长篇小说"),
    ],
)
def test_definitions_are_read(text: str, subject: str, what: str):
    found = extract(text)
    assert (subject, "definition", 0.6) in {(a.name, a.source, a.confidence) for a in found.abouts}
    (definition,) = (r for r in found.relations if r.predicate == "is a")
    assert (definition.subject, definition.object, definition.method) == (subject, what, "definition")
    assert text[definition.start : definition.end].startswith(subject)


@pytest.mark.parametrize(
    "text", ["It is a fact.", "This was the end of it.", "它是一个事实。", "Nothing here."]
)
def test_statements_without_a_subject_define_nothing(text: str):
    assert not [a for a in extract(text).abouts if a.source == "definition"]


def test_the_words_between_two_names_are_their_relation():
    found = extract("Marie Curie worked with Paul Langevin. Then Anna Bell, Carl Dorn came.")
    sure = {(r.subject, r.predicate, r.object): r.confidence for r in found.relations}
    assert sure["Marie Curie", "worked with", "Paul Langevin"] == 0.5
    assert sure["Anna Bell", "related to", "Carl Dorn"] == 0.2
    assert not any(s == "Paul Langevin" for s, _, _ in sure)


def test_the_verbs_between_two_chinese_names_are_their_relation():
    assert ("鲁迅", "出生于", "绍兴") in {
        (s, p.replace("在", "于"), o) for s, p, o in related("鲁迅出生于绍兴。")
    }


def test_a_pronoun_stands_for_the_subject_of_the_document():
    assert ("Ada Lovelace", "was born in", "London") in related(
        "She was born in London.", title="Ada Lovelace"
    )
    assert any(s == "鲁迅" and o == "绍兴" for s, _, o in related("他出生于绍兴。", title="鲁迅"))
    assert not any(s == "London" for s, _, _ in related("She was born in London.", title="London"))


def test_a_section_is_part_of_what_stands_above_it():
    assert related("text", title="Engines", heading_path=("Steam", "Introduction", "Boilers")) == {
        ("Steam", "part of", "Engines"),
        ("Boilers", "part of", "Steam"),
    }


def test_what_a_section_stands_for_ends_between_words():
    text = "word " * 15 + "maintained a sanctuary in the hills of Zell."
    (relation,) = (r for r in extract(text, title="Engines", heading_path=("Steam",)).relations
                   if r.predicate == "part of")  # fmt: skip
    assert text[: relation.end].endswith("maintained") or text[relation.end] == " "
    assert relation.end <= 80
    (relation,) = (r for r in extract("汉" * 200, title="Engines", heading_path=("Steam",)).relations
                   if r.predicate == "part of")  # fmt: skip
    assert relation.end == 80


# -- settings ---------------------------------------------------------------------------------------


def test_the_surest_entities_are_kept_with_all_their_mentions():
    settings = RuleSettings(max_entities_per_chunk=1)
    found = extract("Stop. Ada Lovelace met Zell; Ada Lovelace left.", settings=settings).mentions
    assert [m.name for m in found] == ["Ada Lovelace", "Ada Lovelace"]


def test_types_and_predicates_can_be_chosen():
    settings = RuleSettings(("place",), ("part of",), max_relations_per_chunk=1)
    found = extract("鲁迅在北京。", settings=settings, title="甲乙丙", heading_path=("丁戊己", "庚辛壬"))
    assert {m.type for m in found.mentions} == {"place"}
    assert [r.predicate for r in found.relations] == ["part of"]


def test_the_id_tells_settings_that_change_the_result():
    ids = {
        RuleExtractor(settings).id
        for settings in (
            None,
            RuleSettings(max_entities_per_chunk=3),
            RuleSettings(max_relations_per_chunk=3),
            RuleSettings(entity_types=("place",)),
            RuleSettings(relation_types=("part of",)),
        )
    }
    assert len(ids) == 5


async def test_chunks_are_extracted_in_order():
    chunks = [Chunk(text=name, start=0, end=len(name), language="en") for name in ("to Zell", "to Basel")]
    assert [e.mentions[0].name for e in await RuleExtractor().extract(chunks)] == ["Zell", "Basel"]


# -- anything ---------------------------------------------------------------------------------------


@given(texts, texts, st.lists(texts, max_size=2), st.sampled_from(["en", "zh", "code", "und"]))
@example("New\u00a0York City", "", [], "en")
@example("“A ,.”", "", [], "en")
@example("In 1952 Paris", "", [], "en")
@example("知识图谱是，0", "", [], "zh")
def test_nothing_in_a_text_can_go_wrong(text: str, title: str, headings: list[str], language: str):
    found = extract(text, title=title, heading_path=tuple(headings), language=language)
    for mention in found.mentions:
        assert text[mention.start : mention.end] == mention.name
        assert mention.name
        assert 0 < mention.confidence <= 1
    for about in found.abouts:
        assert about.name
        assert 0 < about.confidence <= 1
    for relation in found.relations:
        assert 0 <= relation.start <= relation.end <= len(text)
        assert relation.subject
        assert relation.predicate
        assert relation.object
        assert 0 < relation.confidence <= 1
    starts = [mention.start for mention in found.mentions]
    assert starts == sorted(starts)
