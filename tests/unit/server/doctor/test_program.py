"""Python and packages: what is missing, or of a wrong version, is told with who requires it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from loom_core.server.doctor.checks import RunningPython, program_section

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


def test_what_other_machines_and_extras_nobody_asked_for_require_does_not_matter(install: Install):
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
        ({"version": "3.15.0a1"}, "ok", "as they are required"),
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
