"""Text analysis: word segmentation, and tokens for search.

Chinese is segmented by `rjieba` (a Rust build of jieba: 25 times the speed of the Python one when segmenting
and 90 times when tagging, on the same text) into words and, in addition, character bigrams, so that a
name the dictionary does not know is still found. English words are stemmed (Snowball). Everything is
compared in NFKC, case-folded and in simplified characters, so that full-width and half-width text, and
traditional and simplified Chinese, are the same.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from functools import lru_cache
from itertools import chain, filterfalse
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from loom_core.cjk import CJK, cjk_parts, has_cjk, is_cjk
from loom_core.knowledge.text.identifiers import Identifier, identifiers_in
from loom_core.knowledge.text.memoization import memoize
from loom_core.knowledge.text.scripts import to_simplified
from loom_core.knowledge.text.segmentation import segment_for_search
from loom_core.knowledge.text.stopwords import CHINESE_STOP_WORDS, ENGLISH_STOP_WORDS
from loom_core.knowledge.text.surface_forms import POSSESSIVE, gap_keys, surface_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

__all__ = [
    "Forms",
    "analyse",
    "analyse_passage",
    "content_words",
    "forms_of",
    "is_stop_word",
    "lookup_tokens",
    "tokens_held",
    "words",
]

_WORD = f"(?:[^\\W_{CJK}])+"
_TOKEN = re.compile(f"[{CJK}]+|{_WORD}(?:['’._-]?{_WORD})*")
# The same for ASCII text, many times faster, as the large CJK class is slow.
_ASCII_TOKEN = re.compile(r"[A-Za-z0-9]+(?:['._-]?[A-Za-z0-9]+)*")
_FULL_WIDTH = tuple(zip("，：；！？（）", ",:;!?()", strict=True))
_AROUND_WORDS = "'’._-,;:!?()[]\"“”‘–—/"
# Translation table: characters outside tokens of ASCII text become spaces.
_ASCII_GAPS = bytes(c if chr(c).isalnum() or chr(c) in "'._-" else 32 for c in range(128)).ljust(256)
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")


def is_stop_word(word: str) -> bool:
    """Whether a case-folded word is a stop word, in English or Chinese."""
    return word in ENGLISH_STOP_WORDS or word in CHINESE_STOP_WORDS


def words(text: str) -> list[str]:
    """Return the words in order, as written: Chinese by rjieba, other scripts by word characters."""
    found: list[str] = []
    for match in _TOKEN.finditer(text):
        token = match.group()
        found.extend(_segment(token) if is_cjk(token[0]) else [token])
    return found


def content_words(question: str) -> str:
    """Return the content words of a question, each once, joined by spaces; all of it if it has none."""
    chosen = [word for word in words(question) if not is_stop_word(word.casefold())]
    return " ".join(dict.fromkeys(chosen)) or question


def analyse(text: str) -> list[str]:
    """Return the tokens of a text or a question for the lexical index.

    English stop words are dropped, unless they are in capitals (WHO), and words stemmed; an identifier
    gives itself and its parts (`HTTPServer` → `httpserver`, `http`, `server`); Chinese gives words, with
    the words inside long words, and character bigrams. Tokens hold no white space.
    """
    normal = _compatible(text)
    if has_cjk(normal):
        return _cjk_text_tokens(normal)
    return forms_of(normal).tokens.split()


def tokens_held(tokens: Collection[str], text: str) -> set[str]:
    """Return which of some tokens of a question a text holds.

    Words of CJK script count wherever their characters stand next to each other, so that the text need not be
    segmented.
    """
    normal = _compatible(text)
    if not has_cjk(normal):
        return set(tokens).intersection(forms_of(normal).tokens.split())
    gaps, runs = cjk_parts(to_simplified(normal))
    between, characters = set(chain.from_iterable(map(_gap_tokens, gaps))), "\n".join(runs)
    return {token for token in tokens if token in between or token in characters}


def analyse_passage(text: str, *, above: str = "") -> str:
    """Return the tokens of `analyse` for a passage, plus all its `lookup_tokens`, joined by spaces.

    Args:
        text: the passage.
        above: title and headings, ending with a line end.
    """
    normal = _compatible(above + text)
    if has_cjk(normal) or has_cjk(text) or has_cjk(above):
        return " ".join(_cjk_passage_tokens(text, above, normal))
    before, own = forms_of(above), forms_of(text)
    tokens = (before.tokens + own.tokens).rstrip()
    if lookups := (before.lookups + own.lookups).split():
        known = set(tokens.split())
        tokens = _join([tokens, *filterfalse(known.__contains__, dict.fromkeys(lookups))])
    return tokens


class Forms(NamedTuple):
    """Search forms of a text without CJK characters.

    Attributes:
        tokens: see `analyse`; each ends with a space.
        lookups: lookup tokens of each piece of the text that are not among its tokens, likewise.
        identifiers: its identifiers and options, each with its weight.
    """

    tokens: str
    lookups: str
    identifiers: tuple[Identifier, ...]


_NO_FORMS = Forms("", "", ())


@lru_cache(maxsize=16)  # called twice for a passage: for its tokens and for its keywords
def forms_of(text: str) -> Forms:
    """Return the search forms of a text without CJK characters."""
    # Most pieces are memoized words, so that one look-up returns all their forms.
    tokens, lookups, identifiers = zip(_NO_FORMS, *map(_forms, _pieces(text)), strict=True)
    return Forms("".join(tokens), "".join(lookups), tuple(chain.from_iterable(identifiers)))


def _pieces(text: str) -> list[str]:
    """Split a text at white space and at marks that are in no word, so that most pieces are words."""
    if text.isascii():
        return text.encode().translate(_ASCII_GAPS).replace(b". ", b"  ").decode().split()
    return text.replace(", ", " ").replace(". ", " ").split()


def _compatible(text: str) -> str:
    """Normalise a text to NFKC; common Chinese marks first, as most texts need no more."""
    if not text.isascii():
        for mark, plain in _FULL_WIDTH:
            text = text.replace(mark, plain)
    return unicodedata.normalize("NFKC", text)


def _join(parts: Iterable[str]) -> str:
    return " ".join(filter(None, parts))


_Words = tuple[str, ...]


@memoize
def _forms(piece: str) -> Forms:
    """Return the `Forms` of a piece of a text, which holds no white space."""
    if _is_plain(piece) or (piece.isdecimal() and piece.isascii()):
        return Forms(_join_with_gap(_plain_tokens(piece)), "", ())
    if piece.isascii() and len(parts := _pieces(piece)) > 1:  # other texts are split less finely
        tokens, lookups, _ = zip(*map(_forms, parts), strict=True)
        return Forms("".join(tokens), "".join(lookups), identifiers_in(piece))
    if (bare := piece.strip(_AROUND_WORDS)) != piece:
        known, identifiers = _forms(bare), identifiers_in(piece)
        return known if identifiers == known.identifiers else known._replace(identifiers=identifiers)
    if "-" in piece and all(map(_is_plain, parts := piece.split("-"))):
        letters = [token for part in parts if len(part) == 1 for token in _plain_tokens(part)]
        return Forms(_join_with_gap(_compound_tokens(piece, parts)), _join_with_gap(letters), ())
    if piece.isascii():
        found = _ASCII_TOKEN.findall(piece)
    else:
        found = _TOKEN.findall(unicodedata.normalize("NFKC", piece))
    tokens = list(chain.from_iterable(map(_latin_tokens, found)))
    sought = chain.from_iterable(map(_latin_tokens, surface_keys(piece)))
    lookups = [token for token in sought if token not in tokens]
    return Forms(_join_with_gap(tokens), _join_with_gap(lookups), identifiers_in(piece))


def _join_with_gap(words: Iterable[str]) -> str:
    return " ".join([*words, ""])


def _cjk_text_tokens(normal: str) -> list[str]:
    """Return tokens of a text in NFKC that holds CJK characters."""
    gaps, runs = cjk_parts(to_simplified(normal))
    return _tokens_of_parts(gaps, runs, segment_for_search(runs))


def _cjk_passage_tokens(text: str, above: str, normal: str) -> list[str]:
    """Return the tokens and lookup tokens of a passage with title and headings that hold CJK characters."""
    gaps, runs = cjk_parts(to_simplified(normal))
    first = len(cjk_parts(_compatible(above))[1])
    # Segment the text separately, as its segmentation is cached and used elsewhere, too.
    words = segment_for_search(runs[:first]) + segment_for_search(runs[first:])
    tokens = _tokens_of_parts(gaps, runs, words)
    written_gaps, written_runs = cjk_parts(above + text)
    if written_runs == runs:
        lookups = _lookups_between(written_gaps, runs)
    else:
        lookups = list(_lookup_tokens_of(surface_keys(above) + surface_keys(text)))
    return [*tokens, *filterfalse(set(tokens).__contains__, dict.fromkeys(lookups))]


def _tokens_of_parts(gaps: list[str], runs: list[str], words: list[list[str]]) -> list[str]:
    """Return tokens of runs of CJK characters, given their words, and of the gaps around them."""
    tokens = list(_gap_tokens(gaps[0]))
    for run, found, gap in zip(runs, words, gaps[1:], strict=True):
        tokens += found
        known = set(found)
        tokens += [pair for pair in map(add, run, run[1:]) if pair not in known]
        tokens += _gap_tokens(gap)
    return list(filterfalse(CHINESE_STOP_WORDS.__contains__, tokens))


def _lookups_between(gaps: list[str], runs: list[str]) -> list[str]:
    """Return the lookup tokens of a text in simplified Chinese outside its runs of CJK characters."""
    found = list(chain.from_iterable(map(_latin_tokens, gap_keys(gaps[0]))))
    for before, gap, after in zip(runs, gaps[1:], [*runs[1:], ""], strict=True):
        if keys := gap_keys(gap):
            found += chain.from_iterable(map(_latin_tokens, keys))
        elif after:
            found.append(before[-1] + after[0])
    return list(filterfalse(CHINESE_STOP_WORDS.__contains__, found))


@memoize
def _gap_tokens(gap: str) -> _Words:
    """Return the tokens of the text between two runs of CJK characters, mostly a mark."""
    return tuple("".join([_forms(piece).tokens for piece in gap.split()]).split())


def lookup_tokens(text: str) -> list[str]:
    """Return the tokens to look up passages that may hold a name: words, and pairs of CJK characters.

    They derive from single surface tokens, so that those of a name are always among those of a
    passage that holds it, whatever is around the name and whatever punctuation is inside it.
    """
    keys = surface_keys(text)
    return list(_lookup_tokens_of(keys if has_cjk("".join(keys)) else dict.fromkeys(keys)))


def _lookup_tokens_of(keys: Iterable[str]) -> Iterator[str]:
    """Yield the lookup tokens of surface keys."""
    before = ""
    for key in keys:
        if not is_cjk(key[0]):
            before = ""
            yield from _latin_tokens(key)
            continue
        if before and before + key not in CHINESE_STOP_WORDS:
            yield before + key
        before = key


def _segment(run: str) -> list[str]:
    import rjieba

    return rjieba.cut(run)


@memoize
def _latin_tokens(token: str) -> tuple[str, ...]:
    if _is_plain(token):
        return _plain_tokens(token)
    folded = POSSESSIVE.sub("", token.casefold())
    if not folded or (folded in ENGLISH_STOP_WORDS and not _is_acronym(token)):
        return ()
    parts = [part.casefold() for part in _PARTS.findall(token)]
    whole = _stem(folded)
    if len(parts) < 2:
        return (whole,)
    stems = [_stem(part) for part in parts if len(part) > 1 and part not in ENGLISH_STOP_WORDS]
    return tuple(dict.fromkeys([whole, *stems]))


def _is_plain(token: str) -> bool:
    """Whether a word is plain: ASCII letters, lower case after the first."""
    return token.isascii() and token.isalpha() and (token[1:].islower() or len(token) == 1)


def _is_acronym(token: str) -> bool:
    """Whether a stop word is written as an acronym: WHO, IT, US."""
    bare = POSSESSIVE.sub("", token)
    return len(bare) > 1 and bare.isalpha() and bare.isupper()


def _plain_tokens(word: str) -> _Words:
    folded = word.lower()
    return () if folded in ENGLISH_STOP_WORDS else (_stem(folded),)


def _compound_tokens(word: str, parts: list[str]) -> _Words:
    """Return the `_latin_tokens` of plain words that hyphens join."""
    of_parts = (_plain_tokens(part) for part in parts if len(part) > 1)
    return tuple(dict.fromkeys([_stem(word.lower()), *chain.from_iterable(of_parts)]))


_local = threading.local()


@memoize
def _stem(word: str) -> str:
    # A stemmer object is not safe to share between threads.
    stem: Callable[[str], str] | None = getattr(_local, "stem", None)
    if stem is None:
        import Stemmer

        # Without a cache, as each word comes once.
        stem = _local.stem = Stemmer.Stemmer("english", maxCacheSize=0).stemWord
    return stem(word)
