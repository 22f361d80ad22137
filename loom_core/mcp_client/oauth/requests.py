"""HTTP requests of a login: allowed addresses, and client authentication."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import httpx2

from loom_core.errors import LoginError
from loom_core.mcp_client.configuration.oauth_config import is_secure_address
from loom_core.mcp_client.oauth.store import Login, Registration
from loom_core.net import GuardedClient, NetPolicy
from loom_core.net.headers import is_set_by_client

if TYPE_CHECKING:
    from loom_core.mcp_client.configuration.oauth_config import OAuthConfig
    from loom_core.mcp_client.configuration.server_config import ServerConfig

__all__ = ["create_client", "find_client", "secret_method", "send", "unsafe_address_error"]

_MAX_BYTES = 1 << 20
_TOTAL_SECONDS = 20.0


def create_client(config: ServerConfig, oauth: OAuthConfig) -> GuardedClient:
    """Build an HTTP client with an SSRF guard: only hosts that the user named may be private."""
    hosts = {urlsplit(url).hostname or "" for url in (config.url, oauth.issuer)} - {""}
    policy = replace(NetPolicy.allowing(sorted(hosts)), max_bytes=_MAX_BYTES, total_seconds=_TOTAL_SECONDS)
    return GuardedClient(policy)


async def send(request: httpx2.Request, config: ServerConfig, client: GuardedClient) -> httpx2.Response:
    """Send a request of a login; a secret goes to safe addresses only.

    Raises:
        LoginError: the address is not safe.
        NetError: it does not answer, or its address is not allowed.
    """
    url = str(request.url)
    content = await request.aread()
    headers = {name: value for name, value in request.headers.items() if not is_set_by_client(name)}
    if not is_secure_address(url, server_url=config.url):
        raise unsafe_address_error(config, url)
    method = "POST" if request.method == "POST" else "GET"
    answer = await client.request(method, url, headers=headers, content=content)
    if not is_secure_address(answer.url, server_url=config.url):
        raise unsafe_address_error(config, answer.url)
    received = {name: value for name, value in answer.headers.items() if name != "content-encoding"}
    return httpx2.Response(answer.status, headers=received, content=answer.body, request=request)


def find_client(oauth: OAuthConfig, login: Login) -> Registration | None:
    """Return the client's registration: from the current configuration, or as it was registered."""
    if not oauth.client_id:
        return login.registration
    return Registration(
        client_id=oauth.client_id,
        client_secret=oauth.client_secret,
        method=secret_method(oauth) if oauth.client_secret else "none",
        issuer=oauth.issuer or None,
    )


def secret_method(oauth: OAuthConfig) -> Literal["client_secret_basic", "client_secret_post"]:
    """Return the client's authentication method in OAuth's terms."""
    return "client_secret_basic" if oauth.proof_in == "header" else "client_secret_post"


def unsafe_address_error(config: ServerConfig, url: str) -> LoginError:
    """Build the error for a login that a server directs to an unsafe address."""
    place = urlsplit(url)
    return LoginError(
        f"{config.name!r} directs the login to {place.scheme}://{place.hostname}, to which no secret may "
        "be sent.",
        advice=(
            "An authorization server must be reached over https. Report this to the operator of the server."
        ),
    )
