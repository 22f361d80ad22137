from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from loom_core.errors import ConfigError, LLMError
from loom_core.llm.factory import create_provider, provider_names
from loom_core.llm.fallback import FallbackProvider
from loom_core.llm.hosted import providers
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.hosted.providers import PROVIDERS, DeepSeekProvider, OllamaProvider, OpenAIProvider
from loom_core.llm.interface import LLMProvider, LLMResponse
from loom_core.llm.mock import MockProvider
from loom_core.llm.vendors import VENDORS
from loom_core.plugins import register

if TYPE_CHECKING:
    from tests.fixtures.local_server import LocalServer

_QUESTION = [{"role": "user", "content": "你好"}]


@register("llm", "test-echo")
class Echo(LLMProvider):
    """A provider as another distribution may have one."""

    def __init__(
        self, *, model: str = "", base_url: str = "", api_key: Any = None, loud: bool = False
    ) -> None:
        self.given = (model, base_url, api_key, loud)

    async def chat(self, messages: object, **options: object) -> LLMResponse:
        return LLMResponse.of_text("echo")


def test_every_vendor_has_a_class_of_its_name():
    assert [*PROVIDERS] == [*VENDORS]
    for name, provider in PROVIDERS.items():
        assert provider.vendor is VENDORS[name]
        assert provider.__name__ in providers.__all__
        assert provider.__doc__


@pytest.mark.parametrize("name", sorted(VENDORS))
def test_every_vendor_is_made_by_its_name_without_a_key(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(VENDORS[name].key_variable or "NONE", raising=False)
    made = create_provider({"provider": name, "model": "m", "base_url": "https://llm.example/v1"})
    assert type(made) is PROVIDERS[name]
    assert (made.name, made.model) == (name, "m")


def test_classes_are_made_as_in_the_readme():
    assert DeepSeekProvider().model == VENDORS["deepseek"].model
    assert OpenAIProvider(model="gpt-5.6-sol", api_key="sk-1").model == "gpt-5.6-sol"
    compatible = providers.OpenAICompatibleProvider(base_url="http://localhost:8000/v1", model="my-model")
    assert (compatible.name, compatible.model) == ("openai_compatible", "my-model")
    with pytest.raises(ConfigError, match="No model is chosen"):
        OllamaProvider()
    with pytest.raises(ConfigError, match="there is no address"):
        providers.CustomProvider("m")
    assert providers.MockProvider is MockProvider


def test_a_row_is_changed_by_the_configuration():
    made = create_provider(
        {
            "provider": "custom",
            "model": "m",
            "base_url": "https://x.example",
            "spec": {"name": "mine", "images": False},
        }
    )
    assert isinstance(made, HostedProvider)
    assert (made.name, made.spec.images) == ("mine", False)
    with pytest.raises(ConfigError, match=r"spec\.imges: there is no such attribute"):
        create_provider({"provider": "openai", "spec": {"imges": False}})


async def test_what_is_configured_reaches_the_vendor(
    monkeypatch: pytest.MonkeyPatch, local_servers: Callable[..., LocalServer]
):
    monkeypatch.setenv("LOOM_TEST_KEY", "sk-configured")
    monkeypatch.setenv("LOOM_TEST_TOKEN", "t-1")
    server = local_servers()
    answer = {
        "id": "1", "object": "chat.completion", "created": 1, "model": "小模型",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "好"}}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
    }  # fmt: skip
    server.answers("/v1/chat/completions", json.dumps(answer).encode(), Content_Type="application/json")
    made = create_provider(
        {
            "provider": "openai-compatible",
            "model": "小模型",
            "base_url": server.url("/v1"),
            "api_key": "env:LOOM_TEST_KEY",
            "headers": {"X-Token": "env:LOOM_TEST_TOKEN", "X-Plain": "p"},
            "retry": {"attempts": 1},
            "prices": {"input": 1, "output": 1_000_000},
        }
    )
    response = await made.chat(_QUESTION)
    await made.aclose()
    assert response.content == "好"
    assert response.usage.cost == pytest.approx(2.000003)
    (asked,) = server.asked
    assert asked.headers["authorization"] == "Bearer sk-configured"
    assert (asked.headers["x-token"], asked.headers["x-plain"]) == ("t-1", "p")
    assert json.loads(asked.body)["model"] == "小模型"


