"""The documents that `loom-kb demo` is built from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loom_core.knowledge.ingest.loaders import load_file

_FOLDER = Path(__file__).parents[2] / "servers" / "kb" / "loom_kb" / "demo_documents"
_TITLES = {
    "ada-lovelace.md": "Ada Lovelace",
    "babbage-analytical-engine.html": "The Analytical Engine",
    "canuts-of-lyon.docx": "The canuts of Lyon",
    "core-rope-memory.pdf": "Core rope memory",
    "draw-loom.html": "The draw loom",
    "hollerith-tabulating-machine.md": "Hollerith's tabulating machine",
    "jacquard-machine.md": "The Jacquard machine",
    "punched_cards.py": "punched cards",
    "timeline.csv": "timeline",
    "丝绸之路.md": "丝绸之路",
    "天工开物与花机.md": "《天工开物》与花机",
    "老官山汉墓织机.html": "老官山汉墓织机",
}


def _documents() -> list[Path]:
    return sorted(path for path in _FOLDER.iterdir() if path.is_file())


def test_all_documents_are_known_and_small() -> None:
    assert {path.name for path in _documents()} == set(_TITLES)
    assert sum(path.stat().st_size for path in _documents()) < 150_000


@pytest.mark.parametrize("path", _documents(), ids=lambda path: path.name)
def test_document_loads_with_its_title_and_structure(path: Path) -> None:
    draft = load_file(path)
    assert draft.title == _TITLES[path.name]
    assert len(draft.blocks) > 3
    assert "\ufffd" not in draft.text


@pytest.mark.parametrize("name", ["canuts-of-lyon.docx", "core-rope-memory.pdf"])
def test_headings_of_the_binary_documents_are_found(name: str) -> None:
    headings = [block for block in load_file(_FOLDER / name).blocks if block.kind == "heading"]
    assert len(headings) >= 3


def test_the_examples_in_the_python_document_are_right() -> None:
    command = [sys.executable, "-B", "-m", "doctest", str(_FOLDER / "punched_cards.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
