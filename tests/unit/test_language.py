"""The program that counts how code and docs speak."""

from __future__ import annotations

from pathlib import Path

from tools import language


def test_a_word_of_the_deny_list_is_told_with_its_place(tmp_path: Path):
    (tmp_path / "docs").mkdir()
    word = language.DENIED[0]
    (tmp_path / "docs" / "page.md").write_text(f"Fine.\n\nTry it {word}.\n", encoding="utf-8")
    (fault,) = language.find_denied(tmp_path)
    assert fault == f"docs/page.md:3: `{word}` is no plain English"


def test_figures_are_of_functions_and_docstrings(tmp_path: Path):
    (tmp_path / "loom_core").mkdir()
    (tmp_path / "loom_core" / "house.py").write_text(
        '"""What a house is."""\n\n\ndef told():\n    """Tell."""\n\n\ndef embed():\n    pass\n',
        encoding="utf-8",
    )
    figures = language.figures(tmp_path)
    assert figures["functions, no properties"] == "2"
    assert figures["named by a past participle"] == "1 (50.0%)"
    assert figures['that begin with "What"'] == "1"
