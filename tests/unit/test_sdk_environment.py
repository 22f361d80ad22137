from __future__ import annotations

import pytest

from loom_core.sdk_environment import custom_headers


def test_the_headers_that_are_set_for_an_sdk_are_named_without_their_values(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer a:b\n X-Team : 甲\n\nnonsense")
    assert custom_headers("openai") == ["Authorization", "X-Team"]


def test_without_any_there_are_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ANTHROPIC_CUSTOM_HEADERS", raising=False)
    assert custom_headers("anthropic") == []
