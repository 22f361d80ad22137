"""Turning bytes of unknown encoding into text.

UTF-8 that decodes is UTF-8. What does not is decided by what the file declares, and else by which decoding
reads like a language: the share of its characters that are common in the script the encoding was made
for. That works from about a dozen Chinese, Japanese or Korean characters on; general detectors need more.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

from loom_core.files.common_characters import (
    ACCENTED_LATIN,
    CJK_PUNCTUATION,
    CYRILLIC,
    HANGUL,
    SIMPLIFIED,
    TRADITIONAL,
    TYPOGRAPHIC,
)

__all__ = ["decode"]

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16: its mark begins with the one of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARATIONS = (
    re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{2,40})""", re.IGNORECASE),
    re.compile(rb"""^\s*<\?xml[^>]{0,200}?encoding\s*=\s*["']([\w.:-]{2,40})""", re.IGNORECASE),
    re.compile(rb"^(?:[^\n]*\n)?[ \t\f]*#[^\n]*?coding[:=][ \t]*([\w.-]{2,40})"),  # PEP 263
    re.compile(rb"""^\s*@charset\s+"([\w.:-]{2,40})\""""),
)
_SUPERSETS = {
    "ascii": "cp1252",
    "big5": "big5hkscs",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-1": "cp1252",
    "shift_jis": "cp932",
}
_HEAD = 4096
_SAMPLE = 16 * 1024
_CONVINCING = 0.15
_MAX_DAMAGE = 0.05
_ISO_2022_JP = re.compile(rb"\x1b(?:\$[@B]|\([BIJ])")


