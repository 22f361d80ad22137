"""How well Loom tells questions that a knowledge base answers from those that it does not.

    python benchmarks/answerable.py --keep FOLDER ../shared/data/2wiki-dev164 ../shared/data/cmrc2018-dev …
    python benchmarks/answerable.py --keep FOLDER --folder manuals.en=/usr/share/doc/… DATASET_DIR …

Every data set is a knowledge base, asked through the real pipeline: its own questions, which it answers, and
those of all other sets, which it does not. A folder of documents is one, too: its questions are the lines of
`benchmarks/answerable/NAME.answerable.txt` and `NAME.unanswerable.txt`. A table says how many answers were
weak or none, and how many were none, for questions in the passages' language and in another one.

The numbers of `loom_core.knowledge.match` were fitted on half of the questions; the other half was held back.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from bases import fill
from datasets import read_dataset, read_lines

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.language import detect_language, language_group
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase

if TYPE_CHECKING:
    from loom_core.knowledge.match import Match

_QUESTIONS = Path(__file__).parent / "answerable"
_TRANSLATED = Path(__file__).parent / "translated"


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("datasets", nargs="*", type=Path, metavar="DATASET_DIR")
    arguments.add_argument("--folder", action="append", default=[], metavar="NAME=FOLDER")
    arguments.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the knowledge bases, use them again"
    )
    arguments.add_argument("--embedder", default="auto")
    arguments.add_argument(
        "--own", type=int, default=300, metavar="N", help="of its own questions, at most N"
    )
    arguments.add_argument(
        "--other", type=int, default=60, metavar="N", help="of each other set's, at most N"
    )
    arguments.add_argument("--show", action="store_true", help="print the questions that were judged wrong")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="loom-bench-") as scratch:
        anyio.run(_measure, args, args.keep or Path(scratch))


def half(question: str) -> str:
    """Which half a question belongs to: `fitted` or `held back`, by its text."""
    return "held back" if int(hashlib.md5(question.encode()).hexdigest(), 16) % 2 else "fitted"


async def _measure(args: argparse.Namespace, home: Path) -> None:
    folders = dict(each.split("=", 1) for each in args.folder)
    questions: dict[str, list[str]] = {path.name: _own(path) for path in args.datasets}
    for path in sorted(_QUESTIONS.glob("*.txt")):
        questions[path.stem] = path.read_text(encoding="utf-8").splitlines()
    embedder = create_embedder(args.embedder)
    print("| knowledge base | passages | questions | half | n | weak or none % | none % |")
    print("|---|---|---|---|---|---|---|")
    for name in [*(path.name for path in args.datasets), *folders]:
        knowledge_base = GraphRAGKnowledgeBase.from_config(
            embedding_provider=embedder, name=name, path=home / name
        )
        try:
            if name in folders:
                await knowledge_base.add_paths([Path(folders[name])])
            else:
                dataset = read_dataset(next(path for path in args.datasets if path.name == name))
                await fill(knowledge_base, dataset.documents, quiet=True)
            passages = knowledge_base.coverage()[1]
            matches: dict[tuple[str, str], list[Match]] = defaultdict(list)
            for kind, question in _asked(name, questions, own=args.own, other=args.other):
                match = (await knowledge_base.search(question)).match
                matches[kind, half(question)].append(match)
                if args.show and (match.verdict == "strong") != kind.startswith("answerable"):
                    print(f"  {kind}: {match.verdict} {match.confidence} {question}")
            for (kind, part), found in sorted(matches.items()):
                weak = sum(match.verdict != "strong" for match in found)
                none = sum(match.verdict == "none" for match in found)
                line = [name, f"{passages:,}", kind, part, len(found)]
                line += [f"{100 * weak / len(found):.1f}", f"{100 * none / len(found):.1f}"]
                print("|", " | ".join(map(str, line)), "|", flush=True)
        finally:
            knowledge_base.close()


def _own(folder: Path) -> list[str]:
    return [question.text for question in read_dataset(folder).questions]


def _asked(name: str, questions: dict[str, list[str]], *, own: int, other: int) -> list[tuple[str, str]]:
    """Questions to ask of one knowledge base, each with what it is."""
    answerable = questions.get(name, questions.get(f"{name}.answerable", []))
    passages = language_group(detect_language(" ".join(answerable)))
    asked = [("answerable", text) for text in _some(answerable, own)]
    translated = _TRANSLATED / f"{name}.zh.jsonl"
    if translated.exists():
        asked += [("answerable", line["text"]) for line in read_lines(translated)]
    for other_name, texts in questions.items():
        # Written for one of the folders, such questions may be answered by another of them.
        if other_name.endswith(".answerable") and name in {each.rsplit(".", 1)[0] for each in questions}:
            continue
        if texts is not answerable:
            asked += [("unanswerable", text) for text in _some(texts, other)]
    return [
        (kind if language_group(detect_language(text)) == passages else f"{kind}, other language", text)
        for kind, text in asked
    ]


def _some(texts: list[str], most: int) -> list[str]:
    return texts if len(texts) <= most else random.Random(1).sample(texts, most)


if __name__ == "__main__":
    main()
