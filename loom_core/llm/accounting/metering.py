"""Usage metering: tokens as vendors report them, estimates of them, and cost."""

from __future__ import annotations

import json
import logging
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from loom_core.errors import capitalise
from loom_core.llm.accounting.prices import list_price
from loom_core.llm.interface import LLMResponse, Usage
from loom_core.llm.json_body import json_body
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.transport.replay import with_reasoning_to_replay
from loom_core.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from loom_core.llm.accounting.prices import Prices
    from loom_core.llm.interface import ChatRequest, ToolSpec
    from loom_core.llm.messages import AssistantPart, Message, UserPart
    from loom_core.llm.vendors import ProviderSpec

__all__ = ["Meter", "UsageTotals", "estimate_answer", "estimate_json", "estimate_message", "estimate_tool"]

_log = logging.getLogger(__name__)

_DECAY = 0.8
"""Decay: the weight that earlier responses keep in the ratio after another one."""

_PRIOR = 300.0
"""Prior: the ratio starts at 1, as if this many tokens had been estimated correctly. So a request of few
tokens, where what the vendor adds weighs most, does not change it much."""

_LOWEST, _HIGHEST = 0.25, 4.0

_RECENT_ANSWERS = 20
"""The last responses, read when the next estimate is needed; older ones hardly count."""

