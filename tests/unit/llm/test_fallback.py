from __future__ import annotations

import logging
from contextlib import aclosing

import pytest

from loom_core.errors import ConfigError, InvalidInputError, LLMError, ModelFailure
from loom_core.llm.accounting.prices import Prices
from loom_core.llm.fallback import FallbackProvider
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.interface import LLMProvider, StreamChunk, Usage
from loom_core.llm.messages import ImagePart, TextPart, UserMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.llm.vendors import DEEPSEEK, VENDORS
from tests.fixtures.scripted_wire import ScriptedWire
from tests.fixtures.vendors import FakeVendors, Turn

_QUESTION = [{"role": "user", "content": "什么是知识图谱？"}]


def _error(
    failure: ModelFailure, message: str = "It failed.", *, retry_after: float | None = None
) -> LLMError:
    return LLMError(message, advice="Do this.", failure=failure, provider="mock", retry_after=retry_after)


def _failing(failure: ModelFailure, model: str, *, retry_after: float | None = None) -> MockProvider:
    return MockProvider([_error(failure, f"{model} 不行。", retry_after=retry_after)], model=model)


async def _pieces(provider: LLMProvider) -> list[StreamChunk]:
    return [chunk async for chunk in provider.chat_stream(_QUESTION)]


async def test_the_first_model_answers_as_long_as_it_can():
    second = MockProvider(["never asked"])
    chain = FallbackProvider([MockProvider(["一", "二"], model="first"), second])
    assert [(await chain.chat(_QUESTION)).content for _ in range(2)] == ["一", "二"]
    assert second.calls == []


_MOVES_ON: list[ModelFailure] = [
    *("authentication", "not_found", "invalid_request", "too_long", "quota", "rate_limit", "overloaded"),
    *("server", "timeout", "connection", "unreadable", "unavailable", "other"),
]


@pytest.mark.parametrize("failure", _MOVES_ON)
async def test_whatever_a_model_fails_by_the_next_one_is_asked_and_named_in_the_answer(failure: ModelFailure):
    chain = FallbackProvider([_failing(failure, "first"), MockProvider(["好", "好"], model="second")])
    response = await chain.chat(_QUESTION, max_tokens=9)
    assert (response.content, response.message.provider, response.model) == ("好", "mock", "second")
    chain = FallbackProvider([_failing(failure, "first"), MockProvider(["好"], model="second")])
    *pieces, done = await _pieces(chain)
    assert "".join(piece.text for piece in pieces) == "好"
    assert done.response is not None
    assert done.response.model == "second"


async def test_a_request_that_a_model_cannot_take_goes_to_one_that_can():
    picture = UserMessage((TextPart("图里有什么？"), ImagePart(b"\x89PNG", "image/png")))
    fake = FakeVendors([Turn(text="一只猫。"), Turn(text="一只猫。")])
    async with fake.http_client() as http_client:
        blind, seeing = (
            HostedProvider(
                VENDORS[name], base_url=fake.base_url(name), api_key=fake.key, http_client=http_client
            )
            for name in ("deepseek", "openai")
        )
        chain = FallbackProvider([blind, seeing])
        assert (await chain.chat([picture])).message.provider == "openai"
        *_, done = [chunk async for chunk in chain.chat_stream([picture])]
        assert done.response is not None
        assert done.response.content == "一只猫。"

        with pytest.raises(InvalidInputError, match="takes no images"):
            await FallbackProvider([blind, blind]).chat([picture])
        with pytest.raises(
            LLMError, match=r"deepseek-flash: .* takes no images.* second: second 不行"
        ) as caught:
            await FallbackProvider([blind, _failing("quota", "second")]).chat([picture])
        assert caught.value.failure == "quota"


async def test_every_model_is_asked_the_same():
    first, second = _failing("server", "first"), MockProvider(["好"])
    await FallbackProvider([first, second]).chat(_QUESTION, max_tokens=9, temperature=0.5)
    assert first.calls == second.calls
    assert second.calls[0].max_tokens == 9


async def test_a_refusal_is_not_taken_to_another_model():
    second = MockProvider(["I would have."])
    for ask in (lambda chain: chain.chat(_QUESTION), _pieces):
        with pytest.raises(LLMError) as caught:
            await ask(FallbackProvider([_failing("refused", "first"), second]))
        assert caught.value.failure == "refused"
    assert second.calls == []


