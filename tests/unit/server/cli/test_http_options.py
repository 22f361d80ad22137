"""The options of HTTP and the command `token`, as every server's command has them."""

from __future__ import annotations

import argparse

import pytest

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.paths import token_path
from loom_core.server.auth.tokens import TokenFile
from loom_core.server.cli.http_options import add_http_options, http_settings, ready_lines
from loom_core.server.cli.token_command import add_token_options, run_token_command


@pytest.fixture
def settings(tmp_path):
    def parsed(*arguments):
        parser = argparse.ArgumentParser()
        add_http_options(parser)
        return http_settings(parser.parse_args(arguments), tokens=token_path(tmp_path, "sample"))

    return parsed


@pytest.fixture
def run(tmp_path):
    def command(*arguments):
        parser = argparse.ArgumentParser()
        add_token_options(parser, source_option="--kb", source="knowledge base")
        return run_token_command(parser.parse_args(arguments), TokenFile(token_path(tmp_path, "sample")))

    return command


def test_without_http_there_are_no_settings_and_no_one_to_ask(settings):
    assert settings() is None
    assert settings("--port", "8765") is None


@pytest.mark.parametrize(
    "given", ["--tokens", "--port 9000", "--host ::1", "--allow-host a", "--drain 1", "--issuer https://a"]
)
def test_an_option_of_http_without_http_is_refused(settings, given):
    with pytest.raises(ConfigError, match=f"{given.split()[0]} is for HTTP"):
        settings(*given.split())


def test_by_default_this_machine_is_served_without_authentication(settings):
    chosen = settings("--http")
    assert (chosen.host, chosen.port, chosen.auth) == ("127.0.0.1", 8765, None)
    assert chosen.listens_locally
    assert ready_lines("kb", "http://127.0.0.1:8765/mcp", chosen) == [
        "kb serves http://127.0.0.1:8765/mcp (this machine only, no authentication)",
        'For mcp.json: {"mcpServers": {"kb": {"type": "http", "url": "http://127.0.0.1:8765/mcp"}}}',
    ]


def test_a_network_is_served_with_tokens_and_told_about_tls(settings, tmp_path):
    chosen = settings("--http", "--host", "0.0.0.0", "--tokens", "--allow-host", "kb.example", "--drain", "5")
    assert chosen.auth.tokens == tmp_path / "tokens" / "sample.json"
    assert chosen.drain_seconds == 5.0
    lines = ready_lines("kb", "http://0.0.0.0:8765/mcp", chosen)
    assert lines[0] == "kb serves http://0.0.0.0:8765/mcp (the network, tokens)"
    assert "TLS proxy" in lines[1]
    assert '"headers": {"Authorization": "Bearer ${LOOM_TOKEN}"}' in lines[2]


@pytest.mark.parametrize(
    ("given", "allowed"),
    [
        ("kb.example", "kb.example"),
        ("KB.Example:8443", "kb.example:8443"),
        ("知识库.example", "xn--dxto77ch7n.example"),
        ("10.0.0.5", "10.0.0.5"),
        ("[fd00::5]", "[fd00::5]"),
    ],
)
def test_a_further_host_is_known_as_clients_send_it(settings, given, allowed):
    assert settings("--http", "--allow-host", given).allowed_hosts == (allowed,)


@pytest.mark.parametrize("given", ["https://kb.example", "kb.example/mcp", "kb.example:", "*", ""])
def test_what_is_no_host_name_is_refused(settings, given):
    with pytest.raises(ConfigError, match="is not the name of a host"):
        settings("--http", "--allow-host", given)


