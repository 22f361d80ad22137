from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from loom_core.errors import EmbeddingError, InvalidInputError, LLMError, ModelError
from loom_core.net.retry import Backoff, RetryPolicy, retry_after


class _Vendor:
    """Fails as it is told, then answers; counts how often it was asked."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = list(errors)
        self.asked = 0

    async def __call__(self) -> str:
        self.asked += 1
        if self._errors:
            raise self._errors.pop(0)
        return "答案"


def _policy(
    waits: list[float],
    *,
    attempts: int = 4,
    base: float = 0.5,
    cap: float = 30.0,
    deadline: float = 300.0,
    random: Callable[[], float] = lambda: 0.0,
) -> RetryPolicy:
    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    return RetryPolicy(attempts=attempts, base=base, cap=cap, deadline=deadline, sleep=sleep, random=random)


def _busy(retry_after: float | None = None) -> LLMError:
    return LLMError("DeepSeek has no room.", failure="overloaded", status=503, retry_after=retry_after)


def test_waits_grow_to_a_limit_and_half_of_each_is_chance():
    most = Backoff(base=0.5, cap=3.0, random=lambda: 1.0)
    assert [most.pause(failures) for failures in (1, 2, 3, 4, 10_000)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    least = Backoff(base=0.5, cap=3.0, random=lambda: 0.0)
    assert [least.pause(failures) for failures in (1, 4)] == [0.25, 1.5]


async def test_what_succeeds_is_asked_once():
    waits: list[float] = []
    vendor = _Vendor()
    assert await _policy(waits).run(vendor, title="DeepSeek") == "答案"
    assert (vendor.asked, waits) == (1, [])


async def test_passing_errors_are_tried_again_after_growing_waits():
    waits: list[float] = []
    vendor = _Vendor(_busy(), _busy(), _busy())
    assert await _policy(waits).run(vendor, title="DeepSeek") == "答案"
    assert (vendor.asked, waits) == (4, [0.25, 0.5, 1.0])


async def test_chance_lengthens_a_wait_up_to_twice_and_the_cap_bounds_it():
    waits: list[float] = []
    policy = _policy(waits, cap=0.8, random=lambda: 1.0)
    await policy.run(_Vendor(_busy(), _busy(), _busy()), title="DeepSeek")
    assert waits == [0.5, 0.8, 0.8]


async def test_the_last_error_is_raised_and_says_how_often_it_was_tried():
    vendor = _Vendor(*(_busy() for _ in range(9)))
    with pytest.raises(LLMError, match=r"has no room\. It was tried 4 times\.") as caught:
        await _policy([]).run(vendor, title="DeepSeek")
    assert (vendor.asked, caught.value.status, caught.value.failure) == (4, 503, "overloaded")


async def test_a_policy_of_one_attempt_raises_the_error_as_it_is():
    error = _busy()
    with pytest.raises(LLMError) as caught:
        await _policy([], attempts=1).run(_Vendor(error), title="DeepSeek")
    assert caught.value is error


@pytest.mark.parametrize(
    "error",
    [
        LLMError("The key is wrong.", failure="authentication"),
        LLMError("It broke off.", failure="interrupted"),
        InvalidInputError("A message cannot be used."),
        RuntimeError("a mistake of the program"),
    ],
)
async def test_what_does_not_pass_is_raised_at_once(error: Exception):
    waits: list[float] = []
    vendor = _Vendor(error)
    with pytest.raises(type(error)) as caught:
        await _policy(waits).run(vendor, title="DeepSeek")
    assert caught.value is error
    assert (vendor.asked, waits) == (1, [])


async def test_a_vendor_that_says_how_long_to_wait_is_waited_for_as_long():
    waits: list[float] = []
    await _policy(waits).run(_Vendor(_busy(7.0), _busy(0.0)), title="DeepSeek")
    assert waits == [7.25, 0.5]


@pytest.mark.parametrize("seconds", [61.0, 3600.0, float("inf"), float("nan")])
async def test_a_vendor_that_asks_for_too_long_a_wait_is_not_waited_for(seconds: float):
    waits: list[float] = []
    with pytest.raises(LLMError, match="too long") as caught:
        await _policy(waits).run(_Vendor(_busy(seconds)), title="DeepSeek")
    assert waits == []
    assert "use another model" in caught.value.advice
    assert caught.value.failure == "overloaded"


async def test_a_wait_that_would_end_after_the_deadline_is_not_begun():
    waits: list[float] = []
    vendor = _Vendor(_busy(20.0))
    with pytest.raises(LLMError, match="tried 1 of 4 times; there is no time for more"):
        await _policy(waits, deadline=10.0).run(vendor, title="DeepSeek")
    assert (waits, vendor.asked) == ([], 1)


async def test_an_attempt_that_hangs_ends_at_the_deadline_and_the_error_is_of_the_kind_asked_for():
    with pytest.raises(EmbeddingError, match=r"Ollama gave no answer within 0\.01 s\.") as caught:
        await _policy([], deadline=0.01).run(
            anyio.sleep_forever, title="Ollama", provider="ollama", kind=EmbeddingError
        )
    assert (caught.value.failure, caught.value.provider) == ("timeout", "ollama")


async def test_the_deadline_counts_from_the_first_attempt_and_tells_of_the_last_failure():
    asked: list[int] = []

    async def fails_then_hangs() -> str:
        asked.append(1)
        if len(asked) == 1:
            raise _busy()
        await anyio.sleep_forever()
        raise AssertionError

    with pytest.raises(ModelError, match=r"The last attempt failed: DeepSeek has no room\."):
        await _policy([], base=0.0001, deadline=0.3).run(fails_then_hangs, title="DeepSeek")
    assert len(asked) == 2


async def test_a_cancelled_wait_ends_at_once():
    policy = RetryPolicy(base=100.0, cap=100.0)
    with anyio.move_on_after(0.01) as scope:
        await policy.run(_Vendor(_busy()), title="DeepSeek")
    assert scope.cancelled_caught


@pytest.mark.parametrize("wrong", [{"attempts": 0}, {"base": -1.0}, {"deadline": -1.0}])
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, float]):
    with pytest.raises(ValueError):
        RetryPolicy(**wrong)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [({}, None), ({"retry-after": "3"}, 3.0), ({"retry-after": " 0.5 "}, 0.5), ({"retry-after": "-1"}, None),
     ({"retry-after": "soon"}, None), ({"retry-after": "9" * 20}, None), ({"retry-after-ms": "250"}, 0.25),
     ({"retry-after": f"Mon, 23 Nov {'9' * 20} 04:00:30 GMT"}, None),
     ({"retry-after": f"Mon, 23 Nov 2026 04:00:30 +{'9' * 12}"}, None),
     ({"retry-after": "Mon, 23 Nov 2026 04:00:30 GMT", "date": "Mon, 23 Nov 2026 04:00:00 GMT"}, 30.0),
     ({"retry-after": "Mon, 23 Nov 2026 04:00:00 GMT", "date": "Mon, 23 Nov 2026 04:00:30 GMT"}, 0.0)],
)  # fmt: skip
def test_an_answer_says_how_long_to_wait(headers: dict[str, str], seconds: float | None):
    assert retry_after(headers) == seconds


def test_pauses_grow_up_to_a_limit_and_half_of_each_is_chance():
    never = RetryPolicy(base=1, cap=3, random=lambda: 0.0)
    always = RetryPolicy(base=1, cap=3, random=lambda: 1.0)
    assert [never.pause(number) for number in (1, 2, 3, 9)] == [0.5, 1.0, 1.5, 1.5]
    assert [always.pause(number) for number in (1, 2, 3, 9)] == [1.0, 2.0, 3.0, 3.0]
