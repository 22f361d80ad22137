"""Entity tagger: a small convolutional network that finds the entities of a passage and their types.

Each token is hashed features and a word vector; two convolutions look at its neighbours; Viterbi decoding
chooses the best sequence of begin, inside, end, single and outside tags (Collobert et al., "Natural Language
Processing (Almost) from Scratch", JMLR 12, 2011). `benchmarks/tagger` describes the data and the training.
"""

from __future__ import annotations

import errno
import io
import math
import re
import threading
from functools import cache
from importlib.resources import files
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from loom_core.knowledge.ingest.extraction.tagger_features import (
    CONTEXTS,
    context_features,
    tokens_of,
    word_features,
)
from loom_core.knowledge.model import Mention

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

__all__ = ["ENTITY_TYPES", "EntityTagger", "shipped_tagger"]

ENTITY_TYPES = (
    "person", "organisation", "place", "date", "event", "product", "version", "api", "command", "option",
    "config", "env", "error", "file", "standard", "law", "clause", "work", "term",
)  # fmt: skip
"""Types that the tagger assigns; `benchmarks/graph_gold/guideline.md` defines them."""

_WIDTH, _INNER_WIDTH = 5, 3  # tokens that the two convolutions see
_OUTSIDE, _BEGIN, _INSIDE, _END, _SINGLE = range(5)
_TAGS = 5
_CACHED = 1 << 13  # tokens for which that is kept: 2.5 KB each
_FLOOR = 1e-6
_SUREST = 0.8  # confidence of a certain entity: less than that of a language model
_ERRNO = frozenset(errno.errorcode.values())
_EXCEPTION = re.compile(r"[A-Z]\w*(?:Error|Exception|Warning)")
_CONSTANT = re.compile(r"[A-Z][A-Z0-9_]+")
_ENVIRONMENT = re.compile(r"environment variable|ENVIRONMENT|环境变量", re.IGNORECASE)
_CODE_TYPES = frozenset({"api", "config", "env"})
_LAWS = ("法", "条例", "公约", "许可证", "协议", "规定", "办法")


