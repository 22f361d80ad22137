from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING

import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError, EmbeddingError, LoomError
from loom_core.knowledge.model import KnowledgeItem
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.retrieval.rerankers.cross_encoder import CrossEncoderReranker
from loom_core.plugins import create

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.knowledge.retrieval.rerankers.conftest import MakeModel


def passages(*texts: str) -> list[KnowledgeItem]:
    return [KnowledgeItem(id=str(n), content=text, source="text:x") for n, text in enumerate(texts)]


def ids(items: list[KnowledgeItem]) -> list[str]:
    return [item.id for item in items]


def logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


@pytest.mark.parametrize(
    ("query", "texts", "order"),
    [
        (
            "red green apple",
            ("blue pear", "red apple", "a red green apple", "plum, red"),
            ["2", "1", "3", "0"],
        ),
        ("苹果", ("梨", "苹果和梨", "李"), ["1", "0", "2"]),
    ],
)
async def test_the_pair_that_the_model_likes_best_comes_first(
    make_model: MakeModel, query: str, texts: tuple[str, ...], order: list[str]
):
    reranker = create("reranker", "cross_encoder", make_model())
    assert ids(await reranker.rerank(query, passages(*texts), limit=9)) == order


async def test_fusion_takes_the_folder_of_a_model_for_its_name(make_model: MakeModel):
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=create_embedder("hashing"))
    await knowledge_base.add_texts(["blue pear", "a red green apple"])
    retriever = knowledge_base.retriever("fusion", rerank_model=str(make_model()))
    found = await retriever.retrieve("red green apple")
    knowledge_base.close()
    assert found[0]["text"] == "a red green apple"
    assert "rerank" in found[0]["metadata"]["scores"]


@pytest.mark.parametrize(("tail", "factor"), [("one", 1), ("flat", 1), ("two", 2)])
async def test_one_logit_is_log_odds_and_two_are_a_choice(make_model: MakeModel, tail: str, factor: int):
    reranker = CrossEncoderReranker(make_model(tail))
    found = await reranker.rerank("red green", passages("blue", "red", "red green"), limit=3)
    # The mark after the question stands after the passage, too, and counts one.
    expected = [logistic(factor * 3), logistic(factor * 2), logistic(factor * 1)]
    assert [item.relevance for item in found] == pytest.approx(expected)
    assert [item.metadata["scores"]["rerank"] for item in found] == pytest.approx(expected)


@pytest.mark.parametrize("threads", [1, 3])
async def test_pairs_of_every_length_are_scored_as_if_each_were_alone(make_model: MakeModel, threads: int):
    words = "red green blue apple pear plum".split()
    texts = [" ".join(words[: n % 7] + ["果"] * (n * 7 % 90)) for n in range(60)]
    reranker = CrossEncoderReranker(make_model(), threads=threads)
    found = await reranker.rerank("red green blue apple pear", passages(*texts), limit=60)
    assert {item.id: round(item.relevance, 5) for item in found} == {
        str(n): round(logistic(1 + min(n % 7, 5)), 5) for n in range(60)
    }


async def test_titles_and_headings_are_read_with_the_passage(make_model: MakeModel):
    plain = KnowledgeItem(id="a", content="plum", source="x")
    titled = KnowledgeItem(
        id="b", content="plum", source="x", metadata={"title": "Apple", "heading_path": ["Red"]}
    )
    found = await CrossEncoderReranker(make_model()).rerank("red apple", [plain, titled], limit=2)
    assert ids(found) == ["b", "a"]
    assert found[0].content == "plum"


async def test_a_mark_in_a_passage_is_text(make_model: MakeModel):
    reranker = CrossEncoderReranker(make_model())
    found = await reranker.rerank("red", passages("[SEP] [SEP] blue", "[CLS] blue"), limit=2)
    assert {round(item.relevance, 5) for item in found} == {round(logistic(1), 5)}


async def test_long_pairs_are_cut_to_what_the_model_takes(make_model: MakeModel):
    folder = make_model(max_position_embeddings=16)
    items = passages("blue " * 300 + "red", "red " + "blue " * 300)
    found = await CrossEncoderReranker(folder).rerank("red", items, limit=2)
    assert [round(item.relevance, 5) for item in found] == [round(logistic(2), 5), round(logistic(1), 5)]
    assert ids(found) == ["1", "0"]


async def test_a_long_question_leaves_half_of_the_room_to_the_passage(make_model: MakeModel):
    reranker = CrossEncoderReranker(make_model(), max_length=11)  # four tokens each, and three marks
    items = passages("blue " * 3000, "apple apple apple apple red", "red plum plum plum plum")
    found = await reranker.rerank("red pear green pear apple " * 1000, items, limit=3)
    assert [(item.id, round(item.relevance, 5)) for item in found] == [
        ("2", round(logistic(2), 5)),
        ("0", round(logistic(1), 5)),
        ("1", round(logistic(1), 5)),
    ]


async def test_only_the_first_passages_are_read_and_the_others_follow(make_model: MakeModel):
    reranker = CrossEncoderReranker(make_model(), max_passages=2)
    found = await reranker.rerank("red", passages("blue", "red", "red", "red red"), limit=3)
    assert ids(found) == ["1", "0", "2"]
    assert found[2].relevance == 0.0


