"""Keys: which there are, never what they are."""

from __future__ import annotations

import pytest

from loom_core.server.doctor.language_model import keys_section


def test_keys_are_listed_by_name_and_never_shown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOOM_TEST_A_KEY", "sk-something-secret")
    monkeypatch.delenv("LOOM_TEST_B_KEY", raising=False)
    section = keys_section(["LOOM_TEST_B_KEY", "LOOM_TEST_A_KEY", "LOOM_TEST_A_KEY"])
    assert section.facts == {"set": ["LOOM_TEST_A_KEY"], "not_set": ["LOOM_TEST_B_KEY"]}
    assert section.findings == []
    assert "something" not in section.model_dump_json()


def test_a_key_that_no_vendor_takes_is_a_problem(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOOM_TEST_KEY", "sk-密钥")
    section = keys_section(["LOOM_TEST_KEY"])
    [found] = section.findings
    assert (found.code, found.severity) == ("key-unusable", "problem")
    assert "LOOM_TEST_KEY" in found.message
    assert "密钥" not in section.model_dump_json()
    assert found.remedy
