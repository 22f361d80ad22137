from __future__ import annotations

import threading
from itertools import count
from types import SimpleNamespace

import pytest

from loom_core.errors import ConfigError, UnreadableTextError
from loom_core.flow.triggers import TriggerMatch, TriggerMatcher, check_pattern


def _flow(flow_id: str, *patterns: str, priority: int = 0, enabled: bool = True) -> SimpleNamespace:
    return SimpleNamespace(
        flow_id=flow_id,
        trigger_patterns=list(patterns),
        priority=priority,
        enabled=enabled,
        only_informs=False,
    )


def _only(message: str, *patterns: str) -> TriggerMatch:
    (match,) = TriggerMatcher([_flow("f", *patterns)]).match(message)
    return match


def _ids(matcher: TriggerMatcher, message: str) -> list[str]:
    return [match.flow_id for match in matcher.match(message)]


def test_all_patterns_of_all_flows_are_searched_for_and_those_that_fit_say_where() -> None:
    matcher = TriggerMatcher([_flow("leave", "我要请假", "申请.*假"), _flow("order", "查.*订单")])
    (match,) = matcher.match("你好，我想申请年假")
    assert match == TriggerMatch("leave", "申请.*假", 5, 9)
    assert _ids(matcher, "帮我查一下订单") == ["order"]
    assert _ids(matcher, "今天天气不错") == []
    assert _ids(matcher, "") == []


@pytest.mark.parametrize(
    ("pattern", "message", "fits"),
    [
        ("take LEAVE", "I want to Take leave", "Take leave"),
        ("请(3|三)天假", "我要请３天假", "请３天假"),
        ("ＡＢＣ１", "see abc1 please", "abc1"),
        ("我要請假", "我要请假", "我要请假"),
        ("我要请假", "我要請假！", "我要請假"),
        ("请假（病假）", "申请请假(病假)", "请假(病假)"),
        ("[请（]假", "（假", "（假"),
        ("㎏", "5KG", "KG"),
        ("ﾊﾟｽﾜｰﾄﾞ", "パスワードを", "パスワード"),
        (r"\u8bf7\u5047", "我要请假", "请假"),
        (r"申请\w+假", "我要申请三天年假", "申请三天年假"),
        (r"申请\W", "申请，谢谢", "申请，"),
        (r"\S+@\S+", "写给 a@b.c", "a@b.c"),
        (r"\d{2,3}号", "第１２３号", "１２３号"),
        (r"[①-⑨]级", "③级", "③级"),
        (r"x{,2}y", "xxy", "xxy"),
        (r"ok\Z", "that is ok", "ok"),
        ("(?#comment)abc", "xabcx", "abc"),
        (r"\Q1+1\E", "1+1?", "1+1"),
        (r"\Q1+（", "(1+(", "1+("),
        (r"[\w]+[\W]", "请假，", "请假，"),
        (r"[\d三]天[^\D]", "三天5", "三天5"),
        (r"[[:alpha:]]+[\n]", "ab\ncd", "ab\n"),
        (r"[\u8bf7\x{5047}]+[\x41-\x43]", "请假b", "请假b"),
        (r"\p{Han}+[\pN]", "看请假1", "看请假1"),
        (r"[\p{Han}]+[\]a-]", "请]", "请]"),
        ("a㎏+b", "aKGKGb", "aKGKGb"),
        ("㎏?x", "kgx", "kgx"),
        (r"\㎏\u338f", "kgkg", "kgkg"),
        (r"(?i:X)(?u)(?s:.)\-\请", "x\n-请", "x\n-请"),
        (r"a{,}b", "a{,}b", "a{,}b"),
    ],
)
def test_case_width_and_script_of_letters_make_no_difference(pattern: str, message: str, fits: str) -> None:
    match = _only(message, pattern)
    assert message[match.start : match.end] == fits
    assert match.length == len(fits)


