from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.llm.messages import ImagePart
from loom_core.tokens import estimate_tokens
from loom_core.tools.calls import NO_OUTPUT
from loom_core.tools.execution.call_run import format_output
from loom_core.tools.interface import ToolOutput


class _Kept:
    def __init__(self, address: str = "loom://runs/run_1/blobs/1") -> None:
        self.texts: list[str] = []
        self._address = address

    async def __call__(self, text: str) -> str:
        self.texts.append(text)
        return self._address


async def test_a_short_output_is_shown_as_it_is() -> None:
    output, kept = ToolOutput("三个文件:\n\ta.md"), _Kept()

    result = await format_output(output, most_tokens=100, keep=kept)

    assert result.output is output
    assert (result.blob, kept.texts) == ("", [])


async def test_of_a_long_output_beginning_and_end_are_shown_and_where_the_whole_is() -> None:
    lines = [f"第{number}行 the same words again and again" for number in range(2000)]
    text = "\n".join(lines)
    kept = _Kept()

    result = await format_output(ToolOutput(text, is_error=True), most_tokens=200, keep=kept)

    told = result.output.text
    assert told.startswith(lines[0])
    assert told.endswith(lines[-1])
    assert result.output.is_error
    assert "characters (about" in told
    assert "the whole is at loom://runs/run_1/blobs/1" in told
    assert estimate_tokens(told) < 260
    assert kept.texts == [text]
    assert all(line in lines for line in told.splitlines() if line and not line.startswith("["))


async def test_a_long_output_that_no_one_keeps_says_so() -> None:
    result = await format_output(ToolOutput("长" * 1000), most_tokens=30, keep=_Kept(""))

    assert "it was not kept" in result.output.text
    assert result.blob == ""


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("\x1b[31m错误\x1b[0m: 没有文件\r\n完", "错误: 没有文件\n完"),
        ("a\x00b\u202ec\U000e0041", "abc"),
        ("", NO_OUTPUT),
        (" \n", NO_OUTPUT),
        ("half \ud800", "half "),
    ],
)
async def test_what_acts_or_hides_is_not_shown(text: str, plain: str) -> None:
    result = await format_output(ToolOutput(text), most_tokens=100, keep=_Kept())

    assert result.output.text == plain


async def test_warnings_follow_the_text_however_long_it_is() -> None:
    output = ToolOutput("长" * 1000, warnings=("两家没有回答\x07", "old data"))

    result = await format_output(output, most_tokens=30, keep=_Kept())

    assert result.output.warnings == ("两家没有回答", "old data")
    assert result.output.message("1").text.endswith("长\n\nWarning: 两家没有回答\n\nWarning: old data")


async def test_an_image_alone_is_output_enough() -> None:
    output = ToolOutput("", parts=(ImagePart(b"png"),))

    assert (await format_output(output, most_tokens=10, keep=_Kept())).output is output


@given(st.text(st.sampled_from("ab 文字\n"), max_size=400), st.integers(4, 60))
async def test_no_more_is_shown_than_was_wanted(text: str, most: int) -> None:
    kept = _Kept("x")

    told = (await format_output(ToolOutput(text), most_tokens=most, keep=kept)).output.text

    assert estimate_tokens(told) <= most + 60
    if kept.texts:
        head, _, rest = told.partition("\n\n[")
        assert text.startswith(head)
        assert text.endswith(rest.partition("]\n\n")[2])


async def test_secrets_are_taken_out_of_what_is_shown_and_of_what_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "秘密花园-1987")
    text = "\n".join(["密码是秘密花园-1987", *map(str, range(5000)), "ghp_abcdefghijklmnopqrstu"])
    kept = _Kept()

    result = await format_output(
        ToolOutput(text, structured={"key": ["秘密花园-1987"]}), most_tokens=200, keep=kept
    )

    assert result.output.text.startswith("密码是[secret]\n")
    assert result.output.text.endswith("[secret]")
    assert result.output.structured == {"key": ["[secret]"]}
    assert "1987\n" in kept.texts[0]  # a number
    assert "花园" not in kept.texts[0]
    assert "ghp_" not in kept.texts[0]
