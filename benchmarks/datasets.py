"""Retrieval data sets: passages, questions, and which passages answer which question.

A data set is a folder with `corpus.jsonl.gz` (or `.jsonl`; lines with `_id`, `title`, `text`),
`queries.jsonl` (`_id`, `text`) and `qrels.tsv` (a header, then query id, corpus id, score > 0).
"""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.model import DocumentDraft

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = [
    "Dataset",
    "Question",
    "merged",
    "read_dataset",
    "read_lines",
    "uri",
    "without_titles",
]


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the URIs of the documents that answer it."""

    id: str
    text: str
    gold: frozenset[str]


@dataclass(frozen=True, slots=True)
class Dataset:
    """Documents and questions about them."""

    name: str
    documents: tuple[DocumentDraft, ...]
    questions: tuple[Question, ...]


def read_dataset(folder: Path, *, limit: int | None = None, translations: Path | None = None) -> Dataset:
    """Read a data set; questions without gold documents are left out.

    Args:
        folder: where it is.
        limit: how many questions at most, a fixed random sample.
        translations: questions (`_id`, `text`) in place of its own, of the same ids; may be fewer.
    """
    gold: dict[str, set[str]] = {}
    for line in (folder / "qrels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        question, document, score = line.split("\t")
        if float(score) > 0:
            gold.setdefault(question, set()).add(uri(document))
    questions = [
        Question(line["_id"], line["text"], frozenset(gold[line["_id"]]))
        for line in read_lines(translations or folder / "queries.jsonl")
        if line["_id"] in gold
    ]
    if limit is not None and limit < len(questions):
        questions = random.Random(0).sample(questions, limit)
    packed = folder / "corpus.jsonl.gz"
    documents = [
        DocumentDraft(
            uri=uri(line["_id"]),
            text=line["text"] or line.get("title", ""),
            title=line.get("title", ""),
            title_source="given" if line.get("title") else "none",
        )
        for line in read_lines(packed if packed.exists() else folder / "corpus.jsonl")
    ]
    return Dataset(folder.name, tuple(documents), tuple(questions))


def uri(id_: str, dataset: str = "") -> str:
    """The URI of a document; where data sets are merged, with the name of its own: ids are its own, too."""
    return f"bench:{dataset}/{id_}" if dataset else f"bench:{id_}"


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a JSON Lines file, which may be packed."""
    with (
        gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
    ) as file:
        for line in file:
            if line.strip():
                yield json.loads(line)


def merged(datasets: Sequence[Dataset]) -> list[Dataset]:
    """The same data sets with URIs that differ from each other's, to go into one knowledge base.

    A passage that several sets have word for word is there once, and the gold of all of them.
    """
    first: dict[tuple[str, str], str] = {}
    results: list[Dataset] = []
    for dataset in datasets:
        new = {d.uri: uri(d.uri.removeprefix("bench:"), dataset.name) for d in dataset.documents}
        same = {d.uri: first.setdefault((d.title, d.text), new[d.uri]) for d in dataset.documents}
        documents = (replace(d, uri=new[d.uri]) for d in dataset.documents if same[d.uri] == new[d.uri])
        questions = (replace(q, gold=frozenset(same[gold] for gold in q.gold)) for q in dataset.questions)
        results.append(replace(dataset, documents=tuple(documents), questions=tuple(questions)))
    return results


def without_titles(dataset: Dataset) -> Dataset:
    """The same documents with no title given."""
    documents = (replace(document, title="", title_source="none") for document in dataset.documents)
    return replace(dataset, documents=tuple(documents))