_MIN_TRUNCATED_TOKENS = 2000
"""Minimum tokens of a conversation that a server may have truncated: no context is smaller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTotals:
    """Usage totals so far.

    Attributes:
        requests: number of requests that were answered, wholly or in part.
        input_tokens: sum over these requests.
        output_tokens: sum over these requests.
        cost: US dollars, for the requests whose price is known.
        unpriced: how many of the requests have no known price.
    """

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0
    unpriced: int = 0

    def __add__(self, other: UsageTotals) -> UsageTotals:
        return UsageTotals(
            requests=self.requests + other.requests,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost=self.cost + other.cost,
            unpriced=self.unpriced + other.unpriced,
        )


class Meter:
    """Usage meter of one model: counts tokens and cost, and estimates tokens.

    Estimates are corrected by the ratio of reported to estimated tokens: recent responses weigh more, and the
    ratio stays between a quarter and four.
    """

    def __init__(
        self, spec: ProviderSpec, *, model: str, base_url: str = "", prices: Prices | None = None
    ) -> None:
        """Start at zero.

        Args:
            spec: the vendor, as it is for this model.
            model: the model.
            base_url: its address: decides which price list applies.
            prices: its prices; by default those of the price list.
        """
        self._spec = spec
        self._model = model
        self._base_url = base_url
        self._prices = prices
        self._estimated = self._reported = _PRIOR
        self._answered: deque[tuple[ChatRequest, int]] = deque(maxlen=_RECENT_ANSWERS)
        self._spent = UsageTotals()

    @property
    def spent(self) -> UsageTotals:
        """Usage totals so far."""
        return self._spent

    def estimate(self, request: ChatRequest) -> int:
        """Estimate the tokens of a request.

        Raises:
            InvalidInputError: the arguments of a tool call contain a value that JSON cannot express.
        """
        self._learn()
        return self._correct_estimate(self._size(request))

    def expect(self, request: ChatRequest) -> int:
        """Estimate the tokens of a request and its response: a response of average length."""
        answered = self._spent.requests
        answer = self._spent.output_tokens // answered if answered else 0
        return self.estimate(request) + min(answer, request.max_tokens or answer)

    def cost(self, usage: Usage, *, model: str = "") -> float | None:
        """Return the cost of a response in US dollars, or None if the price is unknown.

        Args:
            usage: the usage of the response.
            model: the model that gave it, if it is another one.
        """
        if self._prices is not None:
            return self._prices.cost(usage)
        for name in dict.fromkeys((model or self._model, self._model)):
            cost = list_price(usage, provider=self._spec.name, model=name, base_url=self._base_url)
            if cost is not None:
                return cost
        return None

    def record_response(self, request: ChatRequest, response: LLMResponse) -> LLMResponse:
        """Record a response, learn from its usage, and return it with its complete usage."""
        usage = response.usage
        if usage.estimated:
            usage = replace(
                usage,
                input_tokens=self.estimate(request),
                output_tokens=self._correct_estimate(estimate_answer(response.message.parts)),
            )
        elif usage.input_tokens > 0 and not _has_images(request.messages):
            self._answered.append((request, usage.input_tokens))
            if self._spec.shortens:
                self._learn()
        return replace(response, usage=self._record_cost(usage, response.message.model))

    def record_partial(self, request: ChatRequest, text: str, *, reported: Usage | None = None) -> Usage:
        """Record a response that broke off.

        Args:
            request: the request.
            text: the text received so far, with reasoning and tool arguments.
            reported: the usage that the vendor reported so far.
        """
        reported = reported or Usage()
        self._learn()
        usage = replace(
            reported,
            input_tokens=reported.input_tokens or self.estimate(request),
            output_tokens=max(reported.output_tokens, self._correct_estimate(estimate_tokens(text))),
            estimated=True,
        )
        return self._record_cost(usage, "")

    def _size(self, request: ChatRequest) -> int:
        """Uncorrected token estimate of a request; only reasoning that is replayed to the vendor counts."""
        messages = with_reasoning_to_replay(request.messages, self._spec, tools=bool(request.tools))
        size = sum(map(estimate_message, messages)) + sum(map(estimate_tool, request.tools))
        return size + (estimate_json(request.output.schema) if request.output else 0)

    def _correct_estimate(self, size: int) -> int:
        ratio = min(max(self._reported / self._estimated, _LOWEST), _HIGHEST)
        return round(size * ratio)

    def _learn(self) -> None:
        """Update the ratio with the responses since the last call: sizing them is the expensive part."""
        while self._answered:
            request, reported = self._answered.popleft()
            estimated = self._size(request)
            if not self._is_shortened(estimated, reported):
                self._estimated = _DECAY * self._estimated + estimated
                self._reported = _DECAY * self._reported + reported

    def _is_shortened(self, size: int, reported: int) -> bool:
        """Return whether the server truncated the conversation: this is logged, and not learned from."""
        expected = self._correct_estimate(size)
        if not self._spec.shortens or expected < _MIN_TRUNCATED_TOKENS or reported > expected // 2:
            return False
        _log.warning(
            "%s read %d tokens of a conversation of about %d: the context of %s seems to be shorter. "
            "Raise the context length on the server, or shorten the conversation.",
            capitalise(self._spec.title),
            reported,
            expected,
            self._model,
        )
        return True

    def _record_cost(self, usage: Usage, model: str) -> Usage:
        """Add the usage to the totals, and return it with its cost."""
        cost = self.cost(usage, model=model)
        self._spent += UsageTotals(
            requests=1,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cost=cost or 0.0,
            unpriced=cost is None,
        )
        return replace(usage, cost=cost)


def _has_images(messages: Iterable[Message]) -> bool:
    return any(
        isinstance(part, ImagePart)
        for message in messages
        if isinstance(message, UserMessage | ToolMessage)
        for part in message.parts
    )


_MESSAGE = 4
"""Overhead of a message in tokens: its role, its beginning and its end."""

_TOOL = 12
"""Overhead of a tool description in tokens."""

_IMAGE = 1000
"""Tokens of an image: OpenAI counts 765 for a square of 1024 pixels, Anthropic 1 600 at most."""


def estimate_message(message: Message) -> int:
    """Estimate the tokens of a message, with all of its reasoning.

    Raises:
        InvalidInputError: the arguments of a tool call contain a value that JSON cannot express.
    """
    if isinstance(message, AssistantMessage):
        return _MESSAGE + estimate_answer(message.parts)
    if isinstance(message, SystemMessage):
        return _MESSAGE + estimate_tokens(message.text)
    return _MESSAGE + sum(map(_estimate_part, message.parts))


def estimate_answer(parts: Iterable[AssistantPart]) -> int:
    """Estimate the tokens of a response; raises as `estimate_message` does."""
    size = 0
    for part in parts:
        match part:
            case TextPart(text) | ReasoningPart(text):
                size += estimate_tokens(text)
            case ToolCallPart():
                size += _MESSAGE + estimate_tokens(part.name)
                size += estimate_tokens(part.unreadable) if part.unreadable else estimate_json(part.arguments)
    return size


def estimate_tool(tool: ToolSpec) -> int:
    """Estimate the tokens of a tool description."""
    words = estimate_tokens(tool.name) + estimate_tokens(tool.description)
    return _TOOL + words + estimate_json(tool.parameters)


def estimate_json(value: Mapping[str, Any]) -> int:
    """Estimate the tokens of an object as it is sent.

    Raises:
        InvalidInputError: it contains a value that JSON cannot express.
    """
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = json.dumps(json_body(value), ensure_ascii=False)  # as it is sent, if it can be
    return estimate_tokens(text)


def _estimate_part(part: UserPart) -> int:
    return _IMAGE if isinstance(part, ImagePart) else estimate_tokens(part.text)
