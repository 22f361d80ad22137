"""Unigram tokenizer: segments a text into vocabulary pieces with the highest total score."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["UnigramTokenizer"]

_SPACE = "▁"
"""Stands for a space, and begins every word, in the pieces."""

_UNKNOWN_PENALTY = 10.0
"""How far below the worst piece an unknown character scores (SentencePiece's `kUnkPenalty`)."""

_LONGEST_CACHED_WORD = 24
"""Longer runs without a space are Chinese or data, and seldom come again."""

_CACHED_WORDS = 1 << 15

_SPACES = re.compile(" {2,}")
_WORDS = re.compile(f"{_SPACE}[^{_SPACE}]*")


class UnigramTokenizer:
    """SentencePiece's unigram model with its normalisation, for one vocabulary.

    The best segmentation is found by dynamic programming (Viterbi) word by word: no piece crosses a space, so
    the words of a text are independent; segmentations of common words are cached.
    Threads may share an instance.

    Source: Kudo, "Subword Regularization", ACL 2018, section 3.2.
    """

    def __init__(
        self,
        pieces: Sequence[str],
        scores: Sequence[float],
        *,
        unknown: int,
        control: frozenset[int],
        normalisation: Mapping[int, str],
    ) -> None:
        """Index the vocabulary.

        Args:
            pieces: the piece of each id; `▁` stands for a space and only begins a piece.
            scores: the logarithm of each piece's probability.
            unknown: id of a character that no piece covers.
            control: ids that no text yields, such as the marks of beginning and end.
            normalisation: replacement of each code point, applied once; about NFKC.
        """
        self._ids = {piece: id_ for id_, piece in enumerate(pieces) if id_ not in control}
        self._scores = scores
        self._unknown = unknown
        self._unknown_score = min(scores) - _UNKNOWN_PENALTY
        self._normalisation = normalisation
        # First two characters to the length of the longest piece that begins so. Two and not one: most
        # pairs of Chinese characters begin no piece at all.
        self._reach = {piece[:2]: len(piece) for piece in sorted(self._ids, key=len)}
        self._cached_cut = lru_cache(maxsize=_CACHED_WORDS)(self._segment)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text's pieces, without marks of beginning and end.

        Any string is allowed; a character that no piece covers, also a lone surrogate, becomes the unknown
        id. A space is prepended if there is none.
        """
        text = _SPACES.sub(" ", text.translate(self._normalisation)).replace(" ", _SPACE)
        if not text.startswith(_SPACE):
            text = _SPACE + text
        ids: list[int] = []
        for word in _WORDS.findall(text):
            ids += self._cached_cut(word) if len(word) <= _LONGEST_CACHED_WORD else self._segment(word)
        return ids

    def _segment(self, word: str) -> tuple[int, ...]:
        """Segment one word, by the best path to each of its positions."""
        size = len(word)
        ids, scores, reach = self._ids, self._scores, self._reach
        best = [float("-inf")] * (size + 1)
        best[0] = 0.0
        last = [0] * (size + 1)  # id of the piece that ends here, on the best way
        begin = [0] * (size + 1)  # where that piece begins
        for start in range(size):
            here = best[start]
            longest = reach.get(word[start : start + 2], 1)
            for end in range(start + 1, min(start + longest, size) + 1):
                id_ = ids.get(word[start:end])
                if id_ is not None and here + scores[id_] > best[end]:
                    best[end] = here + scores[id_]
                    last[end] = id_
                    begin[end] = start
            if here + self._unknown_score > best[start + 1]:
                best[start + 1] = here + self._unknown_score
                last[start + 1] = self._unknown
                begin[start + 1] = start
        cut: list[int] = []
        position = size
        while position:
            cut.append(last[position])
            position = begin[position]
        return tuple(reversed(cut))
