"""Whatever a pattern and a message are, something sensible comes of them."""

from __future__ import annotations

import time
import unicodedata
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core.errors import ConfigError
from loom_core.flow.triggers import TriggerMatch, TriggerMatcher, check_pattern
from loom_core.flow.triggers.pattern_text import NormalText, translate_pattern

pytestmark = pytest.mark.slow

_PIECES = [
    *(
        "(",
        ")",
        "(?:",
        "(?=",
        "(?<!",
        "(?P<n>",
        "(?P<天>",
        "(?P=n)",
        "(?i)",
        "(?#",
        "[",
        "[^",
        "]",
        "-",
        "*",
        "+",
    ),
    *("?", "{2}", "{1,3}", "{,2}", "{1000}", "{", "}", "|", "^", "$", ".", "\\", "\\b", "\\B", "\\w", "\\W"),
    *("\\d", "\\S", "\\1", "\\k<n>", "\\Q", "\\E", "\\x41", "\\x{8bf7}", "\\u8bf7", "\\Z", "\\p{L}", "\\pN"),
    *(
        "\\C",
        "请",
        "假",
        "（",
        "）",
        "？",
        "＊",
        "［",
        "㎏",
        "請",
        "a",
        "B",
        "1",
        " ",
        "\n",
        "é",
        "e\u0301",
        "\ud800",
    ),
]
_PATTERNS = st.lists(st.sampled_from(_PIECES), max_size=12).map("".join) | st.text(max_size=20)
_MESSAGES = st.text(max_size=40) | st.lists(
    st.sampled_from(["请", "假", "a", "㎏", "か\u3099", "\ud800", " "])
).map("".join)


def _flow(pattern: str) -> SimpleNamespace:
    return SimpleNamespace(
        flow_id="f", trigger_patterns=[pattern], priority=0, enabled=True, only_informs=False
    )


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(pattern=_PATTERNS, message=_MESSAGES)
def test_any_pattern_is_compiled_or_refused_and_never_printed_and_never_hangs(
    capfd: pytest.CaptureFixture[str], pattern: str, message: str
) -> None:
    began = time.process_time()
    matches: list[TriggerMatch] = []
    with suppress(ConfigError):
        matches = TriggerMatcher([_flow(pattern)]).match(message)
    assert time.process_time() - began < 1
    assert capfd.readouterr() == ("", "")
    for match in matches:
        assert 0 <= match.start <= match.end <= len(message)
        assert all(text in message for text in match.groups.values())


@settings(max_examples=300)
@given(pattern=_PATTERNS, message=_MESSAGES)
def test_with_or_without_counts_the_set_never_loses_a_match(pattern: str, message: str) -> None:
    """The set is asked first, and what it does not name is not looked at."""
    import re2

    try:
        check_pattern(pattern)
        text = translate_pattern(pattern)
    except ConfigError:
        return
    if text.backtracking:
        return
    options = re2.Options()
    options.case_sensitive = False
    form = NormalText.of(message).text
    if re2.compile(text.exact, options).search(form):
        assert re2.compile(text.loose, options).search(form)


@settings(max_examples=300)
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs", "Cn"]), min_size=1, max_size=20))
def test_a_message_is_found_by_itself_as_a_pattern(text: str) -> None:
    pattern = "".join(f"\\{char}" if char in "\\.+*?()|[]{}^$" else char for char in text)
    if not text.strip() or text != text.strip():
        return
    matches = TriggerMatcher([_flow(pattern)]).match(f"〇 {text}")
    assert len(matches) == 1


@settings(max_examples=500)
@given(st.text(max_size=60), st.data())
def test_every_part_of_the_form_has_its_place_in_the_message(message: str, data: st.DataObject) -> None:
    normal = NormalText.of(message)
    start = data.draw(st.integers(0, len(normal.text)))
    end = data.draw(st.integers(start, len(normal.text)))
    first, last = normal.span(start, end)
    assert 0 <= first <= last <= len(message)
    if start < end:
        source = unicodedata.normalize("NFKC", message[first:last].encode("utf-8", "replace").decode())
        assert len(NormalText.of(source).text) >= len(normal.text[start:end].strip())
    assert normal.span(0, len(normal.text))[0] == (
        len(message) - len(message.lstrip()) if normal.text else first
    )