@pytest.mark.parametrize(
    ("message", "fits"),
    [
        ("㎏㎏请假", "请假"),  # longer in its form
        ("ﷺ 请假", "请假"),  # eighteen characters in its form
        ("か\u3099か\u3099请假", "请假"),  # shorter in its form
        ("ﾊﾟﾊﾟ请假㎏", "请假"),
        ("e\u0301e\u0301 请假", "请假"),
        ("  \n　请假", "请假"),
        ("ｘ①请㋀假", "请㋀假"),
        ("\ud800请假", "请假"),
    ],
)
def test_places_are_those_of_the_message_though_its_form_has_another_length(message: str, fits: str) -> None:
    match = _only(message, "请.*假")
    assert message[match.start : match.end] == fits


def test_a_character_that_becomes_several_counts_whole() -> None:
    match = _only("我要５㎏的", "(?P<unit>g)")
    assert (match.start, match.end) == (3, 4)
    assert match.groups == {"unit": "㎏"}


def test_named_groups_hold_what_the_message_says() -> None:
    match = _only("我想请３天假，因为Ａ", r"请(?P<days>\w+?)天(?P<kind>病)?假.*?(?P<为什么>\w)$")
    assert match.groups == {"days": "３", "为什么": "Ａ"}


def test_the_surest_match_comes_first_then_priority_then_length_then_order() -> None:
    matcher = TriggerMatcher(
        [
            _flow("short", "请假"),
            _flow("first", "我要请假"),
            _flow("second", "我要请假"),
            _flow("urgent", "请", priority=5),
            _flow("off", "请假", enabled=False),
        ]
    )
    assert _ids(matcher, "我要请假") == ["urgent", "first", "second", "short"]
    matcher = TriggerMatcher([_flow("leave", "请假", priority=9), _flow("cancel", "取消.*假")])
    assert [(each.flow_id, each.certain) for each in matcher.match("取消请假")] == [
        ("cancel", True),
        ("leave", False),
    ]


def test_a_pattern_is_certain_where_one_of_its_places_is() -> None:
    match = _only("我不请病假，我要请年假", "请.假")
    assert match.certain
    assert (match.start, match.end) == (8, 11)
    match = _only("我不请病假，也不请年假", "请.假")
    assert match.negated
    assert (match.start, match.end) == (2, 5)


@pytest.mark.parametrize(
    ("pattern", "column", "reason"),
    [
        ("请假(", 3, "not closed"),
        ("请假)", 3, "closes nothing"),
        ("请（a**", 4, "repetition"),
        ("请[假", 2, "not closed"),
        ("请假\\", 3, "nothing follows"),
        (r"申请\y", 3, r"\y is not known"),
        ("a{2000}", 2, "repetitions"),
        ("请[龥-一]", 2, "empty"),
        ("(?P<a b>x)", 1, "is not a name"),
        ("(?P<n>x)(?P<n>y)", 9, "twice"),
        ("(?(1)a|b)", 1, "not known"),
        ("(?x) a", 1, "not known"),
        (r"\ud800", 1, "no such character"),
        ("a\ud800", 2, "a lone surrogate"),
        ("请{3}{2}", 2, "repetition"),
        ("*请", 1, "repetition"),
        ("(?#请", 1, "does not end"),
        ("(请?)*", 1, "every message"),
        ("(", 1, "not closed"),
        ("x" * 1001, 1001, "more than 1,000"),
        ("(?=a", 1, "not closed"),
        ("[a-", 1, "not closed"),
        (r"[\b]", 2, "not known here"),
        (r"[\x{110000}]", 2, "no such character"),
        (r"\x{110000}", 1, "no such character"),
        (r"[a-\d]", 1, "no end"),
        ("(" * 101 + ")" * 101, 101, "within each other"),
        (r"(?<=a+)b\p{Nope}", 1, ""),
    ],
)
def test_what_is_wrong_with_a_pattern_is_said_with_its_flow_and_column(
    pattern: str, column: int, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnreadableTextError) as caught:
        check_pattern(pattern)
    assert reason in caught.value.reason
    if reason:
        assert caught.value.column == column
    with pytest.raises(ConfigError, match=f"'leave'.*column {caught.value.column}"):
        TriggerMatcher([_flow("leave", pattern)])
    assert capfd.readouterr() == ("", "")


def test_the_names_of_groups_are_known_without_a_message() -> None:
    assert check_pattern(r"请(?P<days>\d+)天(?<原因>.*)") == ("days", "原因")


