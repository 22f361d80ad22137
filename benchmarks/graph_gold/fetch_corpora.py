"""Get the four corpora of questions.jsonl.

    python benchmarks/graph_gold/fetch_corpora.py FOLDER
    python benchmarks/graph_gold/fetch_corpora.py FOLDER --check benchmarks/graph_gold/questions.jsonl

Downloads Debian packages with apt-get (run `apt-get update` first), unpacks each into FOLDER/<package>/, and
writes FOLDER/<corpus>.files.txt, the documents of each corpus, one a line, relative to FOLDER. With --check
it also looks for each gold quote in its document. Standard library only; root is not needed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from html.parser import HTMLParser
from pathlib import Path

# package: the version the questions were written against (a newer one of the same release may be served)
CORPORA = {
    "git": [("git-doc", "1:2.39.5-0+deb12u3", "usr/share/doc/git-doc/*.html")],
    "postgresql": [("postgresql-doc-15", "15.20-0+deb12u1", "usr/share/doc/postgresql-doc-15/html/*.html")],
    "debian": [
        ("debian-policy", "4.6.2.0", "usr/share/doc/debian-policy/policy.html/*.html"),
        ("debian-reference-en", "2.100", "usr/share/debian-reference/*.html"),
        ("developers-reference", "12.18", "usr/share/developers-reference/*.html"),
        ("debian-faq", "11.1", "usr/share/doc/debian/FAQ/*.html"),
    ],
    "debian-zh": [
        ("debian-handbook", "11.20220922", "usr/share/doc/debian-handbook/html/zh-CN/*.html"),
        ("debian-reference-zh-cn", "2.100", "usr/share/debian-reference/*.html"),
        ("maint-guide-zh-cn", "1.2.53", "usr/share/doc/maint-guide-zh-cn/html/*.html"),
        ("debian-faq-zh-cn", "11.1", "usr/share/doc/debian/FAQ/zh-cn/*.html"),
    ],
}
_LEFT_OUT = ("search.html", "genindex.html", "developers-reference.html")
"""Search pages, and a whole book on one page."""

_HIDDEN = ("script", "style", "head")
_BLOCKS = ("p", "div", "li", "dt", "dd", "h1", "h2", "h3", "h4", "pre", "tr", "td", "th")


class _Text(HTMLParser):
    """Collects the text of a page; blocks and cells are apart by blanks."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._depth = 0  # of elements that are not shown

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Open an element."""
        self._depth += tag in _HIDDEN
        if tag in _BLOCKS or tag == "br":
            self.parts.append(" ")

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        self._depth = max(0, self._depth - (tag in _HIDDEN))
        if tag in _BLOCKS:
            self.parts.append(" ")

    def handle_data(self, data: str) -> None:
        """Keep text that is shown."""
        if not self._depth:
            self.parts.append(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", type=Path, metavar="QUESTIONS", help="look for each gold quote")
    arguments = parser.parse_args()
    for corpus, packages in CORPORA.items():
        files = [path for package in packages for path in _documents(arguments.folder, *package)]
        names = [f"{path.relative_to(arguments.folder)}\n" for path in files]
        (arguments.folder / f"{corpus}.files.txt").write_text("".join(names), encoding="utf-8")
        size = sum(path.stat().st_size for path in files) // 1024
        print(f"{corpus}: {len(files)} documents, {size} KiB")
    if arguments.check and _count_missing(arguments.folder, arguments.check):
        raise SystemExit(1)


def _documents(folder: Path, package: str, version: str, pattern: str) -> list[Path]:
    into = folder / package
    if not into.is_dir():
        _unpack(package, version, folder / "deb", into)
    found = (path for path in sorted(into.glob(pattern)) if not path.is_symlink())
    return [path for path in found if path.name not in _LEFT_OUT]


def _unpack(package: str, version: str, work: Path, into: Path) -> None:
    work.mkdir(parents=True, exist_ok=True)
    for name in (f"{package}={version}", package):
        if subprocess.run(["apt-get", "download", "-q", name], cwd=work, check=False).returncode == 0:
            break
    else:
        raise SystemExit(f"cannot download {package}")
    archive = sorted(work.glob(f"{package}_*.deb"))[-1]
    subprocess.run(["dpkg-deb", "-x", str(archive), str(into)], check=True)
    print(package, archive.name)


def _count_missing(folder: Path, questions: Path) -> int:
    quotes = missing = 0
    for line in questions.read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        for gold in question["gold"]:
            quotes += 1
            path = folder / gold["document"]
            if not path.exists() or gold["quote"] not in _text(path):
                missing += 1
                print("not found:", question["id"], gold["document"], gold["quote"])
    print(f"{quotes} quotes, {missing} not found")
    return missing


def _text(path: Path) -> str:
    parser = _Text()
    parser.feed(path.read_text(encoding="utf-8", errors="replace"))
    return " ".join("".join(parser.parts).replace("\xa0", " ").replace("¶", "").split())


if __name__ == "__main__":
    main()
