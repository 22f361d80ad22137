"""Where a cross-encoder's files are, and what its settings say."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["SHORTEST", "ModelFolder", "find_model"]

SHORTEST = 8
"""Tokens that a pair needs at least: three marks, and something of each text."""

_MODELS = ("model.onnx", "onnx/model.onnx", "model_quantized.onnx", "onnx/model_quantized.onnx")
_DEFAULT_LENGTH = 512
_LONGEST = 1_000_000  # a tokenizer that knows no limit states one of thirty digits


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A cross-encoder on disk.

    Attributes:
        model: the ONNX file.
        tokenizer: `tokenizer.json`.
        max_length: tokens that the model takes at the most, question and passage together.
        pad_id: token that shorter pairs are filled up with.
    """

    model: Path
    tokenizer: Path
    max_length: int
    pad_id: int


def find_model(folder: Path, *, file: str | None = None) -> ModelFolder:
    """Look into a folder as sentence-transformers or optimum exports it. Blocks.

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
