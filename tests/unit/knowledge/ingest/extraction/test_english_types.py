"""Entity types of English names."""

from __future__ import annotations

import pytest

from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.ingest.extraction.english_types import (
    type_from_context,
    type_of_name,
    type_of_noun_phrase,
)
from loom_core.knowledge.model import Chunk


def types(text: str, *, title: str = "") -> dict[str, str]:
    chunk = Chunk(text=text, start=0, end=len(text), title=title, title_source="given", language="en")
    return {mention.name: mention.type for mention in RuleExtractor().extract_one(chunk).mentions}


@pytest.mark.parametrize(
    ("text", "name", "type_"),
    [
        ("Ameena Begum is an Indian novelist and playwright from Pune.", "Ameena Begum", "person"),
        ("Ameena Begum (1885–1949) taught there.", "Ameena Begum", "person"),
        ("Ameena Begum (born 8 May 1950) taught there.", "Ameena Begum", "person"),
        ("Then came Ameena Begum, who taught.", "Ameena Begum", "person"),
        ("Zell is a small town in Austria.", "Zell", "place"),
        ("The trains go to Zell, a town in Austria.", "Zell", "place"),
        ("The Room Upstairs is a 2010 American science fiction drama film.", "The Room Upstairs", "work"),
        ("We saw Alien (1979 film) again.", "Alien", "work"),
        ("Radiohead are an English rock band formed in 1985.", "Radiohead", "organisation"),
        ("Skirmish was one of the largest battles of its time.", "Skirmish", "event"),
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


def test_a_surname_alone_is_the_person_whose_full_name_the_passage_has() -> None:
    no_one_else = "Nobody but Einstein wrote."  # plain-english: data
    assert types(f"There Albert Einstein spoke. {no_one_else}")["Einstein"] == "person"
    assert types(no_one_else)["Einstein"] == "thing"


def test_a_title_is_what_its_parentheses_or_its_first_sentence_say() -> None:
    assert types("In the end Mercury was sold.", title="Mercury (magazine)")["Mercury"] == "organisation"
    text = "Arnold Alois Brandt is an Austrian bodybuilder. Then Brandt left; Arnold Brandt stayed."
    assert types(text, title="Arnold Brandt")["Arnold Brandt"] == "person"


def test_peoples_are_no_places_and_single_words_in_quotation_marks_no_works() -> None:
    found = types(
        'It was shown in Italian cinemas. They say "Ohio" wherever people are from there. All sang "Yellow".'
    )
    assert found["Italian"] == "thing"
    assert found["Ohio"] != "work"
    assert found["Yellow"] == "work"
