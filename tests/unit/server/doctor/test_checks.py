"""The checks of `doctor` for any server: packages, clients, folder, telemetry; a report tells no secret."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loom_core import TELEMETRY_SWITCHES
from loom_core.server.cli.health import HealthReport, HealthSection, problem
from loom_core.server.doctor.checks import (
    RunningPython,
    home_section,
    hosts_section,
    paste_safe,
    program_section,
    telemetry_section,
)
from loom_core.server.install.clients import Machine


def test_importing_loom_has_switched_it_off(tmp_path: Path):
    section = telemetry_section(user_home=tmp_path)
    assert [(found.code, found.severity) for found in section.findings] == [("telemetry", "ok")]
    assert section.facts == {"switches": [f"{name}={value}" for name, value in TELEMETRY_SWITCHES.items()]}


@pytest.mark.parametrize(
    ("variable", "value", "is_off"),
    [
        ("ORT_DISABLE_TELEMETRY", "0", False),
        ("ORT_DISABLE_TELEMETRY", " True ", True),
        ("ORT_DISABLE_TELEMETRY", "关", False),  # onnxruntime does not take it for true
        ("ANONYMIZED_TELEMETRY", "true", False),
        ("ANONYMIZED_TELEMETRY", "no", True),
    ],
)
def test_a_switch_that_the_environment_turns_back_on_is_told(
    variable: str, value: str, is_off: bool, tmp_path: Path
):
    section = telemetry_section(environment={**TELEMETRY_SWITCHES, variable: value}, user_home=tmp_path)
    [found] = section.findings
    assert found.code == ("telemetry" if is_off else "telemetry-on")
    assert is_off or f"{variable}={value}" in found.message


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="on Windows the system keeps reports")
def test_reports_that_onnxruntime_has_left_are_told_and_stay(tmp_path: Path):
    caches = tmp_path / ("Library/Application Support" if sys.platform == "darwin" else ".cache")
    reports = caches / "Microsoft" / "DeveloperTools" / ".onnxruntime"
    reports.mkdir(parents=True)
    (reports / "deviceid").write_text("5c60ffbc", encoding="ascii")
    [_, found] = telemetry_section(environment=TELEMETRY_SWITCHES, user_home=tmp_path).findings
    assert (found.code, found.severity) == ("telemetry-reports", "warning")
    assert str(reports) in found.message
    assert "Delete that folder" in found.remedy
    assert (reports / "deviceid").exists()
    if sys.platform == "linux":  # where caches can be elsewhere
        moved = {**TELEMETRY_SWITCHES, "XDG_CACHE_HOME": str(tmp_path / "elsewhere")}
        assert len(telemetry_section(environment=moved, user_home=tmp_path).findings) == 1


def pasted(text: str, *, home: str = "/home/安娜", environment: dict[str, str] | None = None) -> str:
    section = HealthSection(
        name="x",
        facts={"a": text, "list": [text], "by": {"name": {"deep": text}}, "count": 3},
        findings=[problem("x", text, text)],
    )
    report = HealthReport(program="loom-x", version="1", sections=[section])
    [safe] = paste_safe(report, home=Path(home), environment=environment or {}).sections
    texts = [safe.facts["a"], safe.facts["list"][0], safe.facts["by"]["name"]["deep"]]
    texts += [safe.findings[0].message, safe.findings[0].remedy]
    assert len(set(texts)) == 1
    assert safe.facts["count"] == 3
    return texts[0]


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("/home/安娜/.loom/kb and /home/安娜", "~/.loom/kb and ~"),
        ("/home/安娜2/.loom, /data/home/x", "/home/安娜2/.loom, /data/home/x"),
        ("file:///home/安娜/notes.md", "file://~/notes.md"),
        ("Authorization: Bearer abcdef.0123456789", "Authorization: Bearer [secret]"),
        ("sk-proj-0123456789abcdefghij is wrong", "[secret] is wrong"),
        ("https://anna:geheim@host/mcp?api_key=abcdef12", "https://[secret]@host/mcp?api_key=[secret]"),
        ('{"provider": "x", "api_key": "0123456789"}', '{"provider": "x", "api_key": "[secret]"}'),
        ("set api_key=env:DEEPSEEK_API_KEY", "set api_key=env:DEEPSEEK_API_KEY"),
        ("ghp_0123456789abcdefABCDEF", "[secret]"),
        ("knowledge base sk-learn-notes-of-anna, skeletons_of_the_museum", None),
        ("put it into the environment variable OPENAI_API_KEY", None),
        ("Port 8765 is taken by python (process 12).", None),
        ("/opt/venv/bin/loom-kb serve --home /data", None),
    ],
)
def test_secrets_and_the_home_folder_are_left_out_and_nothing_else(text: str, safe: str | None):
    assert pasted(text) == (text if safe is None else safe)


def test_values_of_secret_variables_are_left_out_wherever_they_stand():
    environment = {"X_API_KEY": "kein-schema-erkannt", "MY_TOKEN": "1", "PLAIN": "process"}
    assert pasted("process 1 has kein-schema-erkannt", environment=environment) == "process 1 has [secret]"


def test_a_user_without_a_home_folder_sees_whole_paths():
    assert pasted("/var/lib/loom", home="/") == "/var/lib/loom"


def test_a_user_of_a_server_is_no_home_folder():
    assert pasted("milvus+http://root@host:19530", home="/root") == "milvus+http://root@host:19530"


Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Puts a distribution without code on the path."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(name: str, version: str = "1.0", *, requires: tuple[str, ...] = (), python: str = "") -> None:
        folder = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Python: {python}"] if python else []
        lines += [f"Requires-Dist: {requirement}" for requirement in requires]
        (folder / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")

    return make


def test_an_installation_that_has_what_it_requires_is_fine():
    section = program_section("loom-mcp-core")
    assert [found.severity for found in section.findings] == ["ok"], section.findings
    assert section.facts["packages"]["mcp"].startswith("2.")
    assert "bits) on" in section.facts["python"]


def test_a_package_that_is_missing_is_a_problem_and_told_once(install: Install):
    install("loom-x", requires=("part-a>=1", "part-b"))
    install("part-a", requires=("nowhere-to-be-found",))
    install("part-b", requires=("nowhere-to-be-found>=2",))
    [found] = program_section("loom-x").findings
    assert (found.code, found.severity) == ("package-missing", "problem")
    assert found.message == "nowhere-to-be-found is not installed, which part-a requires."
    assert found.remedy.endswith("uv tool install --force loom-x")


def test_a_wrong_version_is_a_problem_where_loom_requires_it_and_else_a_warning(install: Install):
    install("loom-x", requires=("part-a>=2,<3", "part-b"))
    install("part-a", "1.5")
    install("part-b", requires=("part-c==1.*",))
    install("part-c", "2.0")
    section = program_section("loom-x")
    assert [(found.code, found.severity) for found in section.findings] == [
        ("package-version", "problem"),
        ("package-version", "warning"),
    ]
    assert section.findings[0].message == "part-a is of version 1.5 and not <3,>=2, which loom-x requires."
    assert section.facts["packages"] == {"part-a": "1.5", "part-b": "1.0"}


def test_what_other_machines_and_extras_no_one_asked_for_require_does_not_matter(install: Install):
    install("loom-x", requires=('gone-a; sys_platform == "nowhere"', "part-a[wanted]", "not a requirement !"))
    install("part-a", requires=('part-b; extra == "wanted"', 'gone-b; extra == "other"'))
    install("part-b", requires=("part-a",))  # in a circle
    assert [found.severity for found in program_section("loom-x").findings] == ["ok"]


def test_a_program_that_is_not_installed_says_so():
    [found] = program_section("loom-nowhere").findings
    assert (found.code, found.remedy) == ("package-missing", "Install it: uv tool install loom-nowhere")


@pytest.mark.parametrize(
    ("change", "severity", "told"),
    [
        ({"version": "3.10.14"}, "problem", "Python 3.10.14 is not >=3.11, which loom-x requires."),
        ({"version": "3.15.0a1"}, "ok", "meet the requirements"),
        ({"bits": 32}, "problem", "32-bit"),
        ({"implementation": "PyPy"}, "warning", "is PyPy"),
    ],
)
def test_a_python_that_does_not_fit_is_told(
    install: Install, change: dict[str, object], severity: str, told: str
):
    install("loom-x", python=">=3.11")
    python = replace(RunningPython("3.12.1", "CPython", "Linux", "x86_64", 64), **change)
    [found] = program_section("loom-x", interpreter=python).findings
    assert found.severity == severity
    assert told in found.message
    assert severity == "ok" or "uv tool install --python" in found.remedy


def test_a_folder_that_can_be_made_is_fine_and_is_not_made(tmp_path: Path):
    section = home_section(tmp_path / "新" / "home")
    assert [found.severity for found in section.findings] == ["ok"]
    assert section.facts["exists"] is False
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_way_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("in the way", encoding="ascii")
    [found] = home_section(tmp_path / "file" / "home").findings
    assert (found.code, found.severity) == ("home-unwritable", "problem")
    assert "is a file where a folder has to be" in found.message
    assert "--home" in found.remedy


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_told(tmp_path: Path):
    tmp_path.chmod(0o500)
    [found] = home_section(tmp_path / "home").findings
    tmp_path.chmod(0)
    [closed] = home_section(tmp_path / "a" / "home").findings
    tmp_path.chmod(0o700)
    assert (found.code, found.severity) == ("home-unwritable", "problem")
    assert str(tmp_path) in found.message
    assert closed == found


def test_a_disk_with_little_room_is_told(tmp_path: Path):
    [found] = home_section(tmp_path, needed=1 << 62).findings
    assert (found.code, found.severity) == ("disk-full", "problem")
    assert "MiB are free" in found.message


Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of a client, under the home or the project folder of the test."""

    def put(path: str, content: str | dict[str, Any]) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return file

    return put


