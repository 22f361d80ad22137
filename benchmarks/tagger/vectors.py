"""Word vectors and frequencies for the entity tagger, from a text file.

    python benchmarks/tagger/vectors.py CORPUS.txt VECTORS.npz

CORPUS.txt has a paragraph a line. The result has `words`, the most frequent first, and a row for each: 48
dimensions of skip-gram (window 3, so that words of one kind are near each other), then a constant, the
frequency, and how often the word is written with a capital where no sentence begins. A last row of zeros is
for unknown words. Needs gensim, which `requirements/tagger.txt` has.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import rjieba

from loom_core.cjk import is_cjk
from loom_core.knowledge.ingest.extraction.tagger_features import tokens_of

_DIMENSIONS = 48
_LEAST_COUNT = 10
_MOST_WORDS = 36_000
_BEFORE_SENTENCE = frozenset('.!?:;"([-*|>')
# Shares of capitals, and the value of the feature from each on.
_CAPITALS = ((0.0, -1.0), (0.05, -0.3), (0.25, 0.5), (0.7, 1.0))
_LEAST_SEEN = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("vectors", type=Path)
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    inner: Counter[str] = Counter()
    capitals: Counter[str] = Counter()
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as tokenized:
        with arguments.corpus.open(encoding="utf-8") as lines:
            for line in lines:
                words = words_of(line)
                tokenized.write(" ".join(word.lower() for word in words) + "\n")
                counts.update(word.lower() for word in words)
                for before, word in zip([".", *words], words, strict=False):
                    if word.isalpha() and word.isascii() and before not in _BEFORE_SENTENCE:
                        inner[word.lower()] += 1
                        capitals[word.lower()] += word[0].isupper()
        tokenized.flush()
        words, vectors = _train(tokenized.name)
    rows = np.zeros((len(words) + 1, _DIMENSIONS + 3), np.float32)
    rows[:-1, :_DIMENSIONS] = (vectors - vectors.mean(0)) / vectors.std(0)
    rows[:-1, _DIMENSIONS] = 1
    for row, word in zip(rows, words, strict=False):
        if word.isascii() and word.isalpha():
            row[-2] = (min(6, int(math.log(counts[word], 4)) - 1) - 2) / 2
            share = capitals[word] / max(inner[word], 1)
            value = max(value for least, value in _CAPITALS if share >= least)
            row[-1] = value if inner[word] >= _LEAST_SEEN else 0
    np.savez(arguments.vectors, vectors=rows, words=np.frombuffer("\n".join(words).encode(), np.uint8))
    print(f"{len(words)} words")


def words_of(text: str) -> list[str]:
    """Return the tokens of a text, Chinese ones as words."""
    found: list[str] = []
    run = ""
    for token in tokens_of(text):
        if is_cjk(token.text[0]):
            run += token.text
            continue
        found += rjieba.cut(run) if run else []
        run = ""
        if not token.text.isspace():
            found.append(token.text)
    return found + (rjieba.cut(run) if run else [])


def _train(path: str) -> tuple[list[str], np.ndarray]:
    from gensim.models import Word2Vec

    model = Word2Vec(
        corpus_file=path, vector_size=_DIMENSIONS, window=3, min_count=_LEAST_COUNT, sg=1, negative=8,
        workers=2, epochs=5, sample=1e-4, seed=1, max_final_vocab=_MOST_WORDS,
    )  # fmt: skip
    return model.wv.index_to_key, model.wv.vectors


if __name__ == "__main__":
    main()
