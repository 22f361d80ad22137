r"""Translation of trigger patterns: syntax for the engines, and the normalized form of messages.

People write patterns in Python's syntax, and in full-width or traditional characters. Here `（` is no bracket
and `\w` matches Chinese characters; `\u4e00`, `\Z`, `{,3}` and comments are translated for RE2. The engine
handles case: case folding of a pattern would turn `\S` into `\s`.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NoReturn

from loom_core.cjk import is_cjk
from loom_core.errors import UnreadableTextError
from loom_core.knowledge.text.scripts import to_simplified

__all__ = ["LONGEST_MESSAGE", "NormalText", "PatternText", "translate_pattern"]

LONGEST_MESSAGE = 4096
"""Maximum number of UTF-8 bytes of a message that are matched."""

_MARKS = range(0x1161, 0x1200)  # vowels and finals of Hangul, which combine with the character before


@dataclass(slots=True)
class NormalText:
    """A message normalized by NFKC and to simplified characters, and trimmed.

    Half-width and full-width forms become one, `①` becomes `1`, `㎏` becomes `kg`: the text may be longer
    than the message, or shorter. Case is preserved.
    """

    original: str
    text: str
    _lead: int
    _starts: list[int] = field(default_factory=list[int])
    _sources: list[int] = field(default_factory=list[int])
    _mapped: bool = False

    @classmethod
    def of(cls, message: str) -> NormalText:
        """Normalize a message. A lone surrogate becomes `?`; a message that is too long is truncated."""
        lead = len(message) - len(message.lstrip())
        body = _truncate(message[lead : lead + LONGEST_MESSAGE])
        if body.isascii():
            return cls(message, body.rstrip(), lead)
        plain = _truncate(unicodedata.normalize("NFKC", body)).rstrip()
        return cls(message, to_simplified(plain), lead, _mapped=not body.startswith(plain))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the span of the message that a part of the text comes from, in whole clusters."""
        if not self._mapped:
            return start + self._lead, end + self._lead
        if not self._starts:
            self._map()
        first = bisect_right(self._starts, start) - 1
        if end <= start:
            return self._sources[first], self._sources[first]
        last = bisect_right(self._starts, end - 1) - 1
        return self._sources[first], self._sources[last + 1]

    def _map(self) -> None:
        """Fill the tables that map each cluster of the message to the text."""
        at, source = 0, self._lead
        for cluster in _clusters(self.original[self._lead : self._lead + LONGEST_MESSAGE]):
            form = unicodedata.normalize("NFKC", cluster.encode("utf-8", "replace").decode())
            self._starts.append(at)
            self._sources.append(source)
            at += len(form)
            source += len(cluster)
        self._starts.append(at)
        self._sources += [source, source]


def _truncate(text: str) -> str:
    """Truncate a text to the maximum length, without lone surrogates."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > LONGEST_MESSAGE:
        return encoded[:LONGEST_MESSAGE].decode("utf-8", "ignore")
    return encoded.decode("utf-8")


def _clusters(text: str) -> list[str]:
    """Split a text into parts that are normalized independently."""
    starts = [at for at, char in enumerate(text) if at == 0 or not _joins(char)]
    return [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]


def _joins(char: str) -> bool:
    """Return whether a character may combine with the one before it."""
    if char.isascii():
        return False
    first = unicodedata.normalize("NFKD", char)[0]
    return unicodedata.category(first)[0] == "M" or ord(first) in _MARKS


_MAX_LENGTH = 1000  # characters of a pattern
_MAX_DEPTH = 100
_MAX_REPEATS = 1000  # the limit of RE2
_META = frozenset("\\.+*?()|[]{}^$")
_ESCAPED = _META | set("-&~#")  # the latter have a meaning in classes
_COUNTED = re.compile(r"\{(\d*)(,?)(\d*)\}", re.ASCII)
_GROUP_NAME = re.compile(r"\?P?<([^<>=!)]*)>")
_FLAGS = re.compile(r"\?([A-Za-z]*)(-?[A-Za-z]*)([:)])")
_CODE_POINT = re.compile(r"u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,6})\}")
_PROPERTY = re.compile(r"[pP](?:\^?[A-Z]|\{\^?[A-Za-z_]+\})")
_BACK = re.compile(r"[1-9]|g<\w+>")
_POSIX = re.compile(r"\[:\^?[a-z]+:\]")
_LOOKS = {"?=": "looks ahead", "?!": "looks ahead", "?<=": "looks behind", "?<!": "looks behind"}
_CODES = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "0": "\0"}

# `\w`: letters, digits and marks of every script, by blocks. All classes of Unicode would add 500 rare
# characters, and need 25 times the memory of the engine.
_WORD = (
    (0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A), (0xAA, 0xAA), (0xB5, 0xB5), (0xBA, 0xBA),
    (0xC0, 0xD6), (0xD8, 0xF6), (0xF8, 0x1FFF), (0x2C00, 0x2DFF), (0x3005, 0x3007), (0x3021, 0x302F),
    (0x3031, 0x3035), (0x3038, 0x303C), (0x3041, 0x309F), (0x30A1, 0x30FA), (0x30FC, 0xD7FF),
    (0xF900, 0xFDFF), (0xFE70, 0xFEFC), (0x10000, 0x1CFFF), (0x1D400, 0x1EFFF), (0x20000, 0x3FFFF),
)  # fmt: skip


def _spans_text(spans: tuple[tuple[int, int], ...]) -> str:
    return "".join(chr(low) if low == high else f"{chr(low)}-{chr(high)}" for low, high in spans)


def _others(spans: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Return the complement of code point spans, without surrogates, which UTF-8 does not have."""
    found: list[tuple[int, int]] = []
    at = 0
    for low, high in (*spans, (0x110000, 0x110000)):
        if at < low:
            found += [(at, low - 1)] if at != 0xD800 else [(0xE000, low - 1)]
        at = high + 1
    return tuple(found)


