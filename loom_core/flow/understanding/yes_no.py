"""Yes and no, alone or among other words, in English and Chinese.

A short message is divided into known words, and all of it has to be known (`yes_or_no`). The words are of
four kinds: yes, no, an action (约吧, "book it"), which is a yes unless a no comes before it, and words that
change nothing, such as 那就 or "please"; `yes_no.txt` lists them. A message with other words in it is read
by patterns (`leans_to`), which `leanings.txt` lists.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import filterfalse
from typing import Literal, NamedTuple, TypeAlias

from loom_core.knowledge.text.scripts import normalise

__all__ = ["leans_to", "yes_or_no"]

_Kind: TypeAlias = Literal["yes", "no", "act", "other"]
_Answer: TypeAlias = Literal["yes", "no", "neither", "unclear"]

_LONGEST = 60  # characters of a message of known words
_LONGEST_LEANING = 100  # characters of a message with other words in it
_PAUSES = re.compile(r"[,，。.!！;；、~…\n]+\s*|\s+[-–—]+\s+")
_CLAUSES = re.compile(
    rf"(?:{_PAUSES.pattern}|\b(?:but|then)\b|但是?|可惜|不过|那(?=我|就|还|算)|还是(?=算|不|别))+"
)
_CLAUSE_BEGINNINGS = re.compile(
    r"^(?:\s|我们?|还是|就|真的|实在|"
    r"(?:ok|okay|yes|yeah|right|alright|fine|sure|well|i'm afraid|so|and|sorry)\b)+"
)
_DRAWN = re.compile(r"([a-z])\1{2,}")  # "nooo"
_NO_APOSTROPHE = re.compile(
    r"\b(?:(do|does|did|is|was|ca|wo|could|would)(nt)|(that|it|let)(s)|(i)(m|ve))\b(?!')"
)
_AROUND = ' \t"“”「」'
_WORD_CHARACTER = re.compile(r"[a-z0-9']")


def yes_or_no(message: str) -> bool | None:
    """Parse a message, of any script and width, that is only yes or no; None for anything else, or both."""
    plain = _simplify(message, _LONGEST)
    if any(_holds(plain, word) for word in _vocabulary().blocked):
        return None
    said = {*map(_answer_of, _split(_PAUSES, plain))} - {"neither"}
    return said == {"yes"} if said in ({"yes"}, {"no"}) else None


def leans_to(message: str) -> bool | None:
    """Return whether a message with other words in it means yes or no; None if that is doubtful.

    For a message that nothing else explains: "no that's the wrong day", 「正好我有空，约吧」. One that also
    asks, hesitates, or wants something else is doubtful.
    """
    plain = _simplify(message, _LONGEST_LEANING)
    if not plain or "?" in plain or "吗" in plain:
        return None
    patterns = _patterns()
    rest = patterns["filler"].sub("", patterns["detail"].sub(" ", plain)).strip()
    rest, doubles = patterns["double"].subn(" ", rest)
    *before, last = _split(_PAUSES, rest) or [""]
    answers = {_answer_of(part) for part in (*filterfalse(patterns["weak"].fullmatch, before), last)}
    if patterns["open"].search(rest):
        return None
    ends_in_refusal = not doubles and _ends_in_refusal(rest)
    refuses = any(patterns[each].search(rest) for each in ("refusal", "reason")) or "no" in answers
    agrees = bool(doubles or patterns["agreement"].search(rest)) or "yes" in answers
    if refuses or ends_in_refusal:
        return None if agrees and not ends_in_refusal else False
    if not agrees or patterns["more"].search(rest):
        return None
    return None if _has_negation(rest) and not _ends_in_act(rest) else True


def _simplify(message: str, longest: int) -> str:
    """Return a message in one form of script, width, case and apostrophes; empty if it is too long."""
    plain = normalise(message[: longest + 1]).replace("’", "'").strip()
    if len(plain) > longest:
        return ""
    return _NO_APOSTROPHE.sub(_with_apostrophe, _DRAWN.sub(r"\1", plain))


def _with_apostrophe(found: re.Match[str]) -> str:
    word, ending = filter(None, found.groups())
    return f"{word}n't" if ending == "nt" else f"{word}'{ending}"


def _split(pauses: re.Pattern[str], text: str) -> list[str]:
    return [part.strip(_AROUND) for part in pauses.split(text) if part and part.strip(_AROUND)]


def _answer_of(part: str) -> _Answer:
    """Classify a part of a message between commas."""
    kinds = _divide(part)
    if kinds is None:
        return "unclear"
    if "no" in kinds:
        return "unclear" if "yes" in kinds or "act" in kinds[: kinds.index("no")] else "no"
    return "yes" if "yes" in kinds or "act" in kinds else "neither"


def _divide(text: str) -> list[_Kind] | None:
    """Return the kinds of the words of a text, in the division with the fewest; None if some are unknown."""
    vocabulary = _vocabulary().kinds
    best: list[list[_Kind] | None] = [[], *[None] * len(text)]
    for at in range(len(text)):
        if (until := best[at]) is None:
            continue
        if text[at] == " " and best[at + 1] is None:
            best[at + 1] = until
        for end in range(at + 1, len(text) + 1):
            kind = vocabulary.get(text[at:end])
            if kind is None or _cuts_word(text, at) or _cuts_word(text, end):
                continue
            if (known := best[end]) is None or len(known) > len(until) + 1:
                best[end] = [*until, kind]
    return best[-1]


def _holds(text: str, word: str) -> bool:
    at = text.find(word)
    return at >= 0 and not (word.isalpha() and (_cuts_word(text, at) or _cuts_word(text, at + len(word))))


def _cuts_word(text: str, at: int) -> bool:
    around = text[at - 1 : at + 1] if 0 < at < len(text) else ""
    return len(around) > 1 and all(map(_WORD_CHARACTER.match, around))


def _has_negation(text: str) -> bool:
    """Return whether a text has a negation, or a phrase of no such as "leave it"."""
    phrases = (
        word
        for word, kind in _vocabulary().kinds.items()
        if kind == "no" and (" " in word or not word.isascii())
    )
    return bool(_patterns()["negation"].search(text)) or any(_holds(text, phrase) for phrase in phrases)


def _ends_in_refusal(text: str) -> bool:
    """Return whether the last clause of a message refuses: "sounds great but I can't"."""
    *before, last = _split(_CLAUSES, text) or [""]
    last = _CLAUSE_BEGINNINGS.sub("", last)
    if _answer_of(last) != "no" and not _patterns()["clause"].match(last):
        return False
    return not any("act" in (_divide(clause) or ()) for clause in before)


def _ends_in_act(text: str) -> bool:
    """Return whether the last of several clauses only asks to do it: "no breakfast needed, just book it"."""
    _, *others = _split(_PAUSES, text) or [""]
    if not others:
        return False
    kinds = _divide(others[-1]) or ()
    return ("act" in kinds and "no" not in kinds) or bool(_patterns()["act"].fullmatch(others[-1]))


class _Vocabulary(NamedTuple):
    kinds: Mapping[str, _Kind]
    blocked: frozenset[str]  # words that make a message unclear
    verbs: tuple[str, ...]


@cache
def _vocabulary() -> _Vocabulary:
    listed: defaultdict[str, list[str]] = defaultdict(list)
    for kind, words in _lines("yes_no.txt"):
        listed[kind] += words.split(", ")
    verbs = tuple(listed.pop("verb"))
    for verb in verbs:
        listed["other"].append(verb)
        if verb.isascii():
            listed["act"] += [f"{verb}{what}" for what in (" it", " that", " this", " one", " me in")]
        else:
            listed["act"] += [
                f"{verb}{end}" for end in ("吧", "上", "上吧", "好了", "它", "了吧", "这个", "一下")
            ]
            listed["act"] += [f"{begin}{verb}" for begin in ("就", "帮我", "给我", "请", "直接")]
    blocked = frozenset(listed.pop("blocked"))
    kinds: dict[str, _Kind] = {}
    for kind in ("other", "act", "no", "yes"):
        kinds |= dict.fromkeys(listed[kind], kind)
    return _Vocabulary(kinds, blocked, verbs)


@cache
def _patterns() -> Mapping[str, re.Pattern[str]]:
    """Return the pattern of each kind in `leanings.txt`."""
    verbs = sorted(_vocabulary().verbs, key=len, reverse=True)
    words = {
        "en": "|".join(verb for verb in verbs if verb.isascii()),
        "zh": "|".join(verb for verb in verbs if not verb.isascii()),
    }
    acts: dict[str, str] = {}
    listed: defaultdict[str, list[str]] = defaultdict(list)
    for head, pattern in _lines("leanings.txt"):
        kind, language = head.split()
        pattern = pattern.replace("{verb}", f"(?:{words[language]})").replace("{act}", acts.get(language, ""))
        if kind == "act":
            acts[language] = pattern
        listed[kind].append(rf"\b(?:{pattern})\b" if language == "en" else pattern)
    return {kind: re.compile("|".join(each)) for kind, each in listed.items()}


def _lines(name: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the content of each line of a data file next to this module."""
    text = resources.files("loom_core.flow.understanding").joinpath(name).read_text("utf-8")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            kind, _, content = line.partition(": ")
            yield kind, content
