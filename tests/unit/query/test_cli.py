"""The command line in this process: what it prints, on which stream, and how it ends."""

from __future__ import annotations

import json

import pytest
from loom_query.cli import SERVER, run


@pytest.fixture
def command(home, capsys):
    """Runs a command on the home; gives the exit code, standard output and standard error."""

    def call(*arguments):
        code = run([arguments[0], "--home", str(home), *arguments[1:]])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_settings_are_what_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOM_HOME", str(tmp_path))
    usual = SERVER.settings_of(SERVER.parser().parse_args(["serve"]))
    assert (usual.home, usual.config, usual.config_given) == (tmp_path, tmp_path / "query.json", False)
    other = SERVER.settings_of(
        SERVER.parser().parse_args(["query", "--config", "a.json", "--home", "/h", "x"])
    )
    assert other.config.is_absolute()
    assert other.config.name == "a.json"
    assert (str(other.home), other.config_given) == ("/h", True)


def test_a_question_is_answered_with_passages_and_their_ids(command, configure, harbour):
    configure({"harbour": harbour})
    code, out, err = command("query", "who", "is", "the", "harbour", "master?", "--detailed", "--limit", "1")
    assert (code, err) == (0, "")
    assert out.startswith("[1] Harbour book › Port Aster (https://harbour.example/aster#2-")
    assert "    id: harbour:" in out
    assert "    The harbour master of Port Aster is Ada Brown." in out
    assert "    source harbour; relevance 0.99; " in out


def test_a_missing_source_is_reported_next_to_the_answer_and_by_the_exit_code(command, configure, ports):
    configure({"港口": ports, "bad": {"kind": "http"}})
    code, out, err = command("query", "青岛港的港长是谁？", "--filter", "language=zh")
    assert code == 3
    assert "李明" in out
    assert err.startswith("1 of 2 sources answered.\nbad: ")
    code, out, err = command("query", "青岛港的港长是谁？", "--source", "港口", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["passages"][0]["uri"] == "https://港口.example/青岛"


def test_fetch_reads_on(command, configure, harbour):
    configure({"harbour": harbour})
    code, out, err = command("fetch", "harbour:https://harbour.example/aster", "--max-tokens", "10")
    assert code == 0
    assert out.startswith("Harbour book (https://harbour.example/aster)\n# Port Aster")
    assert err.startswith("0 to ")
    start = err.split("--start ")[1].strip()
    code, out, _ = command("fetch", "harbour:https://harbour.example/aster", "--start", start, "--json")
    assert json.loads(out)["start"] == int(start)
    code, _, err = command("fetch", "harbour:nothing")
    assert code == 1
    assert err.startswith("loom-query-server: There is nothing with the id 'harbour:nothing'.\n  Take an id")


def test_ask_answers_and_warns_of_what_nothing_supports(command, configure, harbour):
    model = {"provider": "mock", "options": {"responses": ["Ada Brown is the master [1]. It rains."]}}
    configure({"harbour": harbour}, llm=model)
    code, out, err = command("ask", "who is the harbour master?")
    assert code == 0
    assert out.startswith("Ada Brown is the master [1]. It rains.\n\n[1] Harbour book")
    assert "- not supported by any passage: It rains." in err


def test_ask_without_a_model_refuses_and_prints_the_passages(command, configure, harbour):
    configure({"harbour": harbour})
    code, out, err = command("ask", "who is the harbour master?")
    assert code == 1
    assert "Ada Brown" in out
    assert err.startswith("There is no language model to answer with")
    code, out, _ = command("ask", "who is the harbour master?", "--json")
    assert (code, json.loads(out)["answered"]) == (1, False)


def test_sources_are_listed_with_what_is_wrong(command, configure, harbour):
    assert "There is no source yet" in command("sources")[2]
    configure({"harbour": harbour, "港": {"kind": "mcp", "server": "nowhere"}})
    code, out, _ = command("sources")
    assert code == 0
    assert "- harbour (documents, ready): Notes about harbours." in out
    assert "- 港 (mcp, failed)" in out
    assert "  problem: " in out
    listed = json.loads(command("sources", "--json")[1])
    assert [source["name"] for source in listed["sources"]] == ["harbour", "港"]


def test_a_configuration_that_is_none_ends_every_command_with_its_place(command, home):
    home.mkdir()
    (home / "query.json").write_text("{\n  sources: 1\n}", encoding="utf-8")
    code, out, err = command("query", "x")
    assert (code, out) == (1, "")
    assert "query.json:2:3: expected a name in double quotes" in err
    assert command("install", "zed", "--print")[0] == 1


def test_other_servers_are_kept_by_the_command_mcp(command, home):
    assert command("mcp", "add", "notes", "--", "loom-kb", "serve", "--kb", "notes")[0] == 0
    kept = json.loads((home / "mcp.json").read_text(encoding="utf-8"))["mcpServers"]["notes"]
    assert (kept["command"], kept["args"]) == ("loom-kb", ["serve", "--kb", "notes"])
    assert "notes" in command("mcp", "list")[1]
    assert command("mcp", "remove", "notes")[0] == 0
    assert "notes" not in json.loads((home / "mcp.json").read_text(encoding="utf-8")).get("mcpServers", {})


def test_tokens_can_be_bound_to_sources(command, configure, harbour):
    configure({"harbour": harbour})
    code, out, err = command("token", "create", "laptop", "--source", "harbour", "--source", "港口")
    assert code == 0
    assert out.startswith("loom_")
    assert "There is no source '港口' yet." in err
    assert "harbour, 港口" in command("token", "list")[1]
    assert command("token", "revoke", "laptop")[0] == 0


def test_an_installed_server_is_given_the_configuration_by_its_full_path(
    command, configure, harbour, tmp_path
):
    path = configure({"harbour": harbour}, llm="deepseek")
    code, out, err = command(
        "install", "--print", "--config", str(path), "--json", "--", "--profile", "chatgpt"
    )
    assert code == 0
    report = json.loads(out)
    assert f'"{path}"' in report["snippet"]
    assert '"chatgpt"' in report["snippet"]
    assert any("DEEPSEEK_API_KEY" in note for note in report["notes"])
    code, _, err = command("install", "--print", "--", "--http")
    assert code == 1
    assert "not --http" in err


@pytest.mark.parametrize("arguments", [["query"], ["ask", "x", "--pattern", "none"], ["nothing"]])
def test_wrong_usage_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2
    assert "usage: loom-query-server" in capsys.readouterr().err
