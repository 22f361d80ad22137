"""The command line in this process: what it prints, on which stream, and how it ends."""

from __future__ import annotations

import io
import json
import re

import pytest
from loom_agent.cli import SERVER, run

from loom_core.errors import ConfigError
from loom_core.runs.journal import PostgresPlace

pytestmark = pytest.mark.slow


@pytest.fixture
def command(home, capsys, monkeypatch):
    """Runs a command on the home; gives the exit code, standard output and standard error."""
    monkeypatch.setattr("sys.stdin", io.StringIO())  # no one is there to be asked

    def call(name, *arguments, provider="mock"):
        model = ["--provider", provider] if provider else []
        code = run([name, "--home", str(home), *model, *arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_settings_are_what_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOM_HOME", str(tmp_path))
    usual = SERVER.settings_of(SERVER.parser().parse_args(["serve"]))
    assert (usual.home, usual.config, usual.config_given) == (tmp_path, tmp_path / "agent.json", False)
    assert (usual.provider, usual.root, usual.over_http) == ("", None, False)
    assert usual.journal == tmp_path / "agent" / "runs.db"
    other = SERVER.settings_of(
        SERVER.parser().parse_args(["serve", "--http", "--config", "a.json", "--root", "文档"])
    )
    assert other.config.is_absolute()
    assert other.root is not None
    assert other.root.is_absolute()
    assert (other.config_given, other.over_http) == (True, True)


def test_the_journal_is_in_the_database_that_the_option_or_the_environment_names(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOM_DATABASE", "postgresql://db.example/loom")
    usual = SERVER.settings_of(SERVER.parser().parse_args(["serve", "--home", str(tmp_path)]))
    assert usual.journal == PostgresPlace("postgresql://db.example/loom", name="agent")
    assert "LOOM_DATABASE_SECRET" in SERVER.key_variables(usual)
    other = "postgresql://elsewhere/loom?schema=team"
    line = ["serve", "--home", str(tmp_path), "--database", other]
    settings = SERVER.settings_of(SERVER.parser().parse_args(line))
    assert SERVER.options(settings)[-2:] == ["--database", other]
    line[-1] = "postgresql://loom:geheim@elsewhere/loom"
    with pytest.raises(ConfigError, match="LOOM_DATABASE_SECRET") as caught:
        SERVER.settings_of(SERVER.parser().parse_args(line))
    assert "geheim" not in str(caught.value)


def test_a_run_prints_its_answer_and_its_progress(command):
    code, out, err = command("run", "What", "time", "is", "it?")
    assert code == 0
    assert out.startswith("The tools say: 20")
    assert out.count("The tools say") == 1
    assert "→ clock {}" in err
    assert "✓ clock (" in err
    code, out, err = command("run", "现在几点？", "--quiet")
    assert (code, err) == (0, "")
    assert out.startswith("工具的结果：20")


def test_a_run_reads_attached_files(command, tmp_path):
    (tmp_path / "潮汐.txt").write_bytes("满潮在每天六点，请记一条笔记。".encode("gb18030"))
    code, out, _ = command("run", "--attach", str(tmp_path / "潮汐.txt"), "讲讲附件", "--json")
    assert code == 0, "the demonstration does what the goal says, not the file"
    _, events, _ = command("events", json.loads(out)["run_id"], "--json")
    (given,) = json.loads(events.splitlines()[0])["payload"]["attachments"]
    assert (given["name"], given["media_type"]) == ("潮汐.txt", "text/plain")
    code, _, err = command("run", "--attach", str(tmp_path / "nothing.png"), "讲讲附件")
    assert code == 1
    assert "nothing.png does not exist.\n  Check the path." in err


def test_data_in_a_session_have_the_types_of_its_profile(command, home):
    shop = {"context": {"properties": {"customer": {"type": "string"}}, "required": ["customer"]}}
    (home / "agent.json").write_text(json.dumps({"profiles": {"a": {}, "shop": shop}}), encoding="utf-8")
    code, out, _ = command("run", "x", "--profile", "shop", "--context", "customer=7", "--json")
    assert code == 0
    session = json.loads(out)["session_id"]
    assert command("run", "x", "--session", session, "--context", "customer=8")[0] == 0


def test_a_run_that_waits_for_someone_says_how_to_decide_and_goes_on_then(command):
    code, out, _ = command("run", "请记一条笔记：灯塔", "--json")
    assert code == 3
    waiting = json.loads(out)
    (pending,) = waiting["pending"]
    code, _, err = command("run", "note that")
    assert code == 3
    assert "runs decide run_" in err
    run_id = waiting["run_id"]
    code, out, err = command("runs", "decide", run_id, pending["id"], "edit", "--with", '{"text": "海"}')
    assert (code, out) == (0, f"{run_id}: decided.\n")
    assert f"runs resume {run_id}" in err
    code, out, _ = command("runs", "resume", run_id)
    assert code == 0
    assert "海" in out


def test_a_run_that_was_to_pause_when_no_process_executed_it_is_resumed(command):
    waiting = json.loads(command("run", "请记一条笔记：灯塔", "--json")[1])
    (pending,) = waiting["pending"]
    assert command("runs", "pause", waiting["run_id"])[0] == 0
    assert command("runs", "decide", waiting["run_id"], pending["id"], "approve")[0] == 0
    code, out, _ = command("runs", "resume", waiting["run_id"])
    assert code == 0
    assert "灯塔" in out


def test_the_call_of_a_member_is_decided_in_the_run_of_the_member(command, home):
    profiles = {"a": {"description": "Notes."}, "line": {"chain": ["a"]}}
    (home / "agent.json").write_text(json.dumps({"profiles": profiles}), encoding="utf-8")
    code, _, err = command("run", "--profile", "line", "note that")
    assert code == 3
    assert "(a/keep_note): loom-agent-server runs decide " in err
    decide, resume = (each.split() for each in re.findall(r"loom-agent-server (runs [^;\n]+)", err))
    assert command(*decide)[0] == 0
    code, out, _ = command(*resume)
    assert code == 0
    assert '"kept":"note that"' in out
    code, out, _ = command("runs", "fork", resume[2], "--at", "2", "--with", "灯塔", "--quiet")
    assert (code, out.strip()) == (0, "灯塔"), "the step counts as done in a fork, too"


def test_a_run_whose_profile_is_not_here_is_not_waited_for(command):
    _, out, _ = command("run", "请记一条笔记：灯塔", "--json")
    run_id = json.loads(out)["run_id"]
    code, out, err = command("runs", "resume", run_id, provider="")
    assert (code, out) == (1, "")
    assert "There is no profile 'demonstration'." in err
    assert "It belongs to --provider mock" in err
    code, out, err = command("runs", "abort", run_id, provider="")
    assert (code, out) == (0, f"{run_id} will abort.\n")
    assert "No process executes it now." in err
    command("runs", "resume", run_id)
    _, out, _ = command("runs", "show", run_id, "--json")
    assert json.loads(out)["status"] == "aborted"


def test_a_run_that_was_aborted_is_gone_on_with_to_its_new_end(command):
    _, out, _ = command("run", "请记一条笔记：灯塔", "--json")
    run_id = json.loads(out)["run_id"]
    command("runs", "abort", run_id)
    code, out, _ = command("runs", "resume", run_id, "--json")
    assert code == 0, "what was aborted is told to the model, which answers"
    assert '"status": "completed"' in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "The decision is incomplete"),
        (("call_1_1", "edit"), "needs a JSON object"),
        (("call_1_1", "edit", "--with", "{"), "--with is not JSON"),
        (("call_9", "approve"), "does not wait for 'call_9'"),
    ],
)
def test_a_decision_that_lacks_something_is_refused(command, arguments, said):
    _, out, _ = command("run", "note that", "--json")
    code, out, err = command("runs", "decide", json.loads(out)["run_id"], *arguments)
    assert (code, out) == (1, "")
    assert said in err


