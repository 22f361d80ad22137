"""Man page sources, man(7) and mdoc(7): sections as headings, each option with its description."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from loom_core.files.encoding import decode
from loom_core.knowledge.ingest.loaders.cleaning import clean_line, clean_text, join_lines
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.formats.plain import read_plain
from loom_core.knowledge.ingest.loaders.formats.roff import Roff, is_roff, split_arguments
from loom_core.knowledge.ingest.loaders.tables import write_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source

__all__ = ["load_man"]

_ALTERNATING = frozenset({"BI", "BR", "IB", "IR", "RB", "RI"})
_SPACED = frozenset({"B", "I", "SM", "SB", "R", "CW", "QW", "PQ", "UR", "MT", "URL", "SY"})
_HEADINGS = {"SH": 2, "Sh": 2, "SS": 3, "Ss": 3}
_TAGS = frozenset({"TP", "TQ", "IP", "It", "AP"})
"""Macros that begin an item with a tag; `AP` is Tcl's macro for an argument of a function."""

_BREAKS = frozenset("PP P LP HP Pp RS RE sp Sp Bl El YS D1 Dl".split())
_SILENT = frozenset("br Dd Os Sm Bk Ek TE EQ EN".split())
_VERBATIM = {"nf": True, "EX": True, "Vb": True, "fi": False, "Ed": False, "EE": False, "Ve": False}
_TAB = re.compile(r"tab\s*\((.)\)")
_MAX_TITLE = 150


def load_man(source: Source) -> LoadedContent:
    """Read the source of a man page as a terminal shows it; anything else as plain text.

    Raises:
        DocumentError: it only redirects to another page.
    """
    text = clean_text(decode(source.data, hint=source.charset)[0])
    if not is_roff(text):
        return read_plain(text)
    page = _Page(source, text)
    page.read()
    if not page.writer.count and page.other:
        raise source.error(f"only refers to the man page {page.other}.", advice="Add that one.")
    title = page.title()
    return page.writer.finish(title=title, title_source="metadata" if title else "none")


