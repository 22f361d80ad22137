"""What was found out about an installation, as a person reads it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from loom_core.errors import ConfigError
from loom_core.server.cli.health import (
    Finding,
    HealthReport,
    HealthSection,
    fact_lines,
    fine,
    problem,
    problem_from_error,
    report_lines,
    warning,
)


def report_of(*sections: HealthSection) -> HealthReport:
    return HealthReport(program="loom-x", version="1", sections=list(sections))


def test_facts_of_every_kind_are_lines():
    facts = {
        "name": "知识",
        "bytes": 1234567,
        "fine": True,
        "none_yet": None,
        "some": ["a", 2],
        "by": {"en": 1000},
    }
    assert fact_lines(facts) == [
        "name         知识",
        "bytes        1,234,567",
        "fine         yes",
        "none yet     none",
        "some         a, 2",
        "by           en 1,000",
    ]
    assert fact_lines({"a_name_that_is_long": [], "x": {}}) == [
        "a name that is long none",
        "x                   none",
    ]


def test_a_report_without_problems_says_so():
    report = report_of(
        HealthSection(name="home", facts={"writable": False}, findings=[fine("home", "Fine.")])
    )
    assert (report.healthy, report.severity) == (True, "ok")
    assert report_lines(report) == ["home", "  writable     no", "  + Fine.", "Everything is well."]


def test_findings_are_marked_counted_and_followed_by_what_to_do():
    report = report_of(
        HealthSection(name="home", findings=[problem("full", "It is full.", "Free some.")]),
        HealthSection(
            name="端口", findings=[warning("taken", "Taken.", "Choose."), problem("gone", "Gone.", "Wait.")]
        ),
    )
    assert (report.healthy, report.severity) == (False, "problem")
    assert report_lines(report) == [
        "home",
        "  ! It is full.",
        "    To do: Free some.",
        "端口",
        "  ? Taken.",
        "    To do: Choose.",
        "  ! Gone.",
        "    To do: Wait.",
        "2 problems and 1 warning found.",
    ]


def test_warnings_alone_leave_an_installation_healthy():
    report = report_of(HealthSection(name="port", findings=[warning("taken", "Taken.", "Choose.")]))
    assert (report.healthy, report.severity) == (True, "warning")
    assert report_lines(report)[-1] == "1 warning found."
    plain = report.model_dump()
    assert (plain["healthy"], plain["severity"], plain["program"]) == (True, "warning", "loom-x")


def test_only_what_is_well_needs_no_remedy():
    with pytest.raises(ValidationError, match="says nothing about what to do"):
        Finding(code="full", severity="warning", message="It is full.", remedy=" ")


def test_an_error_is_told_with_its_own_advice_first():
    error = ConfigError("The port is no number.", advice="Give a number.")
    assert problem_from_error(error, "port", remedy="x") == problem(
        "port", "The port is no number.", "Give a number."
    )
    assert problem_from_error(ConfigError("No."), "port", remedy="Do.").remedy == "Do."
