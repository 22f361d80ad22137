"""Identifiers in a question, such as `CVE-2023-1234`, and how exactly a passage holds them.

The shape decides: a *code* looks arbitrary (digits between letters, long numbers,
addresses, versions of three parts), a *name* does not (`os.path`, `snake_case`, `SHA256`) and only counts
if few passages hold it. Words, years, dates, decimals, quantities and short numbers are
neither.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from loom_core.knowledge.text.identifiers import identifiers_in

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["MatchGrade", "QueryIdentifier", "comparable_text", "extract_identifiers"]

_ALNUM = "A-Za-z0-9À-ÖØ-öø-ɏ"
_RUN = f"[{_ALNUM}_]+"
# Separators of the parts of an identifier: `10.0.0.1:80`, `fe80::1`, `https://…`, `a/b.py`.
_JOINT = r"(?:::|://|[-._:/\\@+~#=])"
_CANDIDATE = re.compile(rf"(?:(?<![{_ALNUM}_-])--|#)?{_RUN}(?:{_JOINT}{_RUN})*")
# Where an identifier may be split: first at these, then at colons, so that a port stays with its host.
_PARTS, _INNER_PARTS = re.compile(r":?[/\\@+~#=]+"), re.compile(":+")
# Digits in groups with blanks or parentheses between them, as phone numbers are written.
_GROUPED = re.compile(rf"(?<![{_ALNUM}_.:/-])[+(]?\d[\d ().-]{{5,20}}\d(?![{_ALNUM}_]|[-.:/][{_ALNUM}])")
_PHONE_GROUPS = frozenset([(3, 4, 4), (3, 3, 4), (4, 3, 3), (4, 3, 4), (3, 8), (4, 7), (4, 8), (3, 7)])
_DIGIT_RUN = re.compile(r"\d[\d ().+-]*\d")

_YEAR = r"(?:1[6-9]|20)\d\d"
_ORDINARY_NUMBER = re.compile(
    rf"\d{{1,4}}|[1-9]\d{{0,2}}0{{3,7}}|\d+\.\d+|{_YEAR}[-/.]\d{{1,2}}(?:[-/.]\d{{1,2}})?|\d{{1,2}}[-/.]\d{{1,2}}[-/.]{_YEAR}"
    rf"|\d{{1,2}}[-/]\d{{1,2}}[-/]\d\d|{_YEAR}[-/]{_YEAR}"
)
_QUANTITY = re.compile(r"\d{1,4}(?:\.\d+)?[A-Za-zµ]{1,4}")  # 2nd, 1990s, 500ml
_ORDINARY_PART = re.compile(rf"[A-Za-z]?[a-z]+|[A-Za-z]|{_YEAR}|\d{{1,2}}|{_QUANTITY.pattern}")
_TICKET = re.compile(r"[A-Z][A-Z0-9]+(?:-[A-Z0-9]+)*-\d+")
_LONG_NUMBER = re.compile(r"\d{3}")
_VERSION = re.compile(r"[vV]?\d+(?:\.\d+){2,}.*|[vV]\d+(?:\.\d+)+.*")
_HEX = re.compile(r"(?:0x)?[0-9a-f]{6,}|[0-9a-f]{8}(?:-[0-9a-f]+)+")
_ADDRESS = re.compile(r"[0-9a-f]{0,4}(?:::?[0-9a-f]{1,4})+")  # IPv6, or that of a network card
_UUID = re.compile(r"([0-9a-f]{8})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{4})-?([0-9a-f]{12})")
_HEX_TOKEN = re.compile(r"(?:0x)?[0-9a-f]+(?:-[0-9a-f]+)*(?![0-9a-z_])")

_SHORTEST = 4  # letters and digits of an identifier; fewer are words: B2B, p53, H2O
_NAMED_WEIGHT = 2.5  # of what `identifiers_in` tells from a word in capitals
_ARBITRARY = 4  # minimum digits of a mix with letters that counts as a code
_PHONE = range(7, 16)  # digits of a phone number
_WHOLE = 12  # minimum digits of an identifier that may be abbreviated by a prefix; 32 for one of digits only
_WHOLE_OF_DIGITS = 32
_LONGEST = 100
_MOST = 8  # maximum identifiers of a question
_DASHES = dict.fromkeys(map(ord, "‐‑‒–—−"), "-")


class MatchGrade(IntEnum):
    """How exactly a passage holds an identifier, in tenths."""

    NONE = 0
    BEGINNING = 4  # prefix of a longer one, such as `550e84` of a UUID
    PART = 6  # delimited part of a longer one: `ABC-12` in `/issues/ABC-12`
    WHOLE = 10


@dataclass(frozen=True, slots=True)
class QueryIdentifier:
    """An identifier in a question.

    Attributes:
        text: the identifier as written in the question, in NFKC.
        is_code: whether it looks arbitrary; names do not.
        parts: identifiers in it, which are searched for if no passage holds the whole.
    """

    text: str
    is_code: bool
    parts: tuple[QueryIdentifier, ...] = ()

    @property
    def form(self) -> str:
        """The normalised form for comparison with `comparable_text`."""
        return self.text.casefold().removeprefix("#")

    @property
    def prefix(self) -> str:
        """The form if it may be the prefix of a longer hexadecimal identifier, else empty."""
        form = self.form
        return form if self.is_code and _HEX.fullmatch(form) else ""

    @property
    def is_distinctive(self) -> bool:
        """Whether passages without it hardly answer the question: codes, and names with marks in them."""
        return self.is_code or any(mark in self.text for mark in (".", "_", "--"))

    def grade_in(self, text: str) -> MatchGrade:
        """Return how exactly a text holds it.

        Args:
            text: the text, normalised by `comparable_text`.
        """
        best = max(_grade(form, text, is_code=self.is_code) for form in self._spellings())
        if not best and (digits := _phone_digits(self.form)):
            return MatchGrade.WHOLE if _holds_number(text, digits) else MatchGrade.NONE
        return best

    def is_held_in(self, text: str) -> bool:
        """Whether a text holds it, or at least all its parts.

        Args:
            text: the text, normalised by `comparable_text`.
        """
        if self.grade_in(text):
            return True
        return bool(self.parts) and all(part.is_held_in(text) for part in self.parts)

    def other_pieces(self) -> Iterator[tuple[str, ...]]:
        """Yield the words of spellings with other separators, one tuple per spelling."""
        if match := _UUID.fullmatch(self.form):
            yield (match.expand(r"\1\2\3\4\5"),)
            yield match.groups()
        for digits in _phone_digits(self.form):
            yield (digits,)
            # For any grouping, the first group is a prefix and the last one a suffix of the digits.
            yield from (
                (digits[:first], digits[-last:]) for first in (3, 4, 2, 5) for last in (4, 3, 5, 7, 8, 2)
            )

    def _spellings(self) -> Iterator[str]:
        yield self.form
        if match := _UUID.fullmatch(self.form):
            yield match.expand(r"\1\2\3\4\5")
            yield match.expand(r"\1-\2-\3-\4-\5")


@lru_cache(maxsize=64)  # called for the search, for the match, and by each source
def extract_identifiers(question: str) -> tuple[QueryIdentifier, ...]:
    """Return the identifiers in a question, each once, in their order."""
    text = _plain(question)
    found: dict[str, QueryIdentifier] = {}
    for match in _GROUPED.finditer(text):
        written = match.group()
        if written.count("(") > written.count(")"):
            written = written.lstrip("(")
        if _is_phone(written):
            found.setdefault(written, QueryIdentifier(written, is_code=True))
    for written in found:
        text = text.replace(written, " ")
    for match in _CANDIDATE.finditer(text):
        if len(match.group()) <= _LONGEST:
            for identifier in _read(match.group()):
                found.setdefault(identifier.form, identifier)
    return tuple(found.values())[:_MOST]


def comparable_text(text: str) -> str:
    """Normalise a text for the search for identifiers: NFKC, lower case, one kind of dash."""
    return _plain(text).casefold()


def _plain(text: str) -> str:
    return text if text.isascii() else unicodedata.normalize("NFKC", text).translate(_DASHES)


def _read(written: str) -> tuple[QueryIdentifier, ...]:
    """Return the identifiers in a run of letters, digits and marks: one, several or none."""
    separator = _PARTS if _PARTS.search(written) else _INNER_PARTS
    pieces = [piece for piece in separator.split(written) if piece]
    parts = tuple(found for piece in pieces for found in _read(piece)) if len(pieces) > 1 else ()
    if written.startswith("#"):
        number = written[1:]
        return (QueryIdentifier(written, is_code=True),) if number.isdecimal() and len(number) > 2 else parts
    is_code = _is_code(written)
    if is_code or parts or (len(pieces) == 1 and _is_name(written)):
        return (QueryIdentifier(written, is_code, parts),)
    return ()


def _is_code(written: str) -> bool:
    """Whether a form looks arbitrary."""
    digits = sum(map(str.isdecimal, written))
    letters = sum(map(str.isalpha, written))
    if not digits or _ORDINARY_NUMBER.fullmatch(written):
        return False
    if _VERSION.fullmatch(written):
        return True
    if not letters:
        return written.isdecimal() or "::" in written or digits >= _PHONE.start
    folded = written.casefold()
    if _HEX.fullmatch(folded) or (folded.count(":") > 1 and _ADDRESS.fullmatch(folded)):
        return True
    if _TICKET.fullmatch(written):
        return digits >= _ARBITRARY - 1
    if written.isalnum() and not _LONG_NUMBER.search(written) and digits <= _ARBITRARY:
        return False  # H3K79me2, as proteins are called
    return digits >= _ARBITRARY and not all(
        map(_ORDINARY_PART.fullmatch, re.split(r"[-._:/\\@+~#=]+", written))
    )


def _is_name(written: str) -> bool:
    """Whether a form is that of a name in code, of a file, or of a ticket with a short number."""
    if _ORDINARY_NUMBER.fullmatch(written) or _QUANTITY.fullmatch(written):
        return False
    if any(map(str.isdecimal, written)):
        if sum(map(str.isalnum, written)) < _SHORTEST:
            return False
        joined = any(mark in written for mark in "._")
        is_number = "-" not in written and _LONG_NUMBER.search(written)
        return bool(joined or is_number or _TICKET.fullmatch(written))
    joined = "_" in written or "." in written or written.startswith("--")
    return joined and any(
        form == written.strip("_") or form == written
        for form, weight in identifiers_in(written)
        if weight >= _NAMED_WEIGHT
    )


def _is_phone(written: str) -> bool:
    """Whether digits with blanks or parentheses between their groups are a phone number."""
    groups = re.findall(r"\d+", written)
    if len(groups) < 2 or not ({" ", "("} & set(written)) or sum(map(len, groups)) not in _PHONE:
        return False
    begins_so = written[0] in "+(" or groups[0].startswith("0")
    return begins_so or tuple(map(len, groups)) in _PHONE_GROUPS


def _phone_digits(form: str) -> tuple[str, ...]:
    """Return the digits of a possible phone number, as given, and with or without a country code."""
    if any(map(str.isalpha, form)) or form.count(".") > 2 or ":" in form or "/" in form:
        return ()
    digits = "".join(filter(str.isdecimal, form.replace("(0)", "")))
    if len(digits) not in _PHONE:
        return ()
    if form.startswith("+"):
        return digits, *(rest for code in (2, 1, 3) if len(rest := digits[code:]) in _PHONE)
    if len(digits) == 11 and digits.startswith("1"):
        return digits, f"86{digits}"
    if digits.startswith("0"):
        return digits, digits[1:]
    return digits, f"0{digits}"


def _holds_number(text: str, wanted: Sequence[str]) -> bool:
    """Whether adjacent groups of digits make one of some numbers."""
    for run in _DIGIT_RUN.findall(text):
        groups = re.findall(r"\d+", run.replace("(0)", ""))
        for first in range(len(groups)):
            joined = ""
            for group in groups[first:]:
                joined += group
                if joined in wanted:
                    return True
                if len(joined) >= _PHONE.stop:
                    break
    return False


def _grade(form: str, text: str, *, is_code: bool) -> MatchGrade:
    """Return how exactly a text holds a form."""
    best, start = MatchGrade.NONE, text.find(form)
    while start >= 0 and best < MatchGrade.WHOLE:
        end = start + len(form)
        before = _side(form[0], text[start - 1 : start], text[max(0, start - 2) : start - 1], is_code=is_code)
        after = _side(form[-1], text[end : end + 1], text[end + 1 : end + 2], is_code=is_code)
        if before and not after and is_code and _is_beginning(form, text[start : start + _LONGEST]):
            after = MatchGrade.BEGINNING
        best = max(best, min(before, after))
        start = text.find(form, start + 1)
    return best


def _side(own: str, mark: str, beyond: str, *, is_code: bool) -> MatchGrade:
    """Return how the end of a form is bounded, given the two characters that follow."""
    if not mark or not (_is_latin(mark) or mark in "-._:/\\@+~#="):
        return MatchGrade.WHOLE
    if _is_latin(mark):
        return MatchGrade.NONE
    if mark == "_":
        return MatchGrade.PART if is_code else MatchGrade.NONE
    if own == "-":  # of an option
        return MatchGrade.NONE if mark == "-" else MatchGrade.WHOLE
    if not beyond or not _is_latin(beyond):
        return MatchGrade.WHOLE
    if mark == "." and own.isdecimal() and beyond.isdecimal():
        return MatchGrade.NONE  # another version, or another address
    return MatchGrade.PART


def _is_latin(character: str) -> bool:
    return character.isalnum() and character < "\u0250"


def _is_beginning(form: str, text: str) -> bool:
    """Whether a text begins with a long hexadecimal identifier that a form is the beginning of."""
    if not _HEX.fullmatch(form) or not (match := _HEX_TOKEN.match(text)):
        return False
    whole = match.group().replace("-", "")
    of_digits = form.replace("-", "").isdecimal()
    return len(whole) >= (_WHOLE_OF_DIGITS if of_digits else _WHOLE) and not whole.isdecimal()
