from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_FLOAT, _INT64 = 1, 7
_WORDS = "[PAD] [UNK] [CLS] [SEP] red green blue apple pear plum 苹 果 梨 李".split()

# -- an ONNX file by hand: the fields of onnx.proto3 that are needed, without the onnx package ---------


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _field(key: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(key << 3) + _varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _varint(key << 3 | 2) + _varint(len(data)) + data


def _node(op: str, inputs: str, output: str, **attributes: int) -> bytes:
    node = b"".join(_field(1, name) for name in inputs.split()) + _field(2, output) + _field(4, op)
    for name, value in attributes.items():
        node += _field(5, _field(1, name) + _field(3, value) + _field(20, 2))
    return _field(1, node)


def _axis(name: str, value: int) -> bytes:
    return _field(5, _field(1, 1) + _field(2, _INT64) + _field(8, name) + _field(9, struct.pack("<q", value)))


def _value(key: int, name: str, type_: int, *dims: str) -> bytes:
    shape = b"".join(_field(1, _field(2, dim)) for dim in dims)
    return _field(key, _field(1, name) + _field(2, _field(1, _field(1, type_) + _field(2, shape))))


def overlap_graph(*tail: bytes, inputs: str = "input_ids attention_mask token_type_ids", type_: int = _INT64):
    """A model whose logit is how many tokens question and passage share, the mark between them included.

    `tail` are nodes that make `logits` of `shared`, shape (pairs, 1).
    """
    nodes = [
        _node("Unsqueeze", "input_ids axis2", "ids_down"),
        _node("Unsqueeze", "input_ids axis1", "ids_across"),
        _node("Equal", "ids_down ids_across", "same"),
        _node("Cast", "same", "same_float", to=_FLOAT),
        _node("Cast", "token_type_ids", "of_passage", to=_FLOAT),
        _node("Cast", "attention_mask", "there", to=_FLOAT),
        _node("Sub", "there of_passage", "of_question"),
        _node("Unsqueeze", "of_question axis2", "question_down"),
        _node("MatMul", "same_float question_down", "in_question"),
        _node("Unsqueeze", "of_passage axis2", "passage_down"),
        _node("Mul", "in_question passage_down", "hits"),
        _node("ReduceSum", "hits axis1", "shared", keepdims=0),
    ]
    graph = b"".join([*nodes, *tail]) + _field(2, "overlap") + _axis("axis1", 1) + _axis("axis2", 2)
    for name in inputs.split():
        graph += _value(11, name, type_, "pairs", "tokens")
    graph += _value(12, "logits", _FLOAT, "pairs", "numbers")
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 17))


TAILS = {
    "one": [_node("Identity", "shared", "logits")],
    "flat": [_node("Squeeze", "shared axis1", "logits")],
    "two": [_node("Neg", "shared", "no"), _node("Concat", "no shared", "logits", axis=1)],
    "three": [_node("Concat", "shared shared shared", "logits", axis=1)],
    "nan": [_node("Neg", "shared", "no"), _node("Log", "no", "logits")],
}


class MakeModel(Protocol):
    def __call__(self, tail: str = "one", *, place: str = "model.onnx", **config: object) -> Path: ...


@pytest.fixture
def make_model(tmp_path: Path) -> MakeModel:
    """Makes a folder with a cross-encoder that counts shared tokens."""

    def make(tail: str = "one", *, place: str = "model.onnx", **config: object) -> Path:
        write_tokenizer(tmp_path / "tokenizer.json")
        model = tmp_path / place
        model.parent.mkdir(exist_ok=True)
        model.write_bytes(overlap_graph(*TAILS[tail]))
        if config:
            (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return tmp_path

    return make


def write_tokenizer(path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing

    ids = {word: id_ for id_, word in enumerate(_WORDS)}
    tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    tokenizer.enable_padding(length=64)  # as some exports do; it must not count
    tokenizer.save(str(path))


@pytest.fixture
def damaged_graphs() -> dict[str, bytes]:
    """Files that are no cross-encoder, by what is wrong with them."""
    ok = TAILS["one"]
    return {
        "cannot be loaded": b"this is no graph",
        "it takes pixels": overlap_graph(*ok, inputs="input_ids attention_mask token_type_ids pixels"),
        "tensor\\(int32\\)": overlap_graph(*ok, type_=6),
    }
