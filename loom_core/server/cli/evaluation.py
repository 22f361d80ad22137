"""Common parts of commands that test a server by a file of cases: its lines, and the report as JUnit XML."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias, TypeVar
from xml.etree import ElementTree

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from loom_core.config_file import ConfigText
from loom_core.errors import ConfigError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["CaseModel", "JUnitCase", "TextList", "count", "read_cases", "read_text", "write_junit"]

_DEPTH = 5  # levels of a line whose values have positions in messages
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_ModelT = TypeVar("_ModelT", bound=BaseModel)


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


TextList: TypeAlias = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_as_list)]
"""Several texts in a line; one may be written without brackets."""


class CaseModel(BaseModel):
    """Base of the models of a line and of its parts."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, str_strip_whitespace=True
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class JUnitCase:
    """A test case of a report.

    Attributes:
        name: its name.
        seconds: how long it took.
        failure: why it failed; empty if it passed.
        error: why it could not be executed; empty if it was.
        output: further text for people.
    """

    name: str
    seconds: float = 0.0
    failure: str = ""
    error: str = ""
    output: str = ""


def read_text(path: Path) -> str:
    """Read a text file. Blocks.

    Raises:
        InvalidInputError: the file is not readable.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InvalidInputError(f"{path} is not readable: {reason}.") from error


def read_cases(path: Path, model: type[_ModelT], *, advice: str) -> dict[int, _ModelT]:
    """Read a file of JSON Lines; lines that are empty or only a comment are skipped. Blocks.

    Args:
        path: the file.
        model: model of a line.
        advice: what to do about an invalid line.

    Returns:
        The cases by line number, counted from 1.

    Raises:
        InvalidInputError: the file is not readable.
        ConfigError: a line is invalid, or there is none; the message says where and why.
    """
    lines = ConfigText.of_lines(read_text(path), name=str(path), depth=_DEPTH)
    cases = {each.line: each.validate(model, advice=advice) for each in lines}
    if not cases:
        raise ConfigError(f"{path} has no lines.", advice=advice)
    return cases


def write_junit(path: Path, suite: str, cases: Sequence[JUnitCase]) -> None:
    """Write a report as JUnit XML, as continuous integration servers read it. Blocks.

    Args:
        path: the file; its folder is created.
        suite: name of the test suite.
        cases: the test cases.

    Raises:
        InvalidInputError: the file cannot be written.
    """
    totals = {
        "name": suite,
        "tests": str(len(cases)),
        "failures": str(sum(bool(each.failure) for each in cases)),
        "errors": str(sum(bool(each.error) for each in cases)),
        "time": f"{sum(each.seconds for each in cases):.3f}",
    }
    root = ElementTree.Element("testsuites")
    part = ElementTree.SubElement(root, "testsuite", totals)
    for each in cases:
        named = {"classname": suite, "name": _xml_text(each.name), "time": f"{each.seconds:.3f}"}
        case = ElementTree.SubElement(part, "testcase", named)
        for tag, text in (("failure", each.failure), ("error", each.error)):
            if text:
                first = _xml_text(text.split("\n", 1)[0])
                ElementTree.SubElement(case, tag, message=first).text = _xml_text(text)
        if each.output:
            ElementTree.SubElement(case, "system-out").text = _xml_text(each.output)
    ElementTree.indent(root)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}.") from error


def count(number: int, noun: str) -> str:
    """Return a number with its noun: `1 question`, `2 questions`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _xml_text(text: str) -> str:
    """Escape characters that XML cannot have, such as control characters."""
    return _NOT_XML.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
