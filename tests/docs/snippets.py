"""The fenced blocks of Loom's Markdown pages, and what a page says of how they are tested.

A comment right before a block is for the tests, and is not shown to readers:

    <!-- test: skip because it needs someone else's server -->

leaves the block out of what is run, and has to give the reason. Commands in it are still checked: whether
there is such a command with such options.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

_BLOCK = re.compile(
    r"^(?P<indent>[ ]*)(?:<!-- test: (?P<test>.*?) -->\n(?P=indent))?```(?P<language>[^\n`]*)\n"
    r"(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_SKIP = re.compile(r"skip because (.{10,})")


@dataclass(frozen=True, slots=True)
class Snippet:
    """A fenced block.

    Attributes:
        page: the file, relative to the repository.
        line: of its first line of text, from 1.
        language: what stands behind the fence; may be empty.
        text: what is in it.
        skipped: why it is not run; empty where it is.
    """

    page: str
    line: int
    language: str
    text: str
    skipped: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[str]:
    """Every page for users, relative to the repository."""
    found = [ROOT / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md", "SECURITY.md")]
    found += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "servers").glob("*/README.md")]
    found += [*(ROOT / "examples").rglob("*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found if path.exists())


def snippets(page: str, *languages: str) -> list[Snippet]:
    """The blocks of a page, in their order; those in these languages only, where any is given."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found: list[Snippet] = []
    for block in _BLOCK.finditer(text):
        said = block["test"] or ""
        skip = _SKIP.fullmatch(said)
        if said and not skip:
            raise ValueError(f"{page}: what does “{said}” mean? There is: skip because REASON.")
        found.append(
            Snippet(
                page,
                text.count("\n", 0, block.start("text")) + 1,
                block["language"].strip(),
                textwrap.dedent(block["text"]),
                skip[1] if skip else "",
            )
        )
    return [each for each in found if not languages or each.language in languages]


async def run_python(snippet: Snippet, names: dict[str, Any]) -> None:
    """Run a block as the body of an async function; what it defines is added to the names that it can use."""
    body = f"async def run():\n{textwrap.indent(snippet.text, '    ')}\n    globals().update(locals())\n"
    exec(compile(body, str(snippet), "exec"), names)
    await names["run"]()


def with_python() -> list[str]:
    """The pages that have blocks in Python that are to be run."""
    return [page for page in pages() if any(not each.skipped for each in snippets(page, "python"))]
