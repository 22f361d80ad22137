"""Writes docs/reference/hostile-input.md: the tests of hostile input, counted.

    python -m tools.reference hostile

A test of the suite has the marker `hostile("AREA")`, wherever it stands; `pytest -m hostile` runs them all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tools.provider_reference import table

_ROOT = Path(__file__).parents[1]
_MARKER = "hostile"
_WAIT = 300  # seconds; on a busy machine

Case = tuple[str, str]
"""Area and file of a hostile test; a parametrized test is several cases."""

PAGE = _ROOT / "docs" / "reference" / "hostile-input.md"

AREAS = {
    "addresses": (
        "Where Loom may be led to connect: every way of writing a private place, names that turn private, "
        "redirects, metadata services."
    ),
    "HTTP answers": (
        "What the asked send back: bombs, endless and broken answers, headers without end, credentials "
        "drawn to another origin."
    ),
    "HTTP requests": (
        "What reaches a server: foreign hosts and origins, half-open connections, deep and huge bodies, "
        "other tenants' names, floods."
    ),
    "tokens": (
        "Forged, foreign, expired and replayed tokens, authorization servers that lie, state that was "
        "changed."
    ),
    "MCP requests": (
        "Lines that are no messages, halves of surrogate pairs, arguments of any kind, over stdio too."
    ),
    "MCP servers": (
        "Other makers' servers: floods, lies, changed descriptions, broken schemas, secrets repeated, "
        "projects that bring their own."
    ),
    "files of any kind": (
        "Broken and hostile PDF, Office, HTML, JSON and text: bombs, deep nesting, entities, arbitrary bytes."
    ),
    "archives": (
        "Copies of knowledge bases that are taken over: damaged, dishonest about their size, with more in "
        "them than they say."
    ),
    "paths and links": "`..`, links, links exchanged meanwhile, pipes, devices, names of any bytes.",
    "text that speaks to the model": (
        "Passages, titles and descriptions that would end their tags, their line, or act on a terminal."
    ),
    "JSON and schemas": (
        "Nesting without end, references in circles or to the network, values that hold themselves."
    ),
    "answers of models": "Streams cut anywhere, odd or endless answers, errors that quote keys.",
    "patterns": "Regular expressions and texts on which a naive engine takes hours.",
    "expressions and configurations": (
        "Any text in the place of a flow, a query file, an expression, an imported Arazzo description."
    ),
    "pages": "Data that would be markup or script in the pages of graphs and runs.",
    "other users of the machine": "Strangers at the local socket, folders and files that others may enter.",
    "secrets": "Secrets planted everywhere, looked for in everything that is written.",
}
"""Marks of hostile tests, and what such tests send."""

_HEAD = """\
# Hostile input

Made by `python -m tools.reference` from the tests; do not edit.

Tests of malicious input have the marker `hostile`, with one of these areas. `pytest -m hostile` runs all of
them; the folders of an area are listed.

A case is one run of a test: a parametrized test counts once for each set of parameters, a property-based test
once, although it runs with hundreds of inputs. What they protect is in the [threat
model](../explanation/threat-model.md).
"""


def page(cases: Iterable[Case] | None = None) -> str:
    """Return the whole page.

    Args:
        cases: all cases of the suite; by default they are collected in another process.

    Raises:
        ValueError: a marker has an unknown area, or not every test could be collected.
    """
    counts = _count_cases(collect_cases() if cases is None else cases)
    rows = [
        (area, about, str(counts[area].total()), ", ".join(f"`{folder}`" for folder in sorted(counts[area])))
        for area, about in AREAS.items()
    ]
    total = sum(folders.total() for folders in counts.values())
    shown = table([("area", "what it sends", "cases", "in `tests/`"), *rows])
    return f"{_HEAD.rstrip()}\n\n**{total} cases in {len(AREAS)} areas.**\n\n{shown}\n"


def marked_cases(items: Iterable[pytest.Item]) -> list[Case]:
    """Return the hostile cases among the tests that pytest has collected."""
    return [
        (str(marker.args[0]) if len(marker.args) == 1 else "", str(item.path))
        for item in items
        if (marker := item.get_closest_marker(_MARKER)) is not None
    ]


def collect_cases() -> list[Case]:
    """Collect the hostile cases by `pytest --collect-only`.

    Raises:
        ValueError: not every test could be collected.
    """
    files = [
        str(path)
        for path in sorted((_ROOT / "tests").rglob("test_*.py"))
        if f"mark.{_MARKER}(" in path.read_text(encoding="utf-8")
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tools.hostile_reference", *files],
        cwd=_ROOT, capture_output=True, text=True, timeout=_WAIT, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        raise ValueError(f"The tests cannot be collected:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [(area, file) for area, file in json.loads(done.stdout.splitlines()[-1])]


def _count_cases(cases: Iterable[Case]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {area: Counter() for area in AREAS}
    for area, file in cases:
        if area not in AREAS:
            raise ValueError(f"{file}: {area!r} is not an area of tools/hostile_reference.py.")
        counts[area][Path(file).parent.relative_to(_ROOT / "tests").as_posix()] += 1
    return counts


class _Listing:
    """Keeps the hostile cases that pytest has collected."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.cases = marked_cases(session.items)


def _collect(files: list[str]) -> int:
    listing = _Listing()
    status = pytest.main(
        [
            "--collect-only",
            "-qq",
            "-n",
            "0",
            "-m",
            _MARKER,
            "--assert=plain",
            "-p",
            "no:cacheprovider",
            *files,
        ],
        plugins=[listing],
    )
    print(json.dumps(listing.cases))
    return int(status)


if __name__ == "__main__":
    sys.exit(_collect(sys.argv[1:]))
