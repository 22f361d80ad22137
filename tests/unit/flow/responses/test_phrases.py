from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loom_core.flow.responses.phrases import language_of, language_of_run
from loom_core.flow.understanding.language import Language
from loom_core.runs.run import RunRequest


@pytest.mark.parametrize(
    ("message", "before", "language"),
    [
        ("我要请假", "", "zh"),
        ("订单A1", "", "zh"),
        ("查BO20418", "", "zh"),
        ("take leave", "", "en"),
        ("BO20418", "", "en"),
        ("BO20418", "zh", "zh"),
        ("no", "zh", "zh"),
        ("abc", "zh", "zh"),
        ("hi", "zh", "zh"),
        ("3", "zh", "zh"),
        ("", "zh", "zh"),
        ("Tim Cook 的订单 please", "zh", "zh"),
        ("where is my order", "zh", "en"),
        ("我要请三天假", "en", "zh"),
        ("yes", "en", "en"),
    ],
)
def test_a_conversation_keeps_its_language_until_another_is_clearly_spoken(
    message: str, before: str, language: Language
) -> None:
    assert language_of(message, before=before) == language
    assert language_of(message, setting="en", before=before) == "en"


def test_the_language_of_a_long_word_takes_no_time(
    least_processor_time: Callable[[Callable[[], object]], float],
) -> None:
    assert least_processor_time(lambda: language_of("a" * 20_000)) < 0.1


@pytest.mark.parametrize(
    ("goal", "metadata", "language"),
    [
        ("BO20418", {"language": "zh"}, "zh"),
        ("我要请假", {}, "zh"),
        ("请假", {"message": "take some leave"}, "en"),
    ],
)
def test_a_run_speaks_as_the_conversation_that_has_begun_it(
    goal: str, metadata: dict[str, Any], language: Language
) -> None:
    assert language_of_run(RunRequest(goal=goal, metadata=metadata)) == language