async def test_a_conversation_that_cannot_be_used_is_nobodys_fault_but_the_callers():
    second = MockProvider(["…"])
    chain = FallbackProvider([MockProvider(["…"]), second])
    with pytest.raises(InvalidInputError):
        await chain.chat([{"role": "ghost"}])
    with pytest.raises(InvalidInputError):
        await anext(chain.chat_stream([{"role": "ghost"}]))
    assert second.calls == []


async def test_a_stream_that_has_begun_is_not_begun_again_elsewhere():
    second = MockProvider(["again"])
    chain = FallbackProvider([MockProvider([MockAnswer("one two three", cut_after=1)]), second])
    stream = chain.chat_stream(_QUESTION)
    assert (await anext(stream)).text == "one "
    with pytest.raises(LLMError) as caught:
        await anext(stream)
    assert caught.value.failure == "interrupted"
    assert second.calls == []


async def test_the_switch_is_logged(caplog: pytest.LogCaptureFixture):
    chain = FallbackProvider([_failing("quota", "first"), MockProvider(["好"], model="second")])
    with caplog.at_level(logging.WARNING):
        await chain.chat(_QUESTION)
    assert caplog.messages == ["mock first failed (quota); mock second is asked instead"]


async def test_when_all_fail_the_error_has_the_reason_of_each():
    models = [_failing("quota", "甲"), _failing("rate_limit", "乙", retry_after=9), _failing("server", "丙")]
    with pytest.raises(LLMError) as caught:
        await FallbackProvider(models).chat(_QUESTION)
    error = caught.value
    reasons = [f"mock {name}: {name} 不行。 Do this." for name in "甲乙丙"]
    assert str(error) == f"No model answers. {' '.join(reasons)}"
    assert (error.failure, error.is_transient, error.retry_after) == ("rate_limit", True, 9)


async def test_when_all_fail_for_good_it_is_the_preferred_models_failure():
    with pytest.raises(LLMError) as caught:
        await _pieces(FallbackProvider([_failing("quota", "a"), _failing("not_found", "b")]))
    assert (caught.value.failure, caught.value.is_transient, caught.value.retry_after) == (
        "quota",
        False,
        None,
    )


async def test_a_chain_of_one_fails_with_that_ones_error():
    error = _error("quota")
    with pytest.raises(LLMError) as caught:
        await FallbackProvider([MockProvider([error])]).chat(_QUESTION)
    assert caught.value is error


def test_a_chain_of_none_is_refused():
    with pytest.raises(ConfigError, match="no model"):
        FallbackProvider([])


async def test_a_stream_that_is_left_early_is_closed_and_so_are_all_models_with_the_chain():
    wires = [
        ScriptedWire(_error("quota")),
        ScriptedWire([StreamChunk("text", text="好"), "silence"]),
        ScriptedWire(),
    ]
    models = [HostedProvider(DEEPSEEK, wire=wire, prices=Prices(input=0, output=0)) for wire in wires]
    async with FallbackProvider(models) as chain:
        async with aclosing(chain.chat_stream(_QUESTION)) as stream:  # type: ignore[type-var]
            assert (await anext(stream)).text == "好"
            assert wires[1].open == 1
        assert wires[1].open == 0
    assert [wire.closed for wire in wires] == [1, 1, 0]  # the third was never opened
    assert [model.spent.requests for model in models] == [0, 1, 0]


async def test_a_chain_says_what_it_is_made_of():
    chain = FallbackProvider([HostedProvider(DEEPSEEK, api_key="sk-secret"), MockProvider([])])
    assert (chain.name, chain.model) == ("fallback", "deepseek-flash")
    assert [provider.name for provider in chain.providers] == ["deepseek", "mock"]
    assert "HostedProvider('deepseek'" in repr(chain)
    assert "sk-secret" not in repr(chain)


def test_a_chain_costs_what_its_preferred_model_costs():
    model = HostedProvider(DEEPSEEK, prices=Prices(input=1.0, output=5.0))
    usage = Usage(input_tokens=1_000_000)
    assert FallbackProvider([model, MockProvider([])]).cost(usage) == 1.0
    assert FallbackProvider([MockProvider([]), model]).cost(usage) is None


async def test_a_chain_can_be_part_of_a_chain():
    inner = FallbackProvider([_failing("server", "a"), _failing("timeout", "b")])
    assert (await FallbackProvider([inner, MockProvider(["好"])]).chat(_QUESTION)).content == "好"


def test_a_chain_can_be_asked_where_one_of_its_models_can(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    keyless = HostedProvider(DEEPSEEK)
    assert "DEEPSEEK_API_KEY" in FallbackProvider([keyless, keyless]).problem()
    assert FallbackProvider([keyless, MockProvider(["好"])]).problem() == ""