@pytest.fixture
def looked(tmp_path: Path) -> Callable[[], HealthSection]:
    def look() -> HealthSection:
        machine = Machine("linux", tmp_path / "家", tmp_path / "project", {})
        return hosts_section("loom-kb", "loom_kb", machine=machine)

    return look


def starting(*arguments: str, command: str = sys.executable) -> dict[str, Any]:
    return {"command": command, "args": ["-m", "loom_kb", *arguments], "env": {"X_API_KEY": "geheim123"}}


CURSOR = "家/.cursor/mcp.json"
CODE = "家/.claude.json"


def test_without_any_client_nothing_is_found(looked: Callable[[], HealthSection]):
    section = looked()
    assert section.findings == []
    assert len(section.facts["without_configuration"]) == 9


def test_a_server_that_can_be_started_is_fine_and_its_settings_are_not_shown(
    write: Write, looked: Callable[[], HealthSection]
):
    write(CURSOR, {"mcpServers": {"知识": starting(), "other": {"command": "nowhere"}}})
    write(CODE, {"mcpServers": {"other": {"type": "http", "url": "https://x"}}, "projects": {}})
    section = looked()
    assert [found.severity for found in section.findings] == ["ok"]
    assert section.facts["Cursor"] == "starts it as '知识'"
    assert section.facts["Claude Code"] == "does not start it"
    assert "geheim" not in section.model_dump_json()


