"""Token refresh without a user."""

from __future__ import annotations

import time
from base64 import b64encode
from typing import TYPE_CHECKING
from urllib.parse import quote

import httpx2
from mcp.shared.auth import OAuthToken
from pydantic import SecretStr, ValidationError

from loom_core.errors import LoginError
from loom_core.mcp_client.oauth.requests import create_client, find_client, send
from loom_core.mcp_client.oauth.store import Login, Tokens

if TYPE_CHECKING:
    from loom_core.mcp_client.configuration.oauth_config import OAuthConfig
    from loom_core.mcp_client.configuration.server_config import ServerConfig

__all__ = ["expiry_of", "refresh"]


async def refresh(config: ServerConfig, oauth: OAuthConfig, login: Login) -> Login | None:
    """Refresh the tokens of a login without a user; None if the authorization server refuses.

    Raises:
        LoginError: it cannot do so now, or must not be sent the token.
        NetError: it does not answer, or its address is not allowed; the login may still be valid.
    """
    tokens, client = login.tokens, find_client(oauth, login)
    if tokens is None or tokens.refresh is None or client is None:
        return None
    form = {
        "grant_type": "refresh_token",
        "refresh_token": tokens.refresh.get_secret_value(),
        "client_id": client.client_id,
        **({"resource": tokens.resource} if tokens.resource else {}),
    }
    headers: dict[str, str] = {}
    if client.client_secret is not None:
        if (client.issuer or "") != _issuer_of(login):
            return None  # the entry names another authorization server since: its secret is for that one
        secret = client.client_secret.get_secret_value()
        if client.method == "client_secret_post":
            form["client_secret"] = secret
        else:
            headers["Authorization"] = _basic(client.client_id, secret)
    request = httpx2.Request("POST", tokens.endpoint, data=form, headers=headers)
    response = await send(request, config, create_client(config, oauth))
    if response.status_code >= 500 or response.status_code == 429:
        raise LoginError(
            f"The authorization server of {config.name!r} does not renew the login now:"
            f" it answers with status {response.status_code}.",
            advice="Try again later.",
        )
    try:
        new = OAuthToken.model_validate_json(response.content) if response.is_success else None
    except ValidationError:
        new = None
    if new is None:
        return None
    kept = Tokens(
        access=SecretStr(new.access_token),
        refresh=SecretStr(new.refresh_token) if new.refresh_token else tokens.refresh,
        scope=tokens.scope if new.scope is None else new.scope,
        expires=expiry_of(new),
        endpoint=tokens.endpoint,
        resource=tokens.resource,
        issuer=tokens.issuer,
    )
    return login.model_copy(update={"tokens": kept})


def expiry_of(tokens: OAuthToken) -> float | None:
    """Return when new tokens expire, in seconds since 1970; None if the response does not say."""
    return None if tokens.expires_in is None else time.time() + tokens.expires_in


def _issuer_of(login: Login) -> str:
    """Return the authorization server of a login; that of the registration, if older Loom stored it."""
    known = (login.tokens and login.tokens.issuer) or (login.registration and login.registration.issuer)
    return known or ""


def _basic(client_id: str, secret: str) -> str:
    """Return the `Authorization` header of a client with a secret (RFC 6749, section 2.3.1)."""
    pair = f"{quote(client_id, safe='')}:{quote(secret, safe='')}"
    return f"Basic {b64encode(pair.encode()).decode()}"
