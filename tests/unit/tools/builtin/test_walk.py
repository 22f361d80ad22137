from __future__ import annotations

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import InvalidInputError
from loom_core.tools.builtin.walk import name_matcher
from loom_core.tools.patterns import text_search


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/deep/a.py", True),
        ("./*.py", "src/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/deep/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/deep/er/a.py", True),
        ("**", "any/thing", True),
        ("?.md", "港.md", True),
        ("?.md", "港口.md", False),
        ("*.{py,md}", "docs/读我.md", True),
        ("*.{py,md}", "docs/读我.txt", False),
        ("[!a]*", "b1", True),
        ("[!a]*", "a1", False),
        ("[a-c]x", "bx", True),
        ("a+b (1).txt", "a+b (1).txt", True),
        ("A.py", "a.py", False),
    ],
)
def test_globs_mean_what_people_expect(glob: str, path: str, fits: bool) -> None:
    assert name_matcher(glob)(path) is fits


@pytest.mark.parametrize("glob", ["[ab", "{a,b", "x{a"])
def test_an_open_bracket_is_told(glob: str) -> None:
    with pytest.raises(InvalidInputError, match="not closed"):
        name_matcher(glob)


@given(st.text(alphabet="ab*?[]{}!,./\\^-文&~", max_size=30), st.text(max_size=20))
def test_any_glob_is_used_or_refused(glob: str, path: str) -> None:
    with suppress(InvalidInputError):
        name_matcher(glob)(path)


@given(st.text(alphabet="ab/.文-[", min_size=1, max_size=20))
def test_a_name_without_wildcards_fits_itself(name: str) -> None:
    literal = "".join(f"[{char}]" if char == "[" else char for char in name)
    if literal == name and not name.startswith(("./", "/")) and name.strip():
        assert name_matcher(name)(name)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "unclosed group"),
        ("(?=a)", "look-around"),
        (r"(a)\1", "backreferences"),
        ("a{999}{999}{999}", "size limit"),
        ("x" * 1001, "more than 1,000 characters"),
    ],
)
def test_an_expression_that_cannot_be_used_is_told_why(pattern: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        text_search(pattern)


@pytest.mark.hostile("patterns")
def test_no_expression_takes_longer_than_the_text_allows() -> None:
    begun = time.thread_time()
    assert not text_search("(a+)+$")("a" * 50_000 + "b")
    assert time.thread_time() - begun < 2


def test_case_is_ignored_in_any_script() -> None:
    assert text_search("ÄPFEL|МОСКВА", ignore_case=True)("die äpfel")
    assert not text_search("ÄPFEL")("die äpfel")
