"""Train the entity tagger, and write the weights that Loom ships.

    python benchmarks/tagger/train.py VECTORS.npz benchmarks/tagger/marked.jsonl [--silver SILVER.npz]

Needs jax and optax, which `requirements/tagger.txt` has. `README.md` next to this file says what the data is.
The half `dev` of the gold set is measured at the end of each third epoch; it is not trained on.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from loom_core.knowledge.ingest.extraction.tagger import ENTITY_TYPES, best_spans
from loom_core.knowledge.ingest.extraction.tagger_features import (
    BUCKETS,
    CONTEXTS,
    context_features,
    tokens_of,
    word_features,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

WEIGHTS = Path(__file__).parents[2] / "loom_core/knowledge/ingest/extraction/data/tagger.npz"
GOLD = Path(__file__).parents[1] / "graph_gold" / "passages.jsonl"
DATA = Path(__file__).parents[2].parent / "shared" / "data"

_FEATURE_WIDTH, _FIRST, _SECOND = 48, 128, 64
_BATCH, _RATE, _DROP = 16, 2e-3, 0.25
_STEP = 64  # lengths of batches are multiples of this, as each length is compiled
_TAGS = 5  # outside, begin, inside, end, single

Weights = dict[str, Any]


@dataclass(slots=True)
class Passage:
    """A passage ready for training.

    Attributes:
        keys: number of each token's key.
        contexts: context features of each token, as bits.
        tags: probabilities of the tags, shape (tokens, 5).
        types: probabilities of the types times that of an entity, shape (tokens, 19).
        spans: the tokens' spans.
        gold: spans and types of the entities.
    """

    keys: np.ndarray
    contexts: np.ndarray
    tags: np.ndarray
    types: np.ndarray
    spans: list[tuple[int, int]]
    gold: dict[tuple[int, int], str] = field(default_factory=dict)


class Vocabulary:
    """Numbers the keys of tokens, with their features and word vectors."""

    def __init__(self, words: Sequence[str]) -> None:
        self._numbers: dict[str, int] = {}
        self._words = {word: row for row, word in enumerate(words)}
        self.features: list[list[int]] = []
        self.vectors: list[int] = []

    def number(self, key: str) -> int:
        """Return the number of a key, a new one if it is new."""
        if key not in self._numbers:
            self._numbers[key] = len(self._numbers)
            self.features.append(word_features(key))
            parts = key.split("\t")
            self.vectors.append(self._words.get(parts[1] if len(parts) > 1 else key.lower(), -1))
        return self._numbers[key]

    def tables(self) -> tuple[np.ndarray, np.ndarray]:
        """Return features (keys + 1, longest) and vector rows (keys + 1); the last key is padding."""
        longest = max(map(len, self.features))
        table = np.full((len(self.features) + 1, longest), BUCKETS, np.int32)
        for row, features in zip(table, self.features, strict=False):
            row[: len(features)] = features
        return table, np.array([*self.vectors, -1], np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("vectors", type=Path)
    parser.add_argument("marked", type=Path)
    parser.add_argument("--silver", type=Path, help="passages with the probabilities of a teacher")
    parser.add_argument("--copies", type=int, default=3, help="of marked passages, next to silver ones")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    arguments = parser.parse_args()
    vectors, words = read_vectors(arguments.vectors)
    vocabulary = Vocabulary(words)
    marked = [encode(each, vocabulary) for each in read_marked(arguments.marked)]
    silver = list(_read_silver(arguments.silver, vocabulary)) if arguments.silver else []
    gold = [encode(each, vocabulary) for each in read_lines(GOLD) if each["split"] == "dev"]
    passages = marked * (arguments.copies if silver else 1) + silver
    print(f"{len(marked)} marked passages, {len(silver)} silver ones")
    network = Network(vectors, vocabulary)
    weights = network.train(passages, gold, epochs=arguments.epochs)
    _write(arguments.out, weights, vectors, words, vocabulary)


def read_vectors(path: Path) -> tuple[np.ndarray, list[str]]:
    """Return the word vectors and the words that `vectors.py` wrote."""
    with np.load(path) as stored:
        return stored["vectors"], bytes(stored["words"]).decode().split("\n")


def read_marked(path: Path) -> Iterator[dict[str, Any]]:
    """Yield marked passages; the texts of those from `shared/data` are read from there, or left out."""
    texts: dict[str, dict[str, str]] = {}
    for passage in read_lines(path):
        if "text" not in passage:
            name, id_ = passage["source"]["from"], passage["source"]["path"]
            if name not in texts:
                texts[name] = _read_texts(DATA / name)
            if id_ not in texts[name]:
                continue
            passage["text"] = texts[name][id_][: passage["length"]]
        yield passage


def _read_texts(folder: Path) -> dict[str, str]:
    import gzip

    path = folder / "corpus.jsonl.gz"
    if not path.exists():
        return {}
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return {str(row.get("_id") or row.get("id")): row["text"] for row in map(json.loads, lines)}


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines."""
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def encode(passage: dict[str, Any], vocabulary: Vocabulary) -> Passage:
    """Return a marked passage ready for training."""
    text = passage["text"]
    tokens = tokens_of(text)
    keys, contexts = context_features(text, tokens, passage.get("title", ""), passage.get("headings", ()))
    tags = np.zeros((len(tokens), _TAGS), np.float16)
    types = np.zeros((len(tokens), len(ENTITY_TYPES)), np.float16)
    tags[:, 0] = 1
    first = {token.start: number for number, token in enumerate(tokens)}
    last = {token.end: number for number, token in enumerate(tokens)}
    for entity in passage["entities"]:
        begin, end = first.get(entity["start"]), last.get(entity["end"])
        if begin is not None and end is not None:
            tags[begin : end + 1] = 0
            tags[begin : end + 1, 2] = 1
            tags[begin], tags[end] = np.eye(_TAGS)[[1, 3]] if end > begin else np.eye(_TAGS)[[4, 4]]
            types[begin : end + 1, ENTITY_TYPES.index(entity["type"])] = 1
    return Passage(
        keys=np.array([vocabulary.number(key) for key in keys], np.int32),
        contexts=np.array(contexts, np.int32),
        tags=tags,
        types=types,
        spans=[(token.start, token.end) for token in tokens],
        gold={(e["start"], e["end"]): e["type"] for e in passage["entities"]},
    )


