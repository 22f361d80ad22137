"""Relations from the words between two English names."""

from __future__ import annotations

import pytest

from loom_core.knowledge.ingest.extraction.rules import english_predicate


@pytest.mark.parametrize(
    ("between", "predicate"),
    [
        (" was born in ", "was born in"),
        (" worked with the ", "worked with"),
        (" and starring ", "starring"),
        (" is the ", "is the"),
        (" in ", "in"),
        ("'s career took him to ", "career took him to"),
        ("’s sister ", "has sister"),
        ("' younger brother ", "has younger brother"),
        (" played à ", "played"),
        (" was the 4th of ", "was the of"),
    ],
)
def test_a_phrase_with_a_verb_or_a_preposition_is_kept(between: str, predicate: str) -> None:
    assert english_predicate(between) == predicate


@pytest.mark.parametrize(
    "between",
    [
        " movie ", " and ", ", the ", " i ", " 4th ", " al ", " st ", " d'", "'s ", " où ", " red king ",
        ". He was in ", " one two three four five six seven in ", "",
    ],
)  # fmt: skip
def test_fragments_and_mere_nouns_say_nothing(between: str) -> None:
    assert english_predicate(between) == ""
