from __future__ import annotations

import pytest

from loom_core.flow.understanding.small_talk import (
    is_again,
    is_cancel,
    is_declined,
    is_past,
    is_question,
    is_request_or_refusal,
)


@pytest.mark.parametrize("message", ["為什麼要填", "怎麼填", "請問這個是什麼", "要填嗎", "怎么填", "why"])
def test_a_question_is_one_in_both_scripts(message: str) -> None:
    assert is_question(message)


def test_asides_are_recognised() -> None:
    asides = ["你先帮我查一下", "幫我轉人工", "不想說", "别弄了", "我要投诉", "please check my order"]
    assert all(is_request_or_refusal(each) for each in asides)
    answers = ["人工费用太高", "被客户投诉了要去处理", "他帮了忙", "the agent was rude", "发烧了"]
    assert not any(is_request_or_refusal(each) for each in answers)


@pytest.mark.parametrize("message", ["actually never mind", "Oh, cancel it", "wait, stop", "just forget it"])
def test_an_end_may_begin_with_a_word_of_hesitation(message: str) -> None:
    assert is_cancel(message)


def test_thanks_that_decline() -> None:
    assert all(is_declined(each) for each in ("不用了谢谢", "不用了，謝謝", "不需要了", "no thank you"))
    assert not any(is_declined(each) for each in ("不用", "不用了帮我查订单", "不用的", "谢谢", ""))


def test_what_has_been_is_told_from_what_is_wanted() -> None:
    assert all(is_past(each) for each in ("昨天请了三天假", "上個月請過假", "I was ill last week"))
    assert not any(is_past(each) for each in ("明天请三天假", "昨天开始", "next week"))


def test_ways_to_want_it_done_again() -> None:
    assert all(is_again(each) for each in ("再发一次吧", "再約一次", "请重新提交"))
    assert not is_again("没有成功")


def test_who_is_not_ready_answers_nothing() -> None:
    assert all(is_request_or_refusal(each) for each in ("先不急", "不知道", "還不確定", "随便吧"))
    assert not any(is_request_or_refusal(each) for each in ("不知道为什么打不开", "随便放在门口"))
