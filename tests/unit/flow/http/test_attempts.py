"""Which requests are sent again, and what they are known by."""

from __future__ import annotations

import pytest

from loom_core.errors import NetError
from loom_core.flow.http.request import may_be_sent_again, request_key, status_passes


def test_statuses_that_pass() -> None:
    passing = [status for status in range(100, 600) if status_passes(status)]
    assert {408, 425, 429, 500, 502, 503, 504, 529} <= set(passing)
    assert not {200, 301, 400, 401, 403, 404, 409, 422, 501, 505} & set(passing)


@pytest.mark.parametrize(
    ("outcome", "if_repeatable", "if_not"),
    [(503, True, False), (429, True, False), (404, False, False), (200, False, False),
     ("connection", True, True), ("interrupted", True, False), ("timeout", True, False),
     ("refused", False, False), ("unusable", False, False), ("unavailable", False, False)],
)  # fmt: skip
def test_what_may_have_been_done_is_sent_again_only_if_that_does_no_harm(
    outcome: object, if_repeatable: bool, if_not: bool
) -> None:
    what = outcome if isinstance(outcome, int) else NetError("x", failure=outcome)  # type: ignore[arg-type]
    assert may_be_sent_again(what, repeatable=True) is if_repeatable
    assert may_be_sent_again(what, repeatable=False) is if_not


def test_a_key_is_made_of_run_and_step_in_plain_ascii() -> None:
    assert request_key("run-1", "submit") == "run-1:submit"
    assert request_key("run-1", "pay#2/0/submit") == "run-1:pay#2/0/submit"
    key = request_key("run-1", "提交")
    assert key == "run-1:%E6%8F%90%E4%BA%A4"
    assert request_key("run-1", "a:b") != request_key("run-1:a", "b")


def test_a_long_key_is_cut_and_still_its_own() -> None:
    first, second = request_key("r" * 300, "a"), request_key("r" * 300, "b")
    assert first != second
    assert max(len(first), len(second)) <= 200
    assert first.isascii()
