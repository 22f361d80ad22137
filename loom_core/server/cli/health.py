"""Health report of an installation (`doctor`): the data, and its text for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, cast

from pydantic import BaseModel, Field, computed_field, model_validator

from loom_core.errors import LoomError

__all__ = [
    "Finding",
    "HealthReport",
    "HealthSection",
    "Severity",
    "fact_lines",
    "fine",
    "problem",
    "problem_from_error",
    "report_lines",
    "warning",
]

Severity = Literal["ok", "warning", "problem"]
"""`ok`: as it should be; `warning`: it works, but look at it; `problem`: something does not work."""

_MARKS: dict[Severity, str] = {"ok": "+", "warning": "?", "problem": "!"}


class Finding(BaseModel):
    """One finding of a check.

    Attributes:
        code: stable code for programs, such as `port-taken`.
        severity: its severity.
        message: the finding and its cause, in one line.
        remedy: what to do about it, in one line; empty only if nothing has to be done.
    """

    code: str
    severity: Severity
    message: str
    remedy: str = ""

    @model_validator(mode="after")
    def _has_remedy(self) -> Finding:
        if self.severity != "ok" and not self.remedy.strip():
            raise ValueError(f"the finding {self.code!r} says nothing about what to do")
        return self


class HealthSection(BaseModel):
    """One section of a health report.

    Attributes:
        name: its subject.
        facts: facts: numbers, texts, lists, and lists by name.
        findings: findings from these facts.
    """

    name: str
    facts: dict[str, Any] = Field(default_factory=dict[str, Any])
    findings: list[Finding] = []


class HealthReport(BaseModel):
    """Health report: the sections of all checks.

    Attributes:
        program: the examined program, such as `loom-kb`.
        version: its version.
        sections: sections in reading order.
    """

    program: str
    version: str
    sections: list[HealthSection]

    @computed_field
    @property
    def severity(self) -> Severity:
        """Severity of the worst finding."""
        found = {finding.severity for finding in self.findings()}
        return "problem" if "problem" in found else "warning" if "warning" in found else "ok"

    @computed_field
    @property
    def healthy(self) -> bool:
        """Whether there is no problem; there may be warnings."""
        return self.severity != "problem"

    def findings(self) -> Iterator[Finding]:
        """Return the findings of all sections."""
        return (finding for section in self.sections for finding in section.findings)


def fine(code: str, message: str) -> Finding:
    """Create a finding without a problem."""
    return Finding(code=code, severity="ok", message=message)


def warning(code: str, message: str, remedy: str) -> Finding:
    """Create a finding of minor severity: everything still works."""
    return Finding(code=code, severity="warning", message=message, remedy=remedy)


def problem(code: str, message: str, remedy: str) -> Finding:
    """Create a finding of a fault: something does not work."""
    return Finding(code=code, severity="problem", message=message, remedy=remedy)


def problem_from_error(error: LoomError, code: str, *, remedy: str) -> Finding:
    """Create a problem from an error.

    Args:
        error: the error.
        code: as in `Finding`.
        remedy: remedy if the error has no advice.
    """
    return problem(code, error.message, error.advice or remedy)


def report_lines(report: HealthReport) -> list[str]:
    """Format a report as lines, with marked findings and a verdict in the last line."""
    lines: list[str] = []
    for section in report.sections:
        lines += [section.name, *(f"  {line}" for line in fact_lines(section.facts))]
        for finding in section.findings:
            lines.append(f"  {_MARKS[finding.severity]} {finding.message}")
            if finding.remedy:
                lines.append(f"    To do: {finding.remedy}")
    return [*lines, _verdict(report)]


def fact_lines(facts: dict[str, Any]) -> list[str]:
    """Format facts as lines of name and value."""
    width = max([12, *map(len, facts)])
    return [f"{name.replace('_', ' '):{width}} {_value(value)}".rstrip() for name, value in facts.items()]


def _verdict(report: HealthReport) -> str:
    severities = [finding.severity for finding in report.findings()]
    counts = [
        f"{count} {name}{'s' * (count > 1)}"
        for name in ("problem", "warning")
        if (count := severities.count(name))
    ]
    return f"{' and '.join(counts)} found." if counts else "Everything is well."


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value).items()
        return ", ".join(f"{name} {_value(entry)}" for name, entry in entries) or "none"
    if isinstance(value, list):
        return ", ".join(map(_value, cast("list[object]", value))) or "none"
    return "none" if value is None else str(value)
