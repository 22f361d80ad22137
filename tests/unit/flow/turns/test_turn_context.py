"""How long a model is waited for, and what is told where it does not answer."""

from __future__ import annotations

import logging

import anyio
import pytest

from loom_core.errors import LLMError
from loom_core.flow.turns.turn_context import TurnClock

TOKEN = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmF0dXJl"


async def test_a_vendor_that_quotes_a_secret_has_it_told_to_no_one(caplog: pytest.LogCaptureFixture) -> None:
    async def refused() -> str:
        raise LLMError(f"密钥 {TOKEN} 无效", failure="authentication")

    clock = TurnClock()
    with caplog.at_level(logging.WARNING):
        assert await clock.wait_for_model("decision", refused(), seconds=5) == (None, "密钥 [secret] 无效")
    assert TOKEN not in caplog.text


async def test_a_model_is_not_waited_for_longer_than_the_message_has_left() -> None:
    clock = TurnClock()

    found, problem = await clock.wait_for_model("answer", anyio.sleep_forever(), seconds=0.02)

    assert found is None
    assert problem == "The model took longer than 0.02 s; `decision_seconds` may allow it more."
    assert clock.timings["answer"] >= 0.02
