from __future__ import annotations

import json

import pytest

from loom_core.observability.tracing import content_json, records_content, redact_content


@pytest.mark.parametrize(("value", "wanted"), [("1", True), ("0", False), ("", False), ("true", False)])
def test_content_is_recorded_on_one_word_only(monkeypatch: pytest.MonkeyPatch, value: str, wanted: bool):
    monkeypatch.setenv("LOOM_TRACE_CONTENT", value)
    assert records_content() is wanted


@pytest.mark.hostile("secrets")
def test_secrets_of_the_environment_are_hidden(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP_TOKEN", "rose-bud")
    monkeypatch.setenv("SHOP_NAME", "Xanadu")
    assert redact_content("Xanadu says rose-bud, 密码是rose-bud") == "Xanadu says [secret], 密码是[secret]"


@pytest.mark.hostile("secrets")
@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghijklmnop",
        "ghp_abcdefghijklmnopqrstu",
        "AKIAIOSFODNN7EXAMPLE",
        "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJ",
        "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nMII cut off",
    ],
)
def test_what_looks_like_a_token_is_hidden(secret: str):
    assert redact_content(f"It is {secret}") == "It is [secret]"
    assert json.loads(content_json({"说": secret})) == {"说": "[secret]"}


@pytest.mark.hostile("secrets")
def test_a_bearer_token_is_hidden():
    assert redact_content("Authorization: Bearer abc.def/ghi=") == "Authorization: Bearer [secret]"


def test_a_long_text_is_cut_and_says_so():
    told = redact_content("长" * 30_000)
    assert told.endswith("… [30,000 characters]")
    assert len(told) < 20_100


def test_what_json_has_no_form_for_is_written_as_python_shows_it():
    assert content_json({"bytes": b"x"}) == '{"bytes": "b\'x\'"}'
