"""`cross_encoder`: a local model that scores question and passage together."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio import to_thread

from loom_core.embedding.local_models.base import usable_threads
from loom_core.embedding.local_models.onnx_session import open_session, run_session
from loom_core.errors import ConfigError, EmbeddingError
from loom_core.installation import how_to_install
from loom_core.knowledge.retrieval.rerankers.ranking import logistic, order_by_relevance, text_with_headings
from loom_core.plugin_registry import register

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Encoding, Tokenizer

    from loom_core.embedding.local_models.onnx_session import InferenceSession
    from loom_core.knowledge.model import KnowledgeItem

__all__ = ["SHORTEST", "CrossEncoderReranker", "ModelFolder", "find_model"]

_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_BATCH_TOKENS = 2048
"""Tokens of a batch, filling included: a larger one takes more memory and is no faster on a processor."""


@register("reranker", "cross_encoder")
class CrossEncoderReranker:
    """Reorders passages by a cross-encoder from a local folder. Nothing is ever downloaded.

    The folder is one that sentence-transformers or optimum exports: `tokenizer.json` and `model.onnx` (or
    `onnx/model.onnx`, or `model_quantized.onnx`). One logit a pair is read as log odds, two as those of
    "does not answer" and "answers". The model is loaded at the first question, and runs in worker threads.

    Source: Nogueira and Cho, "Passage Re-ranking with BERT", arXiv:1901.04085.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        file: str | None = None,
        max_length: int | None = None,
        max_passages: int = 100,
        threads: int | None = None,
    ) -> None:
        """Configure the reranker; the model is loaded later.

        Args:
            path: the model's folder.
            file: the ONNX file in it, if it is none of the usual ones.
            max_length: maximum tokens of a pair, longer ones are cut; by default what the model's
                settings say, or 512.
            max_passages: how many passages are read, the best ones.
            threads: how many batches run in parallel; by default one for each usable processor.

        Raises:
            ConfigError: a number below 1, or a `max_length` that leaves no room for a pair.
        """
        if max_length is not None and max_length < SHORTEST:
            raise ConfigError(
                f"max_length of the cross-encoder is {max_length}.", advice=f"Use at least {SHORTEST}."
            )
        for name, number in {"max_passages": max_passages, "threads": threads}.items():
            if number is not None and number < 1:
                raise ConfigError(f"{name} of the cross-encoder is {number}.", advice="Use 1 or more.")
        self._path = Path(path)
        self._file = file
        self._max_length = max_length
        self._max_passages = max_passages
        self._threads = threads or usable_threads()
        self._model: _Model | None = None
        self._loading = threading.Lock()

    async def rerank(self, query: str, items: Sequence[KnowledgeItem], *, limit: int) -> list[KnowledgeItem]:
        """See `Reranker.rerank`.

        Raises:
            ConfigError: the model is missing or damaged, or is not a cross-encoder.
            EmbeddingError: the model failed on these passages.
        """
        texts = [text_with_headings(item) for item in items[: self._max_passages]]
        if not texts:
            return []
        model = self._model or await to_thread.run_sync(self._load_once)
        batches = iter(await to_thread.run_sync(model.batches, query, texts))
        relevance: dict[int, float] = {}
        failures: list[ConfigError | EmbeddingError] = []

        async def work() -> None:
            for batch in batches:
                try:
                    relevance.update(await to_thread.run_sync(model.read, batch, abandon_on_cancel=True))
                except (ConfigError, EmbeddingError) as error:
                    failures.append(error)
                    workers.cancel_scope.cancel()

        async with anyio.create_task_group() as workers:
            for _ in range(self._threads):
                workers.start_soon(work)
        if failures:
            raise failures[0]
        return order_by_relevance(items, relevance, limit=limit)

    def _load_once(self) -> _Model:
        with self._loading:
            if self._model is None:
                self._model = _load(self._path, self._file, self._max_length)
            return self._model


