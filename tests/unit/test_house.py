"""tools/house.py: each kind of fault is found where it is planted, and nothing where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.house import main

_ROOT = Path(__file__).parents[2]
_MODULE = '"""A noun."""\n\nfrom __future__ import annotations\n\n__all__ = ["x"]\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A working tree without a fault: our pins and projects, two modules, a page."""
    shutil.copytree(_ROOT / "requirements", tmp_path / "requirements")
    for name in ("pyproject.toml", "servers/kb/pyproject.toml", "servers/flow/pyproject.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(_ROOT / name, tmp_path / name)
    for name in ("loom_core/noun.py", "servers/kb/loom_kb/noun.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(_MODULE, encoding="utf-8")
    (tmp_path / "loom_core" / "__init__.py").touch()
    (tmp_path / "servers" / "kb" / "loom_kb" / "cli.py").write_text(f"{_MODULE}print(1)\n", encoding="utf-8")
    (tmp_path / "README.md").write_text("# Loom 织机\n", encoding="utf-8")
    return tmp_path


@pytest.fixture
def found(tree: Path, capsys: pytest.CaptureFixture[str]) -> Callable[[], list[str]]:
    """The lines that the program prints about that tree."""

    def check() -> list[str]:
        status = main([str(tree)])
        lines = capsys.readouterr().out.splitlines()
        assert status == bool(lines)
        return lines

    return check


def test_a_tree_without_a_fault_passes(found) -> None:
    assert found() == []


@pytest.mark.parametrize(
    ("path", "text", "fault"),
    [
        ("servers/kb/loom_kb/noun.py", _MODULE + "x = 1\n" * 800, "longer than 800 lines"),
        ("servers/kb/loom_kb/utils.py", _MODULE, "a vague name"),
        ("loom_core/common/noun.py", _MODULE, "a vague name"),
        ("loom_core/noun.py", '__all__ = ["x"]\n', "begins without"),
        ("loom_core/noun.py", "from __future__ import annotations\n", "has no __all__"),
        ("loom_core/noun.py", f"{_MODULE}def x():\n    print(1)\n", "prints (line 7)"),
        ("loom_core/noun.py", f"{_MODULE}import sys\n\nx = sys.argv\n", "reads the command line (line 8)"),
        ("servers/kb/loom_kb/noun.py", f"{_MODULE}x = kb.store.jobs\n", "reaches into a store (line 6)"),
        ("README.md", "from https://" + "pypi" + ".org", "names " + "pypi" + ".org"),
        (".ci/run", "cd /" + "root/loom", "names /" + "root/"),
        ("docs/下载.md", "registry." + "npmjs" + ".org", "names " + "npmjs" + ".org"),
    ],
)  # fmt: skip
def test_what_a_file_does_is_found(tree, found, path, text, fault) -> None:
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text(text, encoding="utf-8")
    (line,) = found()
    assert line.startswith(f"{path}: {fault}")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("loom_core/sheet_reader.py", f"{_MODULE}import sys\n\nsys.argv\n"),
        ("servers/kb/loom_kb/__main__.py", "from __future__ import annotations\n"),
        ("servers/kb/loom_kb/demo_documents/utils.py", "print()\n"),
        (".venv/notes.txt", "pypi" + ".org"),
        (".ci/work/notes.txt", "pypi" + ".org"),
        ("uv.lock", "pypi" + ".org"),
    ],
)
def test_what_is_allowed_or_not_ours_is_no_fault(tree, found, path, text) -> None:
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text(text, encoding="utf-8")
    assert found() == []


@pytest.mark.parametrize(
    ("path", "old", "new", "fault"),
    [
        ("requirements/loom-kb.txt", "anyio==", "anyio==0.", "anyio is not of the version that dev.txt pins"),
        ("requirements/dev.txt", " \\\n    --hash", "\n    # hash", "of"),
        ("servers/kb/pyproject.toml", '\nversion = "', '\nversion = "9.', "is of version 9."),
        ("servers/flow/pyproject.toml", '"loom-mcp-core', '"mcp-core', "does not require the core"),
        ("servers/flow/pyproject.toml", "]==", "]>=", "is not =="),
    ],
)
def test_pins_and_versions_that_do_not_agree_are_found(tree, found, path, old, new, fault) -> None:
    text = (tree / path).read_text(encoding="utf-8")
    assert old in text
    (tree / path).write_text(text.replace(old, new), encoding="utf-8")
    lines = found()
    assert lines
    assert all(line.startswith(f"{path}: ") or "dev.txt pins" in line for line in lines)
    assert fault in lines[0]


def test_a_file_of_few_pins_is_no_list_of_pins(tree, found) -> None:
    (tree / "requirements" / "loom-flow-server.txt").write_text("# made by tools/pin.sh\n", encoding="utf-8")
    assert found() == ["requirements/loom-flow-server.txt: has 0 pins only"]
