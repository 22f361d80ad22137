"""`loom-agent-server eval`: cases with expected results, run by the demonstration and by scripted models."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from loom_agent.cli import run
from loom_agent.command_line.evaluation import ToolExpectation
from loom_agent.settings import Settings

NOTE = "请记一条笔记：明天去青岛"
Evaluate = Callable[..., tuple[int, str, str]]


@pytest.fixture
def evaluate(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Evaluate:
    """Evaluates cases; gives the exit code, standard output and standard error."""

    def call(
        *cases: dict[str, Any] | str, options: Sequence[str] = (), provider: str = "mock"
    ) -> tuple[int, str, str]:
        path = tmp_path / "cases.jsonl"
        texts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in cases]
        path.write_text("\n".join(texts), encoding="utf-8")
        model = ["--provider", provider] if provider else []
        code = run(["eval", str(path), "--home", str(home), *model, *options])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.mark.parametrize(
    ("tools", "called", "failures"),
    [
        ({"in_order": ("a", "c")}, "a b c", 0),
        ({"in_order": ("c", "a")}, "a b c", 1),
        ({"in_order": ("a", "a")}, "a b", 1),
        ({"in_order": ("read_*", "write_?")}, "read_file write_1", 0),
        ({"exactly": ("a", "b*")}, "a bc", 0),
        ({"exactly": ("a",)}, "a a", 1),
        ({"exactly": ()}, "", 0),
        ({"exactly": ()}, "a", 1),
        ({"never": ("delete_*",)}, "a", 0),
        ({"never": ("delete_*",), "in_order": ("x",)}, "a delete_all", 2),
        ({}, "a", 0),
    ],
)
def test_tool_calls_are_compared_in_order_exactly_or_with_forbidden_ones(
    tools: dict[str, Any], called: str, failures: int
) -> None:
    assert len(ToolExpectation(**tools).failures(called.split())) == failures


def test_cases_that_pass_and_fail_are_reported(evaluate: Evaluate, tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    code, out, err = evaluate(
        "// the demonstration",
        {"goal": "What time is it?", "expect": {"contains": "The tools say", "tools": "clock"}},
        {"goal": "现在几点？", "id": "zh", "expect": {"matches": r"结果：\d{4}-", "max_tokens": 5000}},
        {
            "goal": "use clock",
            "expect": {
                "output": "noon",
                "contains": ["The tools", "moon"],
                "matches": "^noon",
                "schema": {"type": "object"},
                "tools": {"exactly": [], "never": "cl?ck"},
                "max_tokens": 1,
                "max_cost": 0.5,
            },
        },
        options=("--junit", str(path)),
    )
    assert code == 1
    assert "✓ 1/1  line 2: What time is it?" in out
    assert "✗ 0/1  line 4: use clock" in out
    assert out.endswith("2 of 3 runs passed.\n")
    for told in (
        "the answer lacks 'moon'",
        "the answer does not match '^noon'",
        'the answer is not "noon"',
        "the answer does not fit: the whole: ",
        "the calls are not exactly none",
        "it called clock, which it must not",
        "tokens, more than 1 tokens",
        "its cost is unknown, and the limit is $0.5000",
        "it called clock and answered: The tools say: ",
    ):
        assert told in out
    assert "keep the runs: --journal FILE" in err
    suite = ElementTree.parse(path).getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("3", "1", "0")
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["line 4: use clock"]


def test_calls_that_need_approval_are_denied_unless_named(evaluate: Evaluate) -> None:
    case = {"goal": NOTE, "expect": {"contains": '"kept"', "tools": ["keep_note"]}}
    denied, out, _ = evaluate(case)
    assert denied == 1
    assert "评测中没有人可以批准这次调用" in out
    assert evaluate(case, options=("--approve", "keep_*"))[0] == 0
    declined = {"goal": "ask me", "expect": {"contains": "decline"}}
    assert evaluate(declined, options=("--approve", "*"))[0] == 0


def test_several_runs_show_how_much_they_vary(evaluate: Evaluate, home: Path) -> None:
    model = {"provider": "mock", "options": {"responses": ["Anna", "Bert B. of Zell", "Anna"]}}
    (home / "agent.json").write_text(json.dumps({"profiles": {"flaky": {"model": model}}}), encoding="utf-8")
    case = {"goal": "Who?", "profile": "flaky", "expect": {"output": "Anna"}}
    options = ("--runs", "3", "--parallel", "1", "--at-least", "0.66", "--json")
    code, out, _ = evaluate(case, options=options, provider="")
    report = json.loads(out)
    (found,) = report["cases"]
    assert (code, report["runs"], report["passed"], found["passed"]) == (0, 3, 2, 2)
    assert [each["output"] for each in found["runs"]] == ["Anna", "Bert B. of Zell", "Anna"]
    assert found["runs"][1]["failures"] == ['the answer is not "Anna"']
    tokens = [each["tokens"] for each in found["runs"]]
    assert found["tokens"]["mean"] == pytest.approx(sum(tokens) / 3)
    assert found["tokens"]["sd"] > 0


def test_the_runs_can_be_kept_and_looked_at(
    evaluate: Evaluate, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = tmp_path / "kept runs.db"
    case = {"goal": "What time is it?", "expect": {"status": "failed"}}
    code, out, err = evaluate(case, options=("--journal", str(journal)))
    assert code == 1
    assert "it is completed, not failed." in out
    run_id = out.split("run_")[1][:16]
    assert f"runs show run_{run_id} --journal '{journal}' --html run.html" in err
    assert not Settings(home, home / "agent.json").journal.exists()
    assert run(["runs", "show", f"run_{run_id}", "--home", str(home), "--journal", str(journal)]) == 0
    assert "What time" not in capsys.readouterr().err


def test_data_is_compared_as_data(evaluate: Evaluate) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    right = {"goal": "count", "output_schema": schema, "expect": {"output": {"n": 0}, "schema": schema}}
    wrong = {"goal": "count", "output_schema": schema, "expect": {"output": {"n": 1}}}
    code, out, _ = evaluate(right, wrong)
    assert code == 1
    assert "✓ 1/1  line 1" in out
    assert 'the answer is not {"n": 1}' in out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            '{"goal": "x", "expect": {"contain": "y"}}',
            ":1:26: expect.contain is not known here. Did you mean",
        ),
        ('{"goal": "x", "expect": {"matches": "(?=a)"}}', ":1:15: expect: The pattern cannot be used"),
        ('{"goal": "x", "expect": {"schema": {"type": "y"}}}', ":1:15: expect: The schema is wrong"),
        ('{"goal": "x", "expect": {"tools": {"never": "re:("}}}', ":1:15: expect: 're:(' is not a usable"),
        ('{"goal": "x", "profile": "y"}', ":1: There is no profile 'y'."),
        ('{"gaol": "x"}', ":1:1: it lacks 'goal'."),
        ("", " has no lines."),
    ],
)
def test_an_invalid_line_is_named_before_anything_runs(line: str, told: str, evaluate: Evaluate) -> None:
    code, out, err = evaluate(line)
    assert (code, out) == (2, "")
    assert told in err


def test_what_no_run_can_do_without_is_told_once(evaluate: Evaluate) -> None:
    code, out, err = evaluate({"goal": "a"}, {"goal": "b"}, provider="")
    assert (code, out) == (1, "")
    assert err.count("There is no language model") == 1