class EntityTagger:
    """Finds entities in passages; threads may share an instance.

    Args:
        weights: arrays of the network by name, see `benchmarks/tagger/README.md`.
        words: vocabulary of the word vectors, one row each.
    """

    def __init__(self, weights: dict[str, NDArray[np.float32]], words: Sequence[str]) -> None:
        import numpy as np

        self._w = weights
        self._vectors = {word: row for row, word in enumerate(words)}
        # The first convolution is a sum over the tokens of its window: what each adds is kept by token.
        n_features = weights["features"].shape[1] + weights["vectors"].shape[1]
        kernel = weights["first"].reshape(_WIDTH, -1, weights["first"].shape[1])
        self._kernel = np.concatenate(list(kernel[:, :n_features]), axis=1)
        self._cache = _TokenCache(self._added_by, self._kernel.shape[1])
        bits = np.arange(1 << len(CONTEXTS), dtype=np.uint16)[:, None] >> np.arange(len(CONTEXTS)) & 1
        contexts = bits.astype(np.float32) @ weights["contexts"]
        added = contexts @ np.concatenate(list(kernel[:, n_features:]), axis=1)
        self._contexts: NDArray[np.float32] = added.astype(np.float32)

    def mentions(self, text: str, *, title: str = "", headings: Sequence[str] = ()) -> list[Mention]:
        """Return the entities of a passage, in order, without overlaps.

        Args:
            text: the passage.
            title: title of its document.
            headings: the headings above it.
        """
        import numpy as np

        tokens = tokens_of(text)
        if not tokens:
            return []
        keys, contexts = context_features(text, tokens, title, headings)
        tags, types = self._probabilities(keys, contexts)
        names_variables = _ENVIRONMENT.search(text) is not None
        found: list[Mention] = []
        for first, last in best_spans(np.log(tags + _FLOOR)):
            type_ = ENTITY_TYPES[int(np.log(types[first : last + 1] + _FLOOR).sum(axis=0).argmax())]
            start, end = tokens[first].start, tokens[last].end
            type_ = _refine_type(type_, text, start, end, names_variables=names_variables)
            sure = max(0.01, round(_SUREST * float(1 - tags[first : last + 1, _OUTSIDE].max()), 2))
            found.append(Mention(" ".join(text[start:end].split()), start, end, type_, "tagged", sure))
        return found

    def _probabilities(
        self, keys: Sequence[str], contexts: Sequence[int]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the probabilities of tags, shape (tokens, 5), and of types, shape (tokens, 19)."""
        import numpy as np

        w = self._w
        added = self._cache.rows(keys) + self._contexts[contexts]
        by_place = added.reshape(len(keys), _WIDTH, -1)
        first = np.maximum(_sum_windows(by_place) + w["first_bias"], 0)
        second = np.maximum(_window(first, _INNER_WIDTH) @ w["second"] + w["second_bias"], 0)
        output = np.concatenate([second, first], axis=1) @ w["output"] + w["output_bias"]
        return _softmax(output[:, :_TAGS]), _softmax(output[:, _TAGS:])

    def _added_by(self, keys: Sequence[str]) -> NDArray[np.float32]:
        """Return what each token adds to the first convolution at each place of the window, side by side."""
        import numpy as np

        features = [word_features(key) for key in keys]
        firsts = np.cumsum([0, *map(len, features[:-1])])
        summed = np.add.reduceat(self._w["features"][list(chain.from_iterable(features))], firsts, axis=0)
        words = [self._vectors.get(_word_of(key), -1) for key in keys]
        return np.concatenate([summed, self._w["vectors"][words]], axis=1) @ self._kernel


class _TokenCache:
    """Rows of numbers of the tokens that were met last; threads may share an instance."""

    def __init__(self, compute: Callable[[Sequence[str]], NDArray[np.float32]], width: int) -> None:
        import numpy as np

        self._compute = compute
        self._places: dict[str, int] = {}
        self._rows = np.empty((_CACHED, width), np.float32)
        self._lock = threading.Lock()

    def rows(self, keys: Sequence[str]) -> NDArray[np.float32]:
        """Return the row of each token."""
        distinct = list(dict.fromkeys(keys))
        with self._lock:
            missing = [key for key in distinct if key not in self._places]
            if len(self._places) + len(missing) > _CACHED:
                self._places.clear()
                missing = distinct
            if len(missing) > _CACHED:
                places = {key: place for place, key in enumerate(distinct)}
                return self._compute(distinct)[[places[key] for key in keys]]
            if missing:
                first = len(self._places)
                self._rows[first : first + len(missing)] = self._compute(missing)
                self._places.update(zip(missing, count(first)))
            return self._rows[[self._places[key] for key in keys]]


def _word_of(key: str) -> str:
    parts = key.split("\t")
    return parts[1] if len(parts) > 1 else key.lower()


def _refine_type(type_: str, text: str, start: int, end: int, *, names_variables: bool) -> str:
    """Return a type after what is certain by form: these are too rare in the training data."""
    name = text[start:end]
    if name in _ERRNO or _EXCEPTION.fullmatch(name):
        return "error"
    if type_ in _CODE_TYPES and (name[0] == "$" or (names_variables and _CONSTANT.fullmatch(name))):
        return "env"
    if text[start - 1 : start] == "《" and text[end : end + 1] == "》":
        return "law" if type_ in {"law", "clause"} or name.endswith(_LAWS) else "work"
    return type_


def best_spans(scores: NDArray[np.float32]) -> list[tuple[int, int]]:
    """Return the first and last token of each entity in the best sequence of tags (Viterbi, 1967).

    Args:
        scores: logarithms of the probabilities of the tags, shape (tokens, 5).
    """
    # Best score of a sequence that ends with no entity open, with begin, and with inside.
    closed, begun, inside = 0.0, -math.inf, -math.inf
    endings: list[int] = []  # how the best sequence closes at each token
    starts: list[bool] = []  # whether the token before begins the entity that is open
    for outside, begin, middle, end, single in scores.tolist():
        starts.append(begun >= inside)
        opened = max(begun, inside)
        score, ending = max((closed + outside, _OUTSIDE), (closed + single, _SINGLE), (opened + end, _END))
        endings.append(ending)
        begun, inside, closed = closed + begin, opened + middle, score
    spans: list[tuple[int, int]] = []
    place = len(endings) - 1
    while place >= 0:
        first = place
        if endings[place] == _END:
            while not starts[first]:
                first -= 1
            first -= 1
        if endings[place] != _OUTSIDE:
            spans.append((first, place))
        place = first - 1
    return spans[::-1]


def _sum_windows(added: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the sums over the window of each token of what its tokens add, shape (tokens, width, size)."""
    import numpy as np

    width, n = added.shape[1], len(added)
    padded = np.zeros((n + width - 1, *added.shape[1:]), dtype=np.float32)
    padded[width // 2 : width // 2 + n] = added
    total = padded[:n, 0]
    for shift in range(1, width):
        total = total + padded[shift : shift + n, shift]
    return total


def _window(rows: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Return each row with its neighbours, side by side; zeros beyond the ends."""
    import numpy as np

    reach = width // 2
    padded = np.pad(rows, ((reach, reach), (0, 0)))
    return np.concatenate([padded[shift : shift + len(rows)] for shift in range(width)], axis=1)


def _softmax(scores: NDArray[np.float32]) -> NDArray[np.float32]:
    import numpy as np

    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


@cache
def shipped_tagger() -> EntityTagger:
    """Return the tagger with the weights that Loom ships; read at the first call, in about 50 ms."""
    import numpy as np

    path = files("loom_core.knowledge.ingest.extraction") / "data" / "tagger.npz"
    with np.load(io.BytesIO(path.read_bytes())) as stored:
        weights = {
            name: _unpack(stored, name) for name in stored.files if "/" not in name and name != "words"
        }
        words = bytes(stored["words"]).decode("utf-8").split("\n")
    return EntityTagger(weights, words)


def _unpack(stored: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.float32]:
    """Return an array as floats; arrays of bytes have a scale for each row or, if shared, for all."""
    values = stored[name].astype("f4")
    return values * stored[f"{name}/scale"] if f"{name}/scale" in stored else values
