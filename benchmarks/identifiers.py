"""How often the passage with the identifier asked for comes first among passages that differ in nothing else.

    python benchmarks/identifiers.py
    python benchmarks/identifiers.py --together --passages 300 --questions 100

A knowledge base is made for every family of identifiers, in English and in Chinese: hundreds of passages that
differ in the identifier only. Questions name one of them, or two. Everything is made from a fixed seed.
Sentences and identifiers come in two halves: the `tuned` were looked at while retrieval was changed, those
`held` back were not. The last columns say how often the match was strong, and how often the answer names the
identifier where the question asks for one that no passage holds.

`--together` puts all families of a language and half into one knowledge base.
"""

from __future__ import annotations

import argparse
import random
import statistics
import string
import tempfile
import unicodedata
import uuid
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from bases import fill

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from loom_core.embedding.interface import EmbeddingProvider

_TOP = 5  # passages asked for
_HALVES = ("tuned", "held")

_PASSAGES = {
    (
        "en",
        "tuned",
    ): "The {noun} {id} was entered on Monday by the night shift. It waits for a second look; its "
    "owner has been told by e-mail.",
    (
        "en",
        "held",
    ): "Log of the morning: we looked into {id}, a {noun} that came up again, and closed it after the "
    "test on the second machine.",
    ("zh", "tuned"): "{noun}{id}于周一由夜班录入，正在等待复核，负责人已收到邮件通知。",
    ("zh", "held"): "早班记录：我们查看了再次出现的{noun}{id}，在第二台机器上测试之后将其关闭。",
}
_QUESTIONS = {
    ("en", "tuned"): ("What is the state of {noun} {id}?", "Who has been told about {id}?"),
    ("en", "held"): ("Can you find {id} for me, please?", "After which test was the {noun} {id} closed?"),
    ("zh", "tuned"): ("{noun}{id}现在是什么状态？", "{id}通知了谁？"),
    ("zh", "held"): ("请帮我查一下{id}的情况", "{noun}{id}是在什么测试之后关闭的？"),
}
_TWO = {"en": "{} and {}", "zh": "{}和{}"}


@dataclass(frozen=True, slots=True)
class _Family:
    """A kind of identifiers.

    Attributes:
        name: what the table calls it.
        nouns: what a sentence calls it, by language.
        make: makes one at random.
        ask: how a question writes one that a passage holds.
        two: whether a question names two.
    """

    name: str
    nouns: tuple[str, str]
    make: Callable[[Random], str]
    ask: Callable[[str], str] = str
    two: bool = False

    def noun(self, language: str) -> str:
        """Return its name in a sentence of a language."""
        return self.nouns[language == "zh"]


def _digits(random: Random, count: int) -> str:
    return f"{random.randrange(10**count):0{count}}"


def _pick(random: Random, characters: str, count: int) -> str:
    return "".join(random.choices(characters, k=count))


def _uuid(random: Random) -> str:
    return str(uuid.UUID(int=random.getrandbits(128), version=4))


def _hex(count: int) -> Callable[[Random], str]:
    return lambda random: f"{random.getrandbits(4 * count):0{count}x}"


def _ip(random: Random) -> str:
    return f"10.{random.randrange(4)}.{random.randrange(256)}.{random.randrange(1, 255)}"


def _ip6(random: Random) -> str:
    return f"2001:db8:{random.randrange(16):x}::{random.getrandbits(16):x}"


def _mobile(random: Random) -> str:
    return f"138-{_digits(random, 4)}-{_digits(random, 4)}"


def _landline(random: Random) -> str:
    return f"({_digits(random, 1)}21) 555-{_digits(random, 4)}"


def _file(random: Random) -> str:
    kind, ending = random.choice(("report", "scan", "invoice")), random.choice(("pdf", "docx"))
    return f"{kind}_{_digits(random, 4)}.{ending}"


def _dotted(random: Random) -> str:
    parts = (
        "core client server cache queue mail user order tax stock print audit sync retry token event".split()
    )
    return ".".join(["shop", *random.sample(parts, 3)])


def _version(random: Random) -> str:
    return f"v{random.randrange(1, 5)}.{random.randrange(20)}.{random.randrange(20)}"


def _bare(number: str) -> str:
    return "".join(filter(str.isalnum, number))


def _grouped(number: str) -> str:
    return f"{number[:3]} {number[3:7]} {number[7:]}"


def _wide(text: str) -> str:
    return "".join(chr(ord(character) + 0xFEE0) for character in text)


