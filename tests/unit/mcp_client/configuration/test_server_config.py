from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from loom_core.keys import redact
from loom_core.mcp_client.configuration.entry import EntryError
from loom_core.mcp_client.configuration.expansion import Expansion
from loom_core.mcp_client.configuration.server_config import ServerConfig

_VARIABLES = {"TOKEN": "tok-1234567890", "DIR": "/data/文件"}
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
_KEYS = st.sampled_from(
    "type command args env cwd url headers disabled timeout loom extra".split()
) | st.text(max_size=4)


def _config(written: dict[str, Any], *, name: str = "文件") -> ServerConfig:
    return ServerConfig.of_entry(name, written, expansion=Expansion(_VARIABLES), folder=Path("/etc/loom"))


def _refused(written: dict[str, Any]) -> EntryError:
    with pytest.raises(EntryError) as caught:
        _config(written)
    return caught.value


def test_an_entry_as_hosts_write_it_is_read_and_expanded() -> None:
    config = _config(
        {
            "command": "npx",
            "args": ["-y", "server", "${DIR}", 8080],
            "env": {"API_TOKEN": "env:TOKEN", "DEBUG": True, "LEVEL": 2, "UNUSED": None},
            "cwd": "${DIR}",
            "timeout": 30,
            "description": "not ours",
            "autoApprove": ["x"],
        }
    )
    assert (config.transport, config.command) == ("stdio", "npx")
    assert config.args == ("-y", "server", "/data/文件", "8080")
    assert config.env == {"API_TOKEN": "tok-1234567890", "DEBUG": "true", "LEVEL": "2"}
    assert config.cwd == Path("/data/文件")
    assert (config.call_seconds, config.start_seconds, config.enabled) == (30.0, 30.0, True)