@dataclass(frozen=True, slots=True)
class _Batch:
    """Pairs of similar length: their places among the passages, and their tokens."""

    places: list[int]
    pairs: list[Encoding]


class _Model:
    """The loaded model; thread-safe."""

    def __init__(
        self, name: str, tokenizer: Tokenizer, session: InferenceSession, *, max_length: int, pad_id: int
    ) -> None:
        self._name = name
        self._tokenizer = tokenizer
        self._session = session
        self._max_length = max_length
        self._pad_id = pad_id
        self._inputs = {node.name for node in session.get_inputs()}
        outputs = [node.name for node in session.get_outputs()]
        self._output = "logits" if "logits" in outputs else outputs[0]
        foreign = [
            f"{node.name} ({node.type})"
            for node in session.get_inputs()
            if node.name not in _INPUTS or node.type != "tensor(int64)"
        ]
        if foreign or "input_ids" not in self._inputs:
            taken = ", ".join(foreign or sorted(self._inputs))
            raise ConfigError(
                f"The model {name} is not a cross-encoder: it takes {taken}.",
                advice=f"Use one that takes {', '.join(sorted(_INPUTS))} as 64-bit integers.",
            )

    def batches(self, query: str, texts: Sequence[str]) -> list[_Batch]:
        """Tokenize question and passages, the longest pairs first."""
        # A lone surrogate is not a character; the tokenizer would refuse the whole text.
        question, *passages = (text.encode("utf-8", "replace").decode() for text in (query, *texts))
        question = self._truncate(question)
        pairs = self._tokenizer.encode_batch([(question, passage) for passage in passages])
        batches: list[_Batch] = []
        width = 0
        for place in sorted(range(len(pairs)), key=lambda place: -len(pairs[place].ids)):
            if not batches or width * (len(batches[-1].places) + 1) > _BATCH_TOKENS:
                batches.append(_Batch([], []))
                width = len(pairs[place].ids)
            batches[-1].places.append(place)
            batches[-1].pairs.append(pairs[place])
        return batches

    def _truncate(self, question: str) -> str:
        """Truncate a question, so that half of the window is left for the passage.

        So the tokenizer only has to cut passages. For two texts that are both too long it would return every
        combination of their pieces.
        """
        half = (self._max_length - self._tokenizer.num_special_tokens_to_add(is_pair=True)) // 2
        tokens = self._tokenizer.encode(question, add_special_tokens=False)
        return question if len(tokens.ids) <= half else question[: tokens.offsets[half - 1][1]]

    def read(self, batch: _Batch) -> dict[int, float]:
        """Return relevance, 0 to 1, by place."""
        import numpy as np

        width = len(batch.pairs[0].ids)
        ids = np.full((len(batch.pairs), width), self._pad_id, dtype=np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row, pair in enumerate(batch.pairs):
            length = len(pair.ids)
            ids[row, :length], mask[row, :length], types[row, :length] = pair.ids, 1, pair.type_ids
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        wanted = {name: array for name, array in inputs.items() if name in self._inputs}
        logits = run_session(self._session, self._output, wanted, model=self._name)
        return dict(zip(batch.places, self._relevance(logits, len(batch.pairs)), strict=True))

    def _relevance(self, logits: NDArray[np.float32], count: int) -> list[float]:
        import numpy as np

        shape = logits.shape
        if shape not in {(count,), (count, 1), (count, 2)}:
            raise ConfigError(
                f"The model {self._name} is not a cross-encoder: {count} pairs gave numbers of shape "
                f"{shape}.",
                advice="Use a model with one or two numbers for a pair of question and passage.",
            )
        if not np.isfinite(logits).all():
            raise EmbeddingError(
                f"The model {self._name} returned something that is not a number.",
                advice="Export it again, with less quantisation.",
            )
        # The softmax of two logits is the logistic function of their difference.
        odds = logits[:, 1] - logits[:, 0] if shape == (count, 2) else logits.reshape(count)
        return [logistic(float(odd)) for odd in odds]


def _load(path: Path, file: str | None, max_length: int | None) -> _Model:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError(
            "A cross-encoder needs the package tokenizers, which is not installed.",
            advice=how_to_install("tokenizers"),
        ) from error

    folder = find_model(path, file=file)
    try:
        tokenizer = Tokenizer.from_file(str(folder.tokenizer))
    except Exception as error:  # the tokenizers package raises nothing more specific
        raise ConfigError(
            f"The file {folder.tokenizer} cannot be read: {error}", advice="Export the model again."
        ) from error
    tokenizer.no_padding()
    max_length = min(max_length or folder.max_length, folder.max_length)
    tokenizer.enable_truncation(max_length)  # pyright: ignore[reportUnknownMemberType]
    tokenizer.encode_special_tokens = True  # "[SEP]" in a passage is text and separates nothing
    try:
        session = open_session(folder.model, model=path.name)
    except EmbeddingError as error:
        raise ConfigError(
            f"The cross-encoder {folder.model} cannot be loaded: {error.message}",
            advice=f"{error.advice}; if that does not help, export the model again.",
        ) from error
    return _Model(path.name, tokenizer, session, max_length=max_length, pad_id=folder.pad_id)


SHORTEST = 8
"""Minimum tokens of a pair: three special tokens, and some of each text."""

_MODELS = ("model.onnx", "onnx/model.onnx", "model_quantized.onnx", "onnx/model_quantized.onnx")
_DEFAULT_LENGTH = 512
_LONGEST = 1_000_000  # a tokenizer that knows no limit states one of thirty digits


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A cross-encoder on disk.

    Attributes:
        model: the ONNX file.
        tokenizer: `tokenizer.json`.
        max_length: maximum tokens that the model takes, question and passage together.
        pad_id: token that shorter pairs are filled up with.
    """

    model: Path
    tokenizer: Path
    max_length: int
    pad_id: int


def find_model(folder: Path, *, file: str | None = None) -> ModelFolder:
    """Find the model in a folder as sentence-transformers or optimum exports it. Blocks.

    Args:
        folder: holds `tokenizer.json` and the model, and usually `config.json` and
            `tokenizer_config.json`.
        file: the ONNX file in it, if it is none of the usual ones.

    Raises:
        ConfigError: the folder or a file is missing, or a settings file cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"There is no folder {folder} with a cross-encoder.",
            advice="Put the exported model there; Loom downloads none.",
        )
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.is_file():
        raise ConfigError(
            f"The cross-encoder in {folder} has no tokenizer.json.",
            advice="Export the model with its fast tokenizer.",
        )
    names = [file] if file is not None else _MODELS
    model = next((folder / name for name in names if (folder / name).is_file()), None)
    if model is None:
        raise ConfigError(
            f"The cross-encoder in {folder} has no model: looked for {', '.join(names)}.",
            advice="Export the model to ONNX, or name its file (file).",
        )
    config = _settings(folder / "config.json")
    pad = config.get("pad_token_id")
    pad_id = pad if isinstance(pad, int) else 0
    return ModelFolder(
        model=model,
        tokenizer=tokenizer,
        max_length=_max_length(config, _settings(folder / "tokenizer_config.json"), pad_id),
        pad_id=pad_id,
    )


def _max_length(config: dict[str, Any], tokenizer_config: dict[str, Any], pad_id: int) -> int:
    stated = [tokenizer_config.get("model_max_length")]
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int):
        # Models of RoBERTa's kind count positions from the one after the padding token's number.
        reserved = pad_id + 1 if "roberta" in str(config.get("model_type", "")) else 0
        stated.append(positions - reserved)
    usable = [
        int(length) for length in stated if isinstance(length, int | float) and SHORTEST <= length < _LONGEST
    ]
    return min(usable, default=_DEFAULT_LENGTH)


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(
            f"The file {path} cannot be read: {error}", advice="Export the model again."
        ) from error
    return cast("dict[str, Any]", settings) if isinstance(settings, dict) else {}
