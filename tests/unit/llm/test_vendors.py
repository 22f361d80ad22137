from __future__ import annotations

import pytest

from loom_core.llm.interface import Effort
from loom_core.llm.vendors import OPENAI, ProviderSpec


def _knows(*efforts: Effort) -> ProviderSpec:
    return ProviderSpec(name="v", title="V", efforts={effort: {} for effort in efforts})


@pytest.mark.parametrize(
    ("known", "wished", "taken"),
    [
        (("off", "low", "high"), "low", "low"),
        (("off", "low", "high"), "medium", "high"),
        (("off", "low", "high"), "max", "high"),
        (("low", "high"), "off", "low"),
        (("off", "high"), "low", "high"),
        ((), "high", None),
        (("low",), None, None),
    ],
)
def test_an_effort_that_is_not_known_becomes_the_next_one_upwards_and_else_downwards(
    known: tuple[Effort, ...], wished: Effort | None, taken: Effort | None
) -> None:
    assert _knows(*known).nearest(wished) == taken


@pytest.mark.parametrize(
    ("model", "tool_effort"),
    [
        ("gpt-5.6-terra", "off"),
        ("gpt-5.4-mini", "off"),
        ("gpt-5.2", None),
        ("gpt-5-mini", None),
        ("o3", None),
    ],
)
def test_openai_refuses_tools_with_thinking_since_one_of_its_models(
    model: str, tool_effort: Effort | None
) -> None:
    assert OPENAI.for_model(model).tool_effort == tool_effort
