from __future__ import annotations

import pytest

from loom_core.flow.understanding.reply_parser import parse_reply
from loom_core.flow.understanding.yes_no import leans_to, yes_or_no
from loom_core.runs.run import Pending


@pytest.mark.parametrize(
    "message", ["对对对", "好的好的", "批准", "同意提交", "就这么办", "没毛病", "please proceed"]
)
def test_more_ways_of_yes(message: str) -> None:
    assert yes_or_no(message) is True


@pytest.mark.parametrize("message", ["别提交", "先别提交", "不要提交了", "不办了"])
def test_more_ways_of_no(message: str) -> None:
    assert yes_or_no(message) is False


@pytest.mark.parametrize(
    "message",
    [
        "要是",
        "对不对",
        "可以吗",
        "别提交错了",
        "你好",
        "好的，我考虑一下",
        "make it tomorrow",
        "is that right",
        "don't cancel",
    ],
)
def test_what_only_sounds_like_yes_or_no(message: str) -> None:
    assert yes_or_no(message) is None


@pytest.mark.parametrize(
    ("message", "yes"),
    [
        ("no breakfast needed, just book it", True),
        ("thats fine by me, dont wait", True),
        ("没别的要求了，订吧", True),
        ("sounds great but I can't", False),
        ("好的谢谢，我不需要", False),
        ("那天我要加班，辛苦了", False),
    ],
)
def test_the_last_clause_decides_between_a_yes_and_a_no(message: str, yes: bool) -> None:
    assert leans_to(message) is yes


@pytest.mark.parametrize(
    "message",
    [
        "ok, I'll call the other hotel",
        "they're okay, so that's that",
        "no, it's tomorrow",
        "please don't cancel it",
        "嗯，我自己去",
    ],
)
def test_an_acknowledgement_before_other_words_is_no_yes_and_a_correction_no_no(message: str) -> None:
    assert leans_to(message) is None


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("yes, cancel it", "approve"),
        ("好的，取消吧", "approve"),
        ("no, keep it", "deny"),
        ("don't cancel, I'm coming", "deny"),
        ("I don't need it anymore", "unclear"),
        ("不去了", "unclear"),
        ("来不了了", "unclear"),
    ],
)
def test_what_is_not_wanted_is_no_refusal_to_end_it(message: str, kind: str) -> None:
    pending = Pending(id="1", kind="approval", tool="end", arguments={}, reason="取消预约 / cancel it?")
    assert parse_reply(message, pending, inputs={}).kind == kind
