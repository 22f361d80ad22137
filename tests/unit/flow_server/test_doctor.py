"""Findings of `doctor`, and configuration that `install` writes."""

from __future__ import annotations

import json
import socket
from functools import partial

import anyio
import pytest
from loom_flow.cli import SERVER
from loom_flow.command_line.doctor import own_checks

from loom_core.errors import InvalidInputError
from loom_core.server.doctor.checks import run_paste_safe
from loom_core.server.program import server_arguments

ASKS = [{"stepId": "a", "ask": "Name?"}]


@pytest.fixture
def found(settings):
    """The findings of this server's own checks, by section and code."""

    def look(**changes):
        made = settings(**changes)
        report = anyio.run(partial(run_paste_safe, own_checks(made), program="loom-flow-server", version=""))
        return {
            (section.name, finding.code): finding
            for section in report.sections
            for finding in section.findings
        }

    return look


def test_a_file_that_is_not_there_is_told_with_the_command_that_writes_one(found):
    assert "init" in found()["flows", "no-flow-file"].remedy


def test_what_is_wrong_with_a_file_is_told_with_its_place(found, home):
    (home / "flow.json").write_text('{"flows": [{"flow_id": 1}]}')
    assert "flow.json:1:" in found()["flows", "flow-file-wrong"].message


def test_a_file_that_is_in_order_is_fine(found, write):
    write({"flow_id": "a", "trigger_patterns": ["x"], "steps": ASKS})
    assert list(found()) == [("flows", "flows")]


def test_what_nothing_begins_wants_a_model_and_hosts_may_be_refused(found, write):
    write(
        {"flow_id": "a", "steps": ASKS},
        {"flow_id": "b", "trigger_patterns": ["b"], "endpoint": "GET http://127.0.0.1:1/x"},
        skills=[{"condition": "c", "action": "a"}],
        system_tools=[{"name": "t", "description": "d", "endpoint": "GET http://169.254.169.254/x"}],
    )
    assert found().keys() >= {
        ("flows", "flow-without-trigger"),
        ("flows", "skills-without-model"),
        ("network", "host-refused"),
    }


def test_a_step_that_asks_a_model_wants_one(found, write):
    write({"flow_id": "a", "trigger_patterns": ["x"], "steps": [{"stepId": "m", "llm": {"prompt": "?"}}]})
    assert "the step 'm' needs a language model" in found()["flows", "not-on-this-machine"].message


def test_an_address_where_no_one_listens_is_told_and_one_where_someone_does_is_not(found, write):
    with socket.create_server(("127.0.0.1", 0)) as there:
        listened = there.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as closing:
            silent = closing.getsockname()[1]
        ask = {"flow_id": "a", "trigger_patterns": ["a"], "endpoint": f"GET http://127.0.0.1:{listened}/x"}
        write(
            ask,
            {**ask, "flow_id": "b", "endpoint": f"GET http://127.0.0.1:{silent}/{{$context.id}}"},
            net={"allow": ["127.0.0.1"]},
        )
        told = found()["network", "host-silent"]
    assert f"'b': 127.0.0.1:{silent} accepts no connection" in told.message


def test_a_variable_that_is_not_set_is_a_warning(found, write, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    headers = {"Authorization": "env:NO_SUCH_KEY"}
    endpoint = {"url": "http://169.254.169.254/x", "headers": headers}
    write({"flow_id": "a", "trigger_patterns": ["a"], "endpoint": endpoint})
    assert "NO_SUCH_KEY" in found()["flows", "not-on-this-machine"].message


def test_a_model_without_a_key_is_a_problem_and_one_that_needs_none_is_fine(found, write):
    write({"flow_id": "a", "trigger_patterns": ["x"], "steps": ASKS}, model="deepseek")
    assert ("language model", "model-unusable") in found()
    write({"flow_id": "a", "trigger_patterns": ["x"], "steps": ASKS})
    assert ("language model", "model") in found(provider="ollama/qwen3")


def served(*line, after=()):
    return server_arguments(SERVER, SERVER.parser().parse_args(["install", "zed", *line]), after)


def test_what_the_shell_knows_is_told_to_the_client(monkeypatch, home):
    monkeypatch.setenv("LOOM_HOME", str(home))
    config = home / "f.json"
    assert served("--config", str(config), "--provider", "deepseek") == [
        "serve", "--home", str(home), "--config", str(config), "--provider", "deepseek",
    ]  # fmt: skip
    with pytest.raises(InvalidInputError):
        served(after=("--http",))


def test_the_keys_that_the_file_names_are_handed_on(write, home, monkeypatch):
    monkeypatch.setenv("LOOM_HOME", str(home))

    def variables(*options):
        return set(SERVER.key_variables(SERVER.settings_of(SERVER.parser().parse_args(["serve", *options]))))

    assert variables() == set()
    write(
        {
            "flow_id": "a",
            "endpoint": {"url": "https://a.example", "headers": {"Authorization": "Bearer env:SITE_KEY"}},
        },
        model="deepseek",
    )
    assert variables() == {"SITE_KEY", "DEEPSEEK_API_KEY"}


def test_tools_that_no_operator_has_approved_are_told_with_the_command_that_approves_them(found, write, home):
    servers = {"time": {"command": "x"}, "own": {"command": "x", "loom": {"trusted": True}}}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    steps = [
        {"stepId": "a", "tool": "time:now"},
        {"stepId": "b", "tool": "own:write"},
        {"stepId": "c", "tool": "own:read", "confirm": False},
    ]
    write({"flow_id": "a", "trigger_patterns": ["x"], "steps": steps})
    approved = {"version": 2, "tools": {"own": {"write": {"digest": "1"}}}}
    (home / "trust.json").write_text(json.dumps(approved))

    finding = found()["tools", "tool-not-approved"]

    assert "time:now" in finding.message
    assert "mcp approve time:now" in finding.remedy
    (home / "trust.json").unlink()
    assert "own:write" in found()["tools", "tool-not-approved"].message
