from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.mcp_client.configuration.masking import (
    literal_secrets,
    mask_arguments,
    mask_entry,
    mask_url,
)

_SECRET = "s3cr3tvalue0123456789abc"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://host/mcp", "https://host/mcp"),
        ("https://ann:pass@host:8080/a/b", "https://host:8080/a/b"),
        (f"https://host/s/{_SECRET}/mcp", "https://host/s/…/mcp"),
        ("https://host/mcp?key=1#x", "https://host/mcp?…"),
        ("https://[::1/", "…"),
        ("${URL}", "://${URL}"),
    ],
)
def test_of_a_url_only_the_harmless_part_is_shown(url: str, shown: str) -> None:
    assert mask_url(url) == shown


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["-y", "@scope/server", "/文档"], ["-y", "@scope/server", "/文档"]),
        (["--api-key", _SECRET, "x"], ["--api-key", "…", "x"]),
        (["--api-key", "${KEY}"], ["--api-key", "${KEY}"]),
        (["--token=abc"], ["--token=…"]),
        (["TOKEN=abc"], ["TOKEN=…"]),
        (["--header", "Authorization: Bearer abc"], ["--header", "Authorization: …"]),
        (["--header", "Authorization: Bearer ${T}"], ["--header", "Authorization: Bearer ${T}"]),
        (["--db=postgres://u:p@host/db"], ["--db=postgres://host/db"]),
        ([_SECRET], ["…"]),
        (["--port", 8080], ["--port", "8080"]),
    ],
)
def test_arguments_are_shown_without_those_that_are_called_secrets(
    arguments: list[object], shown: list[str]
) -> None:
    assert mask_arguments(arguments) == shown


def test_values_of_variables_and_headers_are_hidden_and_references_shown() -> None:
    entry = {
        "command": "x",
        "env": {"A": "plain", "KEY": "${KEY:-default}", "REF": "keyring:ref"},
        "headers": {"Authorization": f"Bearer {_SECRET}", "X": "Bearer env:X"},
        "url": f"https://u:{_SECRET}@host",
        "loom": {"oauth": {"client_id": "me", "client_secret": _SECRET}, "auth": "oauth", "allow": ["a*"]},
    }
    shown = mask_entry(entry)
    assert shown["env"] == {"A": "…", "KEY": "${KEY:-…}", "REF": "keyring:ref"}
    assert shown["headers"] == {"Authorization": "…", "X": "Bearer env:X"}
    assert shown["loom"]["oauth"] == {"client_id": "me", "client_secret": "…"}
    assert (shown["loom"]["auth"], shown["loom"]["allow"], shown["command"]) == ("oauth", ["a*"], "x")
    assert _SECRET not in json.dumps(shown)


def test_where_secrets_stand_as_they_are_is_found() -> None:
    entry: dict[str, Any] = {
        "env": {"API_KEY": "abc", "LEVEL": "debug", "OTHER_KEY": "${OTHER_KEY}", "EMPTY_KEY": ""},
        "headers": {"Authorization": "Bearer abc", "X-Token": "Bearer keyring:x"},
        "args": ["--token", "abc", "https://host/?a=b"],
        "url": "https://u:p@host",
    }
    assert literal_secrets(entry) == ["env.API_KEY", "headers.Authorization", "args.1", "url"]
    assert literal_secrets({"command": "x", "args": ["y"], "env": {"LEVEL": "debug"}}) == []


@pytest.mark.hostile("secrets")
@given(
    st.recursive(
        st.sampled_from([_SECRET, f"Bearer {_SECRET}", f"--token={_SECRET}", f"https://u:{_SECRET}@h"]),
        lambda inner: st.lists(inner, max_size=2),
        max_leaves=3,
    ),
    st.sampled_from(["env", "headers"]),
)
def test_no_shape_of_a_value_shows_a_secret(value: object, section: str) -> None:
    assert _SECRET not in json.dumps(mask_entry({section: {"A": value}}))