def decode(data: bytes, *, hint: str = "") -> tuple[str, str]:
    """Decode bytes, whatever they are; never fails.

    A byte order mark is dropped. A file of UTF-8 with a few bad bytes (a log, a cut download) stays UTF-8,
    with U+FFFD in their place. Bytes that read like nothing come back as Windows-1252, for the caller to
    judge.

    Args:
        data: the bytes.
        hint: an encoding named by someone outside (an HTTP header); believed where the data decode with it.

    Returns:
        The text and the Python name of the encoding, such as `utf-8`, `gb18030`, `big5hkscs`.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace"), encoding
    if encoding := _wide_without_mark(data[:_HEAD]):
        return data.decode(encoding, "replace"), encoding
    if _ISO_2022_JP.search(data[:_HEAD]) and (text := _strict(data, "iso2022_jp")) is not None:
        return text, "iso2022_jp"
    if (text := _strict(data, "utf-8")) is not None:
        return text, "utf-8"
    for encoding in _declared(data[:_HEAD], hint):
        if (text := _strict(data, encoding)) is not None:
            return text, encoding
    return _damaged_utf8(data) or _most_plausible(data)


def _strict(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeError:
        return None


def _wide_without_mark(head: bytes) -> str:
    """UTF-16 without a mark shows by NULs in every other byte only: the high halves of ASCII."""
    pairs = len(head) // 2
    if pairs < 2 or 0 not in head:
        return ""
    even, odd = head[0 : 2 * pairs : 2].count(0), head[1 : 2 * pairs : 2].count(0)
    if odd >= 0.3 * pairs and even == 0:
        return "utf-16-le"
    if even >= 0.3 * pairs and odd == 0:
        return "utf-16-be"
    return ""


def _declared(head: bytes, hint: str) -> list[str]:
    """Python names of the encodings that the caller and the file name, without nonsense."""
    declared = (
        match[1].decode("ascii", "ignore") for pattern in _DECLARATIONS if (match := pattern.search(head))
    )
    return [encoding for name in (hint, *declared) if name and (encoding := _text_encoding(name))]


def _text_encoding(name: str) -> str:
    """The codec for a declared name, widened to what people mean by it; empty if it is none for text."""
    try:
        encoding = codecs.lookup(name).name
        b"a".decode(encoding)
    except (LookupError, UnicodeError, ValueError):
        return ""
    # A declaration that could be read as ASCII cannot have meant a 16-bit encoding.
    return "" if encoding.startswith(("utf-16", "utf-32")) else _SUPERSETS.get(encoding, encoding)


def _damaged_utf8(data: bytes) -> tuple[str, str] | None:
    """UTF-8 with a few bad bytes: nearly everything beyond ASCII decodes."""
    text = data.decode("utf-8", "replace")
    damaged = text.count("\ufffd")
    foreign = sum(len(run) for run in re.findall(r"[^\x00-\x7f]+", text))
    return (
        (text, "utf-8") if foreign - damaged >= 1 and damaged <= _MAX_DAMAGE * foreign + 1 < foreign else None
    )


@dataclass(frozen=True, slots=True)
class _Candidate:
    encoding: str
    weigh: Callable[[str], float]
    """How much a text reads like what this encoding is for: at most about 1."""


def _most_plausible(data: bytes) -> tuple[str, str]:
    """The candidate whose decoding reads best, or what the general detector says."""
    sample = _sample(data)
    ranked = sorted(
        (
            (candidate.weigh(_lenient(sample, candidate.encoding)), candidate.encoding)
            for candidate in _CANDIDATES
        ),
        key=lambda scored: -scored[0],
    )
    for score, encoding in ranked:
        if score >= _CONVINCING and (text := _strict(data, encoding)) is not None:
            return text, encoding
    score, encoding = ranked[0]
    if score >= 2 * _CONVINCING:  # a few bytes are broken, yet it reads well
        return data.decode(encoding, "replace"), encoding
    encoding = _detected(sample) or "cp1252"
    return data.decode(encoding, "replace"), encoding


def _detected(sample: bytes) -> str:
    try:
        from charset_normalizer import from_bytes
    except ImportError:  # comes with knowledge bases only
        return ""

    best = from_bytes(sample).best()
    return best.encoding if best is not None else ""


def _sample(data: bytes) -> bytes:
    """A stretch from the first line on that is not ASCII, at an even offset, so that UTF-16 stays in step."""
    match = re.search(rb"[\x80-\xff]", data)
    start = data.rfind(b"\n", 0, match.start()) + 1 if match is not None else 0
    start -= start % 2
    return data[start : start + _SAMPLE]


def _lenient(sample: bytes, encoding: str) -> str:
    """The sample as this encoding reads it; bad bytes show as U+FFFD, a character cut at the end does not."""
    return codecs.getincrementaldecoder(encoding)("replace").decode(sample)


def _weigh_cjk(common: frozenset[str], *, kana: float = 0.0, hangul: float = 0.0) -> Callable[[str], float]:
    """A judge for a double-byte encoding.

    Args:
        common: characters that count in full.
        kana: weight of a Hiragana or full-width Katakana character.
        hangul: weight of a Hangul syllable that is not among the common ones.
    """

    def weight(char: str) -> float:
        if char in common or char in CJK_PUNCTUATION:
            return 1.0
        if "\u3041" <= char <= "\u30fe":
            return kana
        if "\uac00" <= char <= "\ud7a3":
            return hangul
        if "\u4e00" <= char <= "\u9fff":
            return 0.1
        return 0.0 if unicodedata.category(char)[0] in "LNPZ" and not _is_odd(char) else -2.0

    return lambda text: _mean([weight(char) for char in text if char > "\x7f"])


def _is_odd(char: str) -> bool:
    """Half-width Katakana and the rare ideographs, which wrong double-byte decodings are full of."""
    return "\uff61" <= char <= "\uffdc" or "\u3400" <= char <= "\u4dbf" or char >= "\U00020000"


def _weigh_latin(text: str) -> float:
    """A judge for Windows-1252: single accented letters in or between ASCII words, and typographic marks."""
    weights: list[float] = []
    for match in re.finditer(r"[^\x00-\x7f]+", text):
        run = match[0]
        around = text[max(match.start() - 1, 0) : match.start()] + text[match.end() : match.end() + 1]
        for char in run:
            if len(run) > 2:
                weights.append(-1.0)
            elif char in ACCENTED_LATIN:
                weights.append(0.9 if any(map(str.isalpha, around)) else 0.4)
            else:
                weights.append(0.7 if char in TYPOGRAPHIC else -1.0)
    return _mean(weights)


def _weigh_cyrillic(text: str) -> float:
    """A judge for the Cyrillic code pages: lower-case words, a capital only first, nothing ASCII inside."""
    weights: list[float] = []
    for before, char, after in zip(" " + text, text, text[1:] + " ", strict=False):
        if char <= "\x7f":
            continue
        if any(beside.isascii() and beside.isalpha() for beside in (before, after)):
            weights.append(0.3 if char in TYPOGRAPHIC else -1.0)
        elif char in CYRILLIC:
            weights.append(0.8)
        elif "\u0410" <= char <= "\u042f":
            weights.append(-1.0 if before.islower() else 0.3)
        elif "\u0400" <= char <= "\u045f":
            weights.append(0.0)
        else:
            weights.append(0.3 if char in TYPOGRAPHIC else -1.0)
    return _mean(weights)


def _mean(weights: list[float]) -> float:
    return sum(weights) / len(weights) if weights else 0.0


# Kana count a little less for the Chinese encodings, where they have code points but no use: EUC-JP and
# GB 18030 share theirs.
_CANDIDATES = (
    _Candidate("gb18030", _weigh_cjk(SIMPLIFIED, kana=0.3)),
    _Candidate("big5hkscs", _weigh_cjk(TRADITIONAL, kana=0.3)),
    _Candidate("cp932", _weigh_cjk(TRADITIONAL | SIMPLIFIED, kana=1.0)),
    _Candidate("euc_jp", _weigh_cjk(TRADITIONAL | SIMPLIFIED, kana=1.0)),
    _Candidate("cp949", _weigh_cjk(HANGUL, hangul=0.2)),
    _Candidate("cp1252", _weigh_latin),
    _Candidate("cp1251", _weigh_cyrillic),
    _Candidate("koi8-r", _weigh_cyrillic),
    _Candidate("utf-16-le", _weigh_cjk(SIMPLIFIED | TRADITIONAL | HANGUL, kana=1.0)),
    _Candidate("utf-16-be", _weigh_cjk(SIMPLIFIED | TRADITIONAL | HANGUL, kana=1.0)),
)
