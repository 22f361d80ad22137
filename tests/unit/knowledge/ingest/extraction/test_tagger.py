"""The entity tagger: tokens, features, decoding, and the weights that Loom ships."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.ingest.extraction.tagger import ENTITY_TYPES, best_spans, shipped_tagger
from loom_core.knowledge.ingest.extraction.tagger_features import (
    BUCKETS,
    CONTEXTS,
    context_features,
    tokens_of,
    word_features,
)

FOLLOWERS = {"O": "OBS", "B": "IE", "I": "IE", "E": "OBS", "S": "OBS"}
TAGS = "OBIES"


def entities(text: str, **fields: str) -> dict[str, str]:
    return {mention.name: mention.type for mention in shipped_tagger().mentions(text, **fields)}


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Use git-log's --no-merges.", ["Use", "git-log", "'s", "--no-merges", "."]),
        ("see /etc/fstab, core.eol", ["see", "/", "etc/fstab", ",", "core.eol"]),
        ("C++与GTK+", ["C++", "与", "GTK", "+"]),
        ("事务（ACID）\n\n第3条", ["事", "务", "（", "ACID", "）", "\n\n", "第", "3", "条"]),
        ("don't", ["don't"]),
        ("", []),
    ],
)
def test_tokens(text: str, tokens: list[str]):
    assert [token.text for token in tokens_of(text)] == tokens


@given(st.text(max_size=80) | st.text(st.sampled_from("aB1 -_.'’/+#\n（）事务"), max_size=40))
def test_tokens_are_stretches_of_the_text_and_leave_out_blanks_only(text: str):
    end = 0
    for token in tokens_of(text):
        assert text[token.start : token.end] == token.text
        assert text[end : token.start].strip() == ""
        end = token.end
    assert text[end:].strip() == ""


def test_a_place_has_features():
    text = "Note: run `VACUUM` (often).\nNotes on VACUUM, vacuum"
    tokens = tokens_of(text)
    _, contexts = context_features(text, tokens, "Vacuum", ())
    found = {
        (token.text, token.start): {name for number, name in enumerate(CONTEXTS) if bits >> number & 1}
        for token, bits in zip(tokens, contexts, strict=True)
    }
    assert found["Note", 0] == {"line start"}
    assert found["VACUUM", 11] == {"code", "also lower case", "repeated", "in headings, other case"}
    assert "line start" in found["Notes", 28]
    assert "spaced" in found["run", 6]


def test_features_are_rows_of_the_table():
    for key in ("word", "HTTP_HOST", "\n", "，", "京\t北京\tns\tE"):
        rows = word_features(key)
        assert rows == word_features(key)
        assert all(0 <= row < BUCKETS for row in rows)


@given(st.lists(st.lists(st.integers(-9, 0), min_size=5, max_size=5), min_size=1, max_size=5))
def test_the_best_sequence_is_found(rows: list[list[int]]):
    scores = np.array(rows, dtype=np.float32)

    def score(sequence: tuple[str, ...]) -> float:
        return sum(scores[place, TAGS.index(tag)] for place, tag in enumerate(sequence))

    valid = [
        sequence
        for sequence in product(TAGS, repeat=len(rows))
        if sequence[0] in "OBS" and sequence[-1] in "OES"
        and all(after in FOLLOWERS[tag] for tag, after in pairwise(sequence))
    ]  # fmt: skip
    chosen = ["O"] * len(rows)
    for first, last in best_spans(scores):
        chosen[first : last + 1] = "S" if first == last else ["B", *"I" * (last - first - 1), "E"]
    assert tuple(chosen) in valid
    assert score(tuple(chosen)) == max(map(score, valid))


def test_names_in_prose_have_their_types():
    found = entities(
        "Marie Curie was born in Warsaw in November 1867 and taught at the University of Paris. "
        "PostgreSQL is maintained by the PostgreSQL Global Development Group."
    )
    assert found["Marie Curie"] == "person"
    assert found["Warsaw"] == "place"
    assert found["November 1867"] == "date"
    assert found["University of Paris"] == "organisation"
    assert found["PostgreSQL"] == "product"


def test_names_in_manuals_have_their_types():
    found = entities(
        "Run git rebase with the option --autosquash. The environment variable "
        "GIT_EDITOR names the editor; see /etc/gitconfig and RFC 5322. KeyError is raised if os.environ has "
        "no such variable."
    )
    assert found["--autosquash"] == "option"
    assert found["GIT_EDITOR"] == "env"
    assert found["/etc/gitconfig"] == "file"
    assert found["RFC 5322"] == "standard"
    assert found["KeyError"] == "error"
    assert found["os.environ"] == "api"


def test_chinese_names_have_their_types():
    found = entities("2021年3月，鲁迅的《阿Q正传》在北京由人民文学出版社再版，数据存于 PostgreSQL。")
    assert found["2021年3月"] == "date"
    assert found["鲁迅"] == "person"
    assert found["北京"] == "place"
    assert found["人民文学出版社"] == "organisation"
    assert found["PostgreSQL"] == "product"


@pytest.mark.parametrize(
    "text",
    [
        "Note: however, the following section describes this. Return to the next page.",
        "Description\n\nSee also. Use it. None of them. Changed in version 3.7.",
        "上一页 | 下一页\n\n注意：以下内容供参考。用户应当先阅读说明。",
        "",
        "\n\n",
    ],
)
def test_capitals_and_headings_alone_are_no_entities(text: str):
    assert entities(text) == {}


def test_types_are_those_of_the_guideline():
    assert len(set(ENTITY_TYPES)) == len(ENTITY_TYPES) == 19
