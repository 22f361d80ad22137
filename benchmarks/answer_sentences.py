"""Answer sentences: how often the sentence that a passage has marked holds the answer.

    python benchmarks/answer_sentences.py DATASET_DIR …

A data set as for `retrieval.py`, whose questions have `answer` or `answers`. Read are its gold passages that
have an answer, letter by letter, and several sentences. Markdown is printed: the share that has a sentence
marked, the share of those where it holds an answer, and the same for a sentence taken at random.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import read_dataset, read_lines

from loom_core.knowledge.retrieval.answer_sentence import find_answer_sentence, split_sentences

if TYPE_CHECKING:
    from collections.abc import Iterator


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("datasets", nargs="+", type=Path)
    print("| set | passages | marked | right | at random | ms |\n|---|---|---|---|---|---|")
    for folder in parser.parse_args().datasets:
        passages = marked = right = 0
        chance = seconds = 0.0
        for question, text, answers in read_cases(folder):
            sentences = [_has(sentence, answers) for sentence in split_sentences(text)]
            passages += 1
            chance += sum(sentences) / len(sentences)
            began = time.process_time()
            sentence = find_answer_sentence(question, text)
            seconds += time.process_time() - began
            marked += bool(sentence)
            right += bool(sentence) and _has(sentence, answers)
        cells = (marked / passages, right / marked, chance / passages)
        shares = " | ".join(f"{share:.0%}" for share in cells)
        print(f"| {folder.name} | {passages:,} | {shares} | {1000 * seconds / passages:.2f} |", flush=True)


def read_cases(folder: Path) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each question with a gold passage that has an answer, and the answers in small letters."""
    dataset = read_dataset(folder)
    texts = {document.uri: document.text for document in dataset.documents}
    lines: dict[str, dict[str, Any]] = {line["_id"]: line for line in read_lines(folder / "queries.jsonl")}
    for question in dataset.questions:
        line = lines[question.id]
        answers = [str(answer).lower() for answer in line.get("answers") or [line["answer"]]]
        for uri in sorted(question.gold):
            text = texts[uri]
            has_answer = not {"yes", "no"}.intersection(answers) and _has(text, answers)
            if has_answer and len(list(split_sentences(text))) > 1:
                yield question.text, text, answers


def _has(text: str, answers: list[str]) -> bool:
    return any(answer in text.lower() for answer in answers)


if __name__ == "__main__":
    main()
