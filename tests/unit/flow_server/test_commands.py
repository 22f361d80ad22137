"""Output at the command line: errors, requests that would be sent, next steps."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from loom_flow.cli import run

from loom_core.errors import InvalidInputError
from loom_core.server.cli.option_types import parse_values

EXAMPLE = Path(__file__).parents[3] / "examples" / "flow_company" / "flow.json"
NOTE = {
    "flow_id": "note",
    "trigger_patterns": [r"\bnote\b", "记一下"],
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "steps": [{"stepId": "sure", "confirm": "Keep “{$inputs.text}”?"}],
    "response": "Kept: {$inputs.text}",
}
BROKEN = {
    "flow_id": "broken",
    "trigger_patterns": ["坏"],
    "endpoint": "POST http://127.0.0.1:9/x",
}


@pytest.fixture
def command(home, capsys, monkeypatch):
    """Runs a command on the home; gives the exit code, standard output and standard error."""

    def call(name, *arguments, stdin="", terminal=False):
        reading, writing = os.pipe()
        with os.fdopen(reading, encoding="utf-8") as piped:
            with os.fdopen(writing, "w", encoding="utf-8") as typed:
                typed.write(stdin)
            monkeypatch.setattr("sys.stdin", piped)
            monkeypatch.setattr(piped, "isatty", lambda: terminal, raising=False)
            monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
            code = run([name, "--home", str(home), *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_check_is_another_name_of_validate(command, write):
    write(NOTE)
    assert command("check") == command("validate")


def test_validate_gives_programs_the_place_and_advice_of_each_problem(command, home):
    (home / "flow.json").write_text(
        '{"flows": [\n  {"flow_id": "a", "trigger_patterns": ["("], "endpoint": "POST /x", "respnse": ""}]}'
    )
    code, out, _ = command("validate", "--json")
    problems = json.loads(out)["problems"]
    assert code == 1
    assert [(each["line"], each["column"]) for each in problems] == [(2, 41), (2, 47), (2, 70)]
    assert all(each["file"].endswith("flow.json") and each["message"] and each["advice"] for each in problems)
    assert "flow 'a': trigger_patterns[0]" in problems[0]["message"]


def test_validate_counts_and_warns_of_what_this_machine_lacks(command, write, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    headers = {"Authorization": "env:NO_SUCH_KEY"}
    write({"flow_id": "a", "endpoint": {"url": "https://a.example", "headers": headers}})
    code, out, err = command("validate")
    assert (code, out) == (0, "")
    assert "Warning: " in err
    assert "NO_SUCH_KEY is not set" in err
    assert "1 flow, 0 trigger patterns" in err
    assert json.loads(command("validate", "--json")[1])["warnings"][0]["line"] == 1


def test_validate_warns_of_steps_without_a_model(command, write):
    write({"flow_id": "a", "steps": [{"stepId": "sort", "llm": {"prompt": "?"}}]})
    assert "the step 'sort' needs a language model, and there is none" in command("validate")[2]
    assert "Warning" not in command("validate", "--provider", "deepseek")[2]
    write({"flow_id": "a", "steps": [{"stepId": "sort", "llm": {"prompt": "?"}}]}, model="deepseek")
    assert "Warning" not in command("validate")[2]


def test_a_file_that_is_not_utf_8_is_told_how_to_save_it(command, home):
    (home / "flow.json").write_bytes('{"flows": [{"flow_id": "请假"}]}'.encode("gbk"))
    assert "Save it as UTF-8." in command("validate")[1]


def test_a_model_that_there_is_not_is_refused_at_the_terminal(command, write):
    write(NOTE)
    for name in ("bogus", "mock"):
        code, _, err = command("explain", "note", "--provider", name)
        assert code == 1
        assert f"there is no '{name}'" in err
        assert "deepseek" in err
        assert "mock," not in err


def test_options_may_stand_between_arguments_and_wrong_ones_show_the_usage_of_the_command(
    command, write, capsys
):
    write(NOTE)
    code, out, _ = command("run", "note", "--dry-run", "text=海", "--json")
    assert (code, json.loads(out)["inputs"]) == (0, {"text": "海"})
    assert json.loads(command("explain", "please", "--json", "note")[1])["message"] == "please note"
    for line in (("run", "note", "--wrong"), ("validate", "x")):
        with pytest.raises(SystemExit) as ended:
            run([*line])
        assert ended.value.code == 2
        assert f"usage: loom-flow-server {line[0]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("string", "13800138000", "13800138000"),
        ("string", "true", "true"),
        ("string", '"3"', "3"),
        ("string", "明天", "明天"),
        ("integer", "3", 3),
        ("integer", "三", "三"),
        (["string", "null"], "null", None),
        (["string", "integer"], "3", 3),
        ("array", '["a"]', ["a"]),
        ("object", '{"a": 1}', {"a": 1}),
        (None, "3", 3),
        (None, "2026-11", "2026-11"),
    ],
)
def test_what_a_value_is_the_schema_says(kind, text, value):
    schema = {"properties": {"it": {} if kind is None else {"type": kind}}}
    assert parse_values([f"it={text}"], schema) == {"it": value}


def test_what_no_schema_names_is_json_or_a_text():
    assert parse_values(["a=1", "b=x=y"]) == {"a": 1, "b": "x=y"}
    for wrong in ("a", "=a"):
        with pytest.raises(InvalidInputError, match="no name or no value"):
            parse_values([wrong])


def test_a_dry_run_fills_in_what_is_known_and_shows_the_key_of_what_changes_something(command):
    line = ("leave_request", "--dry-run", "days=2", "start=2027-03-01", "--config", EXAMPLE)
    code, out, _ = command("run", *line)
    assert code == 0
    assert "{$inputs" not in "".join(line for line in out.splitlines() if "(confirm)" in line)
    assert "{$steps.balance.outputs.left}" in out
    assert "- enough (decides): end if $steps.balance.outputs.left < $inputs.days" in out
    assert "    Idempotency-Key: [run]:submit" in out
    reading = out[out.index("- balance") : out.index("- sure" if "- sure" in out else "(confirm)")]
    assert "Idempotency-Key" not in reading


def test_a_dry_run_shows_steps_of_every_kind(command, write):
    put = {"stepId": "put", "operation": "PUT https://a.example/{$item#/id}"}
    book = {"stepId": "book", "say": "Booked for {$inputs.text}: {$steps.sort.outputs.result}."}
    each = {"stepId": "each", "for_each": {"in": ["{$inputs.text}"], "steps": [put]}}
    sort = {"stepId": "sort", "llm": {"prompt": "Sort {$inputs.text}.", "choices": ["a", "b"]}}
    case = {"when": "$steps.sort.outputs.result == 'a'", "steps": [each]}
    route = {"stepId": "route", "switch": [case, {"steps": [book]}]}
    write({**NOTE, "steps": [sort, route]})
    code, out, _ = command("run", "note", "--dry-run", "text=海")
    assert code == 0
    assert "- sort (llm): Sort 海." in out
    assert "- route (switch): each if $steps.sort.outputs.result == 'a'; book otherwise" in out
    assert '- each (for_each): ["{$inputs.text}"]: put' in out
    assert "- put (operation): PUT https://a.example/{$item#/id}" in out
    assert "- book (say): Booked for 海: {$steps.sort.outputs.result}." in out


def test_at_a_terminal_a_run_asks_each_question_once(command, write):
    write(NOTE)
    code, out, err = command("run", "note", "text=海", stdin="y\n", terminal=True)
    assert (code, "Kept: 海" in out) == (0, True)
    assert err.count("Keep “海”?") == 1


@pytest.mark.slow
def test_what_goes_on_with_a_run_finds_the_same_files(command, write, home):
    write(NOTE, BROKEN, net={"allow": ["127.0.0.1"]})
    code, out, err = command("run", "note", "text=海", "--config", home / "flow.json")
    assert code == 3
    assert f"--approve --home {home} --config {home / 'flow.json'}" in err
    run_id = err.split(" resume ")[1].split()[0]
    code, out, err = command("resume", run_id, "--approve")
    assert code == 0
    assert "resume" not in out + err
    assert "status" not in err
    code, _, err = command("run", "broken")
    assert code == 1
    assert "--retry --home" in err


def test_init_tells_commands_that_find_what_it_has_written(command, home):
    told = command("init")[1].splitlines()[1:]
    assert len(told) == 3
    assert all(line.endswith(f" --home {home}") for line in told)


def test_events_are_told_once(command, write):
    write(NOTE)
    run_id = json.loads(command("run", "note", "text=海", "--json")[1])["run_id"]
    told = command("status", run_id, "--events")[1]
    assert f'"run_id": "{run_id}"' not in told
    assert '"type": "approval_required"' not in told
    assert "approval_required" in told


@pytest.mark.slow
def test_a_chat_begins_with_the_greeting_and_its_code_says_how_it_ended(command, write):
    write(
        NOTE,
        BROKEN,
        basic_settings={"name": "小竹", "greeting": "您好，我是小竹。"},
        net={"allow": ["127.0.0.1"]},
    )
    code, _, err = command("chat", stdin="请记一下\n", terminal=True)
    assert code == 3
    assert err.startswith("您好，我是小竹。\n")
    assert command("chat", stdin="请记一下\n算了\n")[0] == 0
    assert command("chat", stdin="坏\n")[0] == 1


def test_a_chat_marks_sources_as_the_answer_does(command, write):
    texts = [{"title": "年假", "text": "年假每年有10天，工作满一年起算。"}]
    write(NOTE, knowledge={"kind": "documents", "documents": texts}, knowledge_seconds=30)
    code, out, err = command("chat", stdin="年假每年有几天？\n")
    assert code == 0
    assert "[1]" in out
    assert "[1] 年假" in err


def test_a_file_of_messages_that_is_not_there_is_named(command, tmp_path):
    code, _, err = command("test", tmp_path / "nope.jsonl")
    assert code == 1
    assert "nope.jsonl is not readable" in err


def test_one_message_is_one(command, write, tmp_path):
    write(NOTE)
    lines = tmp_path / "u.jsonl"
    lines.write_text('{"message": "hello there", "expect": {}}\n', encoding="utf-8")
    assert "1 message, 0 not" in command("test", lines)[2]


def test_an_import_finds_the_descriptions_that_lie_next_to_the_document(command, write, tmp_path):
    look = {"flow_id": "look", "trigger_patterns": ["x"], "endpoint": "GET /x"}
    write(look, flow_url="https://api.example")
    out = tmp_path / "out"
    assert command("export-arazzo", "--out", out)[0] == 0
    code, told, err = command("import-arazzo", out / "flows.arazzo.json")
    assert code == 0
    assert json.loads(told)["flow_url"] == "https://api.example"
    assert "flow_url" not in err
    document = json.loads((out / "flows.arazzo.json").read_text(encoding="utf-8"))
    document["sourceDescriptions"][0]["url"] = f"../{(tmp_path / 'api.openapi.json').name}"
    (out / "api.openapi.json").rename(tmp_path / "api.openapi.json")
    (out / "flows.arazzo.json").write_text(json.dumps(document), encoding="utf-8")
    assert "Set `flow_url`" in command("import-arazzo", out / "flows.arazzo.json")[2], "not from elsewhere"


def test_init_makes_flows_for_operations_of_an_openapi_description(command, home):
    operation = {"operationId": "order", "summary": "Order tea", "parameters": []}
    document = {
        "openapi": "3.1.0",
        "servers": [{"url": "https://tea.example"}],
        "paths": {"/tea": {"post": operation}},
    }
    description = home / "tea.json"
    description.write_text(json.dumps(document), "utf-8")
    code, _, err = command("init", "--from", description)
    assert (code, "There are: order (POST /tea)." in err) == (1, True)
    code, out, err = command("init", "--from", description, "--operation", "order")
    assert (code, "Wrote" in out, "add what users say" in err) == (0, True, True)
    assert command("validate")[0] == 0
    assert "POST https://tea.example/tea" in command("run", "order", "--dry-run")[1]
    assert command("init", "--operation", "order", "--force")[0] == 1
