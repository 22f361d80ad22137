"""`loom-kb eval`: the report of questions with known documents and passages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from loom_kb.cli import run

DOCUMENTS = {
    "loom/manual.md": "# Loom manual\n\nThe loom is oiled every Friday. Its shuttle is made of beech.",
    "loom/history.md": "# History\n\nThe first loom of the mill was built in 1820 by Anna Berg.",
    "handbook.md": "# Handbook\n\nHolidays are requested three days before. Rope is sold in the shop.",
    "zh/员工手册.md": "# 员工手册\n\n年假须提前三天在系统中提交申请，由部门经理批准。",
    "zh/食堂.md": "# 食堂\n\n食堂每天十一点半开门，周五供应面条。",
}
Evaluate = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the documents."""
    root = tmp_path_factory.mktemp("notes")
    for name, text in DOCUMENTS.items():
        path = root / "notes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert run(["add", str(root / "notes"), "--home", str(root), "--embedder", "hashing"]) == 0
    return root


@pytest.fixture
def evaluate(notes: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Evaluate:
    """Evaluates lines; gives the exit code, standard output and standard error."""

    def call(*lines: dict[str, Any] | str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        path = tmp_path / "questions.jsonl"
        texts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in lines]
        path.write_text("\n".join(texts), encoding="utf-8")
        capsys.readouterr()
        code = run(["eval", str(path), "--home", str(notes), "--embedder", "hashing", *options])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def _by_line(out: str) -> dict[int, dict[str, Any]]:
    return {each["line"]: each for each in json.loads(out)["questions"]}


@pytest.mark.parametrize(
    "name",
    ["员工手册", "员工手册.md", "zh/员工手册.md", "./zh/员工手册.md", "ZH/员工手册.MD"],
)
def test_a_document_is_known_by_its_title_or_the_end_of_its_path(name: str, evaluate: Evaluate) -> None:
    code, out, err = evaluate({"question": "年假怎么申请？", "documents": name}, options=("--json",))
    assert (code, _by_line(out)[1]["places"], "Not in" in err) == (0, {name: 1}, False)


def test_metrics_are_the_means_of_the_questions(evaluate: Evaluate) -> None:
    code, out, _ = evaluate(
        "// a comment",
        {"question": "When is the loom oiled?", "documents": ["manual.md"], "id": "oil"},
        {"question": "When is the loom oiled?", "documents": ["manual.md", "nowhere.md"]},
        {"question": "年假须提前几天申请？", "passages": ["提前三天 在系统中\n提交申请"]},
        {"question": "When is the loom oiled?", "passages": "the LOOM is oiled", "documents": "history.md"},
        options=("--json",),
    )
    report = json.loads(out)
    assert code == 0
    assert report["metrics"]["R@1"] == report["metrics"]["R@10"] == pytest.approx((1 + 0.5 + 1 + 0) / 4)
    assert report["metrics"]["MRR@10"] == pytest.approx(3 / 4)
    low, high = report["intervals_95"]["R@1"]
    assert low < report["metrics"]["R@1"] < high
    assert [each["line"] for each in report["questions"]] == [5, 3, 2, 4]  # worst first


def test_the_worst_questions_say_why(evaluate: Evaluate) -> None:
    code, out, err = evaluate(
        {"question": "Who built the first loom?", "documents": ["histroy.md"]},
        {"question": "When is the loom oiled?", "documents": ["manual.md"], "filters": {"path": "zh/"}},
        {"question": "Which loom was built by Anna Berg?", "documents": ["handbook.md"]},
        {"question": "食堂几点开门？", "passages": ["十二点"]},
        {"question": "食堂几点开门？", "documents": ["食堂"]},
    )
    assert code == 0
    assert out.startswith("R@1")
    assert "5 questions" in out
    told = out[out.index("Worst first") :]
    assert "line 1: Who built the first loom?\n    histroy.md is not in the knowledge base." in told
    assert "Did you mean history.md?" in told
    assert "manual.md: nothing was found (" in told
    assert "without filters: place 1" in told
    assert "handbook.md: " in told
    assert "words alone: " in told
    assert "found first: History" in told
    assert "十二点: no passage has this text." in told
    assert "line 5" not in told
    assert "Not in the knowledge base: histroy.md." in err


def test_a_threshold_decides_the_exit_code_and_is_a_case_of_the_report(
    evaluate: Evaluate, tmp_path: Path
) -> None:
    path = tmp_path / "junit.xml"
    lines: list[dict[str, Any]] = [
        {"question": "When is the loom oiled?", "documents": ["manual.md"], "id": "oil"},
        {"question": "食堂几点开门？", "documents": ["没有"]},
    ]
    options = ("--at-least", "r@5=0.5", "--at-least", "MRR@10=0.6", "--junit", str(path))
    code, _, err = evaluate(*lines, options=options)
    assert code == 1
    assert "MRR@10 is 0.500, below 0.6." in err
    assert "R@5 is" not in err
    cases = ElementTree.parse(path).getroot().findall("testsuite/testcase")
    failed = {case.get("name"): case.find("failure") is not None for case in cases}
    assert failed == {
        "R@5 at least 0.5": False,
        "MRR@10 at least 0.6": True,
        "line 2: 食堂几点开门？": False,
        "oil: When is the loom oiled?": False,
    }
    assert "没有 is not in the knowledge base." in (cases[2].findtext("system-out") or "")


def test_a_question_that_cannot_be_asked_is_an_error_of_its_own(evaluate: Evaluate, tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    code, out, _ = evaluate(
        {"question": "When is the loom oiled?", "documents": ["manual.md"]},
        {"question": "When?", "documents": ["manual.md"], "filters": {"colour": "red"}},
        options=("--json", "--junit", str(path)),
    )
    assert code == 1
    assert "There is no filter 'colour'" in _by_line(out)[2]["problem"]
    assert ElementTree.parse(path).getroot().find("testsuite/testcase/error") is not None


@pytest.mark.parametrize(
    ("line", "options", "code", "told"),
    [
        ('{"question": "a"}', (), 2, ":1:1: it needs `documents` or `passages` that answer the question."),
        (
            '{"question": "a", "document": ["b"]}',
            (),
            2,
            "document is not known here. Did you mean documents?",
        ),
        ('{"question": " ", "documents": ["b"]}', (), 2, "question should have at least 1 character."),
        ('{"question": "a", "documents": ["b"}', (), 2, ":1:36: expected a comma or ]."),
        ('{"question": "a", "documents": ["b"]}', ("--kb", "none"), 1, "There is no knowledge base 'none'."),
        ('{"question": "a", "documents": ["b"]}', ("--filter", "colour=1"), 1, "no filter 'colour'"),
    ],
)
def test_what_is_wrong_is_told_once(
    line: str, options: tuple[str, ...], code: int, told: str, evaluate: Evaluate
) -> None:
    found, out, err = evaluate(line, options=options)
    assert (found, out) == (code, "")
    assert told in err


@pytest.mark.parametrize("given", ["R@3=0.5", "R@5=80", "R@5", "R@5=x"])
def test_a_threshold_needs_a_known_metric_and_a_share(given: str, evaluate: Evaluate) -> None:
    with pytest.raises(SystemExit) as raised:
        evaluate({"question": "a", "documents": "b"}, options=("--at-least", given))
    assert raised.value.code == 2
