"""How every command line ends, how it answers, and the one of a bundle."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import pytest

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.server.cli.command_line import (
    add_command,
    bundle_line,
    parse_filters,
    parse_line,
    run_to_exit_code,
    show_health,
    show_report,
    split_line,
)
from loom_core.server.cli.health import HealthReport, HealthSection, problem, warning


def test_what_is_chosen_goes_to_its_option_and_what_is_not_goes_nowhere():
    options = ("--config", "--provider")
    assert bundle_line(["/家/a.json", "deepseek"], options=options) == [
        "serve", "--config", "/家/a.json", "--provider", "deepseek",
    ]  # fmt: skip
    assert bundle_line(["${user_config.config}", "mock"], options=options) == ["serve", "--provider", "mock"]
    assert bundle_line(["${user_config.config}", ""], options=options) == ["serve"]
    assert bundle_line([], options=options) == ["serve"]


def test_an_option_may_be_there_as_often_as_something_is_chosen():
    line = bundle_line(["文档", "b"], options=repeat("--root"))
    assert line == ["serve", "--root", "文档", "--root", "b"]


@dataclass
class Report:
    lines: list[str]
    notes: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("given", "line", "rest"),
    [
        ([], ["serve"], []),
        (["--http"], ["serve", "--http"], []),
        (["--help"], ["--help"], []),
        (["query", "x", "--", "y"], ["query", "x", "--", "y"], []),
        (["install", "zed", "--", "--kb", "a"], ["install", "zed"], ["--kb", "a"]),
        (["mcp", "add", "n", "--", "cmd", "--", "x"], ["mcp", "add", "n"], ["cmd", "--", "x"]),
    ],
)
def test_a_line_is_for_the_parser_and_what_is_handed_on_is_kept_apart(given, line, rest):
    assert split_line(given) == (line, rest)


def test_every_command_has_home_and_debug_and_answers_json_but_serve():
    top = argparse.ArgumentParser()
    commands = top.add_subparsers(dest="command")
    add_command(commands, "list", "list what there is")
    add_command(commands, "serve", "serve it")
    args = top.parse_args(["list", "--home", "家", "--json", "--debug"])
    assert (str(args.home), args.json, args.debug) == ("家", True, True)
    with pytest.raises(SystemExit):
        top.parse_args(["serve", "--json"])


@pytest.fixture
def commands():
    """A parser with a command that takes words, and one that takes none."""
    top = argparse.ArgumentParser(prog="sample")
    declared = top.add_subparsers(dest="command")
    find = add_command(declared, "find", "find it")
    find.add_argument("place")
    find.add_argument("words", nargs="*", default=[])
    find.set_defaults(takes_more="words")
    show = add_command(declared, "show", "show it")
    show.add_argument("part")
    show.add_argument("name", nargs="?")
    show.set_defaults(takes_more="name")
    add_command(declared, "list", "list what there is")
    return top


def test_options_may_stand_between_the_words_of_a_command(commands):
    args = parse_line(commands, ["find", "here", "--json", "a", "--debug", "b"])
    assert (args.place, args.words, args.json, args.debug) == ("here", ["a", "b"], True, True)
    assert parse_line(commands, ["find", "here", "a", "--json"]).words == ["a"]
    assert parse_line(commands, ["show", "all", "--json", "a"]).name == "a"


@pytest.mark.parametrize(
    "line",
    [
        ["list", "a"],
        ["show", "a", "b", "c"],
        ["list", "--wrong"],
        ["find", "here", "--wrong"],
    ],
)
def test_what_a_command_does_not_know_is_answered_with_its_usage(commands, line, capsys):
    with pytest.raises(SystemExit):
        parse_line(commands, line)
    told = capsys.readouterr().err
    assert f"usage: sample {line[0]}" in told
    assert f"unrecognized arguments: {line[-1]}" in told


def refuse() -> int:
    raise ConfigError("It is wrong.", advice="Put it right.")


def interrupt() -> int:
    raise KeyboardInterrupt


def test_an_error_is_told_with_what_to_do_on_standard_error(capsys):
    assert run_to_exit_code("loom-x", refuse, debug=False) == 1
    assert capsys.readouterr() == ("", "loom-x: It is wrong.\n  Put it right.\n")
    assert run_to_exit_code("loom-x", refuse, debug=True) == 1
    told = capsys.readouterr().err
    assert told.startswith("Traceback (most recent call last):\n")
    assert told.endswith("ConfigError: It is wrong. Put it right.\n")


def test_a_name_in_an_error_cannot_control_the_terminal(capsys):
    def fail() -> int:
        raise ConfigError("There is no \x1b]0;x\x07.", advice="See\nall.")

    assert run_to_exit_code("loom-x", fail, debug=False) == 1
    assert capsys.readouterr().err == "loom-x: There is no \\x1b]0;x\\x07.\n  See\nall.\n"


@pytest.mark.hostile("secrets")
@pytest.mark.parametrize(("error", "debug"), [(ValueError, False), (ConfigError, True)])
def test_what_python_tells_of_a_crash_has_no_secret_in_it(capsys, monkeypatch, error, debug):
    monkeypatch.setenv("SHOP_PASSWORD", "Hunter2-Quartz-99x")

    def crash() -> int:
        try:
            raise KeyError("Hunter2-Quartz-99x")
        except KeyError as cause:
            raise error("no answer from postgres://shop:Hunter2-Quartz-99x@db") from cause

    assert run_to_exit_code("loom-x", crash, debug=debug) == 1
    told = capsys.readouterr().err
    assert "KeyError: '[secret]'" in told
    assert "postgres://[secret]@db" in told
    assert "Hunter2" not in told


def test_a_command_ends_with_its_own_code_or_that_of_an_interruption():
    assert run_to_exit_code("loom-x", lambda: 3, debug=False) == 3
    assert run_to_exit_code("loom-x", interrupt, debug=False) == 130


def test_filters_with_one_name_are_alternatives():
    assert parse_filters(["tags=草稿", "tags=plan", "path=a=b"]) == {
        "tags": ["草稿", "plan"],
        "path": ["a=b"],
    }
    with pytest.raises(InvalidInputError, match="has no value"):
        parse_filters(["tags"])


def test_a_report_goes_to_standard_output_and_its_notes_to_standard_error(capsys):
    report = Report(["一", "two"], ["note"], {"n": 1})
    show_report(report, as_json=False)
    assert capsys.readouterr() == ("一\ntwo\n", "note\n")
    show_report(report, as_json=True)
    assert capsys.readouterr() == ('{\n  "n": 1\n}\n', "note\n")


@pytest.mark.parametrize(
    ("finding", "code"), [(problem("a", "Bad.", "Mend it."), 1), (warning("b", "Odd.", "Look."), 0)]
)
def test_only_a_problem_makes_a_report_on_health_fail(finding, code, capsys):
    report = HealthReport(
        program="loom-x", version="1", sections=[HealthSection(name="s", findings=[finding])]
    )
    assert show_health(report, as_json=False) == code
    assert finding.remedy in capsys.readouterr().out
    assert show_health(report, as_json=True) == code
    assert '"healthy"' in capsys.readouterr().out
