"""Telemetry of dependencies: what is on and what is left is told, with what to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loom_core import TELEMETRY_SWITCHES
from loom_core.server.doctor.checks import telemetry_section


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
