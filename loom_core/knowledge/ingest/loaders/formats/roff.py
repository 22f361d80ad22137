"""Parser of roff, the language of man pages: requests, lines of text, escapes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Roff", "is_roff", "split_arguments"]

_HEAD = 16_000
_IS_PAGE = re.compile(r"^[.'][ \t]*(?:TH|Dd|Dt|so)[ \t]+\S", re.MULTILINE)
_LINE = re.compile(r"[.'][ \t]*(\S*)[ \t]*(.*)", re.DOTALL)
_ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|((?:\\.|\S)+)', re.DOTALL)
_MAX_LINE = 4_000
"""Length up to which lines are joined, and conditions may be followed by more."""

_MAX_STRING = 1_000
_MAX_EXPANDED = 1_000_000
"""Limit of the expanded text of a page, as strings may hold strings recursively."""

_CHARACTERS = {
    pair[:-2]: pair[-1] for pair in (
        'aq=\' dq=" bu=• em=— en=– hy=- mi=- lq=“ rq=” oq=‘ cq=’ rs=\\ ha=^ ti=~ ga=` aa=´ co=© rg=® tm=™ '
        '->=→ <-=← <>=↔ ua=↑ da=↓ rA=⇒ lA=⇐ <==≤ >==≥ !==≠ ===≡ ~~=≈ mu=× di=÷ +-=± t+-=± de=° 14=¼ 12=½ '
        '34=¾ S1=¹ S2=² S3=³ sc=§ ps=¶ ss=ß AE=Æ ae=æ OE=Œ oe=œ oa=å oA=Å /o=ø /O=Ø -D=Ð Sd=ð TP=Þ Tp=þ '
        'Fo=« Fc=» fo=‹ fc=› Bq=„ bq=‚ lB=[ rB=] lC={ rC=} la=⟨ ra=⟩ ba=| br=│ or=| ul=_ ru=_ sl=/ at=@ '
        'sh=# Do=$ ct=¢ Po=£ Eu=€ eu=€ Ye=¥ if=∞ pl=+ eq== **=* dg=† dd=‡ OK=✓ sq=□ ci=○ r!=¡ r?=¿ lh=☜ '
        'rh=☞ no=¬ tno=¬ sr=√ pd=∂ *a=α *b=β *g=γ *d=δ *e=ε *z=ζ *h=θ *l=λ *m=μ *n=ν *p=π *r=ρ *s=σ *t=τ '
        '*f=φ *q=ψ *w=ω *D=Δ *S=Σ *W=Ω Cs=¤ %0=‰ fm=′ sd=″ .i=ı md=⋅ pc=· es=∅ mo=∈ AN=∧ OR=∨ fa=∀ te=∃ '
        'ap=∼ =~=≅ lf=⌊ rf=⌋ lc=⌈ rc=⌉ '
    ).split()
}  # fmt: skip
"""Special characters by name, see groff_char(7)."""

_ACCENTS = {
    "'": "\u0301",
    "`": "\u0300",
    "^": "\u0302",
    ":": "\u0308",
    "~": "\u0303",
    ",": "\u0327",
    "v": "\u030c",
}
_STRINGS = {
    "lq": "“",
    "rq": "”",
    'L"': "“",
    'R"': "”",
    "R": "®",
    "Tm": "™",
    "S": "",
    "Lq": "“",
    "Rq": "”",
    "q": '"',
}
_NAMED = r"(?:\((?P<{0}2>..)|\[(?P<{0}n>[^\]\n]{{0,80}})\]|(?P<{0}1>.))"
_ESCAPE = re.compile(
    r"\\(?:"
    rf"\*{_NAMED.format('s')}"  # a string
    r"|(?P<char>\(..|\[[^\]\n]{0,80}\])"  # a special character
    r"|C'(?P<charn>[^'\n]{0,80})'"
    rf"|[fgkmMnVYF][+-]?{_NAMED.format('x')}"  # fonts, registers, colours
    r"|s(?:[+-]?\(..|[+-]?\[[^\]\n]{0,9}\]|[+-]?'[^'\n]{0,9}'|[+-]?[0-3]?\d)"
    r"|[ABDHLNRSXZbhlovwx](?P<quote>['\"/])(?P<inside>.{0,200}?)(?P=quote)"
    r"|(?P<zero>[&|^%:/,)!?acdprtuz{}\n])"
    r"|(?P<blank>[ ~0])"
    r"|(?P<self>.))",
    re.DOTALL,
)
_LETTERS = {"e": "\\", "\\": "\\", "'": "´", "`": "`", "-": "-", ".": ".", "_": "_", "(": "("}


def is_roff(text: str) -> bool:
    """Whether a text is the source of a man page."""
    return _IS_PAGE.search(text[:_HEAD]) is not None


def split_arguments(text: str) -> list[str]:
    """Return the arguments of a macro; quoted ones may hold blanks."""
    return [
        quoted.replace('""', '"') if match[0].startswith('"') else plain
        for match in _ARGUMENT.finditer(text)
        for quoted, plain in [(match[1] or "", match[2] or "")]
    ]


class Roff:
    """A source, read line by line, without comments, conditions and definitions.

    Conditions are evaluated as for a terminal. The page's own strings are expanded, but not its own macros.
    """

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")[::-1]  # the next one last, so that a line can be put back
        self._strings = dict(_STRINGS)
        self._left = _MAX_EXPANDED
        self._else: list[bool] = []

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield lines as (name of the macro, arguments), or ("", text)."""
        while self._lines:
            line = self._next()
            match = _LINE.fullmatch(line) if line[:1] in {".", "'"} else None
            if match is None:
                yield "", line
                continue
            # The end of a condition may follow a request directly.
            name, _, tail = match[1].partition("\\}")
            rest = tail + match[2]
            if name in {"if", "ie", "el"} or name.startswith("el\\"):
                self._condition(name, rest)
            elif name in {"de", "de1", "am", "ig", "dei", "ami"}:
                self._skip_definition(name, rest)
            elif name in {"ds", "ds1", "as"}:
                key, _, value = rest.partition(" ")
                before = self._strings.get(key, "") if name == "as" else ""
                self._strings[key] = (before + value.lstrip().removeprefix('"'))[:_MAX_STRING]
            elif name:
                yield name, rest

    def plain(self, text: str) -> str:
        """Return a text with its escapes resolved."""
        for _ in range(4):  # strings may hold strings
            if "\\*" not in text:
                break
            text = _ESCAPE.sub(self._with_string, text)
        return _ESCAPE.sub(self._character, text) if "\\" in text else text

    def _next(self) -> str:
        """Return the next line without its comment, joined with those that continue it."""
        line = _without_comment(self._lines.pop())
        while self._lines and line.endswith("\\") and not line.endswith("\\\\") and len(line) < _MAX_LINE:
            line = line[:-1] + _without_comment(self._lines.pop())
        return line

    def _condition(self, name: str, rest: str) -> None:
        if name.startswith("el"):
            holds, rest = (self._else.pop() if self._else else False), name[2:] + rest
        else:
            holds, rest = _decide(rest)
            if name == "ie":
                self._else.append(not holds)
        rest = rest.lstrip()
        if not holds:
            depth = rest.count("\\{") - rest.count("\\}")
            while depth > 0 and self._lines:
                line = self._lines.pop()
                depth += line.count("\\{") - line.count("\\}")
        elif (rest := rest.removeprefix("\\{").lstrip()) and len(rest) < _MAX_LINE:
            self._lines.append(rest)

    def _skip_definition(self, name: str, rest: str) -> None:
        arguments = rest.split()
        at = 0 if name == "ig" else 1
        end = "." + (arguments[at] if len(arguments) > at else ".")
        while self._lines and self._lines.pop().replace(" ", "").rstrip() != end:
            pass

    def _with_string(self, match: re.Match[str]) -> str:
        name = match["s2"] or match["sn"] or match["s1"]
        if name is None:
            return match[0]
        value = self._strings.get(name, "")
        self._left -= len(value)
        return value if self._left >= 0 else ""

    @staticmethod
    def _character(match: re.Match[str]) -> str:
        special = match["char"] or match["charn"]
        if special:
            return _special(
                special.strip("()[]") if match["char"] is None else special.lstrip("([").removesuffix("]")
            )
        if match["blank"]:
            return " "
        if match["self"]:
            return _LETTERS.get(match["self"], match["self"])
        inside = match["inside"]
        return inside if inside and match[0][1] in "oZ" else ""


