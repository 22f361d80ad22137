"""Which certificates are trusted."""

from __future__ import annotations

import ssl

from loom_core.net import system_trust


def test_all_connections_share_what_the_system_trusts(monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    trust = system_trust()
    assert trust is system_trust()
    assert trust.verify_mode is ssl.CERT_REQUIRED
    assert trust.check_hostname


def test_other_certificates_are_taken_where_the_environment_names_them(monkeypatch, tmp_path):
    trust = system_trust()
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert system_trust() is not trust
