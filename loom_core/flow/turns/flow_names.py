"""Which flow a message names that is to be ended: 「取消预约」, "cancel my appointment"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loom_core.knowledge.text.scripts import normalise

if TYPE_CHECKING:
    from loom_core.flow.config.models import FlowConfig

__all__ = ["named_to_cancel"]

_LONGEST = 60
_CANCELS = re.compile(
    r"(?:(?:please|i(?:'d like| want) to|i'll|can you|could you|actually|no|ok|okay|let's)[ ,]+)*"
    r"(?:cancel|stop|drop|abort|forget|call off) (?:my|the|this|that) (?P<en>[a-z][\w -]{1,30}?)(?: please)?"
    r"|(?:那|就|我要|我想|帮我|请|麻烦|先)*(?:取消|停止|终止|放弃)(?:掉|我的|这个|这次|那个)?(?P<zh>[^了吧,。]{2,10})"
    r"|(?:那|就|我要|我想|帮我|请|麻烦|先)*(?:把|将)?(?:我的|这个|这次|那个)?(?P<front>[^,。]{2,10}?)(?:给)?取消(?:掉)?"
)
_ENDINGS = re.compile(r"[了吧啊啦 .。!！,，]+$")


def named_to_cancel(message: str, flows: Sequence[FlowConfig]) -> FlowConfig | None:
    """The one flow that a message wants ended by its name, or part of it; None if it does no such thing."""
    plain = _ENDINGS.sub("", normalise(message).strip())
    found = _CANCELS.fullmatch(plain) if len(plain) <= _LONGEST else None
    if found is None:
        return None
    called = _ENDINGS.sub("", found["en"] or found["zh"] or found["front"])
    named = [flow for flow in flows if _is_called(called, flow)]
    return named[0] if len(named) == 1 else None


def _is_called(called: str, flow: FlowConfig) -> bool:
    title, words = normalise(flow.title), re.split(r"[\W_]+", normalise(flow.flow_id))
    if called.isascii():
        return called in title or {*called.split()} <= {*words}
    return called in title or title in called
