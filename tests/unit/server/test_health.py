"""What was found out about an installation, as a person reads it."""

from __future__ import annotations

from loom_core.server.health import HealthReport, Section, fact_lines, report_lines


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
    report = HealthReport(sections=[Section(name="home", facts={"writable": False})])
    assert report.healthy
    assert report_lines(report) == ["home", "  writable     no", "Everything is well."]


def test_problems_are_marked_and_counted():
    report = HealthReport(
        sections=[Section(name="home", problems=["full"]), Section(name="b", problems=["gone", "old"])]
    )
    assert not report.healthy
    assert report.model_dump()["healthy"] is False
    assert report_lines(report) == ["home", "  ! full", "b", "  ! gone", "  ! old", "3 problems found."]
