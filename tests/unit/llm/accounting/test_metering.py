from __future__ import annotations

from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import InvalidInputError
from loom_core.llm.accounting.metering import Meter, UsageTotals
from loom_core.llm.accounting.prices import Prices
from loom_core.llm.interface import (
    ChatRequest,
    LLMResponse,
    OutputSchema,
    ToolSpec,
    Usage,
)
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.vendors import VENDORS

_TEXT = "知识图谱把事实连接起来。" * 50


def _meter(name: str = "deepseek", *, prices: Prices | None = None) -> Meter:
    spec = VENDORS[name]
    return Meter(spec, model=spec.model or "qwen3:8b", base_url=spec.base_url, prices=prices)


def _asking(
    *messages: Message, tools: tuple[ToolSpec, ...] = (), max_tokens: int | None = 4096
) -> ChatRequest:
    return ChatRequest(
        messages=messages or (UserMessage((TextPart(_TEXT),)),), tools=tools, max_tokens=max_tokens
    )


def _answer(usage: Usage | None = None, *parts: TextPart | ReasoningPart | ToolCallPart) -> LLMResponse:
    message = AssistantMessage(parts or (TextPart("好的。"),), provider="deepseek", model="deepseek-flash")
    return LLMResponse(message, usage=usage or Usage(estimated=True))


def test_everything_that_is_sent_counts():
    meter = _meter()
    bare = meter.estimate(_asking(UserMessage((TextPart("你好"),))))
    assert 2 <= bare <= 10
    more: list[ChatRequest] = [
        _asking(SystemMessage(_TEXT), UserMessage((TextPart("你好"),))),
        _asking(UserMessage((TextPart("你好"), ImagePart(b"png")))),
        _asking(UserMessage((TextPart("你好"),)), tools=(ToolSpec("find", "Finds things."),)),
        _asking(
            UserMessage((TextPart("你好"),)), AssistantMessage((ToolCallPart("1", "find", {"什么": "图谱"}),))
        ),
        _asking(
            UserMessage((TextPart("你好"),)), AssistantMessage((ToolCallPart("1", "find", unreadable="{"),))
        ),
        _asking(UserMessage((TextPart("你好"),)), ToolMessage("1", (TextPart(_TEXT),))),
        ChatRequest(
            messages=(UserMessage((TextPart("你好"),)),), output=OutputSchema("a", {"type": "object"})
        ),
    ]
    assert all(meter.estimate(request) > bare for request in more)
    assert meter.estimate(more[1]) > bare + 500


def test_arguments_count_as_they_are_sent():
    inner = {"城市": "图谱" * 60}
    frozen = ToolCallPart("1", "find", MappingProxyType({"q": MappingProxyType(inner)}))
    plain = ToolCallPart("1", "find", {"q": inner})
    meter = _meter()
    assert meter.estimate(_asking(AssistantMessage((frozen,)))) == meter.estimate(
        _asking(AssistantMessage((plain,)))
    )
    endless: dict[str, object] = {}
    endless["again"] = endless
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        meter.estimate(_asking(AssistantMessage((ToolCallPart("1", "find", endless),))))


def test_reasoning_counts_where_it_goes_back_to_the_vendor():
    thought = AssistantMessage((ReasoningPart(_TEXT), TextPart("42")), provider="deepseek")
    conversation = (UserMessage((TextPart("?"),)), thought, UserMessage((TextPart("?"),)))
    tools = (ToolSpec("f"),)
    with_tools, without = _asking(*conversation, tools=tools), _asking(*conversation)
    assert _meter("deepseek").estimate(with_tools) > _meter("deepseek").estimate(without) + 300
    assert _meter("kimi").estimate(with_tools) < _meter("deepseek").estimate(with_tools) - 300


