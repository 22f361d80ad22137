from __future__ import annotations

import gc
import json
import socket
import threading
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import httpx2
import keyring
import pytest
from anyio.lowlevel import checkpoint
from keyring.backend import KeyringBackend
from pydantic import SecretStr

from loom_core.errors import ConfigError, InvalidInputError, LLMError, ModelFailure
from loom_core.llm.breaker import CircuitBreaker
from loom_core.llm.hosted import HostedProvider
from loom_core.llm.interface import LLMResponse, StreamChunk, ToolSpec, Usage
from loom_core.llm.limits import RateLimits
from loom_core.llm.messages import AssistantMessage, TextPart
from loom_core.llm.metering import Spent
from loom_core.llm.prices import Prices
from loom_core.llm.spec import ProviderSpec
from loom_core.llm.vendors import ANTHROPIC, DEEPSEEK, GPUSTACK, KIMI, OPENAI_COMPATIBLE, VENDORS
from loom_core.retry import RetryPolicy
from loom_core.testing.scripted_wire import ScriptedWire, Step
from loom_core.testing.vendors import FakeVendors, Turn

if TYPE_CHECKING:
    from tests.fixtures.local_server import LocalServer

_QUESTION = [{"role": "user", "content": "什么是知识图谱？"}]
_FREE = Prices(input=0, output=0)
_KEY = "sk-very-secret-0123456789"


class _Slow(KeyringBackend):
    """A keyring that is asked for a key, and has the user think about it."""

    priority = -2  # the package keyring chooses among all classes that it sees

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.may_answer = threading.Event()

    def get_password(self, service: str, username: str) -> str:
        self.asked.set()
        self.may_answer.wait(10)
        return _KEY

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


class _Noting(KeyringBackend):
    """A keyring that has nothing, and notes what it is asked for."""

    priority = -2  # the package keyring chooses among all classes that it sees

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def get_password(self, service: str, username: str) -> None:
        self.asked.append(username)

    def set_password(self, service: str, username: str, password: str) -> None:
        raise NotImplementedError


def _answer(text: str = "事实之网。", usage: Usage | None = None) -> LLMResponse:
    message = AssistantMessage((TextPart(text),), provider="deepseek", model="deepseek-flash")
    return LLMResponse(message, usage=usage or Usage(input_tokens=20, output_tokens=6))


def _text(text: str) -> StreamChunk:
    return StreamChunk("text", text=text)


def _used(tokens: int) -> StreamChunk:
    return StreamChunk("usage", usage=Usage(input_tokens=tokens))


def _done(text: str = "事实之网。", usage: Usage | None = None) -> StreamChunk:
    return StreamChunk("done", response=_answer(text, usage))


def _error(failure: ModelFailure = "overloaded", *, retry_after: float | None = None) -> LLMError:
    return LLMError("There is no room.", failure=failure, provider="deepseek", retry_after=retry_after)


def _retry(waits: list[float] | None = None, *, attempts: int = 4, deadline: float = 300.0) -> RetryPolicy:
    async def sleep(seconds: float) -> None:
        if waits is not None:
            waits.append(seconds)

    return RetryPolicy(attempts=attempts, deadline=deadline, sleep=sleep, random=lambda: 0.0)


def _provider(
    *steps: Step,
    retry: RetryPolicy | None = None,
    breaker: CircuitBreaker | None = None,
    limits: RateLimits | None = None,
    prices: Prices | None = _FREE,
) -> tuple[HostedProvider, ScriptedWire]:
    wire = ScriptedWire(*steps)
    provider = HostedProvider(
        DEEPSEEK, wire=wire, retry=retry or _retry(), breaker=breaker, limits=limits, prices=prices
    )
    return provider, wire


async def _pieces(provider: HostedProvider) -> list[StreamChunk]:
    return [chunk async for chunk in provider.chat_stream(_QUESTION)]


