"""Loaders: how much of real files' text they keep, and in which order, against other tools.

    python benchmarks/loaders.py FOLDER --texts TEXTS

The files of a run are listed in `loaders.tsv`, with the package that each is from; half were held back while
the loaders were repaired. The tools are those that are installed: trafilatura, pandoc (3.8 or later),
pdftotext, man, asciidoctor, and Python's `email`. Texts are compared as words and Chinese characters, so that
marks of headings, lists and tables do not count:

- kept: the share of the tool's words that Loom has, as often;
- clean: the share of Loom's words that the tool has; rows of tables repeat the names of their columns, and
  plain text keeps its markup;
- order: the share of the tool's runs of five words that Loom has.

Trafilatura leaves out more than the boilerplate of a page, and pandoc nothing at all. With `--texts` both
texts of each file are written, so that they can be read side by side; `--each` prints a row for each file.
"""

from __future__ import annotations

import argparse
import email
import email.policy
import gzip
import os
import re
import shutil
import subprocess
import time
import unicodedata
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import load_file

if TYPE_CHECKING:
    from collections.abc import Sequence

_PANDOC = {
    ".html": "html",
    ".docx": "docx",
    ".pptx": "pptx",
    ".odt": "odt",
    ".epub": "epub",
    ".rst": "rst",
    ".org": "org",
    ".tex": "latex",
    ".ipynb": "ipynb",
}
_SECTION = re.compile(r"\.[1-9][a-z]*")
_HYPHEN = re.compile(r"(?<=[^\W\d_])[-\u00ad\u2010]\s*(?=[a-zß-öø-ÿ])")  # where a line ends, or where not
_CJK = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+")
_RUN = 5  # words of which the order is measured


@dataclass(frozen=True)
class Row:
    """The measures of one file against one tool."""

    name: str
    kept: float
    clean: float
    order: float
    seconds: float
    tool_seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=Path, help="folder that both texts of each file are written to")
    parser.add_argument("--each", action="store_true", help="a row for each file, too")
    given = parser.parse_args()
    rows: dict[tuple[str, str], list[Row]] = defaultdict(list)
    unread: list[str] = []
    warm: set[str] = set()
    for path in sorted(path for path in given.folder.rglob("*") if path.is_file()):
        kind = extension_of(path)
        try:
            if kind not in warm:
                load_file(path)  # imports its parser
            began = time.perf_counter()
            text = load_file(path).text
        except DocumentError as error:
            unread.append(f"{path.name}: {str(error).removeprefix(str(path)).strip()}")
            continue
        seconds = time.perf_counter() - began
        warm.add(kind)
        write_text(given.texts, f"{path.name}.loom", text)
        for tool, command in tools(path, kind):
            began = time.perf_counter()
            reference = run(command, path)
            tool_seconds = time.perf_counter() - began
            write_text(given.texts, f"{path.name}.{tool.replace(' ', '')}", reference)
            if not reference.strip():
                unread.append(f"{path.name}: {tool} makes no text of it")
                continue
            rows[kind, tool].append(Row(path.name, *compare(text, reference), seconds, tool_seconds))
    print_table(rows, each=given.each)
    print("\n".join(["", f"Not compared: {len(unread)}", *unread]))


def extension_of(path: Path) -> str:
    """Return the extension of a file, without `.gz`; `man` for the section of a manual."""
    name = path.name.removesuffix(".gz")
    extension = Path(name).suffix.lower()
    return "man" if _SECTION.fullmatch(extension) else extension


def tools(path: Path, kind: str) -> list[tuple[str, list[str]]]:
    """Return the tools for a kind of file that are installed: name and command."""
    found: list[tuple[str, list[str]]] = []
    if kind in _PANDOC:
        found.append(("pandoc", ["pandoc", "-f", _PANDOC[kind], "-t", "plain", "--wrap=none"]))
    if kind == ".html":
        found.append(("trafilatura", ["trafilatura"]))
    elif kind == ".pdf":
        found.append(("pdftotext", ["pdftotext", "-enc", "UTF-8", "-", "-"]))
        found.append(("pdftotext -layout", ["pdftotext", "-layout", "-enc", "UTF-8", "-", "-"]))
    elif kind == ".adoc":  # pandoc reads AsciiDoc, but few real files
        page = "asciidoctor -e -o - - | pandoc -f html -t plain --wrap=none"
        found.append(("asciidoctor", ["sh", "-c", page]))
    elif kind == "man":
        found.append(("man", ["man", "-l", str(path.resolve())]))
    elif kind == ".eml":
        found.append(("email", []))
    return [(name, command) for name, command in found if not command or shutil.which(name.split()[0])]


def run(command: list[str], path: Path) -> str:
    """Return the text that a tool makes of a file; without a command, Python's `email`."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if not command:
        return mail_text(data)
    environment = {**os.environ, "MANWIDTH": "200", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(command, input=data, capture_output=True, check=False, env=environment)
    return re.sub(".\b", "", done.stdout.decode(errors="replace"))  # overstruck, as man prints bold


def mail_text(data: bytes) -> str:
    """Return the subject and the text part of a message."""
    message = email.message_from_bytes(data, policy=email.policy.default)
    body = message.get_body(preferencelist=("plain", "html"))
    return f"{message['subject']}\n{body.get_content() if body else ''}"


def compare(text: str, reference: str) -> tuple[float, float, float]:
    """Return kept, clean and order, in percent."""
    ours, theirs = words_of(text), words_of(reference)
    return share(theirs, ours), share(ours, theirs), share(runs_of(theirs), runs_of(ours))


def words_of(text: str) -> list[str]:
    """Return the words of a text, without markup and hyphens."""
    return _WORD.findall(_HYPHEN.sub("", unicodedata.normalize("NFKC", text)).casefold())


def runs_of(words: Sequence[str]) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + _RUN]) for start in range(len(words) - _RUN + 1)]


def share(wanted: Sequence[object], found: Sequence[object]) -> float:
    """Return the percentage of one multiset that another holds."""
    return 100 * (Counter(wanted) & Counter(found)).total() / len(wanted) if wanted else 100.0


def write_text(folder: Path | None, name: str, text: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


def print_table(rows: dict[tuple[str, str], list[Row]], *, each: bool) -> None:
    """Print medians, in brackets the lowest value, and the file of which least is kept."""
    print("| format | against | files | kept | clean | order | least kept of | seconds | its seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (kind, tool), found in sorted(rows.items()):
        middle = [
            f"{median(values):.1f} ({min(values):.1f})"
            for values in (
                [row.kept for row in found], [row.clean for row in found], [row.order for row in found]
            )
        ]  # fmt: skip
        worst = min(found, key=lambda row: row.kept).name
        ours, its = median(row.seconds for row in found), median(row.tool_seconds for row in found)
        print(f"| {kind} | {tool} | {len(found)} | {' | '.join(middle)} | {worst} | {ours:.2f} | {its:.2f} |")
        for row in sorted(found, key=lambda row: row.kept) if each else ():
            shares = f"{row.kept:.1f} | {row.clean:.1f} | {row.order:.1f}"
            print(f"| | {tool} | {row.name} | {shares} | | {row.seconds:.2f} | {row.tool_seconds:.2f} |")


if __name__ == "__main__":
    main()
