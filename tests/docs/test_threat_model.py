"""The threat model names code and tests; they are there, and no line stands without a test."""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from loom_core.mcp_client.connections.depth import MAX_DEPTH

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "explanation" / "threat-model.md"
_TEXT = _PAGE.read_text(encoding="utf-8")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
_FILE = re.compile(r"`((?:loom_core|servers|tools|tests|docs)/[\w./-]+\.(?:py|md))`")
_THREATS = [line for line in _TEXT.splitlines() if re.match(r"\| [STRIDE]: ", line)]


@cache
def _tests_of(file: str) -> frozenset[str]:
    tree = ast.parse((_ROOT / file).read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


@pytest.mark.parametrize("threat", _THREATS, ids=lambda line: line.split("|")[1].strip()[:60])
def test_every_threat_is_answered_by_code_that_is_there_and_a_test_that_is_there(threat: str) -> None:
    _, _, _, code, proof, _ = threat.split("|")
    assert _FILE.findall(code), "it names no code"
    assert _TEST.findall(proof), "it names no test"
    for file in _FILE.findall(code):
        assert (_ROOT / file).is_file(), f"{file} is not there"
    for file, name in _TEST.findall(proof):
        assert (_ROOT / file).is_file(), f"{file} is not there"
        assert name in _tests_of(file), f"{file} has no {name}"


def test_everything_else_that_the_page_names_is_there_too() -> None:
    assert all((_ROOT / file).is_file() for file in _FILE.findall(_TEXT))
    assert all(name in _tests_of(file) for file, name in _TEST.findall(_TEXT))


def test_it_says_how_deep_servers_may_call_each_other() -> None:
    assert MAX_DEPTH == 3
    assert "at most three programs above one" in _TEXT


def test_each_boundary_says_what_is_not_done() -> None:
    sections = re.split(r"^### ", _TEXT, flags=re.MULTILINE)[1:]
    assert len(sections) >= 9
    assert [section.splitlines()[0] for section in sections if "**Not done" not in section] == []
    assert {line[2] for line in _THREATS} == set("STRIDE")


def test_the_suite_of_hostile_input_has_no_empty_area() -> None:
    page = (_ROOT / "docs" / "reference" / "hostile-input.md").read_text(encoding="utf-8")
    counts = {
        row[0]: int(row[1]) for row in re.findall(r"^\| ([\w ]+) \| [^|]+ \| (\d+) \|", page, re.MULTILINE)
    }
    assert set(counts) == set(import_module("tools.hostile_reference").AREAS)
    assert min(counts.values()) > 0
    assert f"**{sum(counts.values())} cases in {len(counts)} areas.**" in page
    assert sum(counts.values()) > 1_000