_ORDER, _TICKET = ("order", "订单"), ("ticket", "工单")
_FAMILIES = (
    _Family("order number", _ORDER, lambda random: f"SO-2024-{_digits(random, 5)}"),
    _Family("number alone", _ORDER, lambda random: f"45000{_digits(random, 5)}"),
    _Family("CVE", ("vulnerability", "漏洞"), lambda random: f"CVE-2023-{_digits(random, 4)}"),
    _Family("ORA-", ("error", "错误"), lambda random: f"ORA-0{_digits(random, 4)}"),
    _Family("ticket", _TICKET, lambda random: f"PAY-{_digits(random, 4)}"),
    _Family(
        "part number",
        ("part", "零件"),
        lambda random: (
            f"AX{_digits(random, 3)}-{_pick(random, string.ascii_uppercase, 2)}/{_digits(random, 2)}"
        ),
    ),
    _Family("UUID", ("device", "设备"), _uuid),
    _Family("UUID, beginning (8)", ("device", "设备"), _uuid, lambda full: full[:8]),
    _Family("UUID, beginning (11)", ("device", "设备"), _uuid, lambda full: full[:11]),
    _Family("IPv4", ("host", "主机"), _ip),
    _Family(
        "IPv4 with port", ("host", "主机"), lambda random: f"{_ip(random)}:{random.randrange(8000, 8100)}"
    ),
    _Family("IPv6", ("host", "主机"), _ip6),
    _Family("phone", ("phone", "电话"), _mobile),
    _Family("phone, no separators", ("phone", "电话"), _mobile, _bare),
    _Family("phone, other separators", ("phone", "电话"), lambda random: _bare(_mobile(random)), _grouped),
    _Family("phone, area code", ("phone", "电话"), _landline),
    _Family("hexadecimal", ("address", "地址"), lambda random: f"0x{_hex(8)(random)}"),
    _Family("commit", ("commit", "提交"), _hex(40)),
    _Family("commit, beginning (7)", ("commit", "提交"), _hex(40), lambda full: full[:7]),
    _Family(
        "mixed",
        ("batch", "批次"),
        lambda random: f"{_pick(random, string.ascii_lowercase, 2)}{_digits(random, 5)}x{_digits(random, 2)}",
    ),
    _Family("file name", ("file", "文件"), _file),
    _Family("dotted path", ("module", "模块"), _dotted),
    _Family("version", ("release", "版本"), _version),
    _Family("small letters", _ORDER, lambda random: f"SO-2024-{_digits(random, 5)}", str.lower),
    _Family("full width", _ORDER, lambda random: f"SO-2024-{_digits(random, 5)}", _wide),
    _Family("two of them", _TICKET, lambda random: f"PAY-{_digits(random, 4)}", two=True),
)


@dataclass(frozen=True, slots=True)
class _Question:
    text: str
    gold: frozenset[str]


@dataclass(slots=True)
class _Set:
    """Passages that differ in an identifier only, questions that name one, and some that name another."""

    family: _Family
    documents: list[DocumentDraft] = field(default_factory=list[DocumentDraft])
    questions: list[_Question] = field(default_factory=list[_Question])
    absent: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


@dataclass(slots=True)
class _Tally:
    """Results for the questions of a family, by language and half."""

    first: list[bool] = field(default_factory=list[bool])
    strong: list[bool] = field(default_factory=list[bool])
    named: list[bool] = field(default_factory=list[bool])
    ms: list[float] = field(default_factory=list[float])


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("--passages", type=int, default=200, metavar="N", help="of each family")
    arguments.add_argument(
        "--questions", type=int, default=40, metavar="N", help="of each family, language, half"
    )
    arguments.add_argument("--family", action="append", help="only families whose names begin so")
    arguments.add_argument("--half", action="append", choices=_HALVES)
    arguments.add_argument("--embedder", default="auto")
    arguments.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the knowledge bases for next time"
    )
    arguments.add_argument("--together", action="store_true", help="all families in one knowledge base")
    arguments.add_argument("--failures", action="store_true", help="print the questions that failed")
    args = arguments.parse_args()
    families = [f for f in _FAMILIES if not args.family or f.name.startswith(tuple(args.family))]
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as scratch:
        anyio.run(_measure, args, families, args.keep or Path(scratch))


