from __future__ import annotations

import subprocess
import sys

import genai_prices
import pytest

from loom_core.errors import ConfigError
from loom_core.llm.accounting.prices import Prices, list_price, list_window, load_lists
from loom_core.llm.interface import Usage
from loom_core.llm.vendors import VENDORS

_USAGE = Usage(
    input_tokens=1_000_000, output_tokens=100_000, cache_read_tokens=400_000, cache_write_tokens=100_000
)


def test_own_prices_count_what_came_from_the_cache_as_such():
    prices = Prices(input=2.0, output=10.0, cache_read=0.5, cache_write=3.0)
    assert prices.cost(_USAGE) == pytest.approx(0.5 * 2 + 0.4 * 0.5 + 0.1 * 3 + 0.1 * 10)


def test_without_prices_for_the_cache_it_costs_as_much_as_the_rest():
    assert Prices(input=2.0, output=10.0).cost(_USAGE) == pytest.approx(2 + 1)


def test_a_model_of_ones_own_may_cost_nothing():
    assert Prices(input=0, output=0).cost(_USAGE) == 0.0


def test_a_usage_that_contradicts_itself_never_costs_less_than_nothing():
    usage = Usage(input_tokens=10, cache_read_tokens=50, cache_write_tokens=50)
    prices = Prices(input=1.0, output=1.0, cache_read=0.1, cache_write=2.0)
    assert prices.cost(usage) == pytest.approx(10 * 0.1 / 1_000_000)
    price = list_price(usage, provider="deepseek", model="deepseek-flash")
    assert price is not None
    assert price >= 0


@pytest.mark.parametrize("wrong", [{"input": -1.0}, {"cache_read": -0.1}, {"output": float("nan")}])
def test_a_negative_price_is_refused(wrong: dict[str, float]):
    with pytest.raises(ConfigError, match=f"The price '{next(iter(wrong))}'"):
        Prices(**{"input": 1.0, "output": 1.0, **wrong})


@pytest.mark.parametrize("name", ["openai", "anthropic", "deepseek", "gemini", "kimi", "zhipu", "minimax"])
def test_the_usual_models_of_vendors_with_listed_prices_have_one(name: str):
    spec = VENDORS[name]
    usage = Usage(input_tokens=1000, output_tokens=100)
    price = list_price(usage, provider=name, model=spec.model, base_url=spec.base_url)
    assert price is not None
    assert 0 < price < 0.1
    gateway = list_price(usage, provider=name, model=spec.model, base_url="https://gateway.example/v1")
    assert gateway is not None


@pytest.mark.parametrize(
    ("provider", "model", "listed"),
    [
        ("anthropic", "claude-sonnet-5-5", "anthropic"),  # the same for each token
        ("kimi", "kimi-k3", "moonshotai"),
        ("gemini", "gemini-3.8-flash", "google"),
        ("openai", "gpt-5.6-terra", "openai"),  # more from so many tokens on
        ("minimax", "MiniMax-M3", "minimax"),
    ],
)
@pytest.mark.parametrize("tokens", [1, 1_000, 900_000])
def test_prices_are_those_of_the_package(provider: str, model: str, listed: str, tokens: int):
    usage = Usage(
        input_tokens=tokens,
        output_tokens=tokens // 2,
        cache_read_tokens=tokens // 3,
        cache_write_tokens=tokens // 5,
    )
    theirs = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
        ),
        model,
        provider_id=listed,
    )
    assert list_price(usage, provider=provider, model=model) == pytest.approx(float(theirs.total_price))


def test_what_was_read_from_the_cache_is_cheaper_by_the_list():
    plain, cached = (
        list_price(
            Usage(input_tokens=1000, cache_read_tokens=read), provider="anthropic", model="claude-sonnet-5-5"
        )
        for read in (0, 1000)
    )
    assert plain is not None
    assert cached is not None
    assert cached < plain / 2


def test_an_address_that_the_list_knows_decides_whose_prices_hold():
    usage = Usage(input_tokens=1000, output_tokens=100)
    here = list_price(
        usage, provider="zhipu", model="glm-5.3", base_url="https://open.bigmodel.cn/api/paas/v4"
    )
    abroad = list_price(usage, provider="zhipu", model="glm-5.3", base_url="https://api.z.ai/api/paas/v4")
    compatible = list_price(
        usage, provider="openai_compatible", model="glm-5.3", base_url="https://api.z.ai/api/paas/v4"
    )
    assert here != abroad
    assert compatible == abroad


@pytest.mark.parametrize(
    ("provider", "model"),
    [("ollama", "qwen3:8b"), ("deepseek", "模型"), ("doubao", "ep-2026"), ("custom", "deepseek-flash")],
)
def test_what_is_not_listed_has_no_price(provider: str, model: str):
    assert (
        list_price(Usage(input_tokens=1), provider=provider, model=model, base_url="http://localhost/v1")
        is None
    )


def test_a_usage_with_negative_numbers_has_no_price():
    assert list_price(Usage(input_tokens=-5), provider="deepseek", model="deepseek-flash") is None


_WITHOUT_LISTS = """
import sys
sys.modules["genai_prices"] = None
from loom_core.llm.interface import Usage
from loom_core.llm.accounting.prices import list_price, load_lists
assert not load_lists()
assert list_price(Usage(input_tokens=1), provider="deepseek", model="deepseek-flash") is None
"""


_WITHOUT_NETWORK = """
import sys
def refuse(event, arguments):
    if event.startswith("socket.") and event not in {"socket.__new__"}:
        raise RuntimeError(event)
from loom_core.llm.interface import Usage
from loom_core.llm.accounting.prices import list_price
sys.addaudithook(refuse)
assert "genai_prices" not in sys.modules
assert list_price(Usage(input_tokens=1), provider="deepseek", model="deepseek-flash")
"""


@pytest.mark.parametrize("program", [_WITHOUT_LISTS, _WITHOUT_NETWORK], ids=["no lists", "no network"])
def test_in_a_fresh_process_the_lists_are_optional_and_ask_no_network(program: str):
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)


def test_the_lists_are_loaded_where_they_are_installed():
    assert load_lists()


def test_the_lists_say_how_much_a_model_reads_at_once():
    assert list_window(provider="anthropic", model="claude-haiku-4-5") == 200_000
    assert list_window(provider="kimi", model="moonshot-v1-32k") in {None, 32_000, 32_768}
    assert list_window(provider="custom", model="mine", base_url="https://llm.example/v1") is None
    assert list_window(provider="custom", model="mine") is None
