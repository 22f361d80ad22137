"""What `doctor` commands find out about an installation, as data, and how a person reads it."""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel, Field, computed_field

__all__ = ["HealthReport", "Section", "fact_lines", "report_lines"]


class Section(BaseModel):
    """One part of what was looked at.

    Attributes:
        name: what it is about.
        facts: what was found: numbers, texts, lists, and lists by name.
        problems: what is wrong, each in a sentence.
    """

    name: str
    facts: dict[str, Any] = Field(default_factory=dict[str, Any])
    problems: list[str] = []


class HealthReport(BaseModel):
    """Everything that was looked at."""

    sections: list[Section]

    @computed_field
    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong anywhere."""
        return not any(section.problems for section in self.sections)


def report_lines(report: HealthReport) -> list[str]:
    """A report as lines for a person, problems marked, with a last line that says whether all is well."""
    lines: list[str] = []
    for section in report.sections:
        lines += [section.name, *(f"  {line}" for line in fact_lines(section.facts))]
        lines += [f"  ! {problem}" for problem in section.problems]
    wrong = sum(len(section.problems) for section in report.sections)
    lines.append("Everything is well." if not wrong else f"{wrong} problem{'s' * (wrong > 1)} found.")
    return lines


def fact_lines(facts: dict[str, Any]) -> list[str]:
    """Facts as lines of name and value."""
    width = max([12, *map(len, facts)])
    return [f"{name.replace('_', ' '):{width}} {_value(value)}".rstrip() for name, value in facts.items()]


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