def test_a_question_whose_tool_has_gone_is_asked_again_when_the_run_goes_on(command):
    _, out, _ = command("run", "请问我的名字", "--json")
    asked = json.loads(out)
    id_ = asked["pending"][0]["id"]
    code, _, err = command("runs", "decide", asked["run_id"], id_, "answer", "--with", '{"answer": "李明"}')
    assert code == 1
    assert f"runs resume {asked['run_id']}" in err
    code, out, _ = command("runs", "resume", asked["run_id"], "--json")
    assert code == 3
    assert json.loads(out)["pending"][0]["kind"] == "question"


def test_a_run_is_forked_at_a_step_that_show_numbers(command):
    _, out, _ = command("run", "现在几点？", "--json")
    origin = json.loads(out)["run_id"]
    _, out, _ = command("runs", "show", origin)
    assert "\n  1  回答 我先使用 clock。 → clock {}\n  2  clock ✓ 20" in out
    code, out, err = command("runs", "fork", origin, "--at", "2", "--with", "早上三点")
    assert (code, out.splitlines()[0]) == (0, "工具的结果：早上三点")
    assert f"{origin} 的分叉，自第 2 步起" in err
    _, out, _ = command("runs", "list", origin)
    assert f"{origin} 的分叉" in out
    _, out, _ = command("runs", "show", "latest", "--json")
    fork = json.loads(out)
    assert (fork["fork_of"], fork["fork_step"], fork["usage"]["tool_calls"]) == (origin, 2, 0)
    assert [step["is_given"] for step in fork["steps"]] == [False, True, False]
    call = '[{"tool": "keep_note", "arguments": {"text": "海"}}]'
    code, out, _ = command("runs", "fork", "latest", "--at", "1", "--with", call, "--json")
    assert (code, json.loads(out)["pending"][0]["arguments"]) == (3, {"text": "海"})