class _Page:
    """Collects inline text, and writes it at the end of a paragraph."""

    def __init__(self, source: Source, text: str) -> None:
        self.writer = ContentWriter(source)
        self.other = ""
        self._roff = Roff(text)
        self._mdoc = Mdoc(self._roff.plain)
        self._lines = iter(self._roff)
        self._name = ""
        self._summary = ""
        self._headings = 0
        self._text: list[str] = []
        self._tag = ""
        self._wants = ""  # what the next line of text is: a heading (SH, SS) or a tag (TP)
        self._verbatim = False

    def title(self) -> str:
        """Return `ls(1) - list directory contents`."""
        summary = self._summary.partition(" - ")[2] or self._summary.partition(" – ")[2]
        return f"{self._name} - {summary}"[:_MAX_TITLE] if self._name and summary else self._name

    def read(self) -> None:
        for name, rest in self._lines:
            if not name:
                self._add(self._roff.plain(rest))
            elif name == "TS":
                self._table()
            elif not self._structure(name, rest):
                self._inline(name, rest)
        self._flush()

    def _structure(self, name: str, rest: str) -> bool:
        """Carry out a macro that begins or ends something; return False for any other."""
        arguments = self._arguments(rest)
        if name in _HEADINGS:
            self._flush()
            self._verbatim = False
            self._wants = name
            if arguments:
                self._add(self._mdoc.line(rest) if name in {"Sh", "Ss"} else " ".join(arguments))
        elif name in _TAGS:
            self._begin_item(name, rest, arguments)
        elif name in _VERBATIM or name == "Bd":
            self._flush()
            self._verbatim = _VERBATIM.get(name, "-literal" in rest or "-unfilled" in rest)
        elif name in _BREAKS:
            self._break(name, rest)
        elif name in {"TH", "Dt"} and arguments:
            self._name = f"{arguments[0]}({arguments[1]})" if len(arguments) > 1 else arguments[0]
            self._mdoc.name = self._mdoc.name or arguments[0].lower()
        elif name == "so":
            self.other = self.other or rest.strip()
        elif name == "br" and self._text:
            self._text.append("\0")
        else:
            return name in _SILENT
        return True

    def _arguments(self, rest: str) -> list[str]:
        return [self._roff.plain(argument) for argument in split_arguments(rest)]

    def _begin_item(self, name: str, rest: str, arguments: list[str]) -> None:
        if name != "TQ" or not self._tag or self._text:
            self._flush()
        if name in {"TP", "TQ"}:
            self._wants = name
        elif name == "It":
            self._tag = self._mdoc.line(rest)
        else:
            self._tag = " ".join(arguments if name == "AP" else arguments[:1])

    def _break(self, name: str, rest: str) -> None:
        if self._verbatim:
            self._text.append("")
            return
        self._flush()
        if name in {"D1", "Dl"}:
            self._add(self._mdoc.line(rest))
            self._flush()

    def _inline(self, name: str, rest: str) -> None:
        """Add the text of a macro within a sentence; an unknown one has none."""
        arguments = self._arguments(rest)
        if name in _ALTERNATING:
            self._add("".join(arguments))
        elif name in _SPACED:
            if arguments:
                self._add(" ".join(arguments))
        elif name in {"UE", "ME"}:
            if arguments and self._text:
                self._text[-1] += arguments[0]
        elif name == "OP":
            self._add(f"[{' '.join(arguments)}]")
        elif name == "MR" and len(arguments) > 1:
            self._add(f"{arguments[0]}({arguments[1]}){''.join(arguments[2:])}")
        elif name == "Nd":
            self._add(f"- {self._mdoc.line(rest)}")
        elif self._mdoc.knows(name):
            self._add(self._mdoc.line(f"{name} {rest}"))

    def _add(self, text: str) -> None:
        if self._wants and text.strip():
            wanted, self._wants = self._wants, ""
            if wanted in _HEADINGS:
                self.writer.heading(text, level=_HEADINGS[wanted])
                self._headings += 1
            else:
                self._tag = f"{self._tag}, {clean_line(text)}" if self._tag else clean_line(text)
        elif self._verbatim or text.strip():
            self._text.append(text)
        elif self._text:
            self._flush()  # a blank line

    def _flush(self) -> None:
        tag, self._tag, lines, self._text = clean_line(self._tag), "", self._text, []
        if self._verbatim:
            self.writer.write("code", "\n".join(line.replace("\0", "") for line in lines))
            return
        text = "\n".join(
            join_lines("\n".join(line.strip() for line in piece.split("\n"))).strip()
            for piece in "\n".join(lines).split("\0")
        ).strip()
        text = re.sub(r"[ \t]{2,}", " ", text)
        if self._headings == 1 and not self._summary:
            self._summary = text
        if tag:
            self.writer.write("list", f"{tag}\n  {text}" if text else tag)
        else:
            self.writer.write("paragraph", text)

    def _table(self) -> None:
        """Write a table of tbl(1): cells between tabs, or between `T{` and `T}` over several lines."""
        self._flush()
        tab, in_format, in_cell = "\t", True, False
        rows: list[list[str]] = []
        for name, rest in self._lines:
            if name == "TE":
                break
            if in_format and not name:
                tab = match[1] if (match := _TAB.search(rest)) else tab
                in_format = not rest.rstrip().endswith(".")
            elif name == "T&":
                in_format = True
            elif in_cell:
                text, end, tail = (self._words(name, rest) if name else rest).partition("T}")
                rows[-1][-1] += f" {self._roff.plain(text)}"
                rows[-1] += (more := tail.split(tab)[1:] if end else [])
                in_cell = more[-1:] == ["T{"] if end else True
            elif not name and rest.strip(f" _={tab}"):
                rows.append([self._roff.plain(cell) for cell in rest.split(tab)])
                in_cell = rows[-1][-1].strip() == "T{"
        cells = ([cell.strip().removeprefix("T{") for cell in row] for row in rows)
        write_table(self.writer, cells, header=())

    def _words(self, name: str, rest: str) -> str:
        """Return the text of a macro inside a cell."""
        joint = "" if name in _ALTERNATING else " "
        return joint.join(split_arguments(rest)) if name in _ALTERNATING or name in _SPACED else ""


