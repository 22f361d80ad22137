"""Embeddings: which requests vendors take, and vectors that follow from the texts."""

from __future__ import annotations

import base64
import hashlib
import math
import struct
from collections.abc import Sequence
from typing import Any, cast

from loom_core.testing.vendors.chat_vendors import ChatVendor
from loom_core.testing.vendors.json_fields import Json
from loom_core.testing.vendors.refusal import Refused
from loom_core.testing.vendors.script import Turn

__all__ = ["ollama_embeddings", "openai_embeddings", "vector"]

_OPENAI_FIELDS = frozenset({"input", "model", "dimensions", "encoding_format", "user"})
_OLLAMA_FIELDS = frozenset({"model", "input", "truncate", "options", "keep_alive", "dimensions"})


def vector(text: str, dimension: int) -> list[float]:
    """The vector of a text, of length 1: the same for the same text, another for another."""
    values: list[float] = []
    block = 0
    while len(values) < dimension:
        digest = hashlib.sha256(f"{block}\0{text}".encode("utf-8", "replace")).digest()
        values += [byte / 127.5 - 1 for byte in digest]
        block += 1
    values = values[:dimension]
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]


def openai_embeddings(vendor: ChatVendor, body: Json, turn: Turn) -> Json:
    """What a vendor answers to `POST …/embeddings`: the last vector first; numbers say which is which.

    Raises:
        Refused: the vendor does not take the request.
    """
    if vendor.name == "openai" and (unknown := sorted(set(body) - _OPENAI_FIELDS)):
        raise Refused(f"Unrecognized request argument supplied: {unknown[0]}", param=unknown[0])
    dimension = _dimension(vendor, body)
    texts = _texts(vendor, body.get("input"))
    encoding = body.get("encoding_format", "float")
    if encoding not in {"float", "base64"}:
        raise Refused("Invalid 'encoding_format': one of float, base64.", param="encoding_format")
    data: list[Json] = [
        {"object": "embedding", "index": index, "embedding": _encoded(vector(text, dimension), encoding)}
        for index, text in enumerate(texts)
    ]
    answer = {"object": "list", "data": data[::-1], "model": body["model"]}
    if turn.usage is None:
        return answer
    return {**answer, "usage": {"prompt_tokens": turn.usage.input, "total_tokens": turn.usage.input}}


def ollama_embeddings(vendor: ChatVendor, body: Json, turn: Turn) -> Json:
    """What Ollama answers to `POST /api/embed`.

    Raises:
        Refused: it does not take the request.
    """
    if unknown := sorted(set(body) - _OLLAMA_FIELDS):
        raise Refused(f"json: unknown field {unknown[0]!r}")
    dimension = _dimension(vendor, body)
    given: object = body.get("input")
    texts: Sequence[str] = () if given == "" else _texts(vendor, given)
    answer: dict[str, Any] = {
        "model": body["model"],
        "embeddings": [vector(text, dimension) for text in texts],
        "total_duration": 1_000_000,
        "load_duration": 1_000,
    }
    if turn.usage is not None:
        answer["prompt_eval_count"] = turn.usage.input
    return answer


def _dimension(vendor: ChatVendor, body: Json) -> int:
    model = body.get("model")
    if model not in vendor.embeddings:
        raise Refused(f'model "{model}" not found, try pulling it first', status=404, param="model")
    full = vendor.embeddings[cast("str", model)]
    wanted = body.get("dimensions")
    if wanted is None:
        return full
    if type(wanted) is not int or not 1 <= wanted <= full:
        raise Refused(f"Invalid 'dimensions': between 1 and {full}.", param="dimensions")
    return wanted


def _texts(vendor: ChatVendor, given: object) -> Sequence[str]:
    items: list[object] = [given] if isinstance(given, str) else cast("list[object]", given or [])
    if not isinstance(given, str | list) or not items:
        raise Refused("Invalid 'input': a text, or a list of texts that is not empty.", param="input")
    texts = [item for item in items if isinstance(item, str)]
    if len(texts) < len(items):
        raise Refused("Invalid 'input': a text, or a list of texts.", param="input")
    if vendor.name != "ollama" and "" in texts:
        raise Refused("Invalid 'input': input cannot be an empty string.", param="input")
    if len(texts) > vendor.embedding_batch:
        raise Refused(
            "Value error, batch size is invalid, it should not be larger than "
            f"{vendor.embedding_batch}.: input.contents",
            param="input",
        )
    return texts


def _encoded(values: Sequence[float], encoding: str) -> object:
    if encoding == "float":
        return list(values)
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()
