from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from pydantic import BaseModel, ConfigDict

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.server.cli.evaluation import JUnitCase, read_cases, write_junit


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid")

    question: str


def test_a_report_can_be_read_back_whatever_characters_it_has(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "junit.xml"
    cases = [
        JUnitCase(name='年假 <&"> \x1b[31m', seconds=0.25, output="a\x00\ud800b\n好\ufffe😀"),
        JUnitCase(name="b", seconds=1, failure="first\nsecond <b>"),
        JUnitCase(name="c", error="it could not start"),
    ]
    write_junit(path, "程序 eval", cases)
    (suite,) = ElementTree.parse(path).getroot()
    assert suite.attrib == {
        "name": "程序 eval",
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "time": "1.250",
    }
    passed, failed, broken = suite.findall("testcase")
    assert passed.attrib == {"classname": "程序 eval", "name": '年假 <&"> \\x1b[31m', "time": "0.250"}
    assert passed.findtext("system-out") == "a\\x00\\ud800b\n好\\ufffe😀"
    failure, error = failed.find("failure"), broken.find("error")
    assert failure is not None
    assert (failure.get("message"), failure.text) == ("first", "first\nsecond <b>")
    assert error is not None
    assert error.get("message") == "it could not start"


def test_a_report_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="cannot be written"):
        write_junit(tmp_path, "eval", [])


def test_lines_keep_their_numbers_and_separators_inside_of_texts(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(
        '\ufeff// two questions\n\n{"question": "a\u2028b"}\r\n{"question": "年假？"}', encoding="utf-8"
    )
    found = read_cases(path, _Line, advice="")
    assert {line: each.question for line, each in found.items()} == {3: "a\u2028b", 4: "年假？"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('\n{"question": "a"', ":2:17: the text ends too early."),
        ('{"question": "a"}\n\n{"qustion": "a"}', ":3:1: it lacks 'question'."),
        ('\n\n{"question": "a", "answer": 1}', ":3:19: answer is not known here."),
        ("// nothing\n", " has no lines."),
    ],
)
def test_an_invalid_line_is_named(text: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        read_cases(path, _Line, advice="Correct it.")
    assert raised.value.message.startswith(f"{path}{told}")
    assert raised.value.advice


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInputError, match="not UTF-8"):
        read_cases(tmp_path / "latin", _Line, advice="")
    with pytest.raises(InvalidInputError, match="No such file"):
        read_cases(tmp_path / "none", _Line, advice="")