async def _measure(args: argparse.Namespace, families: Sequence[_Family], home: Path) -> None:
    embedder = create_embedder(args.embedder)
    tallies: defaultdict[tuple[str, str, str], _Tally] = defaultdict(_Tally)
    for language in ("en", "zh"):
        for half in args.half or _HALVES:
            sets = [_make(family, language, half, args.passages, args.questions) for family in families]
            for group in [sets] if args.together else [[each] for each in sets]:
                name = "-".join(
                    [language, half, *("".join(filter(str.isalnum, s.family.name)) for s in group[:1])]
                )
                await _ask(name, group, (language, half), tallies, embedder, home, failures=args.failures)
    print("\n".join(_table(families, args.half or _HALVES, tallies)))


def _make(family: _Family, language: str, half: str, passages: int, questions: int) -> _Set:
    """The passages and questions of a family."""
    random_ = random.Random(f"{family.name} {language} {half}")
    made: dict[str, None] = {}
    while len(made) < passages + questions:
        new = family.make(random_)
        if all(family.ask(new) != family.ask(other) for other in made):
            made[new] = None
    held, absent = list(made)[:passages], list(made)[passages:]
    noun, result = family.noun(language), _Set(family)
    passage, templates = _PASSAGES[language, half], _QUESTIONS[language, half]
    uris = {identifier: f"bench:{family.name}/{number}" for number, identifier in enumerate(held)}
    result.documents = [
        DocumentDraft(uri=uri, text=passage.format(noun=noun, id=identifier))
        for identifier, uri in uris.items()
    ]
    for number in range(questions):
        template = templates[number % len(templates)]
        golds = random_.sample(held, 1 + family.two)
        asked = [family.ask(gold) for gold in golds]
        named = _TWO[language].format(*asked) if family.two else asked[0]
        text = template.format(noun=noun, id=named)
        result.questions.append(_Question(text, frozenset(uris[gold] for gold in golds)))
        missing = family.ask(absent[number])
        result.absent.append((template.format(noun=noun, id=missing), missing))
    return result


async def _ask(
    name: str,
    sets: Sequence[_Set],
    key: tuple[str, str],
    tallies: defaultdict[tuple[str, str, str], _Tally],
    embedder: EmbeddingProvider,
    home: Path,
    *,
    failures: bool,
) -> None:
    """Put sets into one knowledge base, and ask the questions of each."""
    base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder, name=name, path=home / name)
    try:
        await fill(base, [document for each in sets for document in each.documents], quiet=True)
        for each in sets:
            tally = tallies[each.family.name, *key]
            for question in each.questions:
                answer = await base.search(question.text, limit=_TOP)
                found = frozenset(item.source for item in answer.items[: len(question.gold)])
                tally.first.append(found == question.gold)
                tally.strong.append(answer.match.verdict == "strong")
                tally.ms.append(answer.embed_ms + answer.retrieve_ms)
                if failures and found != question.gold:
                    print(f"{each.family.name}: {question.text} -> {[i.content for i in answer.items[:1]]}")
            for text, missing in each.absent:
                note = (await base.search(text, limit=_TOP)).match.note
                tally.named.append(unicodedata.normalize("NFKC", missing).casefold() in note.casefold())
                if failures and not tally.named[-1]:
                    print(f"{each.family.name}, absent: {text} -> {note}")
    finally:
        base.close()


def _table(
    families: Sequence[_Family],
    halves: Sequence[str],
    tallies: defaultdict[tuple[str, str, str], _Tally],
) -> list[str]:
    columns = [(language, half) for language in ("en", "zh") for half in halves]
    heads = [f"{language} {half}" for language, half in columns]
    lines = [
        f"| family | {' | '.join(heads)} | strong match | absent: named |",
        "|---|" + "---|" * (len(columns) + 2),
    ]
    for family in families:
        chosen = [tallies[family.name, *column] for column in columns]
        lines.append(_row(family.name, chosen))
    lines.append(
        _row(
            "**all**",
            [_joined([tallies[family.name, *column] for family in families]) for column in columns],
        )
    )
    ms = [value for tally in tallies.values() for value in tally.ms]
    return [*lines, "", f"{len(ms)} questions, {statistics.median(ms):.1f} ms at the median."]


def _row(name: str, tallies: Sequence[_Tally]) -> str:
    whole = _joined(tallies)
    cells = [*(_percent(tally.first) for tally in tallies), _percent(whole.strong), _percent(whole.named)]
    return f"| {name} | {' | '.join(cells)} |"


def _joined(tallies: Sequence[_Tally]) -> _Tally:
    whole = _Tally()
    for tally in tallies:
        whole.first += tally.first
        whole.strong += tally.strong
        whole.named += tally.named
    return whole


def _percent(values: Sequence[bool]) -> str:
    return f"{100 * sum(values) / len(values):.1f}" if values else "–"


if __name__ == "__main__":
    main()