@pytest.mark.parametrize(
    ("pattern", "fits", "fits_not"),
    [
        ("请假(?!记录)", "我要请假", "看请假记录"),
        ("(?<!不)请假", "我要请假", "查不请假"),
        (r"(.)\1\1", "哈哈哈", "哈哈"),
        (r"(?P<a>.)(?P=a){2}", "哈哈哈", "哈哈"),
        (r"(?P<a>.)\g<a>\1", "哈哈哈", "哈哈"),
        ("a++b", "aab", "a"),
        ("(?>a+)b", "aab", "a"),
        (r"\b请假", "请假", "我要请假"),
        ("(?=.*请假)(?=.*明天)", "明天我要请假", "明天"),
        (r"请假(?=了)\z|(?=完)完\Z", "完", "请假了"),
    ],
)
def test_what_re2_cannot_express_is_searched_for_by_another_engine(
    pattern: str, fits: str, fits_not: str
) -> None:
    assert _only(fits, pattern).pattern == pattern
    assert TriggerMatcher([_flow("f", pattern)]).match(fits_not) == []


def test_only_the_beginning_of_a_long_message_is_looked_at() -> None:
    assert _only("请假" + "x" * 100_000, "请假").start == 0
    assert TriggerMatcher([_flow("f", "请假")]).match("x" * 5000 + "请假") == []
    assert _only("ﷺ" * 300 + "请假" * 3000, "ص").length == 1


def test_of_a_message_that_says_everything_the_first_patterns_count() -> None:
    flows = [_flow(f"flow-{at}", f"申请.*{at}号", priority=at == 170) for at in range(100, 200)]
    found = _ids(TriggerMatcher(flows), "申请" + "、".join(f"{at}号" for at in range(100, 200)))
    assert len(found) == 50
    assert found[0] == "flow-170"
    assert set(found[1:]) == {f"flow-{at}" for at in range(100, 149)}


def test_many_threads_may_ask_at_once() -> None:
    flows = [_flow(f"flow-{at}", f"申请.*第{at}号(?P<days>\\d+)天") for at in range(100)]
    matcher = TriggerMatcher(flows)
    wrong: list[object] = []

    def ask(offset: int) -> None:
        for at in range(offset, offset + 100):
            (match,) = matcher.match(f"我要申请一下第{at % 100}号{at}天")
            if match.flow_id != f"flow-{at % 100}" or match.groups != {"days": str(at)}:
                wrong.append(match)

    threads = [threading.Thread(target=ask, args=(offset,)) for offset in range(0, 800, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong
    assert not any(thread.is_alive() for thread in threads)


def test_a_message_is_quick_where_it_is_short_and_patterns_are_few() -> None:
    few = TriggerMatcher([_flow("f", "请.*假", "(?<!不)请假")])
    assert few.is_quick("我要请假" * 50)
    assert not few.is_quick("我要请假" * 100)
    assert not TriggerMatcher([_flow("f", *(f"请{at}" for at in range(501)))]).is_quick("x")
    assert not TriggerMatcher([_flow("f", *(f"(?<!不)请{at}" for at in range(4)))]).is_quick("x")


def test_patterns_that_are_not_come_to_in_time_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    matcher = TriggerMatcher([_flow(f"{at}", "请假", priority=-at) for at in range(40)])
    assert len(matcher.match("我要请假")) == 40
    readings = count()
    monkeypatch.setattr("time.thread_time", lambda: 0.006 * next(readings))
    assert _ids(matcher, "我要请假") == [f"{at}" for at in range(16)]


@pytest.mark.parametrize("reading", [1, 2, 3])
def test_a_pause_of_the_process_takes_no_pattern_away(monkeypatch: pytest.MonkeyPatch, reading: int) -> None:
    """A second to collect garbage, before the first pattern or between two."""
    matcher = TriggerMatcher([_flow("low", "请假"), _flow("high", "我要", priority=1)])
    readings = count()
    monkeypatch.setattr("time.thread_time", lambda: float(next(readings) >= reading))
    assert _ids(matcher, "我要请假") == ["high", "low"]
