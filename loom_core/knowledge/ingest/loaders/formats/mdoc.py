"""The macros of mdoc(7) that stand inside a sentence, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.knowledge.ingest.loaders.formats.roff import split_arguments

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Mdoc"]

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
_SILENT = frozenset({"Xc", "Ef", "Rs", "Re", "Tg", "Ex", "Rv"})
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
        plain: carries out the escapes of a word.
    """

    def __init__(self, plain: Callable[[str], str]) -> None:
        self._plain = plain
        self.name = ""
        """The name of the page's subject, which `Nm` stands for."""

    def knows(self, name: str) -> bool:
        """Whether a line may begin with this macro."""
        return (
            name in _PLAIN or name in _ENCLOSED or name in _OPEN or name in _CLOSE
            or name in _SYSTEMS or name in _SPECIAL or name in _SILENT
        )  # fmt: skip

    def line(self, text: str) -> str:
        """The text of a line: words, and macros with their arguments."""
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
        for word in [] if name in _SILENT else self._written(name, arguments):
            out.add(word)
        if name == "Pf":
            out.join()

    def _written(self, name: str, arguments: list[str]) -> list[str]:
        """The words that a macro makes of its arguments."""
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
    """Words with blanks between them, but none before a full stop or after an opening bracket."""

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
