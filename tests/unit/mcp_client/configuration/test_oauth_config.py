"""OAuth settings of an entry, and where secrets may go."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from loom_core.mcp_client.configuration.oauth_config import OAuthConfig, is_secure_address, origin_of

ISSUER = "https://login.example"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"client_id": "laptop"},
        {"client_id": "laptop", "client_secret": "s", "issuer": ISSUER},
        {"client_id": "laptop", "client_secret": "s", "issuer": "http://localhost:9000"},
        {"grant": "client_credentials", "client_id": "s", "private_key": "k", "issuer": ISSUER},
        {"client_metadata_url": "https://loom.example/client.json", "redirect_port": 7070},
    ],
)
def test_a_complete_client_is_taken(settings):
    assert OAuthConfig(**settings).model_dump(exclude_defaults=True).keys() == settings.keys()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"client_id": "laptop", "client_secret": "geheim"}, "needs client_id, and issuer"),
        ({"client_secret": "geheim", "issuer": ISSUER}, "needs client_id, and issuer"),
        ({"grant": "client_credentials"}, "needs client_secret or private_key"),
        (
            {"client_id": "a", "client_secret": "geheim", "private_key": "geheim", "issuer": ISSUER},
            "exclude each other",
        ),
        ({"client_id": "a", "private_key": "geheim", "issuer": ISSUER}, "for client_credentials only"),
        ({"issuer": "http://login.example"}, "must be an https address"),
        ({"client_metadata_url": "https://loom.example"}, "https address with a path"),
        ({"client_metadata_url": "http://loom.example/client.json"}, "https address with a path"),
        ({"redirect_port": 70000}, "redirect_port"),
        ({"clientSecret": "geheim"}, "clientSecret"),
    ],
)
def test_what_cannot_work_is_refused_without_showing_it(settings, reason):
    with pytest.raises(ValidationError, match=reason) as caught:
        OAuthConfig(**settings)
    assert "geheim" not in str(caught.value)


@pytest.mark.hostile("tokens")
@pytest.mark.parametrize(
    ("url", "server_url", "safe"),
    [
        ("https://login.example/token", "http://localhost/mcp", True),
        ("http://login.example/token", "https://kb.example/mcp", False),
        ("http://login.example/token", "", False),
        ("http://127.0.0.1:9/token", "", True),
        ("http://[::1]:9/token", "http://localhost:8000/mcp", True),
        ("http://localhost:9/token", "https://kb.example/mcp", False),
        ("http://kb.intranet/token", "http://kb.intranet:80/mcp", True),
        ("http://kb.intranet:81/token", "http://kb.intranet/mcp", False),
        ("file:///etc/passwd", "", False),
        ("javascript:alert(1)", "http://localhost/mcp", False),
        ("https://", "", False),
        ("https://login.example:0x/", "", False),
    ],
)
def test_secrets_go_to_safe_places_only(url, server_url, safe):
    assert is_secure_address(url, server_url=server_url) is safe


def test_an_origin_knows_the_port_that_is_meant():
    assert origin_of("HTTPS://KB.Example/mcp") == origin_of("https://kb.example:443/other")
    assert origin_of("https://kb.example/") != origin_of("http://kb.example/")
