from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.flow.understanding.reply_parser import parse_reply
from loom_core.flow.understanding.small_talk import classify_small_talk, is_again, is_cancel
from loom_core.flow.understanding.yes_no import yes_or_no
from loom_core.runs.run import Pending
from tests.unit.flow.conftest import LEAVE

SCHEMA: dict[str, Any] = LEAVE["input_schema"]
KNOWN = {"days": 2, "reason": "探亲", "kind": "年假"}


def question(*names: str) -> Pending:
    """Inputs of the leave flow are asked for; the others are known."""
    properties = {name: SCHEMA["properties"][name] for name in names}
    return Pending(
        id="$inputs",
        kind="question",
        tool="leave",
        schema={"type": "object", "properties": properties, "required": list(names)},
        arguments={name: value for name, value in KNOWN.items() if name not in names},
    )


APPROVAL = Pending(id="$begin", kind="approval", tool="leave", arguments=KNOWN)


@pytest.mark.parametrize(
    ("message", "asked", "values"),
    [
        ("三天", ["days"], {"days": 3}),
        ("3 days please", ["days"], {"days": 3}),
        ("我要请三天吧", ["days"], {"days": 3}),
        ("感冒了", ["reason"], {"reason": "感冒了"}),
        ("事由：感冒", ["reason"], {"reason": "感冒"}),
        ("病假", ["kind"], {"kind": "病假"}),
        ("请个病假吧", ["kind"], {"kind": "病假"}),
        ("2026年12月1日", ["day"], {"day": "2026-12-01"}),
        ("一共三天", ["days"], {"days": 3}),
        ("从周一到周三，一共三天吧", ["days"], {"days": 3}),
        ("3天，感冒", ["days", "reason"], {"days": 3, "reason": "感冒"}),
        ("一共三天，大家一起感冒了", ["days", "reason"], {"days": 3, "reason": "大家一起感冒了"}),
        ("天数：3；事由是感冒了", ["days", "reason"], {"days": 3, "reason": "感冒了"}),
        ("三天病假，因为感冒", ["days", "reason", "kind"], {"days": 3, "kind": "病假", "reason": "感冒"}),
    ],
)
def test_an_answer_is_read_in_the_types_of_what_was_asked(
    message: str, asked: list[str], values: dict[str, Any]
) -> None:
    said = parse_reply(message, question(*asked), inputs=SCHEMA)
    assert (said.kind, dict(said.values), said.is_sure) == ("answer", values, True)


@pytest.mark.parametrize(
    "message", ["不知道", "很多天", "0", "两三天", "3 or 4", "一共有多少天？", "等一下", "都一样", "统一安排"]
)
def test_what_is_no_number_is_no_answer_to_how_many(message: str) -> None:
    assert parse_reply(message, question("days"), inputs=SCHEMA).kind == "unclear"


def test_a_question_is_an_unsure_answer_where_any_text_would_do() -> None:
    said = parse_reply("最多可以请几天？", question("reason"), inputs=SCHEMA)
    assert (said.kind, said.is_sure) == ("answer", False)


def test_a_date_that_is_only_described_is_no_date() -> None:
    assert parse_reply("下个月吧", question("day"), inputs=SCHEMA).kind == "unclear"


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("改成三天", {"days": 3}),
        ("把天数改为5", {"days": 5}),
        ("不，改成三天吧", {"days": 3}),
        ("不是年假，是病假", {"kind": "病假"}),
        ("类型应该是病假", {"kind": "病假"}),
        ("change the reason to flu", {"reason": "flu"}),
        ("make it 5 days", {"days": 5}),
        ("actually, three days", {"days": 3}),
    ],
)
@pytest.mark.parametrize("pending", [question("day"), APPROVAL])
def test_a_correction_names_what_is_known_already(
    message: str, values: dict[str, Any], pending: Pending
) -> None:
    schema = {
        **SCHEMA,
        "properties": {**SCHEMA["properties"], "reason": {"type": "string", "title": "reason"}},
    }
    said = parse_reply(message, pending, inputs=schema)
    assert (said.kind, dict(said.values)) == ("correct", values)


