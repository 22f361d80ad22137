from __future__ import annotations

from fnmatch import translate
from re import DOTALL, IGNORECASE
from re import compile as re_compile
from time import process_time
from unicodedata import normalize

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from loom_core.errors import ConfigError
from loom_core.tools.patterns import linear_search, matcher

_TEXTS = st.text(st.sampled_from("ab*?/\\. \n^$#-~&<>{}()|+文é"), max_size=8)


@given(pattern=_TEXTS.filter(bool), text=_TEXTS)
@example(pattern="a b#-~&", text="a b#-~&")
@example(pattern="**", text="")
def test_a_pattern_means_what_the_shell_means_by_it_without_sets(pattern: str, text: str) -> None:
    assert matcher(pattern)(text) == bool(re_compile(translate(pattern), DOTALL).match(text))


@given(pattern=_TEXTS.filter(bool), text=_TEXTS)
def test_large_and_small_letters_are_the_same_where_that_is_wanted(pattern: str, text: str) -> None:
    expected = bool(re_compile(translate(pattern), DOTALL | IGNORECASE).match(text))

    assert matcher(pattern, any_form=True)(text.upper()) == expected


def test_accents_may_be_composed_either_way_where_that_is_wanted() -> None:
    composed, apart = normalize("NFC", "résumé 文件"), normalize("NFD", "résumé 文件")

    for pattern in (f"*{composed}", f"*{apart}", f"re:.*{composed}", composed, apart):
        assert matcher(pattern, any_form=True)(composed)
        assert matcher(pattern, any_form=True)(apart)
    assert not matcher(composed)(apart)


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("re:git (log|status)", "git log", "git log; rm -rf /"),
        ("re:a|b", "b", "bc"),
        ("re:文件.*", "文件:读取", "我的文件"),
        ("文件:*", "文件:读取", "天气:查询"),
        ("fs:re?d", "fs:read", "fs:reed!"),
    ],
)
def test_an_expression_has_to_fit_the_whole(pattern: str, fits: str, does_not: str) -> None:
    assert matcher(pattern)(fits)
    assert not matcher(pattern)(does_not)


def test_a_line_end_hides_nothing_from_an_expression_that_forbids() -> None:
    assert not matcher("re:git .*")("git status\nrm -rf /")
    assert matcher("re:.*rm -rf.*", any_form=True)("ls\nRM -rf /\n")


@pytest.mark.parametrize("expression", ["re:(?=a)b", r"re:(a)\1", "re:(", "re:a)|(b"])
def test_an_expression_that_is_none_or_could_take_for_ever_is_refused(expression: str) -> None:
    with pytest.raises(ConfigError, match="not a usable regular expression"):
        matcher(expression)


def test_a_pattern_that_makes_others_take_for_ever_takes_a_moment() -> None:
    begun = process_time()

    assert not matcher("*a*a*a*a*a*a*a*a*b")("a" * 20_000)
    assert not matcher("re:(a+)+b")("a" * 20_000)
    assert process_time() - begun < 1


def test_half_a_character_does_not_slip_past_a_pattern() -> None:
    assert matcher("*secret*")("\ud800secret")
    assert matcher("re:.*secret.*")("\ud800secret")
    assert linear_search("secret") is not None