def test_estimates_learn_from_what_the_vendor_reports():
    meter, request = _meter(prices=Prices(input=1.0, output=1.0)), _asking()
    before = meter.estimate(request)
    for _ in range(20):
        meter.record_response(request, _answer(Usage(input_tokens=2 * before, output_tokens=1)))
    assert meter.estimate(request) == pytest.approx(2 * before, rel=0.05)
    for _ in range(20):
        meter.record_response(request, _answer(Usage(input_tokens=before // 2, output_tokens=1)))
    assert meter.estimate(request) == pytest.approx(before / 2, rel=0.05)


def test_a_short_request_teaches_little():
    meter, request = _meter(), _asking()
    before = meter.estimate(request)
    meter.record_response(
        _asking(UserMessage((TextPart("hi"),))), _answer(Usage(input_tokens=60, output_tokens=1))
    )
    assert before < meter.estimate(request) < before * 1.4


def test_images_and_estimates_teach_nothing():
    meter, request = _meter(), _asking()
    before = meter.estimate(request)
    picture = _asking(UserMessage((TextPart(_TEXT), ImagePart(url="https://example.org/a.png"))))
    meter.record_response(picture, _answer(Usage(input_tokens=100_000)))
    meter.record_response(request, _answer(Usage(input_tokens=100_000, estimated=True)))
    meter.record_response(request, _answer(Usage(input_tokens=0, output_tokens=5)))
    assert meter.estimate(request) == before


@pytest.mark.hostile("answers of models")
@given(st.lists(st.integers(0, 10**12), max_size=20))
def test_whatever_a_vendor_reports_estimates_stay_within_a_quarter_and_four_times(reported: list[int]):
    meter, request = _meter(prices=Prices(input=1.0, output=1.0)), _asking()
    before = meter.estimate(request)
    for tokens in reported:
        meter.record_response(request, _answer(Usage(input_tokens=tokens)))
    assert before / 4 - 1 <= meter.estimate(request) <= before * 4 + 1


def test_what_the_vendor_reports_stays_and_gets_its_cost():
    usage = Usage(input_tokens=1000, output_tokens=500, reasoning_tokens=200, cache_read_tokens=100)
    meter = _meter(prices=Prices(input=1.0, output=2.0, cache_read=0.0))
    found = meter.record_response(_asking(), _answer(usage)).usage
    assert found == Usage(
        input_tokens=1000,
        output_tokens=500,
        reasoning_tokens=200,
        cache_read_tokens=100,
        cost=pytest.approx((900 + 1000) / 1e6),
    )


def test_what_the_vendor_does_not_report_is_estimated_and_says_so():
    meter, request = _meter(), _asking()
    call = ToolCallPart("1", "find", {"q": "x" * 400})
    usage = meter.record_response(
        request, _answer(None, ReasoningPart("想" * 150), TextPart("a" * 400), call)
    ).usage
    assert usage.estimated
    assert usage.input_tokens == meter.estimate(request)
    assert 300 <= usage.output_tokens <= 330


def test_the_price_of_a_model_that_the_list_does_not_know_is_that_of_the_one_asked_for():
    meter = _meter()
    response = LLMResponse(
        AssistantMessage((TextPart("a"),), model="deepseek-flash@2026-11"), usage=Usage(input_tokens=10)
    )
    assert meter.record_response(_asking(), response).usage.cost
    assert _meter("ollama").record_response(_asking(), response).usage.cost is None


def test_an_answer_that_broke_off_counts_with_what_came():
    meter = _meter()
    text = "想" * 30 + "a" * 40 + '{"q": "bbbbbbbb'
    usage = meter.record_partial(_asking(), text)
    assert usage.estimated
    assert (usage.input_tokens, usage.output_tokens) == (meter.estimate(_asking()), 34)
    assert usage.cost
    told = meter.record_partial(_asking(), text, reported=Usage(input_tokens=7, output_tokens=1000))
    assert (told.input_tokens, told.output_tokens, told.estimated) == (7, 1000, True)


def test_what_is_spent_is_summed_and_says_what_has_no_price():
    meter = _meter("ollama")
    assert meter.spent == UsageTotals()
    meter.record_response(_asking(), _answer(Usage(input_tokens=10, output_tokens=5)))
    assert meter.spent == UsageTotals(requests=1, input_tokens=10, output_tokens=5, unpriced=1)
    priced = _meter("ollama", prices=Prices(input=1.0, output=1.0))
    for _ in range(2):
        priced.record_response(_asking(), _answer(Usage(input_tokens=10, output_tokens=5)))
    assert priced.spent == UsageTotals(
        requests=2, input_tokens=20, output_tokens=10, cost=pytest.approx(3e-5)
    )


def test_an_answer_is_expected_to_be_as_long_as_others_but_no_longer_than_allowed():
    meter, request = _meter(), _asking()
    assert meter.expect(request) == meter.estimate(request)
    meter.record_response(request, _answer(Usage(output_tokens=3000)))
    meter.record_response(request, _answer(Usage(output_tokens=1000)))
    assert meter.expect(request) - meter.estimate(request) == 2000
    assert meter.expect(_asking(max_tokens=500)) - meter.estimate(request) == 500
    assert meter.expect(_asking(max_tokens=None)) - meter.estimate(request) == 2000


def test_a_conversation_that_the_server_shortened_is_warned_of_and_teaches_nothing(
    caplog: pytest.LogCaptureFixture,
):
    meter = _meter("ollama")
    long = _asking(UserMessage((TextPart(_TEXT * 20),)))
    expected = meter.estimate(long)
    assert meter.record_response(long, _answer(Usage(input_tokens=2048))).usage.input_tokens == 2048
    assert f"Ollama read 2048 tokens of a conversation of about {expected}" in caplog.text
    assert "qwen3:8b" in caplog.text
    assert meter.estimate(long) == expected


@pytest.mark.parametrize(
    ("vendor", "times", "reported"), [("ollama", 10, 4000), ("ollama", 1, 100), ("vllm", 10, 2048)]
)
def test_a_conversation_that_was_read_whole_is_not_warned_of(
    vendor: str, times: int, reported: int, caplog: pytest.LogCaptureFixture
):
    meter = _meter(vendor)
    asking = _asking(UserMessage((TextPart(_TEXT * times),)))
    expected = meter.estimate(asking)
    meter.record_response(asking, _answer(Usage(input_tokens=reported)))
    assert not caplog.records
    assert meter.estimate(asking) != expected