def test_a_fork_without_a_step_of_the_run_is_refused(command):
    command("run", "What time is it?", "--quiet")
    for arguments, said in (((), "Give its number by --at"), (("--at", "9"), "It has the steps 1 to 3.")):
        code, out, err = command("runs", "fork", "latest", *arguments)
        assert (code, out) == (1, "")
        assert said in err


def test_a_run_is_shown_with_what_can_be_typed_next(command):
    _, out, _ = command("run", "What time is it?", "--json")
    done = json.loads(out)
    _, out, _ = command("runs", "show", done["run_id"])
    assert out.endswith(f'Next: loom-agent-server run --session {done["session_id"]} "…"\n')
    _, out, _ = command("run", "note that", "--json")
    waiting = json.loads(out)["run_id"]
    _, out, _ = command("runs", "show", waiting)
    decide = f"loom-agent-server runs decide {waiting} call_1_1 approve;"
    assert out.endswith(f"Next: {decide} then loom-agent-server runs resume {waiting}\n")
    command("runs", "abort", waiting)
    _, out, _ = command("runs", "show", waiting)
    assert out.endswith(f"Next: loom-agent-server runs resume {waiting}\n")


def test_what_a_profile_lacks_is_said_with_its_name_and_the_command_of_this_server(command, configure):
    configure(
        服务={"mcp": {"servers": ["文件"]}}, 模型={"model": "mokc"}, 目录={"tools": {"files": {"root": "无"}}}
    )
    code, _, err = command("run", "你好", "--profile", "服务")
    assert code == 1
    assert "文件, which the profile names, cannot be started" in err
    assert "`loom-agent-server mcp list`" in err
    assert len(err.splitlines()) == 2
    for profile, said in (("模型", "there is no 'mokc'"), ("目录", "There is no folder")):
        code, _, err = command("run", "你好", "--profile", profile)
        assert code == 1
        assert err.startswith(f"loom-agent-server: The profile '{profile}': ")
        assert said in err


def test_runs_are_listed_found_shown_and_forgotten(command):
    command("run", "What time is it?", "--quiet")
    _, out, _ = command("run", "请记一条笔记：青岛", "--json")
    waiting = json.loads(out)["run_id"]
    _, out, _ = command("runs")
    assert out.splitlines()[0].startswith(f"- {waiting} (input_required, waits for 1; session ses_")
    assert "(completed; session ses_" in out.splitlines()[1]
    _, out, _ = command("runs", "list", "青岛", "--json")
    assert [run["run_id"] for run in json.loads(out)["runs"]] == [waiting]
    _, out, _ = command("runs", "--status", "completed")
    assert waiting not in out
    code, _, err = command("runs", "--status", "done")
    assert code == 1
    assert "input_required" in err
    _, out, _ = command("runs", "show", waiting)
    assert "keep_note" in out
    code, out, _ = command("runs", "abort", waiting, "--reason", "够了")
    assert (code, out) == (0, f"{waiting} is aborted.\n")
    assert "够了" in command("runs", "show", waiting)[1]
    assert command("runs", "forget", waiting)[:2] == (0, f"{waiting} was purged.\n")
    assert command("runs", "show", waiting)[0] == 1
    assert command("runs", "resume")[0] == 1


