"""LaTeX: the text of a document, with its sections, lists, tables and code; formulas stay as they are."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

from loom_core.files.encoding import decode
from loom_core.knowledge.ingest.loaders.cleaning import clean_line, clean_text, join_lines
from loom_core.knowledge.ingest.loaders.content import ContentWriter
from loom_core.knowledge.ingest.loaders.tables import write_table
from loom_core.knowledge.ingest.loaders.titles import usable_title

if TYPE_CHECKING:
    from loom_core.knowledge.ingest.loaders.content import LoadedContent
    from loom_core.knowledge.ingest.loaders.source import Source
    from loom_core.knowledge.model import BlockKind

__all__ = ["load_tex"]

_MAX_DEPTH = 10
_TOKEN = re.compile(
    r"(?P<plain>[^\\{}$%~&\n`'-]+)"
    r"|\\(?P<accent>['`^\"~=.]|[uvHcdbrk](?![A-Za-z]))[ \t]*"
    r"(?:\{\\?(?P<letter>[A-Za-z])\}|\\?(?P<bare>[A-Za-z]))"
    r"|\\(?:verb|lstinline)\*?(?P<mark>[^\sA-Za-z*\[])(?P<verbatim>[^\n]{0,500}?)(?P=mark)"
    r"|\\(?P<name>[A-Za-z@]+)\*?"
    r"|(?P<formula>\$\$.{1,5000}?\$\$|\$(?:[^$\\]|\\.){1,2000}\$|\\\((?:[^\\]|\\[^(]){1,2000}?\\\)"
    r"|\\\[(?:[^\\]|\\[^\[]){1,5000}?\\\])"
    r"|(?P<line>\\\\\*?(?:\[[^\]\n]{0,40}\])?)"
    r"|\\(?P<symbol>.)"
    r"|(?P<comment>%[^\n]*(?:\n[ \t]*)?)"
    r"|(?P<gap>\n[ \t]*\n\s*)"
    r"|(?P<mark_of_text>---?|``|''|[`'~&\n])"
    r"|(?P<other>.)",
    re.DOTALL,
)
_MARKS = {"--": "–", "---": "—", "``": "“", "''": "”", "`": "‘", "'": "’", "~": " ", "&": " "}
_ACCENTS = dict(
    zip("'`^\"~=.uvHcdbrk",
        "\u0301\u0300\u0302\u0308\u0303\u0304\u0307\u0306\u030c\u030b\u0327\u0323\u0331\u030a\u0328",
        strict=True)
)  # fmt: skip
_SYMBOLS = {
    "LaTeX": "LaTeX", "LaTeXe": "LaTeX2e", "TeX": "TeX", "BibTeX": "BibTeX", "XeTeX": "XeTeX",
    "LuaTeX": "LuaTeX", "XeLaTeX": "XeLaTeX", "pdfTeX": "pdfTeX", "pdfLaTeX": "pdfLaTeX",
    "CTeX": "CTeX", "AmS": "AMS", "ldots": "…", "dots": "…", "textellipsis": "…",
    "textbackslash": "\\", "textasciitilde": "~",
    "textasciicircum": "^", "textbar": "|", "textless": "<", "textgreater": ">", "textunderscore": "_",
    "S": "§", "P": "¶", "copyright": "©", "textcopyright": "©", "textregistered": "®", "texttrademark": "™",
    "pounds": "£", "euro": "€", "dag": "†", "ddag": "‡", "textbullet": "•", "textdegree": "°", "ss": "ß",
    "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "o": "ø", "O": "Ø", "aa": "å", "AA": "Å", "l": "ł", "L": "Ł",
    "i": "i", "j": "j", "textendash": "–", "textemdash": "—",
    "textquotedblleft": "“", "textquotedblright": "”",
    "textquoteleft": "‘", "textquoteright": "’", "newline": "\0", "linebreak": "\0", "quad": " ",
    "qquad": " ", "space": " ", "textvisiblespace": "␣",
}  # fmt: skip
_SECTIONS = ("part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph")
_LISTS = frozenset(
    {"itemize", "enumerate", "description", "compactitem", "compactenum", "thebibliography", "list"}
)
_VERBATIM = frozenset(
    {"verbatim", "Verbatim", "lstlisting", "minted", "alltt", "BVerbatim", "LVerbatim", "code"}
)
_TABLES = {
    "tabular": 1,
    "tabularx": 2,
    "tabulary": 2,
    "longtable": 1,
    "tabu": 1,
    "supertabular": 1,
    "array": 1,
}
_FORMULAS = frozenset(
    {"equation", "align", "gather", "multline", "eqnarray", "displaymath", "math", "flalign", "alignat"}
)
_PICTURES = frozenset({"tikzpicture", "picture", "pspicture", "comment", "filecontents", "CCSXML", "axis"})
_WITH_ARGUMENTS = {
    "minipage": 1, "multicols": 1, "wrapfigure": 2, "wraptable": 2, "thebibliography": 1, "subfigure": 1,
    "subtable": 1, "adjustbox": 1, "column": 1, "CJK": 2, "CJK*": 2,
    "list": 2, "spacing": 1, "otherlanguage": 1,
    "floatrow": 1, "block": 0, "adjustwidth": 2, "threeparttable": 0,
}  # fmt: skip
_DROPPED = {
    **dict.fromkeys(
        "label ref pageref eqref autoref cref Cref nameref vref index input include includeonly "
        "subfile includegraphics usepackage RequirePackage documentclass bibliography "
        "bibliographystyle vspace hspace pagestyle thispagestyle pagenumbering hypersetup geometry "
        "color graphicspath nocite hyphenation stepcounter refstepcounter pdfbookmark phantom "
        "hphantom vphantom newcounter usetikzlibrary lstset textcolor colorbox href parbox scalebox "
        "raisebox cline cmidrule title author date bibitem cellcolor rowcolor columncolor hypertarget "
        "hyperlink addbibresource setmainfont setsansfont theoremstyle setCJKmainfont setCJKsansfont "
        "setCJKmonofont ctexset captionsetup institute".split(),
        1,
    ),
    **dict.fromkeys(
        "setlength addtolength setcounter addtocounter fontsize markboth resizebox multicolumn "
        "multirow fcolorbox rule definecolor titleformat addtocontents settowidth newacronym "
        "newtheorem".split(),
        2,
    ),
    "addcontentsline": 3,
}  # fmt: skip
"""Number of arguments, of each command, that are not text."""

_DEFINITIONS = {
    **dict.fromkeys(
        "newcommand renewcommand providecommand DeclareMathOperator DeclareRobustCommand".split(), 2
    ),
    **dict.fromkeys("newenvironment renewenvironment NewDocumentCommand".split(), 3),
}
"""The same, of commands that define others, whose names need no braces."""

_NOTES = frozenset({"footnote", "footnotetext", "thanks"})
_CITATIONS = frozenset({"cite", "citep", "citet", "parencite", "textcite"})
_ARGUMENT = re.compile(r"[ \t]*\n?[ \t]*(?:\[[^\]]{0,1000}\][ \t]*)*")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_COMMAND = re.compile(r"\\[A-Za-z@]+")
_MACRO = re.compile(r"\\(?:re)?newcommand\*?\{?\\([A-Za-z]{1,40})\}?\{([^{}\\#$%]{1,100})\}")
_COMMENT = re.compile(r"(?<!\\)%[^\n]*(?:\n[ \t]*)?")
_LABEL = re.compile(r"\\label\{[^}]{0,100}\}")
_OPTION = re.compile(r"\s*\[((?:[^\[\]]|\[[^\[\]]{0,100}\]){0,300})\]")
_RULE = re.compile(r"\\(?:hline|toprule|midrule|bottomrule|endhead|endfirsthead|endfoot|endlastfoot)\b")
_NO_PREAMBLE = re.compile(r"\\(?:part|chapter|section)\*?\{|\\begin\{verbatim\}")
_FIELD = r"(?m)^[^%\n]*?\\{name}[ \t]*(?:\[[^\]]{{0,200}}\])?(?=\{{)"


def load_tex(source: Source) -> LoadedContent:
    r"""Read a LaTeX document, or a part of one. Files that it names (`\input`) are not read."""
    text = clean_text(decode(source.data, hint=source.charset)[0])
    macros = {match[1]: match[2] for match in _MACRO.finditer(text)}
    writer = ContentWriter(source)
    fields = {name: _field(text, name, macros) for name in ("title", "author", "date")}
    title = usable_title(fields.pop("title"))
    writer.heading(title, level=1)
    metadata: dict[str, Any] = {name: value for name, value in fields.items() if value}
    writer.write("paragraph", "\n".join(metadata.values()))
    before, begin, body = text.partition(r"\begin{document}")
    if begin and not _NO_PREAMBLE.search(before):
        text = body.rpartition(r"\end{document}")[0] or body
    used = [name for name in _SECTIONS if re.search(rf"\\{name}\*?[\[{{]", text)]
    first = _SECTIONS.index(used[0]) if used else 0
    writer.depth = 1 if title else 0
    _Reader(macros, writer=writer, first=first).read(text)
    return writer.finish(title=title, title_source="metadata" if title else "none", metadata=metadata)


def _field(text: str, name: str, macros: dict[str, str]) -> str:
    """Return the text of the argument of `title`, `author` or `date`, without its notes."""
    match = re.search(_FIELD.format(name=name), text)
    if match is None:
        return ""
    end = _closing_braces(text).get(match.end(), match.end())
    argument = re.sub(r" *\\and\b", ", ", text[match.end() + 1 : end])
    return clean_line(_Reader(macros, notes=False).text(argument))


def _closing_braces(text: str) -> dict[int, int]:
    """Return the offset of the closing brace for that of each opening one that has one.

    All at once, as to look for each by itself takes quadratic time where none is closed.
    """
    found: dict[int, int] = {}
    opened: list[int] = []
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            found[opened.pop()] = match.start()
    return found


class _Reader:
    """Reads a text command by command.

    Args:
        macros: texts of the commands that a document defines.
        writer: writer of the document; None for the text of an argument.
        first: index of the outermost section in `_SECTIONS`.
        notes: whether footnotes are read.
        depth: number of arguments around the text.
    """

    def __init__(
        self,
        macros: dict[str, str],
        *,
        writer: ContentWriter | None = None,
        first: int = 0,
        notes: bool = True,
        depth: int = 0,
    ) -> None:
        self._macros = macros
        self._writer = writer
        self._first = first
        self._notes = notes
        self._depth = depth
        self._text = ""
        self._closing: dict[int, int] = {}
        self._pieces: list[str] = []
        self._prefix = ""
        self._lines: list[str] = []
        self._lists: list[list[str]] = []  # the marks of each open list's items

    def text(self, text: str) -> str:
        """Return the text of an argument."""
        if self._depth > _MAX_DEPTH:
            return re.sub(r"[\\{}]", " ", text)
        self.read(text)
        return "\n".join(self._lines)

    def read(self, text: str) -> None:
        """Read a whole text."""
        self._text = text
        self._closing = _closing_braces(text)
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                break
            position = self._token(match)
        self._end_block()

    def _token(self, match: re.Match[str]) -> int:
        """Read a token; return the offset after it and its arguments."""
        kind = match.lastgroup
        if kind in {"letter", "bare"}:
            letter = match["letter"] or match["bare"]
            self._pieces.append(unicodedata.normalize("NFC", letter + _ACCENTS[match["accent"]]))
        elif kind == "name":
            return self._command(match["name"], match.end())
        elif kind == "gap" or (kind == "comment" and self._text[match.end() : match.end() + 1] == "\n"):
            self._end_block()
        elif kind == "line":
            self._pieces.append("\0")
        elif kind == "symbol":
            symbol = match["symbol"]
            self._pieces.append(" " if symbol in " ,;:\n" else symbol if symbol in "%&$#_{}" else "")
        elif kind == "mark_of_text":
            self._pieces.append(_MARKS.get(match[0], match[0]))
        elif kind == "verbatim" or match["mark"]:
            self._pieces.append(match["verbatim"])
        elif kind in {"plain", "formula"} or match[0] in {"-", "$"}:
            self._pieces.append(match[0])
        return match.end()

    def _command(self, name: str, position: int) -> int:
        text = self._text
        if name in {"begin", "end"} and text[position : position + 1] == "{":
            environment, position = self._group(position)
            return self._begin(environment, position) if name == "begin" else self._end(environment, position)
        if name in _SECTIONS or name == "frametitle":
            title, position = self._argument(position)
            level = _SECTIONS.index(name) - self._first + 1 if name in _SECTIONS else 3
            self._heading(title, level=level)
        elif name in {"caption", "captionof"}:
            self._end_block()
            position = self._skip(position, count=name == "captionof")
            caption, position = self._argument(position)
            self._pieces.append(caption)
            self._end_block()
        elif name in _NOTES:
            note, position = self._argument(position)
            self._pieces.append(f" ({note})" if self._notes and note else "")
        elif name in _CITATIONS:
            keys, position = self._argument(position)
            self._pieces.append(f"[{keys}]")
        elif name in {"item", "bibitem"}:
            return self._item(name, position)
        elif name in {"def", "edef", "gdef", "let", "iffalse"}:
            return self._definition(name, position)
        elif name in {"par", "newpage", "clearpage", "maketitle"}:
            self._end_block()
        elif name in _DEFINITIONS or name in _DROPPED or name.endswith("index"):
            count = 3 if name.endswith("index") else _DROPPED.get(name) or _DEFINITIONS[name]
            return self._skip(position, count=count, commands=name in _DEFINITIONS)
        elif (symbol := _SYMBOLS.get(name) or self._macros.get(name)) is not None:
            self._pieces.append(symbol)
        else:  # what is in braces after it is read as text
            options = _ARGUMENT.match(text, position)
            return options.end() if options and text[options.end() : options.end() + 1] == "{" else position
        return position

    def _definition(self, name: str, position: int) -> int:
        """Return the offset after a definition of plain TeX, or a part that is switched off."""
        if name == "iffalse":
            end = self._text.find(r"\fi", position)
            return end + 3 if end >= 0 else len(self._text)
        brace = self._text.find("{", position, position + 100)
        if name == "let" or brace < 0:
            return self._skip(position, count=2, commands=True)
        return self._group(brace)[1]

    def _group(self, start: int) -> tuple[str, int]:
        """Return what is in braces from an offset on, and the offset after; empty where none closes."""
        end = self._closing.get(start)
        return ("", start + 1) if end is None else (self._text[start + 1 : end], end + 1)

    def _argument(self, position: int) -> tuple[str, int]:
        """Return the text of the next argument, and the offset after it."""
        options = _ARGUMENT.match(self._text, position)
        position = options.end() if options else position
        if self._text[position : position + 1] != "{":
            return "", position
        argument, position = self._group(position)
        return self._render(argument), position

    def _render(self, argument: str) -> str:
        reader = _Reader(self._macros, notes=self._notes, depth=self._depth + 1)
        return clean_line(reader.text(argument))

    def _skip(self, position: int, *, count: int, commands: bool = False) -> int:
        """Return the offset after arguments that are not text, with options between them."""
        for _ in range(count + 1):
            options = _ARGUMENT.match(self._text, position)
            after = options.end() if options else position
            if self._text[after - 1 : after] == "]":
                position = after
            if not count:
                break
            count -= 1
            if self._text[after : after + 1] == "{":
                position = self._group(after)[1]
            elif commands and (command := _COMMAND.match(self._text, after)):
                position = command.end()
            else:
                break
        return position

    def _heading(self, title: str, *, level: int) -> None:
        self._end_block()
        if self._writer is not None:
            self._writer.heading(title, level=level)
        else:
            self._pieces.append(f"{title} ")

    def _begin(self, name: str, position: int) -> int:
        plain = name.removesuffix("*")
        if plain in _VERBATIM or plain in _PICTURES or plain in _FORMULAS:
            end = self._text.find(rf"\end{{{name}}}", position)
            body = self._text[position : end if end >= 0 else None]
            self._verbatim(plain, body)
            return end + len(name) + 6 if end >= 0 else len(self._text)
        if plain in _TABLES:
            position = self._skip(position, count=_TABLES[plain] + (name == "tabular*"))
            return self._table(name, position)
        self._end_block()
        if plain in _LISTS:
            self._lists.append(["1" if plain in {"enumerate", "compactenum"} else "-"])
        position = self._skip(position, count=_WITH_ARGUMENTS.get(name, 0))
        if name == "frame" and self._text[position : position + 1] == "{":
            title, position = self._argument(position)
            self._heading(title, level=3)
        return position

    def _end(self, name: str, position: int) -> int:
        self._end_block()
        if name.removesuffix("*") in _LISTS and self._lists:
            self._lists.pop()
            if not self._lists:
                self._flush("list")
            self._prefix = "  " * len(self._lists)
        return position

    def _verbatim(self, name: str, body: str) -> None:
        """Write code; add a formula to the text; leave out pictures drawn by commands."""
        if name in _FORMULAS:
            formula = " ".join(_LABEL.sub("", body).split())
            self._pieces.append(f" $${formula}$$ ")
        elif name in _VERBATIM:
            self._end_block()
            if name in {"lstlisting", "minted", "Verbatim"}:
                body = re.sub(r"\A(?:\[[^\]]{0,500}\]|\{[^}\n]{0,50}\})+", "", body)
            if self._writer is not None:
                self._flush("list")
                self._writer.write("code", body.lstrip("\n"))
            else:
                self._pieces.append(body)

    def _table(self, name: str, position: int) -> int:
        """Write a table; one within a cell is a part of that."""
        depth, end, after = 1, len(self._text), len(self._text)
        for match in re.finditer(rf"\\(begin|end)\{{{re.escape(name)}\}}", self._text[position:]):
            depth += 1 if match[1] == "begin" else -1
            if depth == 0:
                end, after = position + match.start(), position + match.end()
                break
        body = _RULE.sub("", _COMMENT.sub("", self._text[position:end]))
        rows = [
            [self._render(cell) for cell in re.split(r"(?<!\\)&", row)]
            for row in re.split(r"\\\\(?:\[[^\]\n]{0,20}\])?|\\tabularnewline\b", body)
        ]
        if self._writer is None:
            self._pieces.append(" ".join(" ".join(row) for row in rows))
        else:
            self._end_block()
            self._flush("list")
            write_table(self._writer, rows)
        return after

    def _item(self, name: str, position: int) -> int:
        self._end_block()
        label = ""
        if option := _OPTION.match(self._text, position):
            label, position = self._render(option[1]), option.end()
        if name == "bibitem":
            position = self._skip(position, count=1)
        marks = self._lists[-1] if self._lists else ["-"]
        mark = marks[0] if marks[0] == "-" else f"{marks[0]}."
        if marks[0] != "-":
            marks[0] = str(int(marks[0]) + 1)
        if len(self._lists) == 1:
            self._flush("list")
        self._prefix = f"{'  ' * (len(self._lists) - 1)}{label or mark} "
        return position

    def _end_block(self) -> None:
        """End a paragraph; within a list, begin a line."""
        text = re.sub(r"[ \t]+", " ", "".join(self._pieces))
        self._pieces = []
        text = join_lines(re.sub(r" ?\n[ \n]*", "\n", text).strip())
        text = "\n".join(line.strip() for line in text.split("\0")).strip("\n")
        if text.strip():
            self._lines.append(self._prefix + text)
            self._prefix = "  " * len(self._lists)
        if not self._lists:
            self._flush("paragraph")

    def _flush(self, kind: BlockKind) -> None:
        if self._writer is not None and self._lines:
            self._writer.write(kind, "\n".join(self._lines))
            self._lines = []
