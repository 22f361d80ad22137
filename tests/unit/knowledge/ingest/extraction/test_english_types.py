"""Entity types of English names."""

from __future__ import annotations

import pytest

from loom_core.knowledge.ingest.extraction.english import english_mentions
from loom_core.knowledge.ingest.extraction.english_types import (
    type_from_context,
    type_of_name,
    type_of_noun_phrase,
)


def types(text: str) -> dict[str, str]:
    return {mention.name: mention.type for mention in english_mentions(text)}


@pytest.mark.parametrize(
    ("text", "name", "type_"),
    [
        ("Ameena Begum (1885–1949) taught there.", "Ameena Begum", "person"),
        ("Ameena Begum (born 8 May 1950) taught there.", "Ameena Begum", "person"),
        ("Then came Ameena Begum, who taught.", "Ameena Begum", "person"),
        ("The trains go to Zell, a town in Austria.", "Zell", "place"),
        ("We saw Alien (1979 film) again.", "Alien", "work"),
    ],
)
def test_a_sentence_that_says_what_something_is_tells_its_type(text: str, name: str, type_: str) -> None:
    assert types(text)[name] == type_


@pytest.mark.parametrize(
    ("name", "type_"),
    [
        ("Arnold Schwarzenegger", "person"),
        ("J. R. R. Tolkien", "person"),
        ("Queen Ranavalona", "person"),
        ("Henry VIII", "person"),
        ("Hudson River", "place"),
        ("Lake Geneva", "place"),
        ("New Zealand", "place"),
        ("Uzbekistan", "place"),
        ("George Eastman House", "place"),
        ("University of Vienna", "organisation"),
        ("Ford Motor Company", "organisation"),
        ("Battle of Hastings", "event"),
        ("World War II", "event"),
        ("May 1970", "thing"),
        ("Italian", "thing"),
        ("North American", None),
        ("Lord of the Rings", None),
        ("Quechua", None),
    ],
)
def test_the_words_of_a_name_tell_its_type(name: str, type_: str | None) -> None:
    assert type_of_name(name) == type_


@pytest.mark.parametrize(
    ("before", "name", "behind", "type_"),
    [
        ("He was born in ", "Graz", " and left.", "place"),
        ("She lived near ", "Graz", ".", "place"),
        ("He starred in ", "Alien", " and left.", "thing"),
        ("with the actor ", "Muddy Waters", " and", "person"),
        ("in the film ", "Alien", " and", "work"),
        ("a film starring ", "Muddy Waters", " and", "person"),
        ("They called ", "Zell", " again", "thing"),
        ("Of ", "Zell", " (1990–1995) nothing is left", "thing"),
    ],
)
def test_the_words_next_to_a_name_tell_its_type(before: str, name: str, behind: str, type_: str) -> None:
    text = before + name + behind
    assert type_from_context(text, len(before), len(before) + len(name)) == type_


def test_the_main_noun_decides_and_not_what_follows_on_it() -> None:
    assert type_of_noun_phrase("German-born theoretical physicist at the university") == "person"
    assert type_of_noun_phrase("cities of the country") == "place"
    assert type_of_noun_phrase("romantic comedy film directed by a writer") == "work"
    assert type_of_noun_phrase("American singer-songwriter") == "person"
    assert type_of_noun_phrase("kind of logic") == "thing"
    assert type_of_noun_phrase("") == "thing"


def test_what_lies_in_a_place_by_a_comma_is_one_too() -> None:
    found = types("She lived in Austin, Texas, and met Zell.")
    assert found["Austin"] == found["Texas"] == "place"
    assert found["Zell"] == "thing"


def test_peoples_are_no_places_and_single_words_in_quotation_marks_no_works() -> None:
    found = types('It was shown in Italian cinemas. They say "Ohio" wherever people are from there.')
    assert found["Italian"] == "thing"
    assert found["Ohio"] != "work"
