"""Fine-tune a transformer on the marked passages, and mark others with it for the tagger to learn from.

    python benchmarks/tagger/teacher.py VECTORS.npz benchmarks/tagger/marked.jsonl PASSAGES.jsonl SILVER.npz

PASSAGES.jsonl has `title`, `headings` and `text`. The encoder is multilingual-e5-small, which loom-kb embeds
with; its upper four layers are trained. Needs jax and optax; an epoch of 1,200 passages takes ten minutes on
two cores, and 10,000 passages to mark take half an hour.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from train import GOLD, Network, Passage, Vocabulary, encode, read_lines, read_marked, read_vectors

from loom_core.embedding.local_models.e5_weights import (
    E5_FILE,
    FEED_FORWARD,
    HEADS,
    HIDDEN,
    LAYERS,
    POSITIONS,
    E5Weights,
    read_e5_weights,
)
from loom_core.embedding.local_models.unigram import UnigramTokenizer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TRAINED_LAYERS = 4
_MOST_PIECES = 510
_BATCH, _EPOCHS, _DROP = 4, 5, 0.3
_ENCODER_RATE, _HEAD_RATE = 1e-4, 1.5e-3
_SPACE = "▁"

Weights = dict[str, Any]


@dataclass(slots=True)
class Pieces:
    """The pieces of a passage: ids, with the marks of both ends, and the first and last token of each."""

    ids: np.ndarray
    tokens: np.ndarray


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("vectors", type=Path)
    parser.add_argument("marked", type=Path)
    parser.add_argument("passages", type=Path)
    parser.add_argument("silver", type=Path)
    parser.add_argument("--epochs", type=int, default=_EPOCHS)
    arguments = parser.parse_args()
    vectors, words = read_vectors(arguments.vectors)
    vocabulary = Vocabulary(words)
    marked = list(read_marked(arguments.marked))
    gold = [passage for passage in read_lines(GOLD) if passage["split"] == "dev"]
    others = [{**passage, "entities": []} for passage in read_lines(arguments.passages)]
    groups = [[encode(passage, vocabulary) for passage in group] for group in (marked, gold, others)]
    e5 = read_e5_weights(E5_FILE.verify("multilingual-e5-small", None))
    cut = Cutter(e5)
    pieces = [
        [cut.pieces(passage["text"], encoded) for passage, encoded in zip(group, encodeds, strict=True)]
        for group, encodeds in zip((marked, gold, others), groups, strict=True)
    ]
    teacher = Teacher(vectors, vocabulary, e5)
    weights = teacher.fit(groups[0], pieces[0], epochs=arguments.epochs)
    print("gold:", teacher.score_by(list(teacher.outputs(weights, groups[1], pieces[1])), groups[1]))
    rows = {
        str(number): output.astype(np.float16)
        for number, output in enumerate(teacher.outputs(weights, groups[2], pieces[2]))
    }
    kept = [json.dumps({key: value for key, value in other.items() if key != "entities"}) for other in others]
    np.savez(arguments.silver, passages=np.frombuffer("\n".join(kept).encode(), np.uint8), **rows)


class Cutter:
    """Cuts passages into the pieces of the encoder, and finds the tokens that each covers."""

    def __init__(self, e5: E5Weights) -> None:
        self._e5 = e5
        self._tokenizer = UnigramTokenizer(
            e5.pieces, e5.scores, unknown=e5.unknown, control=e5.control, normalisation=e5.normalisation
        )
        self._before = self._tokenizer.encode("passage:")

    def pieces(self, text: str, passage: Passage) -> Pieces:
        """Return the pieces of a passage, as many as the encoder takes."""
        token_at = np.full(len(text) + 1, -1)
        for number, (start, end) in enumerate(passage.spans):
            token_at[start:end] = number
        places = [
            place
            for place, char in enumerate(text)
            for normal in char.translate(self._e5.normalisation)
            if not normal.isspace()
        ]
        ids = self._tokenizer.encode(text)[: _MOST_PIECES - len(self._before)]
        tokens, at = [], 0
        for id_ in ids:
            size = 1 if id_ == self._e5.unknown else len(self._e5.pieces[id_].replace(_SPACE, ""))
            covered = [token for place in places[at : at + size] if (token := int(token_at[place])) >= 0]
            tokens.append((covered[0], covered[-1]) if covered else (-1, -1))
            at += size
        none = [(-1, -1)]
        return Pieces(
            np.array([self._e5.begin, *self._before, *ids, self._e5.end], np.int32),
            np.array(none * (1 + len(self._before)) + tokens + none, np.int32),
        )


class Teacher(Network):
    """The network of the tagger, which also sees the states of the encoder."""

    def __init__(self, vectors: np.ndarray, vocabulary: Vocabulary, e5: E5Weights) -> None:
        super().__init__(vectors, vocabulary)
        self._e5 = e5
        self._positions = e5.tensor("emb.pos").reshape(POSITIONS, HIDDEN) + e5.tensor("emb.type")[:HIDDEN]
        self._frozen = {
            "norm": (e5.tensor("emb.ln.w"), e5.tensor("emb.ln.b")),
            "layers": [_layer(e5, number) for number in range(LAYERS - _TRAINED_LAYERS)],
        }
        self._answer = jax.jit(lambda weights, batch: self.forward(weights, batch, None))

    def fit(self, passages: Sequence[Passage], pieces: Sequence[Pieces], *, epochs: int) -> Weights:
        """Return the weights after some epochs."""
        weights = {
            "head": self.initial(HIDDEN),
            "layers": [_layer(self._e5, number) for number in range(LAYERS - _TRAINED_LAYERS, LAYERS)],
        }
        steps = epochs * (len(passages) // _BATCH)
        rates = optax.warmup_cosine_decay_schedule(0, 1, steps // 20, steps, 0.02)
        optimiser = optax.multi_transform(
            {
                "layers": optax.chain(
                    optax.clip_by_global_norm(1.0), optax.adamw(lambda at: _ENCODER_RATE * rates(at))
                ),
                "head": optax.adamw(lambda at: _HEAD_RATE * rates(at), weight_decay=1e-3),
            },
            {"layers": "layers", "head": "head"},
        )
        trained = self.train_epochs(
            weights,
            optimiser,
            [len(each.ids) for each in pieces],
            _BATCH,
            lambda chosen: self._filled([passages[i] for i in chosen], [pieces[i] for i in chosen]),
        )
        for weights in islice(trained, epochs):  # noqa: B007 - the last ones are returned
            pass
        return weights

    def outputs(
        self, weights: Weights, passages: Sequence[Passage], pieces: Sequence[Pieces]
    ) -> Iterator[np.ndarray]:
        """Yield the probabilities of tags and types of each passage, shape (tokens, 24)."""
        for passage, cut in zip(passages, pieces, strict=True):
            output = self._answer(weights, self._filled([passage], [cut]))[0][: len(passage.keys)]
            yield np.concatenate([jax.nn.softmax(output[:, :5]), jax.nn.softmax(output[:, 5:])], axis=1)

    def forward(self, weights: Weights, batch: Weights, key: jax.Array | None) -> jax.Array:
        """Return the output for each token of a batch."""
        states = self._encode(weights["layers"], batch)
        tokens = jnp.arange(batch["keys"].shape[1])[None, :, None]
        first, last = batch["tokens"][:, None, :, 0], batch["tokens"][:, None, :, 1]
        covers = ((tokens >= first) & (tokens <= last) & (first >= 0)).astype(jnp.float32)
        mean = covers @ states / jnp.maximum(covers.sum(-1, keepdims=True), 1)
        return super().forward(weights["head"], {**batch, "states": mean}, key)

    def _encode(self, layers: list[Weights], batch: Weights) -> jax.Array:
        rows, mask = batch["pieces"], (1 - batch["piece_mask"])[:, None, None, :] * -1e9
        states = _norm(rows + self._positions[: rows.shape[1]], *self._frozen["norm"])
        for layer in self._frozen["layers"]:
            states = _transform(states, layer, mask)
        states = jax.lax.stop_gradient(states)
        for layer in layers:
            states = _transform(states, layer, mask)
        return states

    def _filled(self, passages: Sequence[Passage], pieces: Sequence[Pieces]) -> Weights:
        length = -(-max(len(each.ids) for each in pieces) // 64) * 64
        shape = len(pieces), length
        batch = {
            "pieces": np.zeros((*shape, HIDDEN), np.float32),
            "piece_mask": np.zeros(shape, np.float32),
            "tokens": np.full((*shape, 2), -1, np.int32),
        }
        for row, each in enumerate(pieces):
            n = len(each.ids)
            batch["pieces"][row, :n] = self._e5.word_rows(each.ids)
            batch["piece_mask"][row, :n], batch["tokens"][row, :n] = 1, each.tokens
        return {**self.batch(passages), **batch}


def _layer(e5: E5Weights, number: int) -> Weights:
    layer: Weights = {}
    for part in ("q", "k", "v", "ao", "fi", "fo"):
        inputs = FEED_FORWARD if part == "fo" else HIDDEN
        matrix = e5.tensor(f"l{number}.{part}.w").reshape(-1, inputs).T
        layer[part] = jnp.asarray(matrix), jnp.asarray(e5.tensor(f"l{number}.{part}.b"))
    for part in ("aln", "oln"):
        layer[part] = tuple(jnp.asarray(e5.tensor(f"l{number}.{part}.{name}")) for name in "wb")
    return layer


def _norm(rows: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    centred = rows - rows.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * weight + bias


def _transform(states: jax.Array, layer: Weights, mask: jax.Array) -> jax.Array:
    """Apply a layer of the encoder (BERT, with the norm after each part)."""

    def linear(rows: jax.Array, part: str) -> jax.Array:
        matrix, bias = layer[part]
        return rows @ matrix + bias

    size, length, _ = states.shape
    heads = (size, length, HEADS, HIDDEN // HEADS)
    query, key, value = (linear(states, part).reshape(heads).transpose(0, 2, 1, 3) for part in "qkv")
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(HIDDEN // HEADS) + mask
    mixed = (jax.nn.softmax(scores, -1) @ value).transpose(0, 2, 1, 3).reshape(size, length, HIDDEN)
    states = _norm(states + linear(mixed, "ao"), *layer["aln"])
    inner = jax.nn.gelu(linear(states, "fi"), approximate=False)
    return _norm(states + linear(inner, "fo"), *layer["oln"])


if __name__ == "__main__":
    main()