async def _broken(provider: HostedProvider, why: str) -> tuple[LLMError, str]:
    """The error that a stream ends with, and the text that came before."""
    came = ""
    with pytest.raises(LLMError, match=why) as caught:  # noqa: PT012 - what came before the error is wanted, too
        async for piece in provider.chat_stream(_QUESTION):
            came += piece.text
    return caught.value, came


# What it is


def test_a_provider_says_what_it_is_and_never_its_key():
    provider = HostedProvider(KIMI, model="kimi-k2.6", api_key=_KEY, headers={"X-Token": _KEY})
    assert (provider.name, provider.model) == ("kimi", "kimi-k2.6")
    assert provider.spec == KIMI.for_model("kimi-k2.6") != KIMI
    assert (
        repr(provider) == "HostedProvider('kimi', model='kimi-k2.6', base_url='https://api.moonshot.ai/v1')"
    )
    assert _KEY not in f"{provider!r}{provider}"


def test_the_vendors_usual_model_is_asked_unless_another_is_chosen():
    assert HostedProvider(DEEPSEEK).model == "deepseek-flash"


@pytest.mark.parametrize(
    ("spec", "given", "why"),
    [
        (GPUSTACK, {"base_url": "http://gpu:80/v1"}, "No model is chosen for GPUStack"),
        (GPUSTACK, {"model": "qwen3"}, "there is no address"),
        (DEEPSEEK, {"base_url": "api.deepseek.com"}, "is no http"),
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
    provider, wire = _provider(_answer(usage=usage), prices=Prices(input=1.0, output=5.0))
    response = await provider.chat(_QUESTION, max_tokens=7, tools=[ToolSpec("find")])
    assert response.content == "事实之网。"
    assert response.usage == Usage(input_tokens=20, output_tokens=6, cost=pytest.approx(50e-6))
    assert provider.spent == Spent(requests=1, input_tokens=20, output_tokens=6, cost=pytest.approx(50e-6))
    assert (wire.requests[0].max_tokens, wire.requests[0].tools) == (7, (ToolSpec("find"),))


async def test_prices_come_from_the_list_unless_they_are_given():
    provider, _ = _provider(_answer(), prices=None)
    response = await provider.chat(_QUESTION)
    assert response.usage.cost
    assert provider.spent.unpriced == 0


def test_what_an_answer_would_cost_can_be_asked_beforehand():
    usage = Usage(input_tokens=1000, output_tokens=100)
    provider, _ = _provider(prices=Prices(input=1.0, output=5.0))
    assert provider.cost(usage) == pytest.approx(0.0015)
    assert HostedProvider(DEEPSEEK).cost(usage)
    assert HostedProvider(GPUSTACK, model="qwen3", base_url="http://gpu/v1").cost(usage) is None
    assert provider.spent == Spent()


async def test_passing_failures_are_tried_again_and_do_not_show():
    waits: list[float] = []
    provider, wire = _provider(_error(), _error(retry_after=3), _answer(), retry=_retry(waits))
    assert (await provider.chat(_QUESTION)).content == "事实之网。"
    assert (len(wire.requests), waits) == (3, [0.25, 3.5])
    assert provider.spent.requests == 1


@pytest.mark.parametrize("failure", ["authentication", "not_found", "invalid_request", "too_long", "quota"])
async def test_other_failures_are_not_tried_again(failure: ModelFailure):
    provider, wire = _provider(_error(failure))
    with pytest.raises(LLMError) as caught:
        await provider.chat(_QUESTION)
    assert (caught.value.failure, len(wire.requests)) == (failure, 1)
    assert provider.spent == Spent()


async def test_a_message_that_cannot_be_used_is_said_before_anything_is_asked():
    provider, wire = _provider(_answer())
    with pytest.raises(InvalidInputError):
        await provider.chat([{"role": "ghost", "content": "…"}])
    with pytest.raises(InvalidInputError):
        await anext(provider.chat_stream([{"role": "ghost", "content": "…"}]))
    assert wire.requests == []


async def test_an_answer_that_does_not_come_ends_at_the_deadline():
    provider, wire = _provider("silence", retry=_retry(deadline=0.02))
    with pytest.raises(LLMError, match=r"DeepSeek gave no answer within 0\.02 s") as caught:
        await provider.chat(_QUESTION)
    assert (caught.value.failure, caught.value.provider, wire.open) == ("timeout", "deepseek", 0)


async def test_a_cancelled_request_is_cancelled_on_the_wire():
    provider, wire = _provider("silence")
    with anyio.move_on_after(0.02) as scope:
        await provider.chat(_QUESTION)
    assert scope.cancelled_caught
    assert wire.open == 0


async def test_a_vendor_that_fails_again_and_again_is_left_alone():
    breaker = CircuitBreaker(now=lambda: 0.0)
    provider, wire = _provider(*(_error() for _ in range(9)), breaker=breaker)
    with pytest.raises(LLMError, match="tried 4 times"):
        await provider.chat(_QUESTION)
    with pytest.raises(
        LLMError, match=r"left alone after 5 failures in a row.*asked again in 30 s"
    ) as caught:
        await provider.chat(_QUESTION)
    assert (caught.value.failure, len(wire.requests)) == ("unavailable", 5)
    with pytest.raises(LLMError, match="left alone"):
        await anext(provider.chat_stream(_QUESTION))
    assert len(wire.requests) == 5


async def test_what_the_breaker_holds_back_does_not_use_up_the_rate_limit():
    clock = [0.0]
    breaker = CircuitBreaker(failures=1, now=lambda: clock[0])
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        clock[0] += seconds

    limits = RateLimits(rpm=2, now=lambda: clock[0], sleep=sleep)
    provider, _ = _provider(_error(), _answer(), breaker=breaker, limits=limits, retry=_retry(attempts=1))
    for _ in range(10):
        with pytest.raises(LLMError):
            await provider.chat(_QUESTION)
    clock[0] += 30
    assert (await provider.chat(_QUESTION)).content
    assert waited == []


async def test_each_attempt_takes_its_place_in_the_rate_limit():
    clock = [0.0]

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    limits = RateLimits(rpm=1, now=lambda: clock[0], sleep=sleep)
    provider, _ = _provider(_error(), _error(), _answer(), limits=limits)
    await provider.chat(_QUESTION)
    assert clock[0] == 120.0


async def test_limits_of_tokens_learn_what_answers_took():
    clock = [0.0]

    async def sleep(seconds: float) -> None:
        clock[0] += seconds

    limits = RateLimits(tpm=1000, now=lambda: clock[0], sleep=sleep)
    provider, _ = _provider(
        _answer(usage=Usage(input_tokens=10, output_tokens=985)), _answer(), limits=limits
    )
    await provider.chat(_QUESTION)
    assert clock[0] == 0.0
    await provider.chat(_QUESTION)
    assert clock[0] == 60.0


async def test_a_conversation_can_be_estimated_before_it_is_sent():
    provider, _ = _provider(*(_answer(usage=Usage(input_tokens=3000)) for _ in range(9)))
    long = [{"role": "user", "content": "知识" * 1000}]
    before = provider.estimate(long)
    assert 1200 < before < 1500
    assert provider.estimate(long, tools=[ToolSpec("find")]) > before
    for _ in range(9):
        await provider.chat(long)
    assert 2500 < provider.estimate(long) <= 3000


# Streams


async def test_a_stream_hands_on_pieces_then_one_usage_then_the_answer():
    usage = Usage(input_tokens=20, output_tokens=6)
    provider, wire = _provider(
        [_used(20), _text("事实"), _used(20), _text("之网。"), _used(26), _done(usage=usage)],
        prices=Prices(input=1.0, output=5.0),
    )
    pieces = await _pieces(provider)
    assert [piece.kind for piece in pieces] == ["text", "text", "usage", "done"]
    assert "".join(piece.text for piece in pieces) == "事实之网。"
    response = pieces[-1].response
    assert response is not None
    assert (
        response.usage
        == pieces[-2].usage
        == Usage(input_tokens=20, output_tokens=6, cost=pytest.approx(5e-5))
    )
    assert (provider.spent.requests, wire.open) == (1, 0)


async def test_a_stream_of_nothing_is_an_answer():
    provider, _ = _provider([_done("")])
    assert [piece.kind for piece in await _pieces(provider)] == ["usage", "done"]


async def test_a_stream_whose_usage_is_not_reported_is_estimated():
    provider, _ = _provider([_text("事实之网。"), _done(usage=Usage(estimated=True))])
    usage = (await _pieces(provider))[-2].usage
    assert usage is not None
    assert usage.estimated
    assert usage.input_tokens == provider.estimate(_QUESTION)
    assert usage.output_tokens > 0


async def test_a_stream_is_tried_again_until_its_first_piece():
    waits: list[float] = []
    provider, wire = _provider(
        _error(), [_used(5), _error("server")], [], [_text("好"), _done("好")], retry=_retry(waits)
    )
    pieces = await _pieces(provider)
    assert [piece.kind for piece in pieces] == ["text", "usage", "done"]
    assert (len(wire.requests), wire.open, len(waits)) == (4, 0, 3)
    assert provider.spent.requests == 1


async def test_a_stream_that_never_begins_fails_as_a_whole_answer_does():
    provider, wire = _provider(_error("authentication"))
    with pytest.raises(LLMError) as caught:
        await _pieces(provider)
    assert (caught.value.failure, wire.open) == ("authentication", 0)


@pytest.mark.parametrize("last", [[_error("connection")], [], ["silence"]])
async def test_a_stream_that_breaks_later_is_interrupted_and_counts_with_what_came(last: list[object]):
    provider, wire = _provider([_text("事实之网" * 10), *last], retry=_retry(deadline=0.3))  # type: ignore[list-item]
    error, came = await _broken(provider, r"The answer of DeepSeek broke off\. ")
    assert came == "事实之网" * 10
    assert (error.failure, error.passing) == ("interrupted", False)
    assert (len(wire.requests), wire.open) == (1, 0)
    assert provider.spent.output_tokens == 27


async def test_streams_that_break_open_the_breaker():
    breaker = CircuitBreaker(failures=2)
    provider, _ = _provider(*([_text("a"), _error("connection")] for _ in range(2)), breaker=breaker)
    for _ in range(2):
        with pytest.raises(LLMError, match="broke off"):
            await _pieces(provider)
    assert breaker.state == "open"


async def test_a_stream_that_begins_lets_others_through_again():
    clock = [0.0]
    breaker = CircuitBreaker(failures=1, now=lambda: clock[0])
    steps: list[Step] = [_error(), [_text("好"), "silence"], _answer()]
    provider, _ = _provider(*steps, breaker=breaker, retry=_retry(attempts=1))
    with pytest.raises(LLMError):
        await provider.chat(_QUESTION)
    clock[0] += 30
    async with aclosing(provider.chat_stream(_QUESTION)) as stream:  # type: ignore[type-var]
        await anext(stream)
        assert (await provider.chat(_QUESTION)).content


async def test_a_stream_that_is_left_early_is_closed_and_counts_with_what_came():
    limits = RateLimits(concurrency=1, rpm=100)
    breaker = CircuitBreaker(failures=1)
    provider, wire = _provider(
        [_used(50), _text("一二三"), "silence"], _answer(), limits=limits, breaker=breaker
    )
    async with aclosing(provider.chat_stream(_QUESTION)) as stream:  # type: ignore[type-var]
        assert (await anext(stream)).text == "一二三"
        assert wire.open == 1
    assert (wire.open, breaker.state) == (0, "closed")
    assert provider.spent == Spent(requests=1, input_tokens=50, output_tokens=2)
    with anyio.fail_after(5):
        await provider.chat(_QUESTION)


async def test_a_stream_that_is_cancelled_is_closed_and_counts_with_what_came():
    provider, wire = _provider([_text("一二三"), "silence"])
    with anyio.CancelScope() as scope:
        async for _ in provider.chat_stream(_QUESTION):
            scope.cancel()
    assert scope.cancelled_caught
    assert (wire.open, provider.spent.requests, provider.spent.output_tokens) == (0, 1, 2)


async def test_a_stream_ends_at_the_deadline_even_while_pieces_come():
    provider, wire = _provider([_text("字")] * 100_000, retry=_retry(deadline=0.3))
    error, came = await _broken(provider, "did not finish its answer in the time that there was")
    assert 0 < len(came) < 100_000
    assert (error.failure, wire.open) == ("interrupted", 0)


async def test_answers_that_are_too_long_for_the_deadline_do_not_open_the_breaker():
    breaker = CircuitBreaker(failures=1)
    provider, _ = _provider([_text("字"), "silence"], retry=_retry(deadline=0.3), breaker=breaker)
    await _broken(provider, "in the time that there was")
    assert breaker.state == "closed"


# Connections


async def test_leaving_a_provider_closes_its_connections_and_it_can_be_used_again():
    provider, wire = _provider(_answer(), _answer())
    async with provider:
        await provider.chat(_QUESTION)
    assert wire.closed == 1
    await provider.chat(_QUESTION)
    await provider.aclose()
    await provider.aclose()
    assert wire.closed == 2


def _open_clients() -> int:
    return sum(isinstance(each, httpx2.AsyncClient) and not each.is_closed for each in gc.get_objects())


async def test_closing_while_the_key_is_looked_for_ends_the_request(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    before, slow = keyring.get_keyring(), _Slow()
    keyring.set_keyring(slow)
    provider = HostedProvider(DEEPSEEK, base_url="http://localhost:1/v1", retry=_retry(attempts=1))
    failures: list[str] = []

    async def ask(asked: Callable[[], object]) -> None:
        with pytest.raises(LLMError, match="was closed while deepseek-flash was asked") as caught:
            await asked()
        failures.append(caught.value.failure)

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, lambda: provider.chat(_QUESTION))
            tasks.start_soon(ask, lambda: _pieces(provider))
            await anyio.to_thread.run_sync(slow.asked.wait, 10)
            await provider.aclose()
            slow.may_answer.set()
        assert failures == ["interrupted", "interrupted"]
        with pytest.raises(LLMError, match="The connection to DeepSeek failed"):  # it can be used again
            await provider.chat(_QUESTION)
    finally:
        slow.may_answer.set()
        keyring.set_keyring(before)
        await provider.aclose()


async def test_a_request_that_waits_for_its_turn_does_not_outlive_the_closing():
    provider, wire = _provider("silence", _answer(), limits=RateLimits(concurrency=1))
    failures: list[str] = []

    async def ask_second() -> None:
        with pytest.raises(LLMError, match="was closed while") as caught:
            await provider.chat(_QUESTION)
        failures.append(caught.value.failure)

    async with anyio.create_task_group() as second, anyio.create_task_group() as first:
        first.start_soon(provider.chat, _QUESTION)
        while not wire.open:
            await checkpoint()
        second.start_soon(ask_second)
        await anyio.wait_all_tasks_blocked()
        await provider.aclose()
        first.cancel_scope.cancel()
    assert (failures, len(wire.requests), wire.open) == (["interrupted"], 1, 0)


def _read_to_the_end(connection: socket.socket) -> None:
    with connection:
        connection.settimeout(10)
        while connection.recv(65536):
            pass


@pytest.mark.parametrize("spec", [OPENAI_COMPATIBLE, ANTHROPIC], ids=lambda spec: spec.wire)
async def test_closing_while_a_connection_is_new_leaves_none_and_ends_the_request(spec: ProviderSpec):
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"  # which never answers
        provider = HostedProvider(spec, model="m", base_url=address, api_key="k", prices=_FREE)
        failures: list[str] = []

        async def ask() -> None:
            with pytest.raises(LLMError, match=f"to {spec.title} was closed while m was asked") as caught:
                await provider.chat(_QUESTION)
            failures.append(caught.value.failure)

        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                connection, _ = await anyio.to_thread.run_sync(server.accept)
                await provider.aclose()
            assert failures == ["interrupted"]
            await anyio.to_thread.run_sync(_read_to_the_end, connection)


@pytest.mark.parametrize("steps", [0, 1, 3, 6])
async def test_no_client_stays_open_whenever_the_provider_is_closed(
    steps: int, local_servers: Callable[..., LocalServer]
):
    server = local_servers()
    error = json.dumps({"error": {"message": "later"}}).encode()
    server.answers("/v1/chat/completions", error, status=503, Content_Type="application/json")
    provider = HostedProvider(
        OPENAI_COMPATIBLE,
        model="m",
        base_url=server.url("/v1"),
        prices=_FREE,
        retry=RetryPolicy(attempts=1_000, base=0.01),
        breaker=CircuitBreaker(failures=1_000),
    )

    async def ask() -> None:
        with pytest.raises(LLMError, match="was closed while"):
            await provider.chat(_QUESTION)

    before = _open_clients()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await checkpoint()
        for number in range(steps):
            while len(server.asked) < number:  # between and within attempts
                await checkpoint()
        await provider.aclose()
    assert _open_clients() == before


async def test_a_missing_key_is_said_at_the_first_request_with_what_to_do(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    with pytest.raises(
        LLMError, match=r"no key for Anthropic\. Set the environment variable ANTHROPIC_API_KEY"
    ) as no:
        await HostedProvider(ANTHROPIC).chat(_QUESTION)
    assert (no.value.failure, no.value.provider) == ("authentication", "anthropic")


async def test_a_key_in_a_header_of_ones_own_is_enough(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    fake = FakeVendors([Turn(text="好。")])
    async with fake.http_client() as http_client:
        provider = HostedProvider(
            DEEPSEEK,
            base_url=fake.base_url("deepseek"),
            headers={"Authorization": f"Bearer {fake.key}"},
            http_client=http_client,
        )
        assert provider.problem() == ""
        assert (await provider.chat(_QUESTION)).content == "好。"


@pytest.mark.parametrize(("needs_key", "asked"), [(False, []), (True, ["LOOM_TEST_KEY"])])
def test_the_keyring_is_asked_only_where_there_has_to_be_a_key(
    needs_key: bool, asked: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("LOOM_TEST_KEY", raising=False)
    spec = replace(OPENAI_COMPATIBLE, key_variable="LOOM_TEST_KEY", needs_key=needs_key)
    provider = HostedProvider(spec, model="m", base_url="http://localhost:1/v1")
    before, noting = keyring.get_keyring(), _Noting()
    keyring.set_keyring(noting)
    try:
        assert bool(provider.problem()) is needs_key
    finally:
        keyring.set_keyring(before)
    assert noting.asked == asked


async def test_a_key_that_can_be_none_is_said_without_the_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-with a blank")
    with pytest.raises(LLMError, match="DEEPSEEK_API_KEY holds characters") as caught:
        await HostedProvider(DEEPSEEK).chat(_QUESTION)
    assert caught.value.failure == "authentication"
    assert "blank" not in str(caught.value)


async def test_a_vendor_of_ones_own_that_needs_a_key_is_given_it_by_argument():
    spec = replace(OPENAI_COMPATIBLE, needs_key=True)
    with pytest.raises(LLMError, match="Give it as `api_key`"):
        await HostedProvider(spec, model="m", base_url="http://localhost:1/v1").chat(_QUESTION)


def test_a_missing_key_is_known_before_anything_is_asked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    problem = HostedProvider(DEEPSEEK).problem()
    assert "There is no key" in problem
    assert "DEEPSEEK_API_KEY" in problem
    assert HostedProvider(DEEPSEEK, api_key=_KEY).problem() == ""
    assert HostedProvider(ANTHROPIC, api_key=_KEY).problem() == ""
    assert HostedProvider(DEEPSEEK, wire=ScriptedWire()).problem() == ""
    monkeypatch.setenv("DEEPSEEK_API_KEY", _KEY)
    assert HostedProvider(DEEPSEEK).problem() == ""
