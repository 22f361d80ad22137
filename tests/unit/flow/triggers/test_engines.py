from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from loom_core.errors import ConfigError
from loom_core.flow.triggers import TriggerMatcher
from loom_core.flow.triggers.engines import MatchClock, PatternSet, compile_pattern
from loom_core.flow.triggers.pattern_text import translate_pattern


@pytest.fixture
def no_re2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As on a machine without a wheel of google-re2."""
    monkeypatch.setitem(sys.modules, "re2", None)
    compile_pattern.cache_clear()
    yield
    compile_pattern.cache_clear()


def _flows(*patterns: str) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(
            flow_id=str(at), trigger_patterns=[pattern], priority=0, enabled=True, only_informs=False
        )
        for at, pattern in enumerate(patterns)
    ]


def test_a_set_says_at_one_go_which_patterns_may_fit() -> None:
    patterns = [translate_pattern(each) for each in ("申请.*假", "LEAVE", "a{5}", "(?=x)x", "订单$")]
    found = PatternSet(patterns)
    assert found.candidates("我要申请病假") == [0, 3]
    assert found.candidates("leave aa") == [1, 2, 3]  # counts are not looked at, nor is what looks ahead
    assert PatternSet([]).candidates("anything") == []


def test_a_message_that_holds_the_probe_finds_nothing_more() -> None:
    assert PatternSet([translate_pattern("请")]).candidates("\U0010fffd\U000ffffd\U0010fffc请") == [0]


@pytest.mark.hostile("patterns")
def test_thousands_of_patterns_make_one_set_and_too_large_ones_several() -> None:
    patterns = [translate_pattern(f"申请.*第{at}号") for at in range(3000)]
    assert PatternSet(patterns).candidates("申请一下第2999号") == [2999]
    large = [translate_pattern(rf"[\p{{L}}\p{{N}}]+{at}[\p{{L}}\p{{N}}]*{at}") for at in range(20)]
    assert PatternSet(large, memory=(1 << 20,)).candidates("请7x7") == [7]


@pytest.mark.hostile("patterns")
def test_a_pattern_too_large_for_any_set_is_always_looked_at_by_itself() -> None:
    patterns = [translate_pattern("请假"), translate_pattern(r"[\p{L}\p{N}]+x"), translate_pattern("(?=订)")]
    assert PatternSet(patterns, memory=(1 << 15,)).candidates("订") == [1, 2]
    assert PatternSet(patterns, memory=(1 << 15,)).candidates("请假") == [0, 1, 2]


def test_a_pattern_of_many_counts_is_searched_for_in_the_beginning_only() -> None:
    search = compile_pattern("a.{0,100}b")[1]
    assert next(search.find("ab", MatchClock()), None)
    assert next(search.find("x" * 4000 + "ab", MatchClock()), None) is None
    assert next(compile_pattern("a.*b")[1].find("x" * 4000 + "ab", MatchClock()), None)


def test_patterns_that_take_long_share_a_limit_and_are_told_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    search = compile_pattern("(a+)+(?=c)")[1]
    clock = MatchClock()
    for _ in range(20):
        assert next(search.find("a" * 4000, clock), None) is None
    assert clock.left <= 0
    assert [record.getMessage() for record in caplog.records] == [
        "A trigger pattern takes too long and is skipped: '(a+)+(?=c)'"
    ]


@pytest.mark.usefixtures("no_re2")
def test_without_re2_every_pattern_is_searched_for_by_itself() -> None:
    matcher = TriggerMatcher(_flows(r"请(?P<days>\d+)天假", "take leave", "(?<!不)请假", r"假\Z"))
    found = {match.flow_id: match for match in matcher.match("我要请３天假")}
    assert sorted(found) == ["0", "3"]
    assert found["0"].groups == {"days": "３"}
    assert (found["0"].start, found["0"].end) == (2, 6)
    assert [match.flow_id for match in matcher.match("Take LEAVE")] == ["1"]
    assert matcher.match("(a" * 1000) == []
    with pytest.raises(ConfigError, match="column 4: multiple repeat"):
        TriggerMatcher(_flows("请假**"))


@pytest.mark.hostile("patterns")
@pytest.mark.usefixtures("no_re2")
def test_without_re2_a_hostile_pattern_ends_too() -> None:
    matcher = TriggerMatcher(_flows("(a+)+b$", r"(\w*)*#", "(.*)*x"))
    assert matcher.match("a" * 4000 + "!") == []


def test_without_any_engine_a_pattern_is_refused_at_load(
    no_re2: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "regex", None)
    with pytest.raises(ConfigError, match=r"'0'.*'请假'.*regex is not installed"):
        TriggerMatcher(_flows("请假"))


def test_without_regex_what_looks_around_is_refused_at_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "regex", None)
    compile_pattern.cache_clear()
    with pytest.raises(ConfigError, match="looks behind, for which the package regex is not installed"):
        TriggerMatcher(_flows("(?<!不)请假"))
    assert TriggerMatcher(_flows("请假")).match("请假")
