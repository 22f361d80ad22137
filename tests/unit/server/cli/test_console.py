from __future__ import annotations

import io
import json
import sys

import pytest

from loom_core.server.cli.console import ProgressBar, accept_any_text, out, out_json, say, strong


class Terminal(io.StringIO):
    """Something to write to that says of itself that it is a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """The time as the progress bar sees it: set `clock.now`."""

    class Clock:
        now = 100.0

    clock = Clock()
    monkeypatch.setattr("time.monotonic", lambda: clock.now)
    return clock


@pytest.fixture
def terminal(monkeypatch):
    """Makes standard error a terminal of so many columns, which keeps what is written."""

    def use(columns):
        terminal = Terminal()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("COLUMNS", str(columns))
        return terminal

    return use


@pytest.fixture
def printed(monkeypatch):
    """Standard output in a given encoding; gives the bytes that were written."""

    def use(encoding):
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding, write_through=True))
        return raw

    return use


def test_the_answer_goes_to_standard_output_and_the_rest_to_standard_error(capsys):
    out("answer")
    say("remark")
    assert capsys.readouterr() == ("answer\n", "remark\n")


@pytest.mark.hostile("text that speaks to the model")
@pytest.mark.parametrize("text", ["港口", "🚢", "é", "file\udcff"])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "gbk", "cp1252"])
def test_any_text_can_be_written_and_json_stays_json_in_every_encoding(encoding, text, printed):
    raw = printed(encoding)
    accept_any_text()
    out(text)
    start = len(raw.getvalue())
    out_json({"text": text})
    assert json.loads(raw.getvalue()[start:].decode(encoding)) == {"text": text}


def test_an_encoding_that_has_the_text_writes_it_as_it_is(printed):
    raw = printed("gbk")
    accept_any_text()
    out("港口")
    assert raw.getvalue().decode("gbk").strip() == "港口"


def test_bold_is_for_terminals_without_no_color(monkeypatch):
    assert strong("title") == "title"
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert strong("title") == "\033[1mtitle\033[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert strong("title") == "title"


def test_a_terminal_shows_one_line_that_is_drawn_over(terminal, clock):
    shown = terminal(200)
    bar = ProgressBar("reading", "documents")
    bar.show(0, 200)
    clock.now += 1
    bar.show(50, 200)
    clock.now += 0.01
    bar.show(51, 200)  # too soon
    clock.now += 0.99
    bar.show(200, 200, final=True)
    first, last = shown.getvalue().removeprefix("\r").split("\r")
    assert first == f"reading [{'█' * 6}{'·' * 18}] 50/200 documents  50/s  0:03 left"
    assert last.rstrip(" \n") == f"reading [{'█' * 24}] 200/200 documents  100/s"
    assert len(last) == len(first) + 1, "what was there before is overwritten"


def test_a_narrow_terminal_is_not_overrun_by_wide_characters(terminal, clock):
    shown = terminal(12)
    bar = ProgressBar("读取文件很多", "份")
    bar.show(1, 2, final=True)
    assert shown.getvalue() == "\r读取文件很\n"


def test_elsewhere_a_line_is_logged_every_few_seconds_and_none_twice(capsys, clock):
    bar = ProgressBar("reading", "documents")
    for done in range(1, 13):
        clock.now += 1
        bar.show(done, 12)
    bar.show(12, 12, final=True)
    clock.now += 10
    bar.show(12, 12, final=True)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("] ")[1] for line in lines] == [
        "5/12 documents  1.0/s  0:07 left",
        "10/12 documents  1.0/s  0:02 left",
        "12/12 documents  1.0/s",
    ]


def test_work_done_before_does_not_count_as_speed_and_hours_are_told(capsys, clock):
    bar = ProgressBar("embedding", "passages")
    bar.show(1000, 100_000)
    clock.now += 10
    bar.show(1100, 100_000)
    bar.show(0, 0, final=True)
    first, last = capsys.readouterr().err.splitlines()
    assert first.endswith("1,100/100,000 passages  10/s  2:44:50 left")
    assert "0/0 passages" in last


def test_what_documents_say_cannot_act_on_the_terminal(capsys):
    out("a\x1b[2J\u202eb\r\n\tc\x9bd\udcff")
    say("\x07bell")
    shown = capsys.readouterr()
    assert shown.out == "a\\x1b[2J\\u202eb\\r\n\tc\\x9bd\\udcff\n"
    assert shown.err == "\\x07bell\n"


def test_bold_stays_bold_and_nothing_else_gets_through(capsys):
    out("\033[1mtitle\033[0m \033[31mred")
    assert capsys.readouterr().out == "\033[1mtitle\033[0m \\x1b[31mred\n"


@pytest.mark.hostile("text that speaks to the model")
def test_json_holds_what_acts_as_its_own_escapes(capsys):
    given = {"name": "a\x1b\u202e\x9b\u2028\U000e0041知识\ud800"}
    out_json(given)
    written = capsys.readouterr().out
    assert "知识" in written
    assert not any(char in written for char in "\x1b\u202e\x9b\u2028\U000e0041\ud800")
    assert json.loads(written) == given
