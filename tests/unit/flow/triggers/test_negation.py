"""Messages that name a piece of business, and whether they ask for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.flow.triggers.negation import NegationKind, detect_negation, negates
from loom_core.flow.triggers.pattern_text import NormalText


def _doubt(message: str, pattern: str) -> NegationKind:
    message, pattern = NormalText.of(message).text, NormalText.of(pattern).text  # as the matcher does
    found = re.search(pattern, message, re.IGNORECASE)
    assert found is not None
    return detect_negation(message, found.start(), found.end(), pattern=pattern)


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ("我要请假", "请假"),
        ("帮我请个假吧", "请个假"),
        ("我要请假了", "请假"),
        ("特别想请假", "请假"),
        ("能不能帮我请假", "请假"),
        ("可不可以帮我请假", "请假"),
        ("我可以请三天假吗？", "请三天假"),
        ("我想预约明天上午", "预约"),
        ("不好意思我想请假", "请假"),
        ("不，我要请假", "请假"),
        ("我没空，帮我请假", "请假"),
        ("身体不舒服要请假", "请假"),
        ("身体不舒服我要请假", "我要请假"),
        ("我要请假，因为身体不舒服", "请假"),
        ("今天不能来上班要请假", "请假"),
        ("我没法上班要请假", "请假"),
        ("明天不来了，想请一天假", "请一天假"),
        ("我不请假了 我要请假", "我要请假"),
        ("别的事先放放，我要请假", "请假"),
        ("我不是要请病假而是要请年假", "请年假"),
        ("我的订单到哪了", "订单"),
        ("我的订单状态是什么", "订单"),
        ("I want to take leave", "take leave"),
        ("No, I want to take leave", "take leave"),
        ("could you book an appointment", "book an appointment"),
        ("can't you book an appointment for me", "book an appointment"),
        ("why don't you book a meeting", "book a meeting"),
        ("I'm not feeling well, I want to take leave", "take leave"),
        ("I'm not feeling well and want to take leave", "take leave"),
        ("I can't come in tomorrow I need leave", "leave"),
        ("I won't be in tomorrow, please book leave", "book leave"),
        ("not now but book an appointment later", "book an appointment"),
        ("don't forget to book my leave", "book my leave"),
        ("where is my order", "order"),
        ("what is the status of my order", "order"),
        ("能帮我请个假吗", "请个假"),
        ("可以请假不", "请假"),
        ("帮我请个假好吗", "请个假"),
        ("想请个假行不行", "请个假"),
        ("我決定請假了", "請假"),
        ("我要请假，别忘了通知店长", "请假"),
        ("我想请三天假，不用通知小王", "请三天假"),
        ("没赶上车，请半天假", "请半天假"),
        ("今天不能上班我要请假", "我要请假"),
        ("医生让我休息，我要请假", "请假"),
        ("我妈妈住院了要请假", "请假"),
        ("请让我请假吧", "请假"),
        ("我想让你帮我请假", "请假"),
        ("我是小王，我要请假", "请假"),
        ("帮小李请一天假", "请一天假"),
        ("替我儿子预约", "预约"),
        ("向老板转账", "转账"),
        ("给我妈转账100元", "转账"),
        ("可以转账给他吗", "转账"),
        ("报修电脑打不开了", "报修"),
        ("我的订单怎么还没到", "订单"),
        ("订单123多久到", "订单123"),
        ("let me take leave", "take leave"),
        ("My son is ill, I need to take leave", "take leave"),
        ("I told my manager, so please take leave", "take leave"),
        ("I was wondering if you could book leave", "book leave"),
        ("I wanted to book an appointment", "book an appointment"),
        ("I should book an appointment", "book an appointment"),
        ("is it possible to book a room", "book a room"),
        ("I want leave, don't forget to tell my boss", "want leave"),
        ("i wont be coming tomorrow pls cancel", "cancel"),
        ("dentist on monday no wait tuesday at 10", "dentist.*tuesday"),
        ("check whether R20419 is ready", "R20419"),
        ("我老公突然说不出话 半边身子动不了了", "半边身子"),
        ("走不动了，帮我叫护士", "叫护士"),
        ("喘不过气来了 快", "喘不过气来?了?"),
    ],
)
def test_who_asks_for_it_is_taken_at_their_word(message: str, pattern: str) -> None:
    assert _doubt(message, pattern) == ""


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ("我不请假了", "请假"),
        ("我不想请假", "请假"),
        ("我没请假", "请假"),
        ("别给我请假", "请假"),
        ("请不要给我请假", "请假"),
        ("不用帮我请假", "请假"),
        ("不是我要请假", "我要请假"),
        ("我不想这么早就请假", "请假"),
        ("我不觉得我要请假", "请假"),
        ("取消请假", "请假"),
        ("帮我把昨天的请假取消", "请假"),
        ("请假的事算了", "请假"),
        ("请假先不用了", "请假"),
        ("我讨厌请假", "请假"),
        ("我恨请假", "请假"),
        ("我要请假，哦不，算了", "请假"),
        ("我要请假。当我没说", "请假"),
        ("申请不了假", "申请.*假"),
        ("I don't want to take leave", "take leave"),
        ("I don’t want to take leave", "take leave"),
        ("I do not think I want to take leave", "take leave"),
        ("I'm not going to take leave", "take leave"),
        ("I never asked to take leave", "take leave"),
        ("please cancel my leave request", "leave request"),
        ("stop the booking", "booking"),
        ("I want to take leave, never mind", "take leave"),
        ("I want leave. Actually no, forget it", "leave"),
        ("leave is no longer needed", "leave"),
        ("take no leave", "take.*leave"),
        ("老板不让我请假", "请假"),
        ("老闆不許我請假", "請假"),
        ("医生没叫我请假", "请假"),
        ("他不同意我请假", "请假"),
        ("不是让你给我请假", "请假"),
        ("没有人帮我请假", "请假"),
        ("懒得请假", "请假"),
        ("请假吧，啊不对，不用", "请假"),
        ("我要请假，等等，先别提交", "请假"),
        ("我想请假，还是算了吧", "请假"),
        ("请假的事先放一放", "请假"),
        ("Don't let me take leave", "take leave"),
        ("nobody asked you to take leave", "take leave"),  # plain-english: data
        ("I do not authorize you to take leave on my behalf", "take leave"),
        ("I want to take leave, or maybe not", "take leave"),
        ("I want to take leave. Hold on.", "take leave"),
        ("take leave? no thanks", "take leave"),
    ],
)
def test_a_refusal_is_negated(message: str, pattern: str) -> None:
    assert _doubt(message, pattern) == "negation"


@pytest.mark.parametrize(
    ("message", "pattern"),
    [("我不是不想请假", "请假"), ("不会不请假", "请假"), ("I don't not want to take leave", "take leave")],
)
def test_a_double_negation_stays_in_doubt(message: str, pattern: str) -> None:
    assert _doubt(message, pattern) == "negation"


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ("我不得不请假", "请假"),
        ("不请假不行", "请假"),
        ("非请假不可", "请假"),
        ("没办法只能请假", "请假"),
        ("I have no choice but to take leave", "take leave"),
        ("I can't wait to book a trip", "book a trip"),
    ],
)
def test_what_must_be_is_no_negation(message: str, pattern: str) -> None:
    assert _doubt(message, pattern) == ""


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ("怎么请假", "请假"),
        ("请问如何申请年假", "申请年假"),
        ("为什么要请假", "请假"),
        ("要不要请假", "请假"),
        ("请假要什么手续", "请假"),
        ("请假的流程是什么", "请假"),
        ("请假扣工资吗", "请假"),
        ("我想咨询一下请假", "请假"),
        ("我要查请假记录", "请假"),
        ("how do I request leave", "request leave"),
        ("what is the leave policy", "leave"),
        ("what is annual leave?", "annual leave"),
        ("should I take leave", "take leave"),
        ("can you tell me about annual leave", "annual leave"),
        ("谁能请假", "请假"),
        ("谁批准请假", "请假"),
        ("誰來批請假", "請假"),
        ("do I need an appointment?", "need an appointment"),
        ("do I really have to take leave", "take leave"),
        ("哪些人可以请年假", "请年假"),
        ("谁取消了我的订单", "取消.{0,4}订单"),
        ("帮我看看谁请假了", "帮我.{0,4}请假"),
        ("请假难吗", "请假"),
        ("需要请假吗", "请假"),
        ("转账多久到账", "转账"),
        ("转账限额是多少", "转账"),
        ("需要提前多久挂号啊", "挂号"),
        ("支持哪些付款方式", "付款"),
        ("请假条丢了", "请假"),
        ("Should employees request leave in writing?", "request leave"),
        ("is it safe to transfer money to him?", "transfer money"),
        ("who can take leave", "take leave"),
    ],
)
def test_a_question_about_it_is_no_request(message: str, pattern: str) -> None:
    assert _doubt(message, pattern) == "question"


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ("我已经请过假了", "请过假"),
        ("要是我请假的话会扣钱吗", "要.{0,4}请假"),
        ("我请假了吗", "请假"),
        ("验光做好没有", "验光做"),
        ("请假了", "请假"),
        ("如果我请假，工资怎么算", "请假"),
        ("did I request leave", "request leave"),
        ("if I take leave will I be paid", "take leave"),
        ("付款失败了", "付款"),
        ("我请假被拒了", "请假"),
        ("转账退回来了", "转账"),
        ("我付款了为什么没到账", "付款"),
        ("我请了假", "请了假"),
        ("昨天请假的同事回来了吗", "请假"),
        ("请个假真难", "请个假"),
        ("他请假三天", "请假"),
        ("我同事要请三天假", "请三天假"),
        ("我朋友想请假", "想请假"),
        ("张三想请三天假", "请三天假"),
        ("我妈让我请假", "请假"),
        ("班主任要我请假", "要我请假"),
        ("他让我转账是不是骗子", "转账"),
        ("有人叫我转账，是诈骗吗", "转账"),
        ("我被要求转账", "转账"),
        ("除非下雨我才请假", "请假"),
        ("My colleague wants to take leave", "take leave"),
        ("She asked to take leave", "take leave"),
        ("Someone wants me to transfer money, is it a scam?", "transfer money"),
        ("They said I have to take leave", "take leave"),
        ("I was told to take leave", "take leave"),
        ("My request to take leave was rejected", "take leave"),
        ("You did cancel my order!", "cancel my order"),
        ("I forgot to pay my bill", "pay my bill"),
    ],
)
def test_what_is_done_or_may_be_is_only_mentioned(message: str, pattern: str) -> None:
    assert _doubt(message, pattern) == "mention"


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ("取消我的订单", "取消.*订单"),
        ("怎么请假", "怎么请假"),
        ("不要打扰我", "不要打扰"),
        ("please cancel my order", "cancel.*order"),
        ("how do I reset my password", "how do I reset"),
        ("I can't make it on Friday", "can'?t make it"),
        ("he isn’t breathing", "isn['’]?t breathing"),
        ("我周五来不了了 能换到下周一吗", "(?:来不了|去不了).{0,8}换"),
    ],
)
def test_words_of_doubt_that_the_pattern_itself_holds_are_meant(message: str, pattern: str) -> None:
    assert _doubt(message, pattern) == ""


@pytest.mark.parametrize(
    ("message", "pattern", "kind"),
    [
        ("我妈晕倒了", "晕倒", ""),
        ("我爸刚才晕倒了怎么办", "晕倒", ""),
        ("老公已经没有呼吸了", "没有呼吸", ""),
        ("my father collapsed and had no pulse", "collapsed", ""),
        ("如果我爸晕倒怎么办", "晕倒", "mention"),
        ("我爸去年晕倒过一次", "晕倒", "mention"),
        ("怎么转人工", "人工", "mention"),
        ("my father fainted last year", "fainted", "mention"),
        ("what do I do if he faints", "faints", "mention"),
        ("it's not an emergency", "emergency", "negation"),
        ("我没有晕倒", "晕倒", "negation"),
    ],
)
def test_a_flow_that_only_informs_is_meant_by_a_report_of_now(
    message: str, pattern: str, kind: NegationKind
) -> None:
    at = message.index(pattern)
    assert detect_negation(message, at, at + len(pattern), pattern=pattern, only_informs=True) == kind


def test_a_part_of_no_length_stands_for_the_whole_message() -> None:
    assert detect_negation("明天请假", 0, 0, pattern="(?=.*请假)") == ""
    assert detect_negation("明天不请假", 0, 0, pattern="(?=.*请假)") == "negation"
    assert detect_negation("不请假", 0, 0, pattern="(?=.*不请假)") == ""


@given(
    st.lists(
        st.sampled_from(
            "我 同事 他 想 想要 要 能不能 没 人 帮 让 我们 的 单 申请 谁 哪 不 了 don't let me".split()
        )
    )
)
def test_words_of_doubt_one_after_the_other_take_no_time(
    least_processor_time: Callable[[Callable[[], object]], float], words: list[str]
) -> None:
    around = "".join(words * 20)

    def ask() -> None:
        assert detect_negation(
            f"{around}请假{around}", len(around), len(around) + 2, pattern="请假"
        ) in get_args(NegationKind)

    assert least_processor_time(ask) < 0.05


def test_a_text_denies_something_or_not() -> None:
    assert [negates(each) for each in ("别报了，没坏", "I'd rather not", "身體不舒服", "the flu")] == [
        True,
        True,
        False,
        False,
    ]