@pytest.mark.parametrize(
    ("path", "content", "place"),
    [
        (CURSOR, '{"mcpServers": {\n  "知识" {}\n}}', ":2:"),
        (CURSOR, '{\n  "mcpServers": {"a": {},\n   "a": {}}}', ":3:4: the name 'a' is duplicated"),
        ("家/.codex/config.toml", "[mcp_servers.a]\ncommand = \n", ":2:"),
        ("project/.vscode/mcp.json", '// 注释\n{"servers": {"a": }}', ":2:"),
        ("家/.config/goose/config.yaml", "extensions:\n  a: [\n", ":"),
    ],
)
def test_a_broken_file_is_told_with_line_and_column(
    write: Write, looked: Callable[[], HealthSection], path: str, content: str, place: str
):
    file = write(path, content)
    [found] = looked().findings
    assert (found.code, found.severity) == ("broken-config", "problem")
    assert f"{file}{place}" in found.message
    assert found.remedy


def test_a_file_that_is_no_text_is_told(write: Write, looked: Callable[[], HealthSection]):
    write(CURSOR, "").write_bytes(b"\xff\xfe{}")
    [found] = looked().findings
    assert (found.code, "UTF-8" in found.message) == ("broken-config", True)


def test_a_command_that_is_not_there_is_a_problem(
    write: Write, looked: Callable[[], HealthSection], tmp_path: Path
):
    gone = tmp_path / "gone" / "bin" / "loom-kb"
    write(CODE, {"mcpServers": {"kb": {"command": str(gone), "args": ["serve"]}}})
    [found] = looked().findings
    assert (found.code, found.severity) == ("command-missing", "problem")
    assert f"'kb' by {gone}" in found.message
    assert found.remedy == "Write the entry again: loom-kb install claude-code"


def test_the_same_server_twice_is_told_and_how_the_entries_differ(
    write: Write, looked: Callable[[], HealthSection]
):
    write(CURSOR, {"mcpServers": {"kb": starting(), "笔记": starting()}})
    [found] = looked().findings
    assert (found.code, found.severity) == ("duplicate-entries", "warning")
    assert "2 times, as 'kb', '笔记', in the same way" in found.message
    write("project/.cursor/mcp.json", {"mcpServers": {"third": starting("--home", "/data")}})
    [found] = looked().findings
    assert "3 times, as 'kb', '笔记', 'third', with other options" in found.message
    assert "loom-kb uninstall cursor --name NAME" in found.remedy


def test_a_project_takes_the_place_of_an_entry_of_the_user(write: Write, looked: Callable[[], HealthSection]):
    write(CURSOR, {"mcpServers": {"kb": starting(command="/nowhere/python")}})
    write("project/.cursor/mcp.json", {"mcpServers": {"kb": starting()}})
    assert [found.severity for found in looked().findings] == ["ok"]


def test_the_section_of_another_client_is_told(write: Write, looked: Callable[[], HealthSection]):
    write("project/.vscode/mcp.json", {"mcpServers": {"kb": starting()}})
    [found] = looked().findings
    assert (found.code, found.severity) == ("wrong-section", "warning")
    assert found.remedy == "Rename it to 'servers'."


def test_a_name_that_a_client_refuses_is_told(write: Write, looked: Callable[[], HealthSection]):
    write(CODE, {"mcpServers": {"知识库": starting()}})
    [found] = looked().findings
    assert (found.code, found.severity) == ("host-name", "warning")
    assert "'知识库'" in found.message
