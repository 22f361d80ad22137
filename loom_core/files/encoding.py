"""Encoding detection: decode bytes of unknown encoding.

Bytes that decode as UTF-8 are UTF-8. Otherwise the file's declaration decides, or else the decoding that
reads most like a language: the share of its characters that are common in the encoding's script. A dozen
Chinese, Japanese or Korean characters are enough for this; general detectors need more.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass

__all__ = [
    "ACCENTED_LATIN",
    "CJK_PUNCTUATION",
    "CYRILLIC",
    "HANGUL",
    "SIMPLIFIED",
    "TRADITIONAL",
    "TYPOGRAPHIC",
    "decode",
]

SIMPLIFIED = frozenset(
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过发后作里用道行所然"
    "家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实日军者意无力它与长把"
    "机十民第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果"
    "加西斯月话合回特代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔"
    "更别打女变四神总何电数安少报才结反受目太量再感建务做接必场件计管期市直德资命山金指克许统区保至队形社便空决治展"
    "马科司五基眼书非则听白却界达光放强即像难且权思王象完设式色路记南品住告类求据程北边死张该交规万取拉格望觉术领共"
    "确传师观清今切院让识候带导争运州城县省村镇河江港台湾京历史始建立称语言写作品曲歌影视剧演播电视台节目球赛队员联"
)

TRADITIONAL = frozenset(
    "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過發後作裡用道行所然"
    "家種事成方多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心她本前開但因只從想實日軍者意無力它與長把"
    "機十民第公此已工使情明性知全三又關點正業外將兩高間由問很最重並物手應戰向頭文體政美相見被利什二等產或新己制身果"
    "加西斯月話合回特代內信表化老給世位次度門任常先海通教兒原東聲提立及比員解水名真論處走義各入幾口認條平系氣題活爾"
    "更別打女變四神總何電數安少報才結反受目太量再感建務做接必場件計管期市直德資命山金指克許統區保至隊形社便空決治展"
    "馬科司五基眼書非則聽白卻界達光放強即像難且權思王象完設式色路記南品住告類求據程北邊死張該交規萬取拉格望覺術領共"
    "確傳師觀清今切院讓識候帶導爭運州城縣省村鎮河江港台灣臺京歷史始建立稱語言寫作品曲歌影視劇演播電視節目球賽隊員聯"
)

HANGUL = frozenset(
    "이다는을의에가고하지로한은기사자를도리인어나시해서아있들수그대정보일부전과스었것여년으장원제라주만상성생조동구"
    "했된되할국게적공면때관오와니치거비우세중신학문화연습유안용위방모경소명간진무내행실미당산월분말없않또더같"
)

CYRILLIC = frozenset("оеаинтсрвлкмдпуяыьгзбчйхжшю")

ACCENTED_LATIN = frozenset("éèêëàâäáãåçùûüúîïíìôöóòõøñßæœÿýđłńśźżěščřžůąęćğışőűÉÈÀÇÖÄÜÅØÆŒÑÓÍÁÚŠŽČŘ")

TYPOGRAPHIC = frozenset("\u00a0“”‘’–—…€£«»°©®§•·¿¡²³½µ×±„™")

CJK_PUNCTUATION = frozenset("\u3000，。、；：？！“”‘’（）《》「」『』【】〈〉…—·～％")


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
    """Decode any bytes; never fail.

    A byte order mark is dropped. UTF-8 with a few bad bytes (a log, a truncated download) stays UTF-8, with
    U+FFFD in their place. Bytes without a plausible decoding are decoded as Windows-1252; the caller decides
    what to do with them.

    Args:
        data: the bytes.
        hint: a declared encoding, for example of an HTTP header; used if the data decode with it.

    Returns:
        The text and the Python name of the encoding, such as `utf-8`, `gb18030`, `big5hkscs`.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(encoding, "replace"), encoding
    if encoding := _guess_utf16(data[:_HEAD]):
        return data.decode(encoding, "replace"), encoding
    if _ISO_2022_JP.search(data[:_HEAD]) and (text := _strict(data, "iso2022_jp")) is not None:
        return text, "iso2022_jp"
    if (text := _strict(data, "utf-8")) is not None:
        return text, "utf-8"
    for encoding in _read_declarations(data[:_HEAD], hint):
        if (text := _strict(data, encoding)) is not None:
            return text, encoding
    return _decode_damaged_utf8(data) or _most_plausible(data)


