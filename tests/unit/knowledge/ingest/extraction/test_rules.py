"""Rule-based extraction from passages in English, Chinese and code."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_core.knowledge.ingest.extraction import RuleExtractor, RuleSettings
from loom_core.knowledge.ingest.extraction.rules import subject_name
from loom_core.knowledge.ingest.extraction.selection import name_short_options, without_values
from loom_core.knowledge.model import Chunk, Extraction, Mention
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


def test_names_and_terms_are_mentions_with_their_types():
    text = "In 1952 Paul McCartney joined the Bank of England in New York."
    assert mentioned(text) == {
        "1952": "date",
        "Paul McCartney": "person",
        "Bank of England": "organisation",
        "New York": "place",
    }


def test_words_like_figure_are_no_names():
    assert mentioned("See Figure 3 and Table 2. Yes.") == {}
    assert mentioned("The Results are in Table 2 and in the Appendix. Note that they differ.") == {}


def test_an_option_of_one_letter_is_named_with_its_command():
    mentions = [
        Mention("-x", 0, 2, "option"),
        Mention("git merge", 10, 19, "command"),
        Mention("-s", 20, 22, "option"),
        Mention("--squash", 30, 38, "option"),
        Mention("tar", 40, 43, "command"),
        Mention("-f", 44, 46, "option"),
    ]
    named = ["git merge", "git merge -s", "--squash", "tar", "tar -f"]
    assert [m.name for m in name_short_options(mentions, "")] == ["-x", *named]
    assert [m.name for m in name_short_options(mentions, "ssh-agent(1)")] == ["ssh-agent -x", *named]
    assert [m.name for m in name_short_options(mentions, "A guide to agents")] == ["-x", *named]


def test_numbers_hashes_and_cells_of_tables_name_nothing():
    names = ["V:0", "I:12", "2ddcca36c8bc", "5432", "1.5", "feedface", "C", "x86", "UTF-8"]
    kept = without_values([Mention(name, 0, len(name), "term") for name in names])
    assert [mention.name for mention in kept] == ["feedface", "C", "x86", "UTF-8"]
    assert len(without_values([Mention("2003", 0, 4, "date"), Mention("404", 5, 8, "error")])) == 2


def test_title_and_headings_help_to_find_names():
    found = extract("Run it before the backup.", title="pg_dump", heading_path=("Backup",)).mentions
    assert all(mention.name != "Run" for mention in found)


def test_capital_letters_mean_nothing_in_source_code():
    code = "class HTTPServer:\n    # Starts Here And There\n    def parse_config(self): ..."
    found = mentioned(code, language="code", kind="code", name="HTTPServer")
    assert found == {"HTTPServer": "api", "parse_config": "api"}


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
    (about,) = extract("In Paris, she met Ada Lovelace.").abouts
    assert (about.name, about.source, about.confidence) == ("Paris", "first_phrase", 0.3)
    assert extract("Then, after many years, she moved to Paris.").abouts == ()


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


def test_names_next_to_each_other_are_no_relation_if_nothing_is_stated():
    found = extract("Marie Curie met Paul Langevin. Then Anna Bell came to Berlin.")
    assert len(found.mentions) > 1
    assert found.relations == ()


def test_what_the_words_between_two_names_state_is_their_relation():
    found = extract("Marie Curie was born in Warsaw.")
    assert [(r.subject, r.predicate, r.object, r.confidence) for r in found.relations] == [
        ("Marie Curie", "located in", "Warsaw", 0.6)
    ]
    assert ("鲁迅", "located in", "北京") in related("鲁迅出生于北京。")


def test_a_pronoun_stands_for_the_subject_of_the_document():
    assert ("Ada Lovelace", "located in", "London") in related(
        "She was born in London.", title="Ada Lovelace"
    )
    assert ("老舍", "located in", "北京") in related("他出生于北京。", title="老舍")
    assert not any(s == "London" for s, _, _ in related("She was born in London.", title="London"))


def test_a_section_is_part_of_what_stands_above_it_if_it_names_an_entity():
    text = "The Antikythera mechanism was found near Antikythera. PostgreSQL stores it."
    above = ("Storage", "Introduction", "PostgreSQL")
    assert related(text, title="Machines", heading_path=above) >= {("PostgreSQL", "part of", "Storage")}
    assert not {p for _, p, _ in related("Nothing.", title="Machines", heading_path=above)}


def test_what_a_section_stands_for_ends_between_words():
    text = "word " * 15 + "maintained a sanctuary in the hills, with PostgreSQL in it."
    (relation,) = (r for r in extract(text, title="Machines", heading_path=("PostgreSQL",)).relations
                   if r.predicate == "part of")  # fmt: skip
    assert text[: relation.end].endswith("maintained") or text[relation.end] == " "
    assert relation.end <= 80
    text = "汉" * 200 + "。PostgreSQL 是数据库。"
    (relation,) = (r for r in extract(text, title="Machines", heading_path=("PostgreSQL",)).relations
                   if r.predicate == "part of")  # fmt: skip
    assert relation.end == 80


# -- settings ---------------------------------------------------------------------------------------


def test_the_surest_entities_are_kept_with_all_their_mentions():
    settings = RuleSettings(max_entities_per_chunk=1)
    text = "Ada Lovelace met Charles Babbage in London; Ada Lovelace left."
    (name,) = {mention.name for mention in extract(text, settings=settings).mentions}
    found = [m.start for m in extract(text).mentions if m.name == name]
    assert [m.start for m in extract(text, settings=settings).mentions] == found


def test_types_and_predicates_can_be_chosen():
    settings = RuleSettings(("place",), ("part of",), max_relations_per_chunk=1)
    found = extract("鲁迅在北京。", settings=settings, title="甲乙丙", heading_path=("丁戊己", "北京"))
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
    chunks = [Chunk(text=name, start=0, end=len(name), language="en") for name in ("to Paris", "to Berlin")]
    assert [e.mentions[0].name for e in await RuleExtractor().extract(chunks)] == ["Paris", "Berlin"]


# -- anything ---------------------------------------------------------------------------------------


@given(texts, texts, st.lists(texts, max_size=2), st.sampled_from(["en", "zh", "code", "und"]))
@example("New\u00a0York City", "", [], "en")
@example("“A ,.”", "", [], "en")
@example("In 1952 Paris", "", [], "en")
@example("知识图谱是，0", "", [], "zh")
def test_nothing_in_a_text_can_go_wrong(text: str, title: str, headings: list[str], language: str):
    found = extract(text, title=title, heading_path=tuple(headings), language=language)
    for mention in found.mentions:
        assert " ".join(text[mention.start : mention.end].split()) == mention.name
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


@pytest.mark.parametrize(
    ("heading", "name"),
    [
        ("16.3. 这本书的未来", "这本书的未来"),
        ("3.1.1 Backups", "Backups"),
        ("A.13. SteamOS", "SteamOS"),
        ("第 6 章 维护和更新", "维护和更新"),
        ("一、总则", "总则"),
        ("Chapter II: The war", "The war"),
        ("git-rebase(1) Manual Page", "git-rebase(1)"),
        ("2001: A Space Odyssey", "2001: A Space Odyssey"),
        ("3.5 inch floppy", "3.5 inch floppy"),
        ("第三条 定义", "第三条 定义"),
        ("1984", "1984"),
        ("10.2", "10.2"),
        ("7 habits", "7 habits"),
        ("New in Python 3.11. What else", "New in Python 3.11. What else"),
    ],
)
def test_the_number_of_a_section_is_no_part_of_what_a_heading_names(heading: str, name: str):
    assert subject_name(heading) == name
    found = extract("Some words about it.", heading_path=(heading,))
    assert [about.name for about in found.abouts if about.source == "heading"] in ([name], [])
