"""Hosted provider: metadata and whole answers, with their cost, retries, breaker and limits."""

from __future__ import annotations

import anyio
import pytest
from pydantic import SecretStr

from loom_core.errors import ConfigError, InvalidInputError, LLMError, ModelFailure
from loom_core.llm.accounting.metering import UsageTotals
from loom_core.llm.accounting.prices import Prices
from loom_core.llm.hosted.limits import CircuitBreaker, RateLimits
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.interface import ToolSpec, Usage
from loom_core.llm.vendors import DEEPSEEK, GPUSTACK, KIMI, VENDORS
from tests.fixtures.scripted_provider import KEY, QUESTION, answer_of, retry_policy, scripted, vendor_error

# What it is


def test_a_provider_says_what_it_is_and_never_its_key():
    provider = HostedProvider(KIMI, model="kimi-k2.6", api_key=KEY, headers={"X-Token": KEY})
    assert (provider.name, provider.model) == ("kimi", "kimi-k2.6")
    assert provider.spec == KIMI.for_model("kimi-k2.6") != KIMI
    assert (
        repr(provider) == "HostedProvider('kimi', model='kimi-k2.6', base_url='https://api.moonshot.ai/v1')"
    )
    assert KEY not in f"{provider!r}{provider}"


def test_the_vendors_usual_model_is_asked_unless_another_is_chosen():
    assert HostedProvider(DEEPSEEK).model == "deepseek-flash"