_WORD_CHARS = _spans_text(_WORD)
_NO_WORD_CHARS = "\\x00" + _spans_text(_others(_WORD))[1:]


@dataclass(frozen=True, slots=True)
class PatternText:
    """A translated pattern.

    Attributes:
        source: the original pattern.
        exact: its translation.
        loose: the same with unlimited repetitions instead of counted ones: it matches whatever `exact`
            matches, and perhaps more, with a small automaton.
        groups: the names of its groups.
        backtracking: the feature that no linear engine supports, such as "looks ahead"; empty if there is
            none.
        origins: index in `source` of each character of `exact`.
    """

    source: str
    exact: str
    loose: str
    groups: tuple[str, ...]
    backtracking: str
    origins: tuple[int, ...]

    def error(self, reason: str, position: int = 0) -> UnreadableTextError:
        """Return an error at a position of `exact`."""
        at = self.origins[position] if position < len(self.origins) else len(self.source)
        return UnreadableTextError.at(self.source, at, reason)


def translate_pattern(pattern: str) -> PatternText:
    """Translate a pattern.

    Raises:
        UnreadableTextError: it is invalid, too long, or uses an unsupported feature; with line and column.
    """
    return _PatternParser(pattern).read()


class _PatternParser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._exact: list[str] = []
        self._loose: list[str] = []
        self._origins: list[int] = []
        self._groups: list[str] = []
        self._open: list[int] = []
        self._backtracking = ""

    def read(self) -> PatternText:
        text = self._text
        if len(text) > _MAX_LENGTH:
            self._fail(f"it has more than {_MAX_LENGTH:,} characters", _MAX_LENGTH)
        for at, char in enumerate(text):
            if "\ud800" <= char <= "\udfff":
                self._fail("here is a lone surrogate", at)
        while self._at < len(text):
            self._part(text[self._at])
        if self._open:
            self._fail("this bracket is not closed", self._open[-1])
        return PatternText(
            text,
            "".join(self._exact),
            "".join(self._loose),
            tuple(self._groups),
            self._backtracking,
            tuple(self._origins),
        )

    def _part(self, char: str) -> None:
        if char == "\\":
            self._escape()
        elif char == "[":
            self._character_class()
        elif char == "(":
            self._group()
        elif char == ")":
            if not self._open:
                self._fail("this bracket closes nothing", self._at)
            self._open.pop()
            self._put(")", 1)
        elif char in "*+?" or (char == "{" and _COUNTED.match(self._text, self._at)):
            self._repeat(char)
        elif char in ".^$|":
            self._put(char, 1)
        else:
            self._literal()

    def _put(self, exact: str, length: int, *, loose: str | None = None) -> None:
        """Write the translation of a number of source characters."""
        self._exact.append(exact)
        self._loose.append(exact if loose is None else loose)
        self._origins += [self._at] * len(exact)
        self._at += length

    def _fail(self, reason: str, at: int) -> NoReturn:
        raise UnreadableTextError.at(self._text, at, reason)

    def _literal(self) -> None:
        start = end = self._at
        while end < len(self._text) and (
            self._text[end] not in _META or end == start or self._text[end] in "]}"
        ):
            end += 1
        followed = end < len(self._text) and self._text[end] in "*+?{"
        if followed and end - start > 1 and len(_form(self._text[end - 1])) > 1:
            end -= 1  # what follows repeats this character, which becomes several
        run = _form(self._text[start:end])
        escaped = "".join(map(_escape_char, run))
        if followed and end - start == 1 and len(run) > 1:
            escaped = f"(?:{escaped})"
        self._put(escaped, end - start)

    def _escape(self) -> None:
        text, at = self._text, self._at + 1
        char = text[at : at + 1]
        if not char:
            self._fail("nothing follows the backslash", self._at)
        if code := _CODE_POINT.match(text, at):
            self._put(self._in_group(self._char_of_code(code)), code.end() - self._at)
        elif char in "wW":
            self._put(f"[{_WORD_CHARS if char == 'w' else _NO_WORD_CHARS}]", 2)
        elif char in "dDsSA":
            self._put(f"\\{char}", 2)
        elif char in "zZ":
            self._put("\\z", 2)
        elif char in "bB":
            self._boundary(char)
        elif found := _PROPERTY.match(text, at):
            self._put(f"\\{found[0]}", found.end() - self._at)
        elif back := _BACK.match(text, at):
            self._require_backtracking("refers back to a group")
            self._put(f"\\{back[0]}", back.end() - self._at)
        elif char == "Q":
            end = text.find("\\E", at)
            quoted = text[at + 1 : end if end >= 0 else len(text)]
            length = len(quoted) + (4 if end >= 0 else 2)
            self._put("".join(map(_escape_char, _form(quoted))), length)
        elif char in _CODES:
            self._put(_escape_char(_CODES[char]), 2)
        elif char.isascii() and char.isalnum():
            self._fail(f"\\{char} is not known", self._at)
        else:
            self._put(self._in_group(_form(char)), 2)

    def _in_group(self, chars: str) -> str:
        escaped = "".join(map(_escape_char, chars))
        return escaped if len(chars) == 1 else f"(?:{escaped})"

    def _char_of_code(self, code: re.Match[str]) -> str:
        number = int(next(filter(None, code.groups())), 16)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            self._fail("there is no such character", self._at)
        return _form(chr(number))

    def _boundary(self, char: str) -> None:
        """Translate a word boundary; in RE2 it is one of ASCII letters."""
        around = self._text[self._at - 1 : self._at] + self._text[self._at + 2 : self._at + 3]
        if any(map(is_cjk, around)):
            self._require_backtracking("has a word boundary next to a Chinese character")
        self._put(f"\\{char}", 2)

    def _require_backtracking(self, reason: str) -> None:
        self._backtracking = self._backtracking or reason

    def _repeat(self, char: str) -> None:
        text, start = self._text, self._at
        exact = loose = char
        if counted := _COUNTED.match(text, start) if char == "{" else None:
            low, comma, high = counted.groups()
            if not low and not high:
                self._put(_escape_char("{"), 1)  # `{}` and `{,}` are no counts
                return
            if max(int((low or "0")[:6]), int((high or "0")[:6])) > _MAX_REPEATS:
                self._fail(f"more than {_MAX_REPEATS:,} repetitions", start)
            exact = f"{{{low or '0'}{comma}{high}}}"
            loose = "*" if int(low or "0") == 0 else "+"
        length = counted.end() - start if counted else 1
        following = text[start + length : start + length + 1]
        if following == "+":
            self._require_backtracking("has a possessive repetition")
        if following and following in "+?":
            exact, loose, length = exact + following, loose + following, length + 1
        self._put(exact, length, loose=loose)

    def _group(self) -> None:
        text, at = self._text, self._at
        if text.startswith("(?#", at):
            end = text.find(")", at)
            if end < 0:
                self._fail("this comment does not end", at)
            self._put("", end + 1 - at)
            return
        if len(self._open) == _MAX_DEPTH:
            self._fail(f"more than {_MAX_DEPTH} brackets within each other", at)
        if text.startswith("(?P=", at):
            self._require_backtracking("refers back to a group")
            self._put("(?P=", 4)
        elif not text.startswith("(?", at):
            self._put("(", 1)
        elif look := next((each for each in _LOOKS if text.startswith(each, at + 1)), ""):
            self._require_backtracking(_LOOKS[look])
            self._put(f"({look}", 1 + len(look))
        elif text.startswith("(?>", at):
            self._require_backtracking("has an atomic group")
            self._put("(?>", 3)
        elif name := _GROUP_NAME.match(text, at + 1):
            self._add_group_name(name[1])
            self._put(f"(?P<{name[1]}>", name.end() - at)
        else:
            self._flags()
            return
        self._open.append(at)

    def _add_group_name(self, name: str) -> None:
        if not name.isidentifier():
            self._fail(
                f"{name[:40]!r} is not a name: it is letters, digits and _, and begins with no digit",
                self._at,
            )
        if name in self._groups:
            self._fail(f"the name {name!r} is defined twice", self._at)
        self._groups.append(name)

    def _flags(self) -> None:
        found = _FLAGS.match(self._text, self._at + 1)
        if not found or set(found[1]) - set("aimsu") or set(found[2]) - set("-ims"):
            self._fail("this kind of group is not known", self._at)
        flags = found[1].replace("a", "").replace("u", "") + found[2]
        length = found.end() - self._at
        if found[3] == ":":
            self._open.append(self._at)
            self._put(f"(?{flags}:", length)
        else:
            self._put(f"(?{flags})" if flags else "", length)

    def _character_class(self) -> None:
        """Translate a character class, with the characters that normalized messages can have."""
        text, start = self._text, self._at
        at = start + 1
        negated = text.startswith("^", at)
        at += negated
        parts: list[str] = []
        first = True
        while at < len(text) and (first or text[at] != "]"):
            first = False
            if posix := _POSIX.match(text, at):
                parts.append(posix[0])
                at = posix.end()
                continue
            low, at = self._member(at)
            if isinstance(low, str) and text.startswith("-", at) and not text.startswith("-]", at):
                if at + 1 == len(text):
                    break
                high, at = self._member(at + 1)
                parts.append(self._range(low, high, start))
            else:
                parts.append(
                    "".join(map(_escape_char, to_simplified(_form(low)))) if isinstance(low, str) else low[0]
                )
        if not text.startswith("]", at):
            self._fail("this bracket is not closed", start)
        self._put(f"[{'^' if negated else ''}{''.join(parts)}]", at + 1 - start)

    def _member(self, at: int) -> tuple[str | tuple[str], int]:
        """Parse a member of a class: a character, or a class (in a tuple); return it and its end."""
        text = self._text
        if text[at] != "\\":
            return text[at], at + 1
        char = text[at + 1 : at + 2]
        if code := _CODE_POINT.match(text, at + 1):
            number = int(next(filter(None, code.groups())), 16)
            if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
                self._fail("there is no such character", at)
            return chr(number), code.end()
        if char and char in "wW":
            return (_WORD_CHARS if char == "w" else _NO_WORD_CHARS,), at + 2
        if char and char in "dDsS":
            return (f"\\{char}",), at + 2
        if found := _PROPERTY.match(text, at + 1):
            return (f"\\{found[0]}",), found.end()
        if char in _CODES:
            return _CODES[char], at + 2
        if not char or (char.isascii() and char.isalnum()):
            self._fail(f"\\{char} is not known here", at)
        return char, at + 2

    def _range(self, low: str, high: str | tuple[str], start: int) -> str:
        if not isinstance(high, str):
            self._fail("this range has no end", start)
        ends = [each if len(_plain(each)) != 1 else _plain(each) for each in (low, high)]
        if ends[0] > ends[1]:
            self._fail(f"the range from {low!r} to {high!r} is empty", start)
        return f"{_escape_char(ends[0])}-{_escape_char(ends[1])}"


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _form(text: str) -> str:
    """Normalize literal text as messages are."""
    return text if text.isascii() else to_simplified(_plain(text))


def _escape_char(char: str) -> str:
    """Escape a literal character, in a class or outside."""
    if char in _ESCAPED:
        return f"\\{char}"
    return f"\\x{ord(char):02x}" if ord(char) < 32 or ord(char) == 127 else char
