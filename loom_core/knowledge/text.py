"""What Loom knows about words: languages, sizes, tokens for search, tokens for matching names.

Chinese is cut by `rjieba` (a Rust build of jieba: 25 times the speed of the Python one when cutting
and 90 times when tagging, on the same text) into words and, beside them, character bigrams, so that a
name the dictionary does not know is still found. English words are stemmed (Snowball). Everything is
compared in NFKC, case-folded and in simplified characters, so that full-width and half-width text, and
traditional and simplified Chinese, are the same.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache
from itertools import chain, filterfalse, groupby, islice
from operator import add, itemgetter
from typing import TYPE_CHECKING, NamedTuple

from loom_core.knowledge._stopwords import CHINESE_STOP_WORDS, ENGLISH_STOP_WORDS
from loom_core.knowledge.remembered import remembered
from loom_core.knowledge.script import simplified

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = [
    "SurfaceToken",
    "analyse",
    "analyse_passage",
    "detect_language",
    "estimate_tokens",
    "holds_cjk",
    "is_cjk",
    "is_stop_word",
    "language_group",
    "lookup_tokens",
    "name_form",
    "name_key",
    "normalise",
    "pieces",
    "surface_keys",
    "surface_spans",
    "surface_tokens",
    "words",
]

# Han (with extensions and compatibility forms), kana, bopomofo and hangul: scripts whose writers put
# no space between words, or whose words are best found through their parts.
_CJK = (
    "\u3005-\u3007\u3021-\u3029\u3040-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9d\U00020000-\U000323af"
)
_CJK_CHAR = re.compile(f"[{_CJK}]")
_CJK_RUN = re.compile(f"[{_CJK}]+")
_HAN = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af]")
_KANA = re.compile("[\u3040-\u309f\u30a1-\u30fa\u30fc-\u30ff]")
_HANGUL = re.compile("[\uac00-\ud7af]")
_WORD = f"(?:[^\\W_{_CJK}])+"
_TOKEN = re.compile(f"[{_CJK}]+|{_WORD}(?:['’._-]?{_WORD})*")
_SURFACE = re.compile(f"[{_CJK}]|{_WORD}(?:['’]{_WORD})*")
# What both are for ASCII text, many times as fast: the set of all CJK characters takes long to ask.
_ASCII_TOKEN = re.compile(r"[A-Za-z0-9]+(?:['._-]?[A-Za-z0-9]+)*")
_ASCII_SURFACE = re.compile(r"[A-Za-z0-9]+(?:'[A-Za-z0-9]+)*")
# What CJK text and the rest of a text are parted by; the first character stands alone, so that the engine
# leaps to it.
_CJK_PARTS = re.compile(f"([{_CJK}][{_CJK}]*)")
_FULL_WIDTH = tuple(zip("，：；！？（）", ",:;!?()", strict=True))
_AROUND_WORDS = "'’._-,;:!?()[]\"“”‘–—/"
# Blanks in place of all that no token of ASCII text holds.
_ASCII_GAPS = bytes(c if chr(c).isalnum() or chr(c) in "'._-" else 32 for c in range(128)).ljust(256)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_LATIN = re.compile("[A-Za-z]")
_POSSESSIVE = re.compile(r"(?:['’]s?)+$")
_SHORTEST_FORM = 4
_PARENTHESES = re.compile(r"\s*[(（\[【][^()（）\[\]【】]*[)）\]】]\s*$")


def is_cjk(char: str) -> bool:
    """Whether a character is Han, kana, bopomofo or hangul."""
    return _CJK_CHAR.match(char) is not None


def holds_cjk(text: str) -> bool:
    """Whether any character of a text is Han, kana, bopomofo or hangul."""
    return not text.isascii() and _CJK_CHAR.search(text) is not None


def is_stop_word(word: str) -> bool:
    """Whether a case-folded word is too common in English or Chinese to say anything."""
    return word in ENGLISH_STOP_WORDS or word in CHINESE_STOP_WORDS


def normalise(text: str) -> str:
    """The form in which texts are compared: NFKC, case-folded, in simplified Chinese."""
    return simplified(unicodedata.normalize("NFKC", text)).casefold()


def estimate_tokens(text: str) -> int:
    """About how many tokens a multilingual embedder or a language model makes of a text.

    Two thirds of a token for a CJK character, a quarter for any other (both rounded up together):
    within 15 % of XLM-R's tokeniser on ordinary English and Chinese prose.
    """
    if text.isascii():
        return -(-len(text) // 4)
    cjk = sum(map(len, _CJK_RUN.findall(text)))
    return -(-(8 * cjk + 3 * (len(text) - cjk)) // 12)


def detect_language(text: str) -> str:
    """ISO 639-1 code of the prevailing language by script: `zh`, `ja`, `ko`, `en`, or `und`.

    Latin script counts as `en`: what follows from it (stemming, stop words, which embedders apply)
    does little harm to the other languages written in it. Only the first 4,000 characters are read.
    """
    sample = text[:4000]
    if not holds_cjk(sample):
        return "en" if _LATIN.search(sample) else "und"
    han, kana, hangul = len(_HAN.findall(sample)), len(_KANA.findall(sample)), len(_HANGUL.findall(sample))
    latin = len(_LATIN.findall(sample))
    # A Han character carries about as much as three Latin letters.
    if 3 * (han + kana + hangul) >= latin and han + kana + hangul:
        if hangul > han + kana:
            return "ko"
        return "ja" if kana > han // 4 else "zh"
    return "en" if latin else "und"


def language_group(language: str) -> str:
    """What retrieval tells apart: `zh`, `ja`, `ko`, and `alphabetic` for every other language and code."""
    return language if language in {"zh", "ja", "ko"} else "alphabetic"


def words(text: str) -> list[str]:
    """Words in order, as written: Chinese cut by rjieba, other scripts by word characters."""
    found: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        found.extend(_segment(token) if is_cjk(token[0]) else [token])
    return found


def analyse(text: str) -> list[str]:
    """Tokens of a text for the lexical index; a question is analysed the same way.

    English stop words are dropped, unless they are in capitals (WHO), and words stemmed; an identifier
    gives itself and its parts (`HTTPServer` → `httpserver`, `http`, `server`); Chinese gives words, with
    the words inside long words, and character bigrams. Tokens hold no white space.
    """
    normal = _compatible(text)
    if holds_cjk(normal):
        return _cjk_text_tokens(normal)
    return _joined(map(_TOKENS, map(_forms, pieces(normal)))).split()


def analyse_passage(text: str, *, above: str = "") -> tuple[str, str]:
    """What `analyse` gives for a passage, with all its `lookup_tokens`, and its `surface_keys`.

    Both are joined by spaces, as none of them holds any.

    Args:
        text: the passage.
        above: what is indexed with it, ending with a line end; the keys are those of the text alone.
    """
    normal = _compatible(above + text)
    if not (holds_cjk(normal) or holds_cjk(text) or holds_cjk(above)):
        own = list(map(_forms, pieces(text)))
        forms = [*map(_forms, pieces(above)), *own]
        tokens, keys = _joined(map(_TOKENS, forms)), _joined(map(_KEYS, own))
        lookups = _joined(map(_LOOKUPS, forms)).split()
    else:
        found = surface_keys(text)
        tokens, keys = " ".join(_cjk_text_tokens(normal)), " ".join(found)
        lookups = _lookup_tokens_of(surface_keys(above) + found)
    if lookups:
        known = set(tokens.split())
        tokens = _joined([tokens, *filterfalse(known.__contains__, dict.fromkeys(lookups))])
    return tokens, keys


@lru_cache(maxsize=16)  # a passage is asked about twice: for its tokens, and for its keywords
def pieces(text: str) -> tuple[str, ...]:
    """A text cut at white space and, where it is ASCII, at all that is in no word, so that most are words."""
    if text.isascii():
        text = text.encode().translate(_ASCII_GAPS).decode()
    return tuple(text.split())


def _compatible(text: str) -> str:
    """A text in NFKC. The marks of Chinese text are seen to beforehand: most texts need no more than that."""
    if not text.isascii():
        for mark, plain in _FULL_WIDTH:
            text = text.replace(mark, plain)
    return unicodedata.normalize("NFKC", text)


def _joined(parts: Iterable[str]) -> str:
    return " ".join(filter(None, parts))


_Words = tuple[str, ...]
_TOKENS, _KEYS, _LOOKUPS = itemgetter(0), itemgetter(1), itemgetter(2)


@remembered
def _forms(piece: str) -> tuple[str, str, str]:
    """Of a piece without CJK the tokens, the surface keys, and the keys' lookup tokens that are no tokens.

    Each are joined by spaces, as those of a whole passage are: so they make fewer objects to go through.
    """
    if (bare := piece.strip(_AROUND_WORDS)) != piece:
        return _forms(bare)
    if _is_plain(piece):
        return "".join(_plain_tokens(piece)), piece.lower(), ""
    if piece.isdecimal() and piece.isascii():
        return piece, piece, ""
    tokens, keys = _tokens_and_keys(piece)
    lookups = (token for token in chain.from_iterable(map(_latin_tokens, keys)) if token not in tokens)
    return " ".join(tokens), " ".join(keys), " ".join(lookups)


def _tokens_and_keys(piece: str) -> tuple[_Words, _Words]:
    if "-" in piece and all(map(_is_plain, parts := piece.split("-"))):
        return _hyphened_tokens(piece, parts), tuple(map(str.lower, parts))
    if piece.isascii():
        found, named = _ASCII_TOKEN.findall(piece), _ASCII_SURFACE.findall(piece)
    else:
        found, named = _TOKEN.findall(unicodedata.normalize("NFKC", piece)), _SURFACE.findall(piece)
    return tuple(chain.from_iterable(map(_latin_tokens, found))), tuple(map(_surface_key, named))


def _cjk_text_tokens(normal: str) -> list[str]:
    """Tokens of a text in NFKC that holds CJK characters."""
    # Other text and CJK runs come by turns. All the runs are cut at once, which costs a third less.
    gaps_and_runs = _CJK_PARTS.split(simplified(normal))
    runs = gaps_and_runs[1::2]
    tokens = _joined(map(_TOKENS, map(_forms, gaps_and_runs[0].split()))).split()
    for run, found, gap in zip(runs, _searched(runs), gaps_and_runs[2::2], strict=True):
        tokens += found
        tokens += [
            pair for pair in map(add, run, run[1:]) if pair not in found and pair not in CHINESE_STOP_WORDS
        ]
        tokens += _joined(map(_TOKENS, map(_forms, gap.split()))).split()
    return tokens


class SurfaceToken(NamedTuple):
    """A word, or one CJK character, and where it stands in the text it was read from."""

    key: str
    start: int
    end: int


def surface_tokens(text: str) -> Iterator[SurfaceToken]:
    """Tokens for matching names: every word (possessive cut off) and every single CJK character.

    `key` is the comparable form. Offsets are code points of `text` itself.
    """
    for match in _SURFACE.finditer(text):
        token = match.group()
        yield SurfaceToken(_surface_key(token), match.start(), match.end())


def surface_keys(text: str) -> list[str]:
    """The keys of `surface_tokens`, several times as fast as with their places."""
    if not holds_cjk(text):
        return _joined(map(_KEYS, map(_forms, pieces(text)))).split()
    gaps_and_runs = _CJK_PARTS.split(text)
    keys: list[str] = []
    for gap, run in zip(gaps_and_runs[::2], [*gaps_and_runs[1::2], ""], strict=True):
        keys += _joined(map(_KEYS, map(_forms, gap.split()))).split()
        keys += map(_surface_key, run)
    return keys


def surface_spans(text: str, count: int) -> list[tuple[int, int]]:
    """The places of the first `count` of `surface_tokens`: start and end."""
    return [match.span() for match in islice(_SURFACE.finditer(text), count)]


def lookup_tokens(text: str) -> list[str]:
    """Tokens by which the passages that may hold a name are looked up: words, and pairs of CJK characters.

    They are read off the surface tokens one by one, so that those of a name are always among those of a
    passage that holds it, whatever stands around the name and whatever punctuation is inside it.
    """
    keys = surface_keys(text)
    return _lookup_tokens_of(keys if holds_cjk(text) else list(dict.fromkeys(keys)))


def _lookup_tokens_of(keys: list[str]) -> list[str]:
    found: list[str] = []
    for is_cjk_text, group in groupby(keys, _begins_with_cjk):
        if is_cjk_text:
            characters = list(group)
            found += filterfalse(CHINESE_STOP_WORDS.__contains__, map(add, characters, characters[1:]))
        else:
            found += chain.from_iterable(map(_latin_tokens, group))
    return found


@remembered
def _begins_with_cjk(key: str) -> bool:
    return is_cjk(key[0])


@lru_cache(maxsize=65536)
def name_key(name: str) -> str:
    """The form in which two spellings of a name are the same, or empty where nothing is left.

    Case, width, possessives, punctuation, a leading English article and a disambiguation in
    parentheses (`Mercury (planet)`) do not count.
    """
    bare = name if name[-1:].isalnum() else _PARENTHESES.sub("", name)
    tokens = surface_keys(bare) or surface_keys(name)
    if len(tokens) > 1 and tokens[0] in {"the", "a", "an"}:
        tokens = tokens[1:]
    return _join(tokens)


def name_form(key: str) -> str:
    """A `name_key` without spaces and plural, by which other spellings of a name are looked for.

    Empty where there are none to expect: for Chinese names and very short ones.
    """
    form = key.replace(" ", "")
    if len(form) < _SHORTEST_FORM or holds_cjk(form):
        return ""
    return form[:-1] if form.endswith("s") and not form.endswith(("ss", "us", "is")) else form


def _join(tokens: list[str]) -> str:
    joined = ""
    for token in tokens:
        if joined and not (is_cjk(joined[-1]) and is_cjk(token[0])):
            joined += " "
        joined += token
    return joined


@remembered
def _surface_key(token: str) -> str:
    if token.isascii() and token.isalnum():
        return token.lower()
    key = _POSSESSIVE.sub("", normalise(token))
    if _SURFACE.fullmatch(key):
        return key
    # What stands for several characters may bring marks: `½` is "1⁄2", and a small `İ` has a dot above.
    key = "".join(_SURFACE.findall(key))
    return key if _SURFACE.fullmatch(key) else token


def _segment(run: str) -> list[str]:
    import rjieba

    return rjieba.cut(run)


def _searched(runs: list[str]) -> Iterator[list[str]]:
    """The words of each run of CJK text, with those inside of long ones, and without stop words."""
    import rjieba

    found: list[str] = []
    for word in rjieba.cut_for_search("\n".join(runs)):
        if word == "\n":
            yield found
            found = []
        elif word not in CHINESE_STOP_WORDS:
            found.append(word)
    yield found


@remembered
def _latin_tokens(token: str) -> tuple[str, ...]:
    if _is_plain(token):
        return _plain_tokens(token)
    folded = _POSSESSIVE.sub("", token.casefold())
    if not folded or (folded in ENGLISH_STOP_WORDS and not _is_acronym(token)):
        return ()
    parts = [part.casefold() for part in _PARTS.findall(token)]
    whole = _stem(folded)
    if len(parts) < 2:
        return (whole,)
    stems = [_stem(part) for part in parts if len(part) > 1 and part not in ENGLISH_STOP_WORDS]
    return tuple(dict.fromkeys([whole, *stems]))


def _is_plain(token: str) -> bool:
    """Whether a word is what most are: English, and small but for the first letter."""
    return token.isascii() and token.isalpha() and (token[1:].islower() or len(token) == 1)


def _is_acronym(token: str) -> bool:
    """Whether a stop word is written as a name is: WHO, IT, US."""
    bare = _POSSESSIVE.sub("", token)
    return len(bare) > 1 and bare.isalpha() and bare.isupper()


def _plain_tokens(word: str) -> _Words:
    folded = word.lower()
    return () if folded in ENGLISH_STOP_WORDS else (_stem(folded),)


def _hyphened_tokens(word: str, parts: list[str]) -> _Words:
    """What `_latin_tokens` gives for plain words that hyphens join."""
    of_parts = (_plain_tokens(part) for part in parts if len(part) > 1)
    return tuple(dict.fromkeys([_stem(word.lower()), *chain.from_iterable(of_parts)]))


_local = threading.local()


@remembered
def _stem(word: str) -> str:
    # A stemmer object is not safe to share between threads.
    stem: Callable[[str], str] | None = getattr(_local, "stem", None)
    if stem is None:
        import Stemmer

        # Without a cache of its own, as each word is asked about once.
        stem = _local.stem = Stemmer.Stemmer("english", maxCacheSize=0).stemWord
    return stem(word)