@pytest.mark.parametrize(
    ("spec", "given", "why"),
    [
        (GPUSTACK, {"base_url": "http://gpu:80/v1"}, "No model is chosen for GPUStack"),
        (GPUSTACK, {"model": "qwen3"}, "there is no address"),
        (DEEPSEEK, {"base_url": "api.deepseek.com"}, "is not an http"),
        (DEEPSEEK, {"api_key": ""}, "is empty"),
        (DEEPSEEK, {"api_key": SecretStr("密钥")}, "cannot be part of a key"),
    ],
)
def test_what_can_never_work_is_refused_at_once(spec: object, given: dict[str, str], why: str):
    with pytest.raises(ConfigError, match=why):
        HostedProvider(spec, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", VENDORS)
def test_every_vendor_can_be_made_without_a_key(name: str):
    provider = HostedProvider(VENDORS[name], model="m", base_url="http://localhost:1/v1")
    assert provider.name == name


# Whole answers


async def test_an_answer_comes_with_its_usage_and_cost_and_is_summed():
    usage = Usage(input_tokens=20, output_tokens=6)
    provider, wire = scripted(answer_of(usage=usage), prices=Prices(input=1.0, output=5.0))
    response = await provider.chat(QUESTION, max_tokens=7, tools=[ToolSpec("find")])
    assert response.content == "事实之网。"
    assert response.usage == Usage(input_tokens=20, output_tokens=6, cost=pytest.approx(50e-6))
    assert provider.spent == UsageTotals(
        requests=1, input_tokens=20, output_tokens=6, cost=pytest.approx(50e-6)
    )
    assert (wire.requests[0].max_tokens, wire.requests[0].tools) == (7, (ToolSpec("find"),))


async def test_prices_come_from_the_list_unless_they_are_given():
    provider, _ = scripted(answer_of(), prices=None)
    response = await provider.chat(QUESTION)
    assert response.usage.cost
    assert provider.spent.unpriced == 0


def test_what_an_answer_would_cost_can_be_asked_beforehand():
    usage = Usage(input_tokens=1000, output_tokens=100)
    provider, _ = scripted(prices=Prices(input=1.0, output=5.0))
    assert provider.cost(usage) == pytest.approx(0.0015)
    assert HostedProvider(DEEPSEEK).cost(usage)
    assert HostedProvider(GPUSTACK, model="qwen3", base_url="http://gpu/v1").cost(usage) is None
    assert provider.spent == UsageTotals()


async def test_passing_failures_are_tried_again_and_do_not_show():
    waits: list[float] = []
    provider, wire = scripted(
        vendor_error(), vendor_error(retry_after=3), answer_of(), retry=retry_policy(waits)
    )
    assert (await provider.chat(QUESTION)).content == "事实之网。"
    assert (len(wire.requests), waits) == (3, [0.25, 3.5])
    assert provider.spent.requests == 1


@pytest.mark.parametrize("failure", ["authentication", "not_found", "invalid_request", "too_long", "quota"])
async def test_other_failures_are_not_tried_again(failure: ModelFailure):
    provider, wire = scripted(vendor_error(failure))
    with pytest.raises(LLMError) as caught:
        await provider.chat(QUESTION)
    assert (caught.value.failure, len(wire.requests)) == (failure, 1)
    assert provider.spent == UsageTotals()


async def test_a_message_that_cannot_be_used_is_said_before_anything_is_asked():
    provider, wire = scripted(answer_of())
    with pytest.raises(InvalidInputError):
        await provider.chat([{"role": "ghost", "content": "…"}])
    with pytest.raises(InvalidInputError):
        await anext(provider.chat_stream([{"role": "ghost", "content": "…"}]))
    assert wire.requests == []


async def test_an_answer_that_does_not_come_ends_at_the_deadline():
    provider, wire = scripted("silence", retry=retry_policy(deadline=0.02))
    with pytest.raises(LLMError, match=r"DeepSeek gave no answer within 0\.02 s") as caught:
        await provider.chat(QUESTION)
    assert (caught.value.failure, caught.value.provider, wire.open) == ("timeout", "deepseek", 0)


async def test_a_cancelled_request_is_cancelled_on_the_wire():
    provider, wire = scripted("silence")
    with anyio.move_on_after(0.02) as scope:
        await provider.chat(QUESTION)
    assert scope.cancelled_caught
    assert wire.open == 0


async def test_a_vendor_that_fails_again_and_again_is_left_alone():
    breaker = CircuitBreaker(now=lambda: 0.0)
    provider, wire = scripted(*(vendor_error() for _ in range(9)), breaker=breaker)
    with pytest.raises(LLMError, match="tried 4 times"):
        await provider.chat(QUESTION)
    with pytest.raises(LLMError, match=r"after 5 consecutive failures; retrying in 30 s") as caught:
        await provider.chat(QUESTION)
    assert (caught.value.failure, len(wire.requests)) == ("unavailable", 5)
    with pytest.raises(LLMError, match="Circuit open"):
        await anext(provider.chat_stream(QUESTION))
    assert len(wire.requests) == 5


async def test_what_the_breaker_holds_back_does_not_use_up_the_rate_limit():
    clock = [0.0]
    breaker = CircuitBreaker(failures=1, now=lambda: clock[0])
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        clock[0] += seconds

    limits = RateLimits(rpm=2, now=lambda: clock[0], sleep=sleep)
    provider, _ = scripted(
        vendor_error(), answer_of(), breaker=breaker, limits=limits, retry=retry_policy(attempts=1)
    )
    for _ in range(10):
        with pytest.raises(LLMError):
            await provider.chat(QUESTION)
    clock[0] += 30
    assert (await provider.chat(QUESTION)).content
    assert waited == []


async def test_each_attempt_takes_its_place_in_the_rate_limit():
    clock = [0.0]

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    limits = RateLimits(rpm=1, now=lambda: clock[0], sleep=sleep)
    provider, _ = scripted(vendor_error(), vendor_error(), answer_of(), limits=limits)
    await provider.chat(QUESTION)
    assert clock[0] == 120.0


async def test_limits_of_tokens_learn_what_answers_took():
    clock = [0.0]

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    limits = RateLimits(tpm=1000, now=lambda: clock[0], sleep=sleep)
    provider, _ = scripted(
        answer_of(usage=Usage(input_tokens=10, output_tokens=985)), answer_of(), limits=limits
    )
    await provider.chat(QUESTION)
    assert clock[0] == 0.0
    await provider.chat(QUESTION)
    assert clock[0] == 60.0


async def test_a_conversation_can_be_estimated_before_it_is_sent():
    provider, _ = scripted(*(answer_of(usage=Usage(input_tokens=3000)) for _ in range(9)))
    long = [{"role": "user", "content": "知识" * 1000}]
    before = provider.estimate(long)
    assert 1200 < before < 1500
    assert provider.estimate(long, tools=[ToolSpec("find")]) > before
    for _ in range(9):
        await provider.chat(long)
    assert 2500 < provider.estimate(long) <= 3000