@pytest.mark.parametrize(
    ("kind", "transport"),
    [
        ({}, "http"),
        ({"type": "streamable-http"}, "http"),
        ({"type": "HTTP"}, "http"),
        ({"type": "sse"}, "sse"),
    ],
)
def test_a_url_is_asked_as_the_type_says(kind: dict[str, str], transport: str) -> None:
    config = _config({"url": "https://host/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}, **kind})
    assert config.transport == transport
    assert config.headers == {"Authorization": "Bearer tok-1234567890"}


@pytest.mark.parametrize(("timeout", "seconds"), [(60, 60.0), (3600, 3600.0), (60_000, 60.0), (0.5, 0.5)])
def test_a_timeout_is_seconds_or_milliseconds_as_its_size_says(timeout: float, seconds: float) -> None:
    assert _config({"command": "x", "timeout": timeout}).call_seconds == seconds
    assert _config({"command": "x", "timeout": timeout, "loom": {"call_seconds": 7}}).call_seconds == 7


def test_what_only_loom_knows_stands_under_its_own_name() -> None:
    config = _config(
        {
            "url": "https://host/mcp",
            "loom": {
                "required": True, "start_seconds": 3, "era": "legacy", "allow": ["read_*"], "deny": ["*_all"],
                "trusted": True, "sampling": True, "roots": ["/a", "b"],
                "oauth": {"client_id": "me", "client_secret": "env:TOKEN", "issuer": "https://auth"},
            },
        }
    )  # fmt: skip
    assert (config.required, config.start_seconds, config.era) == (True, 3.0, "legacy")
    assert (config.allow, config.deny) == (("read_*",), ("*_all",))
    assert (config.trusted, config.sampling) == (True, True)
    assert config.roots == (Path("/a"), Path("/etc/loom/b"))
    assert config.auth == "oauth"
    assert config.oauth is not None
    assert config.oauth.client_secret is not None
    assert config.oauth.client_secret.get_secret_value() == "tok-1234567890"


@pytest.mark.parametrize(
    ("written", "path", "message"),
    [
        ({}, (), "neither a command nor a url"),
        ({"command": "x", "url": "https://h"}, ("url",), "a command and a url"),
        ({"command": "x", "type": "http"}, ("type",), "does not go with a command"),
        ({"url": "https://h", "type": "stdio"}, ("type",), "does not go with a url"),
        ({"command": "x", "type": "telepathy"}, ("type",), "'telepathy' is not known"),
        ({"command": ["x"]}, ("command",), "command should be"),
        ({"command": "x", "args": "y"}, ("args",), "args should be"),
        ({"command": "x", "args": ["y", {}]}, ("args", 1), r"args\.1 should be"),
        ({"command": "x", "env": {"A": []}}, ("env", "A"), r"env\.A should be"),
        ({"command": "x", "disabled": "no"}, ("disabled",), "disabled should be"),
        ({"command": "x", "timeout": 0}, ("timeout",), "timeout should be greater than 0"),
        ({"command": "x", "loom": {"start_second": 1}}, ("loom", "start_second"), "not a setting of Loom"),
        ({"command": "x", "loom": {"era": "new"}}, ("loom", "era"), r"loom\.era should be"),
        ({"command": "x", "loom": {"start_seconds": -1}}, ("loom", "start_seconds"), "number of seconds"),
        ({"command": "x", "args": ["${NOT_SET}"]}, ("args", 0), r"args\.0: The variable NOT_SET is not set"),
        ({"command": "x", "env": {"K": "env:NO"}}, ("env", "K"), r"env\.K: The variable NO is not set"),
        ({"url": "ftp://h"}, ("url",), "https://"),
        ({"url": "https://"}, ("url",), "https://"),
        ({"url": "https://h:99999/"}, ("url",), "https://"),
        ({"url": "https://h\n/"}, ("url",), "https://"),
        ({"url": "https://h", "headers": {"X": "a\r\nY: b"}}, ("headers",), "one line of ASCII"),
        ({"url": "https://h", "headers": {"X": "密"}}, ("headers",), "one line of ASCII"),
        ({"command": "x", "env": {"A=B": "c"}}, ("env",), "must not contain ="),
        ({"command": "x\0"}, ("command",), "NUL"),
        ({"command": "x", "cwd": "~no-such-user/x"}, ("cwd",), "no such home folder"),
        ({"command": "x", "loom": {"auth": "oauth"}}, (), "a server over stdio has no login"),
        (
            {"url": "https://h", "loom": {"oauth": {"grant": "magic"}}},
            ("loom", "oauth", "grant"),
            r"loom\.oauth\.grant should be",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    written: dict[str, Any], path: tuple[str | int, ...], message: str
) -> None:
    error = _refused(written)
    assert error.path == path
    with pytest.raises(EntryError, match=message):
        raise error


@pytest.mark.parametrize(
    "fields",
    [
        {"transport": "stdio", "url": "https://h"},
        {"transport": "stdio", "command": "x", "headers": {"A": "b"}},
        {"transport": "http", "command": "x"},
        {"transport": "sse"},
    ],
)
def test_a_server_is_reached_in_one_way_however_it_is_made(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="a server over"):
        ServerConfig(name="a", **fields)


def test_a_misspelt_setting_is_told_with_the_right_one() -> None:
    assert _refused({"command": "x", "loom": {"truested": True}}).advice == "Did you mean trusted?"


@pytest.mark.parametrize("name", ["a", "文件系统", "my-server_2.0", "हिन्दी", "x" * 64])
def test_servers_are_called_by_words_of_any_script(name: str) -> None:
    assert _config({"command": "x"}, name=name).name == name


@pytest.mark.parametrize("name", ["", "a:b", "a b", "a/b", "x" * 65, "a\nb", "a\u202eb"])
def test_names_that_people_could_not_tell_apart_are_refused(name: str) -> None:
    with pytest.raises(EntryError, match="the name of a server consists of"):
        _config({"command": "x"}, name=name)


def test_no_secret_is_in_what_is_shown_of_a_server() -> None:
    config = _config(
        {
            "url": "https://ann:pass-123@host/mcp?token=query-123&a=b",
            "headers": {"Authorization": "Bearer head-12345", "Accept": "text/plain"},
        }
    )
    secrets = ["pass-123", "query-123", "head-12345"]
    for shown in (repr(config), str(config), config.target):
        assert not any(secret in shown for secret in secrets)
    assert "host" in config.target
    told = redact(f"failed with {config.url} {config.headers} text/plain", config.secrets)
    assert not any(secret in told for secret in secrets)
    assert "text/plain" in told


def test_what_came_from_variables_is_redacted_wherever_it_stands() -> None:
    config = _config({"command": "x", "args": ["--header", "Authorization: Bearer ${TOKEN}"]})
    assert redact("got tok-1234567890", config.secrets) == "got [secret]"


def test_no_secret_is_in_an_error_of_a_server() -> None:
    with pytest.raises(ValidationError) as caught:
        ServerConfig(name="a", transport="http", url="https://h", headers={"X": "s3cret\n"})
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in str(_refused({"command": "x", "env": "s3cret"}))


@pytest.mark.slow
@pytest.mark.hostile("MCP servers")
@settings(max_examples=200)
@given(written=st.dictionaries(_KEYS, _JSON, max_size=5))
def test_whatever_stands_in_an_entry_it_is_a_server_or_an_error_with_a_place_in_it(
    written: dict[str, Any],
) -> None:
    try:
        found: ServerConfig | EntryError = _config(written)
    except EntryError as error:
        found = error
    if isinstance(found, EntryError):
        assert found.message
        assert not found.path or found.path[0] in {*written, "loom"}
    else:
        assert found.command or found.url


def test_a_secret_among_the_arguments_is_in_no_message() -> None:
    given = ("--api-key", "key-123456", "--token=tok-123456", "文档")
    config = ServerConfig(name="s", transport="stdio", command="server", args=given)
    assert redact("no key-123456, tok-123456 in 文档", config.secrets) == "no [secret], [secret] in 文档"


def _limited(**limits: tuple[str, ...]) -> ServerConfig:
    return ServerConfig(name="文件", transport="stdio", command="server", **limits)


def test_every_tool_may_be_used_where_nothing_is_said() -> None:
    assert _limited().allows("anything")


def test_only_what_fits_a_pattern_is_allowed() -> None:
    allowing = _limited(allow=("read_*", "列出"))

    assert [allowing.allows(name) for name in ("read_file", "列出", "write_file", "Read_file")] == [
        True,
        True,
        False,
        False,
    ]


def test_what_is_denied_is_denied_whatever_is_allowed() -> None:
    assert not _limited(allow=("*", "delete_all"), deny=("delete_*",)).allows("delete_all")


def test_nothing_is_allowed_where_no_pattern_is_given() -> None:
    assert not _limited(allow=()).allows("read")