_ENCLOSED = {
    "Op": "[]", "Dq": "“”", "Sq": "‘’", "Ql": "‘’", "Qq": '""', "Pq": "()", "Bq": "[]", "Brq": "{}",
    "Aq": "<>",
}  # fmt: skip
_OPEN = {"Oo": "[", "Do": "“", "So": "‘", "Qo": '"', "Po": "(", "Bo": "[", "Bro": "{", "Ao": "<"}
_CLOSE = {"Oc": "]", "Dc": "”", "Sc": "’", "Qc": '"', "Pc": ")", "Bc": "]", "Brc": "}", "Ac": ">", "Fc": ")"}
_PLAIN = frozenset(
    "Ad An Ar Cd Cm Dv Em Er Ev Fa Fd Ft Ic In Lb Li Lk Mt Ms No Pa St Sx Sy Tn Va Vt Bf Xo Eo Ec Me Ot Hf"
    " Ta %A %B %D %I %J %N %O %P %R %T %U %V".split()
)
_MDOC_SILENT = frozenset({"Xc", "Ef", "Rs", "Re", "Tg", "Ex", "Rv"})
_SYSTEMS = {
    "Bx": "BSD",
    "Nx": "NetBSD",
    "Fx": "FreeBSD",
    "Ox": "OpenBSD",
    "Dx": "DragonFly",
    "At": "AT&T UNIX",
    "Ux": "UNIX",
}
_SPECIAL = frozenset({"Ap", "Fl", "Fn", "Fo", "Nm", "Ns", "Pf", "Xr"})
_OPENING = frozenset({"(", "["})
_CLOSING = frozenset({".", ",", ":", ";", ")", "]", "?", "!"})


class Mdoc:
    """Writes lines of macros as text.

    Args:
        plain: resolves the escapes of a word.
    """

    def __init__(self, plain: Callable[[str], str]) -> None:
        self._plain = plain
        self.name = ""
        """The name of the page's subject, which `Nm` stands for."""

    def knows(self, name: str) -> bool:
        """Whether a line may begin with this macro."""
        return (
            name in _PLAIN or name in _ENCLOSED or name in _OPEN or name in _CLOSE
            or name in _SYSTEMS or name in _SPECIAL or name in _MDOC_SILENT
        )  # fmt: skip

    def line(self, text: str) -> str:
        """Return the text of a line: words, and macros with their arguments."""
        out = _Words()
        ends: list[str] = []  # closing marks of what is enclosed up to the line's end
        words = split_arguments(text)
        at = 0
        while at < len(words):
            name = words[at]
            at += 1
            if not self.knows(name):
                out.add(self._plain(name))
                continue
            until = at
            while until < len(words) and not self.knows(words[until]):
                until += 1
            arguments = [self._plain(word) for word in words[at:until]]
            if name in _ENCLOSED:
                out.open(_ENCLOSED[name][0])
                ends.append(_ENCLOSED[name][1])
            else:
                at = until
                self._macro(out, name, arguments)
        for end in reversed(ends):
            out.close(end)
        return out.text()

    def _macro(self, out: _Words, name: str, arguments: list[str]) -> None:
        if name in _OPEN:
            out.open(_OPEN[name])
        elif name in _CLOSE:
            out.close(_CLOSE[name])
        elif name == "Ap":
            out.close("'")
        if name in {"Ns", "Ap"}:
            out.join()
        for word in [] if name in _MDOC_SILENT else self._render(name, arguments):
            out.add(word)
        if name == "Pf":
            out.join()

    def _render(self, name: str, arguments: list[str]) -> list[str]:
        """Return the words that a macro makes of its arguments."""
        marks = [word for word in arguments if word in _CLOSING]
        first = next((word for word in arguments[:1] if word not in _CLOSING), "")
        if name == "Fl":
            words = [word if word in _CLOSING | _OPENING | {"|"} else f"-{word}" for word in arguments]
            return words if any(word.startswith("-") for word in words) else ["-", *words]
        if name == "Nm":
            self.name = self.name or first
            return arguments if first else [self.name, *arguments]
        if name == "Xr" and len(arguments) > 1 and arguments[1] not in _CLOSING:
            return [f"{first}({arguments[1]})", *arguments[2:]]
        if name == "Fn":
            return [f"{first}({', '.join(word for word in arguments[1:] if word not in _CLOSING)})", *marks]
        if name == "Fo":
            return [f"{first}("]
        return [_SYSTEMS[name], *arguments] if name in _SYSTEMS else arguments


class _Words:
    """Join words by spaces, but not before a full stop or after an opening bracket."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._joined = True

    def add(self, word: str) -> None:
        if not word:
            return
        if not self._joined and word not in _CLOSING:
            self._pieces.append(" ")
        self._pieces.append(word)
        self._joined = word in _OPENING

    def open(self, mark: str) -> None:
        self.add(mark)
        self._joined = True

    def close(self, mark: str) -> None:
        self._pieces.append(mark)
        self._joined = False

    def join(self) -> None:
        self._joined = True

    def text(self) -> str:
        return "".join(self._pieces)