async def test_the_circuit_opens_after_as_many_failures_as_configured(
    local_servers: Callable[..., LocalServer],
):
    server = local_servers()
    server.answers("/v1/chat/completions", b"{}", status=503)
    made = create_provider(
        {
            "provider": "custom",
            "model": "a",
            "base_url": server.url("/v1"),
            "retry": {"attempts": 1},
            "breaker": {"failures": 1, "first_pause": 70},
        }
    )
    assert isinstance(made, HostedProvider)
    for model in (made, made.with_model("b")):  # each has its own circuit, of the same settings
        with pytest.raises(LLMError, match="503"):
            await model.chat(_QUESTION)
        with pytest.raises(LLMError, match=r"Circuit open for .* after 1 consecutive failures; retrying in"):
            await model.chat(_QUESTION)
    await made.aclose()
    assert len(server.asked) == 2


async def test_fallbacks_are_asked_in_turn():
    made = create_provider(
        {
            "provider": "mock",
            "options": {"responses": []},
            "fallbacks": [{"provider": "mock", "options": {"responses": ["from the second"]}}],
        }
    )
    assert isinstance(made, FallbackProvider)
    assert (await made.chat(_QUESTION)).content == "from the second"


@pytest.mark.parametrize(
    ("fallbacks", "where", "why"),
    [
        (["openai", "ollama"], "fallbacks[1] ('ollama'): ", "No model is chosen for Ollama."),
        (["unknown"], "fallbacks[0] ('unknown'): ", "provider: there is no 'unknown'."),
        (["kimi", {"provider": "vllm", "model": "m", "base_url": "http://"}], "fallbacks[1]", "base_url: "),
        (
            [{"provider": "deepseek", "api_key": "env:LOOM_TEST_KEY"}],
            "fallbacks[0] ('deepseek'): ",
            "LOOM_TEST_KEY is not set.",
        ),
        (
            ["kimi", {"provider": "qwen", "fallbacks": ["openai", {"provider": "zhipu", "spec": {"x": 1}}]}],
            "fallbacks[1] ('qwen'): fallbacks[1] ('zhipu'): ",
            "spec.x: there is no such attribute.",
        ),
    ],
)
def test_what_is_wrong_with_a_fallback_is_told_with_its_place(
    fallbacks: list[object], where: str, why: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("LOOM_TEST_KEY", raising=False)
    with pytest.raises(ConfigError) as caught:
        create_provider({"provider": "openai", "fallbacks": fallbacks})
    assert where in caught.value.message
    assert why in caught.value.message
    assert caught.value.advice


def test_a_provider_of_another_distribution_is_told_what_it_takes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOOM_TEST_KEY", "sk-2")
    made = create_provider(
        {
            "provider": "test-echo",
            "model": "m",
            "base_url": "https://x.example",
            "api_key": "env:LOOM_TEST_KEY",
            "options": {"loud": True},
        }
    )
    assert isinstance(made, Echo)
    model, base_url, key, loud = made.given
    assert (model, base_url, key.get_secret_value(), loud) == ("m", "https://x.example", "sk-2", True)
    assert {"mock", "deepseek", "test-echo"} <= {*provider_names()}


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ("opanai/gpt", "provider: there is no 'opanai'. Choose one of: anthropic, custom"),
        ({"provider": "openai", "options": {"loud": True}}, "options: openai takes none"),
        ({"provider": "mock", "timeout": 3.0}, "timeout: mock does not take it"),
        ({"provider": "mock", "options": {"responses": "yes"}}, "A mock model cannot answer from 'yes'"),
        ({"provider": "openai", "api_key": "env:LOOM_NO_SUCH_KEY"}, "LOOM_NO_SUCH_KEY is not set"),
    ],
)
def test_what_cannot_be_made_is_told(config: Any, match: str):
    with pytest.raises(ConfigError) as caught:
        create_provider(config)
    assert match in str(caught.value)
