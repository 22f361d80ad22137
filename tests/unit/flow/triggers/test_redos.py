"""Patterns made to take for ever, on messages made for them: each is refused at load or takes 5 ms at most.

What counts is the processor's time of this thread, warm, and the best of a few: so that it does not depend on
what else the machine does. A pattern that goes wrong takes seconds, or as good as for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from types import SimpleNamespace

import pytest

from loom_core.errors import ConfigError
from loom_core.flow.triggers import TriggerMatcher
from loom_core.flow.triggers.engines import compile_pattern

pytestmark = pytest.mark.hostile("patterns")

_SECONDS = 0.005
_TRIES = 5
_RANDOM = Random(9)

# What each pattern is, and of what the message for it is made.
_CORPUS: list[tuple[str, str, str]] = [
    # nested repetitions
    (r"(a+)+$", "a", "!"),
    (r"(a*)*b", "a", "!"),
    (r"(a+)*$", "a", "!"),
    (r"((a+)+)+x", "a", "!"),
    (r"(?:a+)+(?:a+)+x", "a", "!"),
    (r"([a-zA-Z]+)*$", "a", "1"),
    (r"(\w+\s?)*$", "aa ", "!"),
    (r"(\w*)+!$", "请", "?"),
    (r"(请+)+假$", "请", "!"),
    (r"(请假?)+了$", "请假", "!"),
    (r"(?:[一-龥]+)+$", "请", "!"),
    (r"((\d+)+)+元", "1", "x"),
    (r"(.*)*x", "a", ""),
    (r"(.+)+x", "a", ""),
    (r"(.*?,){20}P", "1,", ""),
    (r"^(.*?,){11}P", "1,", ""),
    (r"(x+x+)+y", "x", ""),
    # overlapping alternatives
    (r"(a|a)*$", "a", "!"),
    (r"(a|aa)+$", "a", "!"),
    (r"(a|a?)+$", "a", "!"),
    (r"(请|请请)+假", "请", "!"),
    (r"(?:a|b|ab)*c", "ab", "!"),
    (r"(\d|\w)+#", "1", "!"),
    (r"(.|\s)*#", "a", "!"),
    (r"([a-z]|[a-c])+\d$", "a", "!"),
    # repetitions next to each other
    (r".*.*.*x", "a", ""),
    (r".*.*.*.*.*=.*", "x", ""),
    (r"\s*\s*\s*\s*x", "\t", "!"),
    (r"a*a*a*a*a*a*b", "a", "!"),
    (r"\d+\d+\d+\d+\d+x", "1", "!"),
    (r"[请假]*[请天]*[请了]*完", "请", "!"),
    (r"(?:.*申请.*假.*天.*)+$", "申请假天", ""),
    (r"^\s+|\s+$x", " a", "!"),
    # known from incidents and advisories
    (r"(?:(?:\"|'|\]|\}|\\|\d|(?:nan|infinity|true|false|null|undefined|symbol|math)|\`|\-|\+)+[)]*;?"
     r"((?:\s|-|~|!|{}|\|\||\+)*.*(?:.*=.*)))", "x=", ""),
    (r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$",
     "a", "!"),
    (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a", "1"),
    (r"<!--.*-->.*<!--.*-->.*x", "<!-- -->", ""),
    (r"^(\w+\.)*\w+@(\w+\.)+com$", "a.", "@"),
    (r"(https?://)?([\w.-]+/?)*\.html#", "a/", ""),
    (r"^([01]?\d\d?|2[0-4]\d|25[0-5])(\.([01]?\d\d?|2[0-4]\d|25[0-5]))*z$", "1.", ""),
    # counted repetitions, of which an automaton needs a state each
    (r"a[ab]{100}c", "ab", ""),
    (r"(?:a|b)*a(?:a|b){300}c", "ab", ""),
    (r"请[请假]{30}了", "请假", ""),
    (r"请.{100}了", "请假", ""),
    (r"(a?){30}a{30}", "a", "!"),
    (r"((a{1,30}){1,30})b", "a", "!"),
    (r"(?:a.{0,30}b.{0,30}c)", "ab", ""),
    (r"(\w{1,100},){1,10}#", "a", ""),
    (r"[\pL\pN]{300}#", "请a", ""),
    (r"((((a{10}){10}){10}){10})", "a", ""),
    (r"(.{1,1000}){2}x", "a", ""),
    # automata with more states than memory
    (r"(?:a|b)*a" + "(?:a|b)" * 60 + "c", "ab", ""),
    (r"[ab]*b[ab]*a[ab]{20}c[ab]*", "ab", ""),
    # what only goes back and forth
    (r"(a+)+(?=b)", "a", "!"),
    (r"(?=(a+))a*b\1", "a", "!"),
    (r"^(?=(a+)+$)x", "a", "!"),
    (r"(a|aa)+(?!b)$", "a", "!"),
    (r"(?<!x)(a+)+$", "a", "!"),
    (r"(.*)\1\1\1x", "a", ""),
    (r"(\w+)\s+\1\s+\1(\w*)*#", "请 ", ""),
    (r"^(?=.*请)(?=.*假)(?=.*天)(?:.*.*)*#", "请假天", ""),
    (r"(?>a+)*(?=b)(a*)*c", "a", ""),
]  # fmt: skip


def _flow(pattern: str) -> SimpleNamespace:
    return SimpleNamespace(
        flow_id="hostile", trigger_patterns=[pattern], priority=0, enabled=True, only_informs=False
    )


def _messages(unit: str, tail: str) -> list[str]:
    """Both regular and irregular ones, shorter and as long as is read."""
    made = [(unit * (4100 // len(unit)))[: length - len(tail)] + tail for length in (30, 300, 4096)]
    irregular = "".join(_RANDOM.choice(unit) for _ in range(4096 - len(tail)))
    return [*made, irregular + tail]


def test_the_corpus_is_large_enough() -> None:
    assert len({pattern for pattern, _, _ in _CORPUS}) == len(_CORPUS) >= 50


@pytest.mark.parametrize(("pattern", "unit", "tail"), _CORPUS)
def test_a_hostile_pattern_is_refused_or_takes_milliseconds(
    pattern: str, unit: str, tail: str, least_processor_time: Callable[[Callable[[], object]], float]
) -> None:
    made: list[TriggerMatcher] = []

    def make() -> None:
        compile_pattern.cache_clear()
        with suppress(ConfigError):
            made.append(TriggerMatcher([_flow(pattern)]))

    assert least_processor_time(make) < 0.5
    if not made:
        return
    matcher = made[-1]
    for message in _messages(unit, tail):
        matcher.match(message)
        took: list[float] = []
        while len(took) < _TRIES and min(took, default=1.0) > _SECONDS:
            began = time.thread_time()
            matcher.match(message)
            took.append(time.thread_time() - began)
        assert min(took) <= _SECONDS, f"{1000 * min(took):.1f} ms for {len(message):,} characters"
