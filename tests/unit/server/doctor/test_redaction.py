"""A report that is pasted into an issue tells nobody's secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from loom_core.server.cli.health import HealthReport, Section, problem
from loom_core.server.doctor.checks import paste_safe


def pasted(text: str, *, home: str = "/home/安娜", environment: dict[str, str] | None = None) -> str:
    section = Section(
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
