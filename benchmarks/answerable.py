"""How well Loom tells questions that a knowledge base answers from those that it does not.

    python benchmarks/answerable.py --keep FOLDER ../shared/data/2wiki-dev164 ../shared/data/cmrc2018-dev …
    python benchmarks/answerable.py --keep FOLDER --folder manuals.en=/usr/share/doc/… DATASET_DIR …

Every data set is a knowledge base, asked through the real pipeline: its own questions, which it answers, and
those of all other sets, which it does not. A folder of documents is one, too: its questions are the lines of
`benchmarks/answerable/NAME.answerable.txt` and `NAME.unanswerable.txt`. The table says for how many questions
the match was weak or none, in brackets for how many none, for questions in the passages' language and in
another one.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from bases import fill
from datasets import Dataset, Question, read_dataset, read_lines

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
from loom_core.knowledge.text.languages import detect_language, language_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.retrieval.confidence import Match

_QUESTIONS = Path(__file__).parent / "answerable"
_TRANSLATED = Path(__file__).parent / "translated"
_KINDS = (
    "answerable",
    "unanswerable",
    "answerable, other language",
    "unanswerable, other language",
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("datasets", nargs="*", type=Path, metavar="DATASET_DIR")
    arguments.add_argument("--folder", action="append", default=[], metavar="NAME=FOLDER")
    arguments.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep the knowledge bases for next time"
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


async def _measure(args: argparse.Namespace, home: Path) -> None:
    folders = dict(each.split("=", 1) for each in args.folder)
    sets = {path.name: _read(path) for path in args.datasets}
    questions = {name: [question.text for question in each.questions] for name, each in sets.items()}
    for path in sorted(_QUESTIONS.glob("*.txt")):
        questions[path.stem] = path.read_text(encoding="utf-8").splitlines()
    embedder = create_embedder(args.embedder)
    print("\n".join([f"| knowledge base | passages | {' | '.join(_KINDS)} |", "|---" * 6 + "|"]))
    for name in [*sets, *folders]:
        base = GraphRAGKnowledgeBase.from_config(embedding_provider=embedder, name=name, path=home / name)
        try:
            if name in folders:
                await base.add_paths([Path(folders[name])])
            else:
                await fill(base, sets[name].documents, quiet=True)
            matches: dict[str, list[Match]] = defaultdict(list)
            for kind, question in _asked(name, questions, own=args.own, other=args.other):
                match = (await base.search(question)).match
                matches[kind].append(match)
                if args.show and (match.verdict == "strong") != kind.startswith("answerable"):
                    print(f"  {kind}: {match.verdict} {match.confidence} {question}")
            cells = [_cell(matches[kind]) for kind in _KINDS]
            print("|", " | ".join([name, f"{base.coverage()[1]:,}", *cells]), "|", flush=True)
        finally:
            base.close()


def _cell(matches: Sequence[Match]) -> str:
    if not matches:
        return "–"
    share = 100 / len(matches)
    weak = share * sum(match.verdict != "strong" for match in matches)
    none = share * sum(match.verdict == "none" for match in matches)
    return f"{weak:.1f} % ({none:.1f}) of {len(matches)}"


def _read(folder: Path) -> Dataset:
    """A data set as `datasets` reads it, or one of GraphRAG-Bench: a text, and questions for facts in it."""
    packed = folder / "questions.json.gz"
    if not packed.exists():
        return read_dataset(folder)
    texts = json.loads(gzip.decompress((folder / "corpus.json.gz").read_bytes()))
    documents = [DocumentDraft(uri=f"bench:{n}", text=each["context"]) for n, each in enumerate(texts)]
    questions = [
        Question(each["id"], each["question"], frozenset())
        for each in json.loads(gzip.decompress(packed.read_bytes()))
        if each["question_type"] in {"Fact Retrieval", "Complex Reasoning"}
    ]
    return Dataset(folder.name, tuple(documents), tuple(questions))


def _asked(name: str, questions: dict[str, list[str]], *, own: int, other: int) -> list[tuple[str, str]]:
    """Questions to ask of one knowledge base, each with its kind."""
    answerable = questions.get(name, questions.get(f"{name}.answerable", []))
    passages = language_group(detect_language(" ".join(answerable)))
    asked = [("answerable", text) for text in _some(answerable, own)]
    for translated in sorted(_TRANSLATED.glob(f"{name}.??.jsonl")):
        asked += [("answerable", line["text"]) for line in read_lines(translated)]
    for other_name, texts in questions.items():
        # Questions to one folder may be answered by another: they are about computers, too.
        among_folders = name not in questions and other_name.endswith(".answerable")
        if texts is not answerable and not among_folders:
            asked += [("unanswerable", text) for text in _some(texts, other)]
    return [
        (kind if language_group(detect_language(text)) == passages else f"{kind}, other language", text)
        for kind, text in asked
    ]


def _some(texts: list[str], most: int) -> list[str]:
    return texts if len(texts) <= most else random.Random(1).sample(texts, most)


if __name__ == "__main__":
    main()