def _read_silver(path: Path, vocabulary: Vocabulary) -> Iterator[Passage]:
    """Yield the passages of `teacher.py`: as marked ones, with probabilities instead of marks."""
    with np.load(path) as stored:
        for number, line in enumerate(bytes(stored["passages"]).decode().split("\n")):
            passage = encode({**json.loads(line), "entities": []}, vocabulary)
            rows = stored[str(number)].astype(np.float32)
            passage.tags = rows[:, :_TAGS].astype(np.float16)
            passage.types = (rows[:, _TAGS:] * rows[:, 1:_TAGS].sum(1, keepdims=True)).astype(np.float16)
            yield passage


class Network:
    """The network of `EntityTagger`, for training."""

    def __init__(self, vectors: np.ndarray, vocabulary: Vocabulary) -> None:
        features, rows = vocabulary.tables()
        self._features, self._rows = jnp.asarray(features), jnp.asarray(rows)
        self._vectors = jnp.asarray(vectors)
        self._padding = len(features) - 1
        self._predict = jax.jit(lambda weights, batch: self.forward(weights, batch, None))

    def train(self, passages: list[Passage], gold: list[Passage], *, epochs: int) -> Weights:
        """Return the weights after some epochs of AdamW on the cross-entropy of tags and types."""
        steps = epochs * (len(passages) // _BATCH)
        rates = optax.warmup_cosine_decay_schedule(0, _RATE, steps // 30, steps, _RATE / 50)
        optimiser = optax.adamw(rates, weight_decay=1e-4)
        weights = self.initial()
        lengths = [len(passage.keys) for passage in passages]
        trained = self.train_epochs(
            weights, optimiser, lengths, _BATCH, lambda chosen: self.batch([passages[i] for i in chosen])
        )
        for epoch, weights in enumerate(islice(trained, epochs)):
            if epoch % 3 == 2 or epoch == epochs - 1:
                print(f"gold: {self.score(weights, gold)}", flush=True)
        return jax.tree.map(np.asarray, weights)

    def train_epochs(
        self,
        weights: Weights,
        optimiser: optax.GradientTransformation,
        lengths: Sequence[int],
        size: int,
        batch: Callable[[Sequence[int]], Weights],
    ) -> Iterator[Weights]:
        """Train epoch by epoch, without end; yield the weights after each.

        Args:
            weights: the weights to begin with.
            optimiser: what changes them.
            lengths: length of each passage: those of a batch are similar.
            size: passages of a batch.
            batch: function from numbers of passages to their batch.
        """
        state = optimiser.init(weights)

        @jax.jit
        def step(
            weights: Weights, state: optax.OptState, batch: Weights, key: jax.Array
        ) -> tuple[Weights, optax.OptState, jax.Array]:
            loss, gradient = jax.value_and_grad(self.loss)(weights, batch, key)
            change, state = optimiser.update(gradient, state, weights)
            return optax.apply_updates(weights, change), state, loss

        random, key = np.random.default_rng(0), jax.random.PRNGKey(0)
        started = time.perf_counter()
        for epoch in count():
            order = sorted(random.permutation(len(lengths)), key=lambda each: lengths[each] // _STEP)
            batches = [order[at : at + size] for at in range(0, len(order) - size + 1, size)]
            random.shuffle(batches)
            losses = []
            for number, chosen in enumerate(batches):
                drop = jax.random.fold_in(key, epoch * len(batches) + number)
                weights, state, loss = step(weights, state, batch(chosen), drop)
                losses.append(float(loss))
            seconds = time.perf_counter() - started
            print(f"epoch {epoch}: loss {np.mean(losses):.4f}, {seconds:.0f} s", flush=True)
            yield weights

    def score(self, weights: Weights, passages: list[Passage]) -> str:
        """Return precision, recall and F1 of the spans, and the share of right types among right spans."""
        outputs: list[np.ndarray] = []
        for passage in passages:
            output = self._predict(weights, self.batch([passage]))[0][: len(passage.keys)]
            parts = jax.nn.softmax(output[:, :_TAGS]), jax.nn.softmax(output[:, _TAGS:])
            outputs.append(np.concatenate(parts, axis=1))
        return self.score_by(outputs, passages)

    @staticmethod
    def score_by(outputs: Sequence[np.ndarray], passages: Sequence[Passage]) -> str:
        """Return the same for given probabilities of tags and types."""
        found = right = typed = 0
        for output, passage in zip(outputs, passages, strict=True):
            logarithms = np.log(output + 1e-6)
            for first, last in best_spans(logarithms[:, :_TAGS]):
                span = passage.spans[first][0], passage.spans[last][1]
                type_ = ENTITY_TYPES[int(logarithms[first : last + 1, _TAGS:].sum(0).argmax())]
                found, right = found + 1, right + (span in passage.gold)
                typed += passage.gold.get(span) == type_
        total = sum(len(passage.gold) for passage in passages)
        return (
            f"P {right / max(found, 1):.1%} R {right / max(total, 1):.1%} "
            f"F1 {2 * right / max(found + total, 1):.1%} types {typed / max(right, 1):.1%}"
        )

    def initial(self, states: int = 0) -> Weights:
        """Return random weights; `states` is the width of an encoder's states, see `teacher.py`."""
        random = np.random.default_rng(0)
        inputs = 2 * _FEATURE_WIDTH + self._vectors.shape[1]

        def normal(*shape: int, scale: float) -> jax.Array:
            return jnp.asarray(random.standard_normal(shape) * scale, jnp.float32)

        return {
            "features": normal(BUCKETS + 1, _FEATURE_WIDTH, scale=0.05).at[BUCKETS].set(0),
            "contexts": normal(len(CONTEXTS), _FEATURE_WIDTH, scale=0.1),
            "states": normal(states, _FIRST, scale=0.05),
            "first": normal(5 * inputs, _FIRST, scale=(2 / 5 / inputs) ** 0.5),
            "first_bias": jnp.zeros(_FIRST),
            "second": normal(3 * _FIRST, _SECOND, scale=(2 / 3 / _FIRST) ** 0.5),
            "second_bias": jnp.zeros(_SECOND),
            "output": normal(_FIRST + _SECOND + states, _TAGS + len(ENTITY_TYPES), scale=0.1),
            "output_bias": jnp.zeros(_TAGS + len(ENTITY_TYPES)),
        }

    def batch(self, passages: Sequence[Passage]) -> Weights:
        """Return passages as arrays of the same length."""
        length = -(-max(len(passage.keys) for passage in passages) // _STEP) * _STEP
        shape = len(passages), length
        batch = {
            "keys": np.full(shape, self._padding, np.int32),
            "contexts": np.zeros(shape, np.int32),
            "mask": np.zeros(shape, np.float32),
            "tags": np.zeros((*shape, _TAGS), np.float32),
            "types": np.zeros((*shape, len(ENTITY_TYPES)), np.float32),
        }
        for row, passage in enumerate(passages):
            n = len(passage.keys)
            batch["keys"][row, :n], batch["contexts"][row, :n] = passage.keys, passage.contexts
            batch["tags"][row, :n], batch["types"][row, :n] = passage.tags, passage.types
            batch["mask"][row, :n] = 1
        return batch

    def forward(self, weights: Weights, batch: Weights, key: jax.Array | None) -> jax.Array:
        """Return the output for each token of a batch; with a key, some inputs are dropped."""

        def drop(rows: jax.Array, number: int) -> jax.Array:
            if key is None:
                return rows
            kept = jax.random.bernoulli(jax.random.fold_in(key, number), 1 - _DROP, rows.shape)
            return rows * kept / (1 - _DROP)

        mask = batch["mask"][..., None]
        features = self._features[batch["keys"]]
        summed = (weights["features"][features] * (features < BUCKETS)[..., None]).sum(2)
        bits = (batch["contexts"][..., None] >> jnp.arange(len(CONTEXTS))) & 1
        context = bits.astype(jnp.float32) @ weights["contexts"]
        vectors = self._vectors[self._rows[batch["keys"]]]
        inputs = jnp.concatenate([summed, vectors, context], -1) * mask
        states = drop(batch["states"], 3) if "states" in batch else jnp.zeros((*mask.shape[:2], 0))
        summed = _window(drop(inputs, 0), 5) @ weights["first"] + states @ weights["states"]
        first = drop(jax.nn.relu(summed + weights["first_bias"]), 1) * mask
        second = drop(jax.nn.relu(_window(first, 3) @ weights["second"] + weights["second_bias"]), 2)
        return jnp.concatenate([second, first, states], -1) @ weights["output"] + weights["output_bias"]

    def loss(self, weights: Weights, batch: Weights, key: jax.Array | None) -> jax.Array:
        """Return the cross-entropy of tags and types, by token."""
        output = self.forward(weights, batch, key)
        tags = jax.nn.log_softmax(output[..., :_TAGS]) * batch["tags"]
        types = jax.nn.log_softmax(output[..., _TAGS:]) * batch["types"]
        return -(tags.sum() + types.sum()) / batch["mask"].sum()


def _window(rows: jax.Array, width: int) -> jax.Array:
    reach = width // 2
    padded = jnp.pad(rows, ((0, 0), (reach, reach), (0, 0)))
    return jnp.concatenate([padded[:, shift : shift + rows.shape[1]] for shift in range(width)], -1)


def _write(
    path: Path, weights: Weights, vectors: np.ndarray, words: Sequence[str], vocabulary: Vocabulary
) -> None:
    """Write the weights: tables in 8 bits with a scale, the rest in 16."""
    used = np.zeros(BUCKETS, bool)
    used[[row for features in vocabulary.features for row in features]] = True
    kept = weights.keys() - {"features", "states"}
    arrays = {name: weights[name].astype(np.float16) for name in sorted(kept)}
    tables = {"features": (weights["features"][:BUCKETS] * used[:, None], 1), "vectors": (vectors, 0)}
    for name, (table, axis) in tables.items():
        scale = np.maximum(np.abs(table).max(axis=axis, keepdims=True) / 127, 1e-8)
        arrays[name], arrays[f"{name}/scale"] = (
            np.rint(table / scale).astype(np.int8),
            scale.astype(np.float16),
        )
    arrays["words"] = np.frombuffer("\n".join(words).encode(), np.uint8)
    np.savez_compressed(path, **arrays)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
