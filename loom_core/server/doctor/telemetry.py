"""Telemetry of dependencies: whether it is off, and which reports are left from a time when it was on."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core import TELEMETRY_SWITCHES
from loom_core.server.cli.health import Finding, Section, fine, warning

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["telemetry_section"]

_REPORTS = Path("Microsoft", "DeveloperTools", ".onnxruntime")
_TRUE = {"1", "true", "yes", "on"}


def telemetry_section(
    *, environment: Mapping[str, str] | None = None, user_home: Path | None = None
) -> Section:
    """Look at the switches, which importing Loom has set, and for reports of onnxruntime. Blocks.

    Args:
        environment: variables; those of this process if not given.
        user_home: the user's home folder; this user's if not given.
    """
    variables = os.environ if environment is None else environment
    switches = {name: variables.get(name, "") for name in TELEMETRY_SWITCHES}
    findings = [
        _switched_on(name, value) for name, value in switches.items() if not _is_off(value, name)
    ] or [fine("telemetry", "It is switched off in every dependency that has any.")]
    folder = _report_folder(variables, user_home or Path.home())
    if os.access(folder, os.F_OK):
        message = (
            f"{folder} holds a device id and reports to Microsoft, which onnxruntime has queued: for an "
            "earlier version of Loom, which had not switched that off, or for another program."
        )
        remedy = "Delete that folder: Loom does not need it, and another program could send the reports."
        findings.append(warning("telemetry-reports", message, remedy))
    facts = {"switches": [f"{name}={value}" for name, value in switches.items()]}
    return Section(name="telemetry", facts=facts, findings=findings)


def _is_off(value: str, name: str) -> bool:
    return _is_true(value) == _is_true(TELEMETRY_SWITCHES[name])


def _is_true(value: str) -> bool:
    return value.strip().lower() in _TRUE


def _switched_on(name: str, value: str) -> Finding:
    message = f"The environment sets {name}={value}, which allows a dependency to report to its maker."
    return warning("telemetry-on", message, f"Take {name} out of the environment: Loom then switches it off.")


def _report_folder(variables: Mapping[str, str], user_home: Path) -> Path:
    """Where onnxruntime keeps reports on Linux and macOS; on Windows the system keeps them."""
    if sys.platform == "darwin":
        return user_home / "Library" / "Application Support" / _REPORTS
    caches = variables.get("XDG_CACHE_HOME", "")
    return (Path(caches) if caches else user_home / ".cache") / _REPORTS
