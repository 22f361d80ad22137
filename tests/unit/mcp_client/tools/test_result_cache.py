from __future__ import annotations

from loom_core.mcp_client.tools.result_cache import ResultCache
from loom_core.tools.interface import OutputFile, ToolOutput

_OUTPUT = ToolOutput("答案")


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_an_answer_counts_until_its_time_is_up() -> None:
    clock = _Clock()
    cache = ResultCache(clock=clock)
    cache.put("a", {"q": 1, "p": 2}, _OUTPUT, ttl_ms=2000)

    assert cache.get("a", {"p": 2, "q": 1}) is _OUTPUT
    clock.now = 2.0
    assert cache.get("a", {"p": 2, "q": 1}) is None


def test_another_tool_and_other_arguments_have_other_answers() -> None:
    cache = ResultCache()
    cache.put("a", {"q": 1}, _OUTPUT, ttl_ms=1000)

    assert cache.get("b", {"q": 1}) is None
    assert cache.get("a", {"q": "1"}) is None
    assert cache.get("a", {"q": True}) is None


def test_failures_and_answers_without_a_time_are_not_kept() -> None:
    cache = ResultCache()
    cache.put("a", {}, _OUTPUT, ttl_ms=0)
    cache.put("b", {}, ToolOutput("x", is_error=True), ttl_ms=1000)

    assert (cache.get("a", {}), cache.get("b", {})) == (None, None)


def test_a_day_is_the_longest() -> None:
    clock = _Clock()
    cache = ResultCache(clock=clock)
    cache.put("a", {}, _OUTPUT, ttl_ms=10**15)
    clock.now = 24 * 3600

    assert cache.get("a", {}) is None


def test_what_was_used_longest_ago_makes_room() -> None:
    cache = ResultCache(characters=1000)
    for name in "abcdefghij":
        cache.put(name, {}, ToolOutput("x" * 90), ttl_ms=1000)
        cache.get("a", {})
    cache.put("k", {}, ToolOutput("x" * 90), ttl_ms=1000)

    assert cache.get("a", {}) is not None
    assert cache.get("b", {}) is None
    assert cache.get("k", {}) is not None


def test_a_large_answer_is_not_kept() -> None:
    cache = ResultCache(characters=1000)
    cache.put("a", {}, ToolOutput("", {"rows": ["x" * 200]}), ttl_ms=1000)
    cache.put("b", {}, ToolOutput("", files=(OutputFile(b"x" * 200),)), ttl_ms=1000)

    assert (cache.get("a", {}), cache.get("b", {})) == (None, None)


def test_a_newer_answer_takes_the_place_of_the_older() -> None:
    cache = ResultCache(characters=1000)
    for number in range(100):
        cache.put("a", {}, ToolOutput(f"{number}" * 20), ttl_ms=1000)

    kept = cache.get("a", {})
    assert kept is not None
    assert kept.text == "99" * 20
