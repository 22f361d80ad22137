"""The lint program for the language of code and docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import language


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text, encoding="utf-8")


def test_a_word_of_the_deny_list_is_reported_with_its_place(tmp_path: Path):
    word = language.DENIED[0]
    write(tmp_path, "docs/page.md", f"Fine.\n\nTry it {word}.\n")
    assert language.faults(tmp_path) == [f"docs/page.md:3: `{word}` is no plain English"]


def test_a_generated_page_is_checked_as_well(tmp_path: Path):
    write(tmp_path, "docs/reference/page.md", f"{language.DENIED[1].title()} it.\n")
    (fault,) = language.faults(tmp_path)
    assert fault.startswith("docs/reference/page.md:1: ")


def test_two_words_of_the_deny_list_may_be_on_two_lines(tmp_path: Path):
    words = language.DENIED[6]
    write(tmp_path, "README.md", f"Two {words.rpartition(' ')[0]}\n{words.rpartition(' ')[2]}.\n")
    assert language.faults(tmp_path) == [f"README.md:1: `{words}` is no plain English"]


@pytest.mark.parametrize(
    ("name", "mark"), [("page.md", "<!-- plain-english: data -->"), ("test_page.py", "# plain-english: data")]
)
def test_a_line_marked_as_data_is_left_out(tmp_path: Path, name: str, mark: str):
    word = language.DENIED[2]
    write(tmp_path, f"tests/{name}", f"ask({word!r})  {mark}\nask({word!r})\n")
    assert language.faults(tmp_path) == [f"tests/{name}:2: `{word}` is no plain English"]
    assert language.figures(tmp_path)[f'"{word}"'] == "1"


def test_a_docstring_that_begins_with_what_is_a_fault(tmp_path: Path):
    write(tmp_path, "loom_core/house.py", '"""A house."""\n\n\nclass House:\n    """What a house is."""\n')
    assert language.faults(tmp_path) == ['loom_core/house.py:5: a docstring that begins with "What"']


def test_too_many_participles_are_a_fault(tmp_path: Path):
    verbs = "".join(f"def run_{n}(): ...\n" for n in range(94))
    write(tmp_path, "loom_core/house.py", verbs + "".join(f"def told_{n}(): ...\n" for n in range(6)))
    assert language.faults(tmp_path) == []
    write(tmp_path, "loom_core/house.py", verbs + "".join(f"def told_{n}(): ...\n" for n in range(7)))
    (fault,) = language.faults(tmp_path)
    assert fault.startswith("7 of 101 functions (6.9%) are named by a past participle")


def test_the_exit_code_says_whether_there_are_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(language, "faults", list[str])
    assert language.main(["--check"]) == 0
    monkeypatch.setattr(language, "faults", lambda: ["README.md:1: a fault"])
    assert language.main(["--check"]) == 1
    assert capsys.readouterr().out == "README.md:1: a fault\n"


def test_figures_are_of_functions_and_docstrings(tmp_path: Path):
    code = '"""What a house is."""\n\n\ndef told():\n    """Tell."""\n\n\ndef embed():\n    pass\n'
    write(tmp_path, "loom_core/house.py", code)
    figures = language.figures(tmp_path)
    assert figures["functions, no properties"] == "2"
    assert figures["named by a past participle"] == "1 (50.0%)"
    assert figures['that begin with "What"'] == "1"
