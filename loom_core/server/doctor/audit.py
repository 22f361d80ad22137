"""The audit: whether it is as it was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import RecordError
from loom_core.paths import audit_path
from loom_core.server.cli.health import Section, fine, problem, told_by, warning

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["audit_section"]


def audit_section(home: Path) -> Section:
    """Look at the audit of all servers. Blocks, and writes nothing.

    Args:
        home: Loom's folder.
    """
    from loom_core.server.cli.audit_command import unkept_told
    from loom_core.tools.auditing.report import verify

    path = audit_path(home)
    try:
        report = verify(path)
    except RecordError as error:
        remedy = "Let this user read it."
        return Section(name="audit", findings=[told_by(error, "audit-unreadable", remedy=remedy)])
    facts = {"file": str(path), "lines": report.lines, "head": report.head[:12] or None}
    if report.problem:
        message = f"It is not as it was written: {report.problem}"
        remedy = "Find out who changed it; put all files of its folder away together, and a new one is begun."
        return Section(name="audit", facts=facts, findings=[problem("audit-broken", message, remedy)])
    findings = [fine("audit", "Its chain is whole." if report.lines else "Nothing is on it yet.")]
    if report.torn:
        message = f"{report.torn:,} lines were cut off when a process died."
        findings.append(warning("audit-torn", message, "Nothing has to be done."))
    if report.unkept:
        remedy = "See who has written them, with `audit show`."
        findings.append(warning("audit-unkept", unkept_told(report.unkept), remedy))
    return Section(name="audit", facts=facts, findings=findings)
