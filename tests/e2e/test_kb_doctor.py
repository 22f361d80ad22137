"""`loom-kb doctor` as a person and a program run it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_SECTIONS = [
    "program", "home", "audit", "keys", "telemetry", "port", "clients", "self-test", "embedders",
]  # fmt: skip


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    # Reading makes the shared memory of a record's log, and the last reader removes it.
    files = [
        path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    ]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def person(tmp_path: Path) -> dict[str, str]:
    """The environment of a person with a home folder of their own, where clients have their files."""
    (tmp_path / "安娜").mkdir()
    nowhere = dict.fromkeys(["XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "LOOM_KB_LLM"], "")
    return {"HOME": str(tmp_path / "安娜"), "USERPROFILE": str(tmp_path / "安娜"), **nowhere}


@pytest.fixture
def doctor(loom_kb: Any, person: dict[str, str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    """Runs `loom-kb doctor --json`; gives its exit code and sections by name."""

    def run(*options: str, **environment: str) -> tuple[int, dict[str, Any]]:
        done = loom_kb("doctor", "--json", *options, env={**person, **environment})
        report = json.loads(done.stdout)
        assert report["healthy"] == (done.returncode == 0)
        return done.returncode, {section["name"]: section for section in report["sections"]}

    return run


def codes(section: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["code"], finding["severity"]) for finding in section["findings"]]


def test_a_fresh_home_is_well_and_stays_as_it_is(loom_kb: Any, person: dict[str, str], home: Path):
    done = loom_kb("doctor", "--port", "0", env=person)
    text = done.stdout.decode()
    assert done.returncode == 0, text
    assert [line for line in text.splitlines() if not line.startswith(" ")][:-1] == _SECTIONS
    assert re.search(r"handshake era loom-kb [\d.]+: \d+ tools in [\d.]+ s, ended", text)
    assert not home.exists()


def test_a_home_that_is_used_is_described_and_not_changed(
    loom_kb: Any, doctor: Any, home: Path, documents: Path, start_kb: Any, until: Any
):
    loom_kb("add", documents / "guide.md", "--kb", "笔记")
    before = contents(home)
    code, sections = doctor()
    assert contents(home) == before
    base = sections["knowledge base 笔记"]
    assert (code, base["facts"]["documents"], codes(base)) == (0, 1, [])
    server = start_kb()
    server.call("query", query="guide")
    until(lambda: any(home.glob("kb/*/owner.json")))
    base = doctor()[1]["knowledge base 笔记"]
    assert codes(base) == [("held", "ok")]
    assert f"loom-kb (process {server.process.pid})" in base["facts"]["held_by"]
    assert server.call("query", query="guide")["content"]


def test_what_is_wrong_is_told_with_what_to_do_and_without_secrets(
    loom_kb: Any, doctor: Any, home: Path, documents: Path, tmp_path: Path
):
    loom_kb("add", documents / "guide.md", "--kb", "notes")
    (graph,) = (home / "kb" / "notes").glob("graph-*")
    graph.write_bytes(b"\x00garbage" * 4096)
    person = tmp_path / "安娜"
    (person / ".cursor").mkdir()
    (person / ".cursor" / "mcp.json").write_text('{\n  "mcpServers": {"知识": }\n}', encoding="utf-8")
    entry = {"command": str(person / "gone" / "loom-kb"), "env": {"DEEPSEEK_API_KEY": "sk-in-the-entry"}}
    (person / ".claude.json").write_text(json.dumps({"mcpServers": {"kb": entry}}), encoding="utf-8")
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, sections = doctor(
            *("--llm", "deepseek", "--port", str(port)),
            MOONSHOT_API_KEY="sk-moonshot-0123456789",
            DEEPSEEK_API_KEY="",
            PYTHON_KEYRING_BACKEND="keyring.backends.null.Keyring",
        )
    assert time.monotonic() - began < 60
    assert code == 1
    assert codes(sections["port"]) == [("port-taken", "warning")]
    if sys.platform == "linux":
        assert f"(process {os.getpid()})" in sections["port"]["findings"][0]["message"]
    assert codes(sections["clients"]) == [("command-missing", "problem"), ("broken-config", "problem")]
    told = [finding["message"] for finding in sections["clients"]["findings"]]
    assert told[0] == "Claude Code starts 'kb' by ~/gone/loom-kb, and there is no such command."
    assert told[1].startswith("Cursor cannot read ~/.cursor/mcp.json:2:24: ")
    assert codes(sections["language model"]) == [("model-unusable", "problem")]
    assert codes(sections["knowledge base notes"]) == [("index-damaged", "problem")]
    assert sections["keys"]["facts"]["set"] == ["MOONSHOT_API_KEY"]
    findings = [finding for section in sections.values() for finding in section["findings"]]
    assert all(finding["remedy"] for finding in findings if finding["severity"] != "ok")
    assert all("\n" not in finding["message"] + finding["remedy"] for finding in findings)
    everything = json.dumps(sections, ensure_ascii=False)
    assert "sk-moonshot" not in everything
    assert "sk-in-the-entry" not in everything
    assert str(person) not in everything


def test_a_home_that_is_a_file_and_a_model_that_is_no_json_hide_nothing_else(doctor: Any, home: Path):
    home.write_text("in the way", encoding="ascii")
    code, sections = doctor("--llm", '{"api_key": "sk-0123456789abcdef')
    assert code == 1
    assert codes(sections["home"]) == [("home-unwritable", "problem")]
    assert codes(sections["language model"]) == [("model-unusable", "problem")]
    assert codes(sections["program"]) == [("program", "ok")]
    assert "0123456789abcdef" not in json.dumps(sections)


def test_an_older_python_is_told_in_two_lines():
    code = (
        "import runpy, sys; sys.version_info = (3, 9, 18); sys.argv = ['loom-kb'];"
        " runpy.run_module('loom_kb', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "loom-kb needs Python 3.11 or newer, and this is 3.9.",
        "  Install it with another Python: uv tool install --python 3.12 loom-kb",
    ]