def test_runs_are_written_as_a_page_for_a_browser(command, tmp_path):
    command("run", "现在几点？")
    command("run", "note the lighthouse")
    page = tmp_path / "runs.html"
    code, out, _ = command("runs", "--html", str(page))
    assert code == 0
    assert f"{page}: 2 runs, {page.stat().st_size:,} bytes" in out
    assert "现在几点？" in page.read_text("utf-8")
    latest = json.loads(command("runs", "--json")[1])["runs"][0]["run_id"]
    for arguments in (["--html", str(page), "latest"], ["show", latest, "--html", str(page)]):
        code, out, _ = command("runs", *arguments, "--json")
        assert (code, json.loads(out)["runs"]) == (0, 1)
        assert f"<title>{latest}</title>" in page.read_text("utf-8")
    assert json.loads(command("runs", "list", "lighthouse", "--html", str(page), "--json")[1])["runs"] == 1
    assert json.loads(command("runs", "--limit", "1", "--html", str(page), "--json")[1])["runs"] == 1
    assert '"more":true' in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--html", "latest"], "needs a file before latest"),
        (["--html", "x.html", "latest"], "There is no run yet"),
        (["--html", "x.html", "run_0000000000000000"], "There is no run"),
        (["abort", "run_0", "--html", "x.html"], "cannot be used with `abort`"),
        (["show", "--html", "x.html"], "needs a run"),
        (["--html", "no/such/folder/x.html"], "cannot be written"),
    ],
)
def test_a_page_that_cannot_be_made_says_why(command, monkeypatch, tmp_path, arguments, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = command("runs", *arguments)
    assert (code, out) == (1, "")
    assert said in err
    assert not list(tmp_path.glob("*.html"))


def test_events_are_shown_and_followed_to_the_end(command):
    _, out, _ = command("run", "What time is it?", "--json")
    run = json.loads(out)
    _, out, _ = command("events", run["run_id"], "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, run["last_seq"] + 1))
    code, out, err = command("events", run["run_id"], "--follow", "--after", str(run["last_seq"] - 1))
    assert (code, err) == (0, "")
    assert out.startswith(f"{run['last_seq']} agent_finish ")


def test_a_conversation_goes_on_in_its_session(command, monkeypatch):
    _, out, _ = command("run", "What time is it?", "--json")
    session = json.loads(out)["session_id"]
    code, out, _ = command("run", "And now?", "--session", session, "--json")
    assert code == 0
    assert json.loads(out)["session_id"] == session
    assert command("run", "x", "--session", "ses_none")[0] == 1


def test_a_goal_may_come_from_standard_input(command, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("现在几点？"))
    code, out, _ = command("run", "-")
    assert code == 0
    assert out.startswith("工具的结果")


def test_a_run_that_fails_says_why(command):
    code, out, err = command("run", "wait 30", "--seconds", "3")  # in which it speaks, be the machine busy
    assert (code, out) == (1, "First I use wait_for.\n")
    assert "3 s" in err
    for option, value, least in (("--iterations", "0", 1), ("--calls", "-1", 0)):
        code, _, err = command("run", "x", option, value)
        assert code == 1
        assert f"{option}: should be greater than or equal to {least}." in err


def test_without_a_model_it_says_what_to_set(command):
    code, out, err = command("run", "What time is it?", provider="")
    assert (code, out) == (1, "")
    assert "DEEPSEEK_API_KEY" in err
    assert "--provider mock" in err


def test_tools_are_listed_and_found(command):
    code, out, _ = command("tools")
    assert code == 0
    assert "- keep_note (ask): Keep a note" in out
    _, out, _ = command("tools", "date", "--json")
    assert json.loads(out)["tools"][0]["name"] == "clock"


def test_the_schema_is_printed(command):
    code, out, _ = command("schema")
    assert code == 0
    assert json.loads(out)["properties"]["profiles"]["description"].startswith("Kinds of agents")


def test_profiles_are_drawn_with_what_they_use(command, home):
    orders = {"description": "Orders", "tools": {"http": {}}, "mcp": {"servers": []}, "knowledge": ["手册"]}
    router = {"routes": {"orders": {"when": "订单|order"}, "both": {}}, "default": "both"}
    profiles = {"desk": {"router": router}, "both": {"chain": ["orders", "orders"]}, "orders": orders}
    (home / "agent.json").write_text(json.dumps({"profiles": profiles}), encoding="utf-8")
    code, out, _ = command("graph", "desk")
    assert code == 0
    assert out.splitlines() == [
        "flowchart LR",
        '  p0[["desk: router"]]',
        '  p1["orders"]',
        '  p2[["both: chain"]]',
        '  p0 -->|"订单#124;order"| p1',
        '  p0 -->|"else"| p2',
        '  p2 -->|"1"| p1',
        '  p2 -->|"2"| p1',
        '  u0(["http"])',
        "  p1 -.-> u0",
        '  u1[("knowledge: 手册")]',
        "  p1 -.-> u1",
    ]
    code, _, err = command("graph", "dsk")
    assert code == 1
    assert "Did you mean 'desk'?" in err


def test_a_token_may_be_bound_to_profiles(command, configure):
    configure(default={}, 研究={})
    code, out, err = command(
        "token", "create", "ada", "--scope", "write", "--profile", "研究", "--profile", "x"
    )
    assert code == 0
    assert out.strip()
    assert "There is no profile 'x' yet." in err


def test_a_broken_configuration_is_told_with_its_place(command, home):
    (home / "agent.json").write_text("{", encoding="utf-8")
    code, _, err = command("run", "x")
    assert code == 1
    assert "agent.json:1:2:" in err
