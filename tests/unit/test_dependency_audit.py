"""Audit of dependencies, with a vulnerability database that this test keeps."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_HASHES = " \\\n    --hash=sha256:" + "a" * 64 + " \\\n    --hash=sha256:" + "b" * 64


@pytest.fixture(scope="module")
def audit() -> Any:
    return import_module("tools.dependency_audit")


class _Database:
    """Answers as OSV does: knows one version of one package."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer: bytes | None = None
        database = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                database.asked += body["queries"]
                results = [
                    {"vulns": [{"id": "GHSA-1"}, {"id": "CVE-2"}]}
                    if (each["package"]["name"], each["version"]) == ("idna", "2.0")
                    else {}
                    for each in body["queries"]
                ]
                data = database.answer or json.dumps({"results": results}).encode()
                self.send_response(200)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/querybatch"


@pytest.fixture
def database() -> Iterator[_Database]:
    made = _Database()
    thread = threading.Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_what_is_declared_and_pinned_here_is_in_order(audit, capsys) -> None:
    assert audit.main(["--offline"]) == 0
    assert "; 0 problems" in capsys.readouterr().out


def test_a_pin_is_read_with_its_version_whatever_stands_around_it(audit) -> None:
    marked = "uvicorn[standard]==1.0 ; python_version < '3.12'"
    text = f"# by hand\nIdna==2.0{_HASHES}\n    # via x\n{marked}{_HASHES}\n"
    assert audit.pins(text) == {"idna": "2.0", "uvicorn": "1.0"}
    assert audit.requirement_problems(text, name="x.txt") == []


@pytest.mark.parametrize(
    "line",
    [
        "idna==2.0", "idna", "idna>=2.0" + _HASHES, "idna @ https://example.com/a", "-e .",
        "git+https://git.example/idna", "--index-url https://example.com/b",
        "idna==2.0 \\\n    --hash=md5:" + "a" * 32,
    ],
)  # fmt: skip
def test_what_is_not_exact_or_has_no_hash_or_comes_from_elsewhere_is_told(audit, line) -> None:
    assert len(audit.requirement_problems(f"{line}\n", name="x.txt")) == 1


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True), ("MIT AND Apache-2.0", True), ("GPL-3.0-only OR MIT", True), ("GPL-3.0-only", False),
        ("MIT AND AGPL-3.0-only", False), ("MPL-2.0 AND (Apache-2.0 OR MIT)", True), ("unknown", False),
        ("MIT AND (GPL-2.0-only OR Proprietary)", False),
    ],
)  # fmt: skip
def test_a_licence_counts_with_all_its_parts_and_one_of_its_choices(audit, expression, allowed) -> None:
    assert audit._is_allowed(audit.licence({"License-Expression": expression}, [])) is allowed


def test_a_licence_that_is_accepted_for_one_package_is_accepted_for_no_other(audit) -> None:
    assert not audit._is_allowed("LGPL-3.0-only")
    assert audit.licence_problems(["psycopg", "psycopg-binary", "anyio"]) == []
    assert audit._AS_IT_IS.keys() == {"psycopg", "psycopg-binary"}
    required = "".join(path.read_text("utf-8") for path in audit._ROOT.glob("requirements/loom-*.txt"))
    assert "psycopg" not in required


def test_a_licence_is_also_read_from_classifiers(audit) -> None:
    said = ["Programming Language :: Python", "License :: OSI Approved :: MIT License"]
    assert audit.licence({}, said) == "MIT"
    assert audit.licence({}, []) == "unknown"


def test_a_dependency_without_a_reason_is_told(audit, tmp_path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "dependencies.md").write_text("| Anyio | 结构化并发 |\n", encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "x"\ndependencies = ["anyio>=4"]\n'
        '[project.optional-dependencies]\nkb = ["kuzu==1"]\n[dependency-groups]\ndev = ["loom-kb", "ruff"]\n',
        encoding="utf-8",
    )
    assert [problem.split()[1] for problem in audit.reason_problems(tmp_path)] == ["kuzu", "ruff"]


def test_every_pin_is_looked_up_and_what_is_known_is_told(audit, database, capsys) -> None:
    known = audit.vulnerabilities([("idna", "2.0"), ("anyio", "4.0")], service=database.url)
    assert known == {"idna 2.0": ["GHSA-1", "CVE-2"]}
    assert {each["package"]["ecosystem"] for each in database.asked} == {"PyPI"}
    database.asked.clear()

    assert audit.main(["--service", database.url]) == 0
    named = {(each["package"]["name"], each["version"]) for each in database.asked}
    assert (
        set(audit.pins((_ROOT / "requirements" / "loom-kb.txt").read_text(encoding="utf-8")).items()) <= named
    )
    assert f"{len(named)} versions were looked up" in capsys.readouterr().out


def test_what_is_accepted_needs_a_reason_and_is_told_no_more(audit, tmp_path, monkeypatch) -> None:
    (tmp_path / "requirements").mkdir()
    file = tmp_path / "requirements" / "accepted-vulnerabilities.txt"
    file.write_text("# said\nGHSA-1: it is in a part that Loom does not use\n", encoding="utf-8")
    monkeypatch.setattr(audit, "_ROOT", tmp_path)
    problems = audit._vulnerability_problems({"idna 2.0": ["GHSA-1", "CVE-2"]})
    assert len(problems) == 1
    assert problems[0].startswith("idna 2.0: CVE-2")
    with pytest.raises(ValueError, match="without a reason"):
        audit.parse_accepted("GHSA-1:\n")


def test_a_database_that_is_not_reached_is_no_success(audit, capsys) -> None:
    assert audit.main(["--service", "http://127.0.0.1:1/"]) == 3
    assert "NOT LOOKED UP" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [b"<html>log in</html>", b"{}", b'{"results": []}', b"[1]"])
def test_an_answer_that_is_none_is_no_success_either(audit, database, answer, capsys) -> None:
    database.answer = answer
    assert audit.main(["--service", database.url]) == 3
    assert "NOT LOOKED UP" in capsys.readouterr().err