def _strict(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeError:
        return None


def _guess_utf16(head: bytes) -> str:
    """Detect UTF-16 without a byte order mark by NULs in every other byte: the high halves of ASCII."""
    pairs = len(head) // 2
    if pairs < 2 or 0 not in head:
        return ""
    even, odd = head[0 : 2 * pairs : 2].count(0), head[1 : 2 * pairs : 2].count(0)
    if odd >= 0.3 * pairs and even == 0:
        return "utf-16-le"
    if even >= 0.3 * pairs and odd == 0:
        return "utf-16-be"
    return ""


def _read_declarations(head: bytes, hint: str) -> list[str]:
    """Return the valid encodings declared by the caller and the file, as Python names."""
    declared = (
        match[1].decode("ascii", "ignore") for pattern in _DECLARATIONS if (match := pattern.search(head))
    )
    return [encoding for name in (hint, *declared) if name and (encoding := _text_encoding(name))]


def _text_encoding(name: str) -> str:
    """Return the codec for a declared name, widened to common usage; empty if it is no text codec."""
    try:
        encoding = codecs.lookup(name).name
        b"a".decode(encoding)
    except (LookupError, UnicodeError, ValueError):
        return ""
    # A declaration that could be read as ASCII cannot have meant a 16-bit encoding.
    return "" if encoding.startswith(("utf-16", "utf-32")) else _SUPERSETS.get(encoding, encoding)


def _decode_damaged_utf8(data: bytes) -> tuple[str, str] | None:
    """Decode UTF-8 with a few bad bytes, if nearly everything beyond ASCII decodes."""
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
    """Score: how much a text reads like the scripts of this encoding, at most about 1."""


def _most_plausible(data: bytes) -> tuple[str, str]:
    """Return the decoding with the best score, or that of the general detector."""
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
    encoding = _detect(sample) or "cp1252"
    return data.decode(encoding, "replace"), encoding


def _detect(sample: bytes) -> str:
    try:
        from charset_normalizer import from_bytes
    except ImportError:  # comes with knowledge bases only
        return ""

    best = from_bytes(sample).best()
    return best.encoding if best is not None else ""


def _sample(data: bytes) -> bytes:
    """Return a sample from the first non-ASCII line on, at an even offset for UTF-16."""
    match = re.search(rb"[\x80-\xff]", data)
    start = data.rfind(b"\n", 0, match.start()) + 1 if match is not None else 0
    start -= start % 2
    return data[start : start + _SAMPLE]


def _lenient(sample: bytes, encoding: str) -> str:
    """Decode the sample leniently: bad bytes become U+FFFD; a character cut at the end is dropped."""
    return codecs.getincrementaldecoder(encoding)("replace").decode(sample)


def _weigh_cjk(common: frozenset[str], *, kana: float = 0.0, hangul: float = 0.0) -> Callable[[str], float]:
    """Return a score function for a double-byte encoding.

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
    """Return whether a character is half-width Katakana or a rare ideograph: signs of a wrong decoding."""
    return "\uff61" <= char <= "\uffdc" or "\u3400" <= char <= "\u4dbf" or char >= "\U00020000"


def _weigh_latin(text: str) -> float:
    """Score Windows-1252: single accented letters in or between ASCII words, and typographic marks."""
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
    """Score the Cyrillic code pages: lower-case words, a capital only first, nothing ASCII inside."""
    weights: list[float] = []
    for before, char, after in zip(" " + text, text, text[1:] + " ", strict=False):
        if char <= "\x7f":
            continue
        if any(near.isascii() and near.isalpha() for near in (before, after)):
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
