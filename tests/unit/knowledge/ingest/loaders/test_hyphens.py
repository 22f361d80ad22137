from __future__ import annotations

import pytest

from loom_core.knowledge.ingest.loaders.formats.pdf import Hyphens


@pytest.mark.parametrize(
    ("broken", "elsewhere", "joined"),
    [
        ("the har-\nbour", "", "the harbour"),
        ("the har\u00ad\nbour", "", "the harbour"),
        ("the har\u2010\nbour", "", "the harbour"),
        ("a data-\nbase", "The database is old. So are data, and the base.", "a database"),
        ("a well-\nknown fact", "It is well-known.", "a well-known fact"),
        ("an error-\nprone step", "An error is prone to come.", "an error-prone step"),
        ("Haupt-\nund Nebensatz", "", "Haupt- und Nebensatz"),
        ("Donau-\ndampfschiff", "", "Donaudampfschiff"),
        ("from A-\nBerg", "", "from A-\nBerg"),
        ("pages 3-\n4", "", "pages 3-\n4"),
        ("Anna-\u00ad\nBerg", "", "Anna--Berg"),
        ("港口-\n贸易", "", "港口-\n贸易"),
    ],
)
def test_the_rest_of_the_document_decides_about_a_hyphen(broken: str, elsewhere: str, joined: str) -> None:
    assert Hyphens([broken, elsewhere]).joined(broken) == joined


@pytest.mark.hostile("files of any kind")
@pytest.mark.parametrize("unit", ["a", "a-", "-", "a\u2010", "a-\n"])
def test_half_a_million_of_anything_take_no_time(unit: str) -> None:
    text = unit * 500_000
    assert len(Hyphens([text]).joined(text)) <= len(text)
