"""Price lists of models: the cost of a response, and the size of the context window."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from genai_prices import Usage as ListedUsage
    from genai_prices.types import ModelInfo, ModelPrice, Provider

    from loom_core.llm.interface import Usage

__all__ = ["Prices", "list_price", "list_window", "load_lists"]

_LISTED = {
    "openai": "openai",
    "anthropic": "anthropic",
    "deepseek": "deepseek",
    "gemini": "google",
    "kimi": "moonshotai",
    "zhipu": "zai",
    "minimax": "minimax",
}
"""Names of our providers, and their names in the price list."""

_PLAIN = {
    "input_mtok": "input",
    "output_mtok": "output",
    "cache_read_mtok": "cache_read",
    "cache_write_mtok": "cache_write",
}
"""Names of prices in the lists, and in `Prices`."""
_NEEDED = {"input", "output"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of a model, in US dollars per million tokens.

    Attributes:
        input: of the conversation.
        output: of answers, their reasoning included.
        cache_read: of the conversation, read from the vendor's cache; None for as much as `input`.
        cache_write: of the conversation, written to the vendor's cache; None for as much as `input`.
    """

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            ConfigError: a price is negative.
        """
        for name in ("input", "output", "cache_read", "cache_write"):
            price: float | None = getattr(self, name)
            if price is not None and not price >= 0:
                raise ConfigError(f"The price {name!r} is {price}.", advice="Give US dollars, 0 or more.")

    def cost(self, usage: Usage) -> float:
        """Return the cost of a response in US dollars."""
        read, written = _cache_tokens(usage)
        return (
            (usage.input_tokens - read - written) * self.input
            + read * (self.input if self.cache_read is None else self.cache_read)
            + written * (self.input if self.cache_write is None else self.cache_write)
            + usage.output_tokens * self.output
        ) / 1_000_000


def list_price(usage: Usage, *, provider: str, model: str, base_url: str = "") -> float | None:
    """Return the cost of a response in US dollars by the price list, or None if it is unknown.

    The lists come with the package `genai-prices`, as of its release: nothing is downloaded. The vendor at
    `base_url` counts first, as some vendors have two platforms with separate prices; then `provider`, for
    gateways. The first call takes most of a second; call `load_lists` beforehand to avoid that.
    """
    entry = _entry(provider=provider, model=model, base_url=base_url)
    if entry is None or min(usage.input_tokens, usage.output_tokens) < 0:
        return None
    vendor, listed = entry
    if (prices := _plain(listed.get_prices(datetime.now(UTC)))) is not None:
        return prices.cost(usage)
    try:
        return float(listed.calc_price(_to_listed_usage(usage), vendor).total_price)
    except (LookupError, ValueError):  # numbers that cannot be
        return None


def list_window(*, provider: str, model: str, base_url: str = "") -> int | None:
    """Return the context window in tokens, conversation and response together, or None if it is unknown.

    The lists and the arguments are those of `list_price`.
    """
    entry = _entry(provider=provider, model=model, base_url=base_url)
    return entry[1].context_window if entry is not None else None


def _entry(*, provider: str, model: str, base_url: str) -> tuple[Provider, ModelInfo] | None:
    """Look a model up in the lists: by the address, else by the vendor's name."""
    if not load_lists():
        return None
    from genai_prices.data_snapshot import get_snapshot

    ways = ((None, base_url or None), (_LISTED.get(provider), None))
    for name, address in ways:
        if name is None and address is None:
            continue
        try:
            return get_snapshot().find_provider_model(model, None, name, address)
        except LookupError:
            continue
    return None


def _plain(listed: ModelPrice) -> Prices | None:
    """Return listed prices if they are flat: the same for every token, and no price per request; else None.

    The package checks every kind of unit for each response, which takes longer than everything Loom does.
    """
    given: dict[str, object] = {name: value for name, value in vars(listed).items() if value is not None}
    plain = {
        ours: float(price) for name, ours in _PLAIN.items() if isinstance(price := given.get(name), Decimal)
    }
    tiered = len(plain) < len(given.keys() & _PLAIN.keys())
    if tiered or "requests_kcount" in given or not plain.keys() >= _NEEDED:
        return None
    return Prices(**plain)


def _to_listed_usage(usage: Usage) -> ListedUsage:
    from genai_prices import Usage as ListedUsage

    read, written = _cache_tokens(usage)
    return ListedUsage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


@cache
def load_lists() -> bool:
    """Load the price lists once; return whether there are any, as their package is optional."""
    try:
        from genai_prices.data_snapshot import get_snapshot
    except ImportError:
        return False
    return bool(get_snapshot().providers)


def _cache_tokens(usage: Usage) -> tuple[int, int]:
    """Return the tokens read from and written to the cache; never more than the input has."""
    read = min(usage.cache_read_tokens, usage.input_tokens)
    return read, min(usage.cache_write_tokens, usage.input_tokens - read)
