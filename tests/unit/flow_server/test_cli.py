"""The command line in this process: what it prints, on which stream, and how it ends."""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from loom_flow.cli import SERVER, run

from loom_core.errors import ConfigError
from loom_core.runs.journal import PostgresPlace

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "flow_company"
NOTE = {
    "flow_id": "note",
    "trigger_patterns": [r"\bnote\b", "记一下"],
    "input_schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "steps": [{"stepId": "sure", "confirm": "Keep “{$inputs.text}”?"}],
    "response": "Kept: {$inputs.text}",
}


@pytest.fixture
def command(home, capsys, monkeypatch):
    """Runs a command on the home; gives the exit code, standard output and standard error."""

    def call(name, *arguments, stdin=""):
        reading, writing = os.pipe()  # no one is there to be asked
        with os.fdopen(reading, encoding="utf-8") as piped:
            with os.fdopen(writing, "w", encoding="utf-8") as typed:
                typed.write(stdin)
            monkeypatch.setattr("sys.stdin", piped)
            code = run([name, "--home", str(home), *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_settings_are_what_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOM_HOME", str(tmp_path))
    usual = SERVER.settings_of(SERVER.parser().parse_args(["serve"]))
    assert (usual.home, usual.config, usual.config_given) == (tmp_path, tmp_path / "flow.json", False)
    assert usual.journal == tmp_path / "flow" / "runs.db"
    other = SERVER.settings_of(
        SERVER.parser().parse_args(["serve", "--config", "a.json", "--provider", "mock"])
    )
    assert other.config.is_absolute()
    assert (other.config_given, other.provider) == (True, "mock")


def test_the_journal_is_in_the_database_that_the_option_or_the_environment_names(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOM_DATABASE", "postgresql://db.example/loom")
    usual = SERVER.settings_of(SERVER.parser().parse_args(["serve", "--home", str(tmp_path)]))
    assert usual.journal == PostgresPlace("postgresql://db.example/loom", name="flow")
    assert "LOOM_DATABASE_SECRET" in SERVER.key_variables(usual)
    other = "postgresql://elsewhere/loom?schema=team"
    line = ["serve", "--home", str(tmp_path), "--database", other]
    settings = SERVER.settings_of(SERVER.parser().parse_args(line))
    assert SERVER.options(settings)[-2:] == ["--database", other]
    line[-1] = "postgresql://loom:geheim@elsewhere/loom"
    with pytest.raises(ConfigError, match="LOOM_DATABASE_SECRET") as caught:
        SERVER.settings_of(SERVER.parser().parse_args(line))
    assert "geheim" not in str(caught.value)


def test_init_writes_a_file_that_works_and_none_over_another(command, home):
    code, out, _ = command("init")
    assert code == 0
    assert str(home / "flow.json") in out
    assert command("validate")[0] == 0
    code, _, err = command("init")
    assert code == 1
    assert "--force" in err
    code, out, _ = command("explain", "请给我回电", "--json")
    assert json.loads(out)["flow_id"] == "call_back"
    code, out, _ = command("explain", "call", "me", "back", "at", "0532", "8888", "1234")
    assert '"phone": "0532 8888 1234"' in out
    assert "It would ask for: phone" in command("explain", "call me")[1]


def test_validate_tells_everything_with_its_place(command, home):
    (home / "flow.json").write_text(
        '{\n "flows": [\n  {"flow_id": "a", "steps": [{"stepId": "s", "tool": "gone"}]},\n'
        '  {"flow_id": "a", "trigger_patterns": ["("], "endpoint": "POST /x"}]\n}'
    )
    code, out, err = command("validate")
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert len(lines) >= 4
    assert all("flow.json:" in line for line in lines)
    code, out, _ = command("validate", "--json")
    assert code == 1
    assert len(json.loads(out)["problems"]) == len(lines)


def test_schema_graph_and_arazzo_are_printed(command, tmp_path):
    code, out, _ = command("schema")
    assert json.loads(out)["title"] == "flow.json"
    config = ("--config", EXAMPLE / "flow.json")
    code, out, _ = command("graph", "leave_request", *config)
    assert code == 0
    assert "flowchart TD" in out
    assert "POST /leave/requests" in out
    page = tmp_path / "flows.html"
    assert command("graph", *config, "--html", page)[1].startswith(f"{page}: 3 flows, ")
    assert json.loads(command("graph", "leave_request", *config, "--html", page, "--json")[1])["flows"] == [
        "leave_request"
    ]
    code, _, err = command("graph", "leave", *config)
    assert (code, "leave_request" in err) == (1, True)
    assert json.loads(command("graph", *config, "--json")[1]).keys() == {
        "leave_request",
        "order_status",
        "appointment",
    }
    code, _, err = command("export-arazzo", *config, "--out", tmp_path / "out")
    assert code == 0
    assert "Left out: leave_request" in err
    code, out, err = command(
        "import-arazzo", tmp_path / "out" / "flows.arazzo.json", "--source", "api=api.openapi.json"
    )
    assert code == 0
    assert json.loads(out)["flows"][0]["flow_id"] == "order_status"
    code, _, err = command("import-arazzo", tmp_path / "none.json")
    assert (code, "is not readable" in err) == (1, True)
    code, _, err = command("import-arazzo", EXAMPLE / "flow.json", "--source", "api")
    assert (code, "NAME=FILE" in err) == (1, True)


def test_a_run_waits_is_answered_and_goes_on(command, write):
    write(NOTE)
    code, out, err = command("run", "note", "--json")
    assert code == 3
    waiting = json.loads(out)
    assert waiting["pending"][0]["answer_schema"]["required"] == ["text"]
    code, out, err = command("resume", waiting["run_id"], "--answer", '{"text": "灯塔"}')
    assert code == 3
    assert "Keep “灯塔”?" in out
    assert "--approve" in err
    code, out, _ = command("resume", waiting["run_id"], "--approve", "--json")
    assert (code, json.loads(out)["output"]) == (0, "Kept: 灯塔")
    code, out, _ = command("status", waiting["run_id"], "--events")
    assert code == 0
    assert "flow_finish" in out
    assert waiting["run_id"] in command("status", "latest")[1]
    code, out, _ = command("runs", "--status", "completed")
    assert waiting["run_id"] in out
    assert command("runs", "--status", "odd")[0] == 1
    assert "no such run" in command("runs", "nothing", "--json")[1] or command("runs", "zzz")[0] == 0


def test_runs_are_written_as_a_page_for_a_browser(command, write, tmp_path):
    write(NOTE)
    command("run", "note", "text=灯塔")
    page = tmp_path / "runs.html"
    for arguments in ([], ["latest"]):
        code, out, _ = command("runs", "--html", page, *arguments)
        assert code == 0
        assert f"{page}: 1 run, {page.stat().st_size:,} bytes" in out
        text = page.read_text("utf-8")
        assert '"what":' in text
        assert "灯塔" in text
    assert json.loads(command("runs", "海洋", "--html", page, "--json")[1])["runs"] == 0


def test_a_run_is_refused_and_aborted(command, write):
    write(NOTE)
    run_id = json.loads(command("run", "note", "text=海", "--json")[1])["run_id"]
    code, out, _ = command("resume", run_id, "--deny", "--json")
    assert code == 1
    assert json.loads(out)["status"] in {"aborted", "failed"}
    run_id = json.loads(command("run", "note", "text=海", "--json")[1])["run_id"]
    code, out, _ = command("resume", run_id, "--abort", "--reason", "不要了")
    assert code == 0
    assert "不要了" in out
    code, _, err = command("resume", run_id, "--approve")
    assert (code, "It waits for: nothing" in err) == (1, True)
    code, _, err = command("resume", run_id, "--answer", "[1]")
    assert (code, "does not wait" in err or "object" in err) == (1, True)
    assert command("status", "run_0000000000000000")[0] == 1
    assert command("run", "nota")[0] == 1
    assert command("run", "note", "text")[0] == 1


def test_a_run_is_retried_with_an_input_that_was_wrong(command, write):
    schema = {"type": "object", "properties": {"port": {"type": "string"}}}
    criterion = {"type": "end", "criteria": ["$inputs.port < 3"]}
    steps = [{"stepId": "a", "onSuccess": [criterion]}]
    write({"flow_id": "look", "input_schema": schema, "steps": steps, "response": "{$inputs.port}"})
    code, out, _ = command("run", "look", "port=many", "--json")
    assert (code, json.loads(out)["status"]) == (1, "failed")
    run_id = json.loads(out)["run_id"]
    assert command("resume", run_id, "--retry", "a", "b", "port=1")[0] == 1
    code, out, _ = command("resume", run_id, "--retry", "port=1", "--json")
    assert (code, json.loads(out)["output"]) == (0, "1")


def test_a_dry_run_shows_what_would_be_sent_and_sends_nothing(command):
    config = ("--config", EXAMPLE / "flow.json", "--json")
    code, out, _ = command("run", *config, "--dry-run", "order_status", "order_id=BO 1")
    assert code == 1, "the id does not fit"
    code, out, _ = command("run", *config, "--dry-run", "leave_request", "days=2", "start=2027-03-01")
    assert code == 0
    found = json.loads(out)
    assert [step["kind"] for step in found["steps"]] == [
        "operation",
        "confirm",
        "none",
        "operation",
        "operation",
    ]
    assert found["steps"][0]["what"].startswith("GET http://127.0.0.1:8787/leave/balance?employee=E007")
    assert json.loads(found["steps"][3]["body"])["start"] == "2027-03-01"
    assert "earlier step" in found["steps"][4]["depends"]
    code, out, _ = command("run", "--config", EXAMPLE / "flow.json", "--dry-run", "appointment")
    assert code == 1
    assert "It would ask for: service, date" in out
    assert command("run", *config, "--dry-run", "nothing")[0] == 1


def test_a_chat_reads_lines_and_goes_on_with_its_session(command, write):
    write(NOTE)
    code, out, err = command("chat", stdin="请记一下\n\n买橙子\r\n是")
    assert code == 0
    assert "Keep “买橙子”?" in out
    assert "Kept: 买橙子" in out
    assert "> " not in err, "there is no one to be prompted"
    code, out, _ = command("chat", "--json", stdin="note that\n")
    assert code == 3
    assert json.loads(out)["route"]["how"] == "rules"


def test_the_utterances_of_the_example_go_where_they_should(command, tmp_path):
    config = ("--config", EXAMPLE / "flow.json")
    code, out, err = command("test", EXAMPLE / "utterances.jsonl", *config)
    assert (code, out) == (0, "")
    assert int(err.split()[0]) >= 200
    code, _, err = command("test", EXAMPLE / "utterances.jsonl", *config, "--rules")
    assert code == 0
    assert "left out" in err
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text('{"message": "我不请假了", "expect": {"action": "flow"}}\n', encoding="utf-8")
    code, out, _ = command("test", wrong, *config, "--junit", tmp_path / "junit.xml")
    assert code == 1
    assert "我不请假了" in out
    failure = ElementTree.parse(tmp_path / "junit.xml").getroot().find("testsuite/testcase/failure")
    assert failure is not None
    assert (failure.get("message") or "").startswith("line 1: '我不请假了': action is ")
    code, out, _ = command("test", wrong, *config, "--json")
    assert json.loads(out)["failed"] == 1
    assert command("test", EXAMPLE / "utterances.jsonl", *config, "--with-model")[0] == 1


def test_without_a_file_every_command_says_what_to_write(command):
    for line in (("explain", "x"), ("run", "x"), ("chat",), ("validate",), ("graph",)):
        code, out, err = command(*line)
        assert code == 1
        assert "flow.json" in out + err


def test_a_token_is_bound_to_flows(command, write):
    write(NOTE)
    code, out, err = command("token", "create", "till", "--flow", "note", "--flow", "gone")
    assert code == 0
    assert "no flow 'gone'" in out + err