def test_an_issuer_needs_the_address_that_its_tokens_are_for(settings):
    with pytest.raises(ConfigError, match="needs --public-url"):
        settings("--http", "--issuer", "https://login.example")
    with pytest.raises(ConfigError, match="without --issuer"):
        settings("--http", "--public-url", "https://kb.example/mcp")
    chosen = settings("--http", "--issuer", "https://login.example", "--public-url", "https://kb.example/mcp")
    assert chosen.auth.issuer.resource == "https://kb.example/mcp"
    assert not chosen.auth.issuer.typed
    letter = ("--issuer", "https://login.example", "--public-url", "https://kb.example/mcp", "--typed-tokens")
    assert settings("--http", *letter).auth.issuer.typed
    with pytest.raises(ConfigError, match="without --issuer"):
        settings("--http", "--typed-tokens")
    assert "OAuth by https://login.example" in ready_lines("kb", "http://127.0.0.1:1/mcp", chosen)[0]


def test_a_token_is_shown_alone_and_once(run, tmp_path):
    report = run("create", "张三", "--scope", "read", "--scope", "write", "--kb", "文档", "--expires", "30d")
    token = report.data["token"]
    assert report.lines == [token]
    assert token not in "".join(report.notes)
    assert token not in repr(report.notes)
    assert "张三  read, write  on 文档  expires" in report.notes[0]
    assert report.data["expires"] - report.data["created"] == pytest.approx(30 * 86_400)
    listed = run("list")
    assert listed.data["tokens"] == [{name: value for name, value in report.data.items() if name != "token"}]
    assert token not in str(listed)
    assert TokenFile(token_path(tmp_path, "sample")).find(token)


def test_a_token_reads_everything_for_ever_unless_said_otherwise(run):
    report = run("create", "laptop")
    assert (report.data["scopes"], report.data["sources"], report.data["expires"]) == (["read"], None, None)
    assert run("list").lines == ["laptop  read  on everything  does not expire"]


def test_a_token_that_changes_things_also_reads(run):
    assert run("create", "till", "--scope", "write").data["scopes"] == ["read", "write"]


def test_a_server_says_what_its_tokens_are_for_and_what_they_are_bound_to(tmp_path):
    def run(*arguments):
        parser = argparse.ArgumentParser()
        add_token_options(parser, source_option="--flow", source="flow", key="flows", scope="write")
        parser.add_argument("--context", action="append", default=[], dest="token_context")
        return run_token_command(parser.parse_args(arguments), TokenFile(token_path(tmp_path, "sample")))

    made = run("create", "till", "--flow", "订单", "--context", "tenantId=甲=乙", "--context", "employeeId=7")
    assert made.data["scopes"] == ["read", "write"]
    (listed,) = run("list").data["tokens"]
    assert (listed["flows"], listed["context"]) == (["订单"], {"tenantId": "甲=乙", "employeeId": "7"})
    assert "employeeId=7  tenantId=甲=乙" in run("list").lines[0]
    found = TokenFile(token_path(tmp_path, "sample")).find(made.data["token"])
    assert found.caller().context == {"tenantId": "甲=乙", "employeeId": "7"}
    for wrong in ("tenantId", "=x", "tenantId="):
        with pytest.raises(InvalidInputError, match="NAME=VALUE"):
            run("create", "other", "--context", wrong)


def test_a_revoked_token_is_gone(run):
    run("create", "laptop")
    assert run("revoke", "laptop").data == {"revoked": "laptop"}
    assert run("list").notes == ["There is no token yet. Make one: token create NAME"]


def test_a_name_is_wanted_where_there_is_one_and_nowhere_else(run):
    for action in ("create", "revoke"):
        with pytest.raises(InvalidInputError, match="needs a name"):
            run(action)
    with pytest.raises(InvalidInputError, match="takes no name"):
        run("list", "laptop")


@pytest.mark.parametrize("time", ["3x", "d", "0d", "-1d", "1.5d", "999999d", ""])
def test_what_is_no_time_is_wrong_usage(run, time, capsys):
    with pytest.raises(SystemExit):
        run("create", "laptop", f"--expires={time}")
    assert "not a duration such as" in capsys.readouterr().err
