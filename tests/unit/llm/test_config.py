from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from loom_core.errors import ConfigError
from loom_core.llm.config import ProviderConfig

_SECRET = "sk-live-1234567890"


@pytest.mark.parametrize(
    ("text", "provider", "model"),
    [
        ("deepseek", "deepseek", ""),
        ("deepseek/deepseek-v4-pro", "deepseek", "deepseek-v4-pro"),
        ("Ollama/qwen3:8b", "ollama", "qwen3:8b"),
        ("vllm/Qwen/Qwen3-8B", "vllm", "Qwen/Qwen3-8B"),
        ("openai-compatible/my-model", "openai_compatible", "my-model"),
    ],
)
def test_a_text_names_provider_and_model(text: str, provider: str, model: str):
    config = ProviderConfig.from_text(text)
    assert (config.provider, config.model) == (provider, model)
    assert ProviderConfig.of(text) == config
    assert ProviderConfig.of(config) is config


def test_a_whole_configuration_is_read_from_json():
    config = ProviderConfig.of(
        {
            "provider": "custom",
            "model": "m",
            "base_url": "http://gpu.example:8000/v1",
            "api_key": "env:MY_KEY",
            "headers": {"X-Team": "知识", "X-Gateway-Token": "keyring:gateway"},
            "timeout": 30,
            "retry": {"attempts": 2, "deadline": 60},
            "limits": {"rpm": 60, "concurrency": 4},
            "prices": {"input": 0.5, "output": 2},
            "spec": {"name": "mine", "images": False},
            "fallbacks": ["deepseek", {"provider": "ollama", "model": "qwen3:8b"}],
        }
    )
    assert (config.retry.attempts, config.retry.cap, config.limits.concurrency) == (2, 30.0, 4)
    assert config.prices is not None
    assert config.prices.cache_read is None
    assert [fallback.provider for fallback in config.fallbacks] == ["deepseek", "ollama"]


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({}, "provider: Field required"),
        ({"provider": "openai", "modle": "x"}, "modle: Extra inputs are not permitted"),
        ({"provider": "openai", "timeout": "30"}, "timeout: Input should be a valid number"),
        ({"provider": "openai", "retry": {"attempts": 0}}, "retry.attempts: Input should be greater"),
        ({"provider": "openai", "limits": {"rpm": 0}}, "limits.rpm: Input should be greater"),
        ({"provider": "openai", "prices": {"input": 1}}, "prices.output: Field required"),
        ({"provider": "openai", "base_url": "localhost:8000"}, "base_url: an address begins with https://"),
        ({"provider": "openai", "base_url": "https://"}, "base_url: an address begins with https://"),
        ({"provider": "openai", "fallbacks": [{"provider": 3}]}, "fallbacks[0].provider: Input should be"),
        ({"provider": "openai", "headers": {"X-Title": "a", "X-Key": "k"}}, "headers: X-Key: A key must not"),
        (
            {"provider": "custom", "spec": {"headers": {"X-Key": "k"}}},
            "spec: X-Key belongs under the `headers`",
        ),
        (7, "the whole: Input should be a valid dictionary"),
    ],
)
def test_what_is_wrong_is_told_with_its_field(config: Any, match: str):
    with pytest.raises(ConfigError) as caught:
        ProviderConfig.of(config)
    assert match in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [
        {"provider": "openai", "api_key": _SECRET},
        {"provider": "openai", "api_key": f"env:{_SECRET}"},
        {"provider": "openai", "headers": {"X-API-KEY": f"env:{_SECRET}"}},
        {"provider": "openai", "headers": {"Authorization": f"Bearer {_SECRET}"}},
        {"provider": "openai", "headers": {"X-API-KEY": _SECRET}},
        {"provider": "custom", "spec": {"headers": {"X-Title": "Loom", "X-Api-Key": _SECRET}}},
        {"provider": "openai", "base_url": f"https://user:{_SECRET}@example.com/v1"},
        {"provider": "openai", "fallbacks": [{"provider": "kimi", "api_key": _SECRET}]},
        {"provider": "openai", "timeout": _SECRET},
    ],
)
def test_secrets_in_a_configuration_are_refused_and_not_repeated(config: dict[str, Any]):
    with pytest.raises(ConfigError) as caught:
        ProviderConfig.of(config)
    with pytest.raises(ValidationError) as raw:
        ProviderConfig(**config)
    for error in (caught.value, raw.value):
        assert _SECRET not in str(error)
        assert _SECRET not in repr(error)


def test_every_field_says_what_it_is():
    undescribed = [
        f"{name}.{field}"
        for name, part in ProviderConfig.model_json_schema()["$defs"].items()
        for field, schema in part.get("properties", {}).items()
        if "description" not in schema
    ]
    assert undescribed == []