@pytest.mark.parametrize("message", ["把天数改一下", "天数改一些", "改成一样的"])
def test_a_numeral_in_a_word_that_counts_nothing_corrects_no_number(message: str) -> None:
    pending = Pending(id="x", kind="approval", tool="f", arguments={"days": 3})
    assert parse_reply(message, pending, inputs=SCHEMA).kind == "unclear"


def test_a_correction_that_fits_two_inputs_alike_is_not_guessed() -> None:
    two = {"properties": {"from": {"type": "integer"}, "to": {"type": "integer"}}}
    pending = Pending(id="x", kind="approval", tool="f", arguments={"from": 1, "to": 2})
    assert parse_reply("改成三", pending, inputs=two).kind == "unclear"
    old = parse_reply("不是2，是3", pending, inputs=two)
    assert (old.kind, dict(old.values)) == ("correct", {"to": 3})


@pytest.mark.parametrize(
    ("message", "yes"),
    [
        *(
            (each, True)
            for each in (
                "好的",
                "好的，提交吧",
                "可以的，谢谢",
                "嗯嗯",
                "Yes, please!",
                "OK",
                "ＯＫ",
                "go ahead",
            )
        ),
        *((each, False) for each in ("不用了", "先不要", "No thanks.", "don’t", "不行")),
        *((each, None) for each in ("好的，但是改一下", "为什么？", "是不是", "yes and no", "")),
    ],
)
def test_yes_and_no(message: str, yes: bool | None) -> None:
    assert yes_or_no(message) is yes
    kinds = {True: "approve", False: "deny", None: "unclear"}
    assert parse_reply(message, APPROVAL, inputs=SCHEMA).kind == kinds[yes]


@pytest.mark.parametrize(
    "message",
    ["算了", "算了吧，谢谢", "取消", "帮我取消掉", "我不请了", "never mind", "Cancel it, please"],
)
def test_the_end_of_it(message: str) -> None:
    assert is_cancel(message)
    assert parse_reply(message, question("reason"), inputs=SCHEMA).kind == "cancel"


@pytest.mark.parametrize("message", ["取消会议所以请假", "不舒服了", "不是了", "cancelled flight"])
def test_words_of_an_end_within_something_else_end_nothing(message: str) -> None:
    assert not is_cancel(message)


def test_a_choice_that_sounds_like_the_end_is_a_choice() -> None:
    schema = {"properties": {"what": {"type": "string", "enum": ["取消", "保留"]}}}
    pending = Pending(id="x", kind="question", tool="f", schema=schema)
    assert parse_reply("取消", pending, inputs={}).values == {"what": "取消"}


def test_manners() -> None:
    assert [
        classify_small_talk(each)
        for each in ("你好！", "谢谢啦", "拜拜", "好的", "Thanks a lot", "hello there")
    ] == [
        "hello",
        "thanks",
        "bye",
        "assent",
        "thanks",
        "hello",
    ]
    assert is_again("再试一次吧")
    assert is_again("try again please")
    assert not is_again("再试一次别的")


@given(st.text(max_size=300))
def test_any_message_can_be_read(message: str) -> None:
    for pending in (question("days", "reason", "kind", "day"), question("reason"), APPROVAL):
        said = parse_reply(message, pending, inputs=SCHEMA)
        assert said.kind in {"answer", "correct", "approve", "deny", "cancel", "unclear"}


@pytest.mark.parametrize(
    ("message", "values"),
    [
        ("三天病假", {"days": 3, "kind": "病假"}),
        ("三天", {"days": 3}),
        ("三天，不要病假", {"days": 3}),
    ],
)
def test_an_answer_may_choose_something_else_besides(message: str, values: dict[str, Any]) -> None:
    said = parse_reply(message, question("days"), inputs=SCHEMA)
    assert (said.kind, dict(said.values)) == ("answer", values)
