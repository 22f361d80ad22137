from __future__ import annotations

import pytest

from loom_core.knowledge.text.shingles import Sketch

_ENGLISH = "The harbour of Visby was opened in 1901 and has been deepened twice since then by the town."
_CHINESE = "厦门港是福建省的一个大港口，每年有许多船只停靠，码头在一九零一年开放。"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_ENGLISH, _ENGLISH.upper()),
        (_ENGLISH, _ENGLISH.replace("twice", "three times")),
        (_ENGLISH, f"Before it there was a pier. {_ENGLISH} Nobody remembers why."),
        (_CHINESE, _CHINESE.replace("，", ",")),
        (_CHINESE, f"这里说的是港口。{_CHINESE}后来又扩建过。"),
        ("Rope.", " rope. "),
    ],
)
def test_texts_that_say_the_same_are_told(one, other):
    assert Sketch(one).says_the_same_as(Sketch(other))
    assert Sketch(other).says_the_same_as(Sketch(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_ENGLISH, _CHINESE),
        (_ENGLISH, "The harbour of Visby has a wall that was built in the thirteenth century by monks."),
        ("The harbour of Visby", _ENGLISH),
        (_CHINESE, "厦门港是福建省的一个海滨旅游胜地，鼓浪屿上有许多老房子和钢琴。"),
        ("Rope.", "Sail."),
    ],
)
def test_texts_that_share_a_phrase_are_not_the_same(one, other):
    assert not Sketch(one).says_the_same_as(Sketch(other))


def test_a_text_is_within_a_longer_one_and_not_the_other_way_round():
    longer = Sketch(f"{_ENGLISH} {_CHINESE}")
    assert Sketch(_CHINESE).is_within(longer)
    assert not longer.is_within(Sketch(_CHINESE))