def _without_comment(line: str) -> str:
    at = line.find('\\"')
    at = at if at >= 0 else line.find("\\#")
    if at < 0 or (at and line[at - 1] == "\\"):
        return line
    return line[:at].rstrip() if at else ""


def _decide(condition: str) -> tuple[bool, str]:
    """Whether a condition holds on a terminal, and what follows it."""
    match = re.match(r"(!?)\s*(?:([note])(?=\s|\\|$)|(\\n\(\.g)\S*|([\"'])(.*?)\4(.*?)\4|(\S+))", condition)
    if match is None:
        return False, condition
    if match[2]:
        holds = match[2] in "no"
    elif match[4]:
        holds = match[5] == match[6]
    else:
        holds = match[3] is not None
    return holds is not bool(match[1]), condition[match.end() :]


def _special(name: str) -> str:
    if name in _CHARACTERS:
        return _CHARACTERS[name]
    if re.fullmatch(r"u[0-9A-Fa-f]{4,6}(?:_[0-9A-Fa-f]{4,6})*", name):
        points = [int(part, 16) for part in name[1:].split("_")]
        return "".join(chr(point) for point in points if point < 0x110000 and not 0xD800 <= point < 0xE000)
    if name.startswith("char") and name[4:].isdecimal() and int(name[4:]) < 256:
        return chr(int(name[4:]))
    if len(name) == 2 and name[0] in _ACCENTS and name[1].isalpha():
        return name[1] + _ACCENTS[name[0]]
    return name if len(name) == 1 else ""
