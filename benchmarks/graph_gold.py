"""Entities, types and relations of the rule extractor against the hand-marked gold set.

    python benchmarks/graph_gold.py
    python benchmarks/graph_gold.py --relations
    python benchmarks/graph_gold.py --held

The set is checked first: offsets, types, predicates, evidence and split. `graph_gold/guideline.md` says how
it was marked. The half `dev` is measured; the half `held` is for the end, and nothing may be tuned on it.

An entity is right if both offsets are those of the gold. A type is right if Loom's type may stand for the
gold type; `thing` never is. A relation is right if the gold has one with both ends and the predicate;
`related to` is neither right nor wrong. The gold does not hold every relation that a reader could defend, so
the precision is a lower bound: `--relations` lists the others for a reader to judge.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.ingest.extraction import RuleExtractor
from loom_core.knowledge.model import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from loom_core.knowledge.model import Extraction, Mention, Relation

__all__ = ["KINDS", "PASSAGES", "faults", "main", "read_passages"]

PASSAGES = Path(__file__).parent / "graph_gold" / "passages.jsonl"

KINDS = (
    "manual", "API reference", "man page", "policy or law", "contract", "minutes", "mail", "scientific",
    "news", "chat",
)  # fmt: skip
_TYPES = frozenset(
    """
    person organisation place date event product version api command option config env error file standard
    law clause work term
    """.split()
)
_PREDICATES = frozenset(
    """
    is a;part of;alias of;defined in;documented in;has option;has parameter;has value;returns;raises;requires;
    uses;supports;implements;extends;replaces;deprecated by;provided by;created by;located in;works for;
    member of;founded by;dated;amends;refers to;governed by;applies to;affects;performs;awarded
    """.replace("\n    ", "")
    .strip()
    .split(";")
)
_FIELDS = {"id", "kind", "language", "split", "source", "text", "entities", "relations"}
_SOURCE_FIELDS = ("from", "version", "path", "licence")
_PACKAGES = ("Debian package ", "npm ", "pip ")
_SIZES = {"en": (80, 250), "zh": (120, 400)}  # words; Chinese characters and Latin words
_SEED = "loom-gold-27:"
_FIRST_DRAWN = 101

_CODE_TYPES = frozenset({"api", "command", "option", "config", "env", "error", "file"})
_GOLD_TYPES = {
    "person": {"person"},
    "place": {"place"},
    "organisation": {"organisation"},
    "event": {"event"},
    "work": {"work", "law"},
    "code": _CODE_TYPES,
    "identifier": _CODE_TYPES | {"standard"},
    "date": {"date"},
    "product": {"product", "version"},
}
"""Gold types that a type of Loom may stand for; one with a gold type's own name stands for that as well."""

_Passage = dict[str, Any]
_Mark = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--held", action="store_true", help="measure the half that is held back")
    parser.add_argument("--relations", action="store_true", help="list relations that are not in the gold")
    arguments = parser.parse_args()
    passages = read_passages()
    if found := faults(passages):
        raise SystemExit("\n".join(found))
    half = "held" if arguments.held else "dev"
    passages = [passage for passage in passages if passage["split"] == half]
    extractor = RuleExtractor()
    chunks = [Chunk(text=p["text"], start=0, end=len(p["text"]), language=p["language"]) for p in passages]
    extractor.extract_one(chunks[0])  # loads the models of the rules
    began = perf_counter()
    extractions = [extractor.extract_one(chunk) for chunk in chunks]
    seconds = perf_counter() - began
    pairs = list(zip(passages, extractions, strict=True))
    print(
        f"{extractor.id}, half `{half}`: {len(pairs)} passages, {1000 * seconds / len(pairs):.2f} ms each\n"
    )
    _print_entities(pairs)
    _print_types(pairs)
    _print_relations(pairs, listed=arguments.relations)