async def test_a_lone_surrogate_does_not_stop_it(make_model: MakeModel):
    found = await CrossEncoderReranker(make_model()).rerank("red \ud800", passages("\udfff red", ""), limit=2)
    assert ids(found) == ["0", "1"]


async def test_nothing_is_ranked_without_reading_a_model(tmp_path: Path):
    assert await CrossEncoderReranker(tmp_path / "none").rerank("red", [], limit=3) == []


@pytest.mark.parametrize(
    ("missing", "message"),
    [("tokenizer.json", "no tokenizer.json"), ("model.onnx", "no model: looked for model.onnx")],
)
async def test_a_missing_file_is_named(make_model: MakeModel, missing: str, message: str):
    folder = make_model()
    (folder / missing).unlink()
    with pytest.raises(ConfigError, match=message):
        await CrossEncoderReranker(folder).rerank("red", passages("red"), limit=1)


async def test_a_missing_folder_is_named_and_nothing_is_downloaded(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"no folder .*nowhere.*Loom downloads none"):
        await CrossEncoderReranker(str(tmp_path / "nowhere")).rerank("red", passages("red"), limit=1)


async def test_a_file_that_is_no_cross_encoder_is_refused(
    make_model: MakeModel, damaged_graphs: dict[str, bytes]
):
    folder = make_model()
    for message, graph in damaged_graphs.items():
        (folder / "model.onnx").write_bytes(graph)
        with pytest.raises(ConfigError, match=message):
            await CrossEncoderReranker(folder).rerank("red", passages("red"), limit=1)


async def test_a_damaged_tokenizer_is_refused(make_model: MakeModel):
    folder = make_model()
    (folder / "tokenizer.json").write_text('{"model": 1}', encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tokenizer.json cannot be read"):
        await CrossEncoderReranker(folder).rerank("red", passages("red"), limit=1)


@pytest.mark.parametrize(("tail", "error"), [("three", "of shape \\(2, 3\\)"), ("nan", "not a number")])
async def test_numbers_that_are_no_relevance_are_refused(make_model: MakeModel, tail: str, error: str):
    with pytest.raises(LoomError, match=error) as raised:
        await CrossEncoderReranker(make_model(tail)).rerank("red", passages("red", "blue"), limit=1)
    assert isinstance(raised.value, ConfigError | EmbeddingError)


async def test_without_tokenizers_the_error_names_it(make_model: MakeModel, monkeypatch: pytest.MonkeyPatch):
    folder = make_model()
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ConfigError, match="pip install tokenizers"):
        await CrossEncoderReranker(folder).rerank("red", passages("red"), limit=1)


@pytest.mark.parametrize("options", [{"max_length": 7}, {"max_passages": 0}, {"threads": 0}])
def test_numbers_that_make_no_sense_are_refused(tmp_path: Path, options: dict[str, int]):
    with pytest.raises(ConfigError, match=next(iter(options))):
        CrossEncoderReranker(tmp_path, **options)


# -- the folder -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place", ["model.onnx", "onnx/model.onnx", "model_quantized.onnx", "onnx/model_quantized.onnx"]
)
async def test_the_usual_places_of_a_model_are_known(make_model: MakeModel, place: str):
    found = await CrossEncoderReranker(make_model(place=place)).rerank("red", passages("red"), limit=1)
    assert ids(found) == ["0"]


async def test_any_other_file_can_be_named(make_model: MakeModel):
    folder = make_model(place="onnx/model_qint8.onnx")
    found = await CrossEncoderReranker(folder, file="onnx/model_qint8.onnx").rerank(
        "red", passages("red"), limit=1
    )
    assert ids(found) == ["0"]
    with pytest.raises(ConfigError, match=r"looked for other.onnx"):
        await CrossEncoderReranker(folder, file="other.onnx").rerank("red", passages("red"), limit=1)


@pytest.mark.parametrize(
    ("config", "tokenizer_config", "length", "pad"),
    [
        ({}, {}, 512, 0),
        ({}, {"model_max_length": 10**30}, 512, 0),
        ({"max_position_embeddings": 512, "pad_token_id": 0}, {"model_max_length": 256}, 256, 0),
        ({"max_position_embeddings": 514, "model_type": "xlm-roberta", "pad_token_id": 1}, {}, 512, 1),
        ({"max_position_embeddings": 128}, {"model_max_length": 512}, 128, 0),
        ([], "odd", 512, 0),
        ({"max_position_embeddings": 2}, {"model_max_length": 0}, 512, 0),
        ({"max_position_embeddings": "many", "pad_token_id": None}, {"model_max_length": None}, 512, 0),
    ],
)
def test_the_length_and_the_padding_are_read_from_the_settings(
    make_model: MakeModel, config: object, tokenizer_config: object, length: int, pad: int
):
    from loom_core.knowledge.retrieval.rerankers.cross_encoder import find_model

    folder = make_model()
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config), encoding="utf-8")
    found = find_model(folder)
    assert (found.max_length, found.pad_id) == (length, pad)


def test_settings_that_cannot_be_read_are_named(make_model: MakeModel):
    from loom_core.knowledge.retrieval.rerankers.cross_encoder import find_model

    folder = make_model()
    (folder / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"config.json cannot be read"):
        find_model(folder)