def read_passages(path: Path = PASSAGES) -> list[_Passage]:
    """Return the passages with their marks."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def faults(passages: Sequence[_Passage]) -> list[str]:
    """Return the faults of a gold set, a line each."""
    found = [f"{passage.get('id')}: {fault}" for passage in passages for fault in _passage_faults(passage)]
    if len({passage["id"] for passage in passages}) < len(passages):
        found.append("ids are not unique")
    if len({passage["text"] for passage in passages}) < len(passages):
        found.append("texts are not unique")
    return found + _split_faults(passages)


def _passage_faults(passage: _Passage) -> Iterator[str]:
    if set(passage) != _FIELDS:
        yield f"fields {sorted(passage)}"
        return
    if passage["kind"] not in KINDS or passage["language"] not in _SIZES:
        yield f"kind {passage['kind']}, language {passage['language']}"
    source = passage["source"]
    if not all(source.get(name) for name in _SOURCE_FIELDS) or not source["from"].startswith(_PACKAGES):
        yield f"source {source}"
    low, high = _SIZES[passage["language"]]
    if not low <= (size := _size(passage["text"], passage["language"])) <= high:
        yield f"size {size}"
    yield from _mark_faults(passage["text"], passage["entities"], passage["relations"])


def _mark_faults(text: str, entities: list[_Mark], relations: list[_Mark]) -> Iterator[str]:
    for entity in entities:
        name = entity["text"]
        if name != text[entity["start"] : entity["end"]] or not name or name != name.strip():
            yield f"offsets of {entity}"
        if entity["type"] not in _TYPES:
            yield f"type of {entity}"
    if any(left["end"] > right["start"] for left, right in pairwise(entities)):
        yield "entities overlap or are not in order"
    names = {entity["text"] for entity in entities}
    seen = set()
    for relation in relations:
        subject, predicate, object_ = key = tuple(relation[end] for end in ("subject", "predicate", "object"))
        evidence = text[relation["start"] : relation["end"]]
        if predicate not in _PREDICATES:
            yield f"predicate of {key}"
        if subject == object_ or not {subject, object_} <= names or key in seen:
            yield f"ends of {key}"
        if subject not in evidence or object_ not in evidence:
            yield f"evidence of {key}"
        seen.add(key)


def _split_faults(passages: Sequence[_Passage]) -> list[str]:
    """Compare with the split by the seeded hash: every second passage of a kind and language is held back.

    Passages with numbers up to 99 have the split of an earlier, larger set.
    """
    series: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for passage in passages:
        if int(passage["id"].rsplit("-", 1)[1]) >= _FIRST_DRAWN:
            series[passage["kind"], passage["language"]].append(passage["id"])
    halves = {}
    for ids in series.values():
        ids.sort(key=lambda id_: hashlib.sha256(f"{_SEED}{id_}".encode()).hexdigest())
        halves |= {id_: "held" if place % 2 else "dev" for place, id_ in enumerate(ids)}
    return [
        f"{p['id']}: split {p['split']}" for p in passages if p["split"] != halves.get(p["id"], p["split"])
    ]


def _size(text: str, language: str) -> int:
    if language == "en":
        return len(text.split())
    han = sum("\u4e00" <= char <= "\u9fff" for char in text)
    latin = "".join(char if char.isascii() and (char.isalnum() or char == "_") else " " for char in text)
    return han + len(latin.split())


def _print_entities(pairs: Sequence[tuple[_Passage, Extraction]]) -> None:
    print("| entities | gold | found | right | precision | recall | F1 | mentions a passage |")
    print("|---|---|---|---|---|---|---|---|")
    groups: dict[str, Callable[[_Passage], bool]] = {
        "all": lambda _: True,
        "English": lambda p: p["language"] == "en",
        "Chinese": lambda p: p["language"] == "zh",
    }
    groups |= {kind: lambda p, kind=kind: p["kind"] == kind for kind in KINDS}
    for name, belongs in groups.items():
        chosen = [pair for pair in pairs if belongs(pair[0])]
        if chosen:
            print(_entity_row(name, chosen))
        if name == "all":
            print(_entity_row("all but `term`", chosen, without="term"))
    print()


def _entity_row(name: str, pairs: Sequence[tuple[_Passage, Extraction]], *, without: str = "") -> str:
    """Return a row of the table; a mention at the place of an entity left out is not counted."""
    n_gold = n_found = n_right = 0
    for passage, extraction in pairs:
        gold = {(e["start"], e["end"]) for e in passage["entities"] if e["type"] != without}
        ignored = {(e["start"], e["end"]) for e in passage["entities"]} - gold
        found = _spans(extraction.mentions) - ignored
        n_gold, n_found, n_right = n_gold + len(gold), n_found + len(found), n_right + len(gold & found)
    precision, recall = n_right / max(n_found, 1), n_right / max(n_gold, 1)
    f1 = 2 * n_right / max(n_gold + n_found, 1)
    return (
        f"| {name} | {n_gold} | {n_found} | {n_right} | {precision:.1%} | {recall:.1%} | {f1:.1%} "
        f"| {n_found / len(pairs):.1f} |"
    )


def _spans(mentions: Sequence[Mention]) -> set[tuple[int, int]]:
    return {(mention.start, mention.end) for mention in mentions}


def _print_types(pairs: Sequence[tuple[_Passage, Extraction]]) -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for passage, extraction in pairs:
        found = {(mention.start, mention.end): mention.type for mention in extraction.mentions}
        for entity in passage["entities"]:
            if (type_ := found.get((entity["start"], entity["end"]))) is not None:
                counts[entity["type"], type_] += 1
    n_matched = sum(counts.values())
    n_right = sum(n for (gold, type_), n in counts.items() if _is_right(type_, gold))
    n_typed = sum(n for (_, type_), n in counts.items() if type_ != "thing")
    print(
        f"Types: {n_right} of {n_matched} matched spans are right ({n_right / max(n_matched, 1):.1%}); ",
        end="",
    )
    print(f"{n_typed} have a type other than `thing`, of which {n_right / max(n_typed, 1):.1%} are right.\n")
    print("| gold type | matched | right | Loom's types |")
    print("|---|---|---|---|")
    for gold in sorted({gold for gold, _ in counts}):
        row = Counter({type_: n for (g, type_), n in counts.items() if g == gold})
        right = sum(n for type_, n in row.items() if _is_right(type_, gold))
        counts_of = ", ".join(f"{type_} {n}" for type_, n in row.most_common())
        print(f"| {gold} | {row.total()} | {right} | {counts_of} |")
    print()


def _is_right(type_: str, gold: str) -> bool:
    return type_ == gold or gold in _GOLD_TYPES.get(type_, ())


def _print_relations(pairs: Sequence[tuple[_Passage, Extraction]], *, listed: bool) -> None:
    n_gold = sum(len(passage["relations"]) for passage, _ in pairs)
    n_found = n_right = same_ends = 0
    others: list[tuple[_Passage, Relation]] = []
    for passage, extraction in pairs:
        gold = {(r["subject"], r["predicate"], r["object"]) for r in passage["relations"]}
        ends = {frozenset({subject, object_}) for subject, _, object_ in gold}
        for relation in extraction.relations:
            subject, object_ = map(_as_written, (relation.subject, relation.object))
            n_found += 1
            same_ends += frozenset({subject, object_}) in ends
            if (subject, relation.predicate, object_) in gold:
                n_right += 1
            else:
                others.append((passage, relation))
    print(
        f"Relations: {n_gold} in the gold; {n_found} found; {n_right} of them are in the gold (precision at "
        f"least {n_right / max(n_found, 1):.1%}, recall {n_right / max(n_gold, 1):.1%}); "
        f"{same_ends} join two ends that the gold joins."
    )
    predicates = Counter(relation.predicate for _, relation in others)
    print("Not in the gold:", ", ".join(f"{name} {n}" for name, n in predicates.most_common(15)))
    if listed:
        print("\n| passage | subject | predicate | object | text |")
        print("|---|---|---|---|---|")
        for passage, relation in others:
            evidence = " ".join(passage["text"][relation.start : relation.end].split())[:200]
            cells = (passage["id"], relation.subject, relation.predicate, relation.object, evidence)
            print("| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in cells) + " |")


def _as_written(name: str) -> str:
    """Return a name as the gold has it: Loom names an option of one letter with its command."""
    return name[-2:] if name[-3:-1] == " -" else name


if __name__ == "__main__":
    main()
