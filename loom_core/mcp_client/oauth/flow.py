"""Authorization flow, from an MCP server's challenge to new tokens, with the SDK's provider.

The SDK discovers the authorization server, registers the client, sends the person there, checks state and
issuer, and exchanges the code. This module decides where its requests may go, and what of the
responses may be shown: requests are sent by Loom's guarded HTTP client, and never with a token to an address
without encryption.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx2
import jwt
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, OAuthFlowError
from mcp.client.auth.extensions.client_credentials import (
    ClientCredentialsOAuthProvider,
    PrivateKeyJWTOAuthProvider,
    SignedJWTParameters,
)
from mcp.client.auth.utils import union_scopes
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl, SecretStr

from loom_core.errors import LoginError
from loom_core.mcp_client.configuration.command_names import verb
from loom_core.mcp_client.configuration.oauth_config import is_secure_address
from loom_core.mcp_client.oauth.renewal import expiry_of
from loom_core.mcp_client.oauth.requests import (
    create_client,
    find_client,
    secret_method,
    send,
    unsafe_address_error,
)
from loom_core.mcp_client.oauth.store import Login, Registration, Tokens

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from mcp.client.auth.oauth2 import OAuthContext

    from loom_core.mcp_client.configuration.oauth_config import OAuthConfig
    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.oauth.browser import Browser

__all__ = ["TokenChallenge", "authorize", "union_scopes"]

_MAX_STEPS = 20  # requests of one authorization
_MAX_REASON = 300  # characters
_CLIENT_NAME = "Loom"
_SECRET_FIELD = re.compile(r'("(?:\w*_)?(?:token|secret|code|assertion)"\s*:\s*)"[^"]*"')


class _WithoutErrors(logging.Filter):
    """Logging filter that drops the SDK's errors: it raises them as well, and they may contain a token."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None


logging.getLogger("mcp.client.auth.oauth2").addFilter(_WithoutErrors())


@dataclass(frozen=True, slots=True)
class TokenChallenge:
    """A response of the MCP server that requires a token or more scopes, with its request."""

    request: httpx2.Request
    response: httpx2.Response


class _Memory:
    """The SDK's token storage in memory, until the authorization is over."""

    def __init__(self, tokens: OAuthToken | None, client: OAuthClientInformationFull | None) -> None:
        self._tokens = tokens
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._client = client_info


class _WithPerson(OAuthClientProvider):
    """Authorization code flow with PKCE, which always requests certain scopes, too."""

    scopes = ""

    async def _perform_authorization(self) -> httpx2.Request:
        _add_scopes(self.context, self.scopes)
        return await super()._perform_authorization()


class _WithSecret(ClientCredentialsOAuthProvider):
    scopes = ""

    async def _perform_authorization(self) -> httpx2.Request:
        _add_scopes(self.context, self.scopes)
        return await super()._perform_authorization()


class _WithKey(PrivateKeyJWTOAuthProvider):
    scopes = ""

    async def _perform_authorization(self) -> httpx2.Request:
        _add_scopes(self.context, self.scopes)
        return await super()._perform_authorization()


async def authorize(
    config: ServerConfig,
    oauth: OAuthConfig,
    refusal: TokenChallenge,
    *,
    login: Login,
    browser: Browser | None,
) -> Login:
    """Run an authorization flow, and return a login with new tokens.

    Args:
        config: the MCP server.
        oauth: how to log in there.
        refusal: the server's response: 401, or 403 with the scopes that it requires.
        login: the previous login: its client registration is reused, and its scopes are requested again.
        browser: for the person; required for the grant `authorization_code`.

    Raises:
        LoginError: the flow failed; the message says why.
        NetError: the authorization server does not answer, or may not be asked.
    """
    provider = _provider(config, oauth, login, browser)
    flow = provider.async_auth_flow(refusal.request)
    try:
        await _drive(provider, flow, refusal, config, oauth)
    except (OAuthFlowError, jwt.PyJWTError, ValueError) as error:
        raise _failure(config, error) from None  # its texts may hold secrets
    finally:
        await flow.aclose()
    return _outcome(provider.context, oauth, browser)


async def _drive(
    provider: OAuthClientProvider,
    flow: AsyncGenerator[httpx2.Request, httpx2.Response],
    refusal: TokenChallenge,
    config: ServerConfig,
    oauth: OAuthConfig,
) -> None:
    """Send the requests of the flow, until it returns to the MCP server."""
    client = create_client(config, oauth)
    await anext(flow)  # the request itself, which has been answered
    outgoing = await flow.asend(refusal.response)
    for _ in range(_MAX_STEPS):
        if outgoing is refusal.request:
            return
        _check(provider.context, config, oauth)
        outgoing = await flow.asend(await send(outgoing, config, client))
    raise LoginError(
        f"The login at {config.name!r} does not finish.", advice="Report this to the operator of the server."
    )


def _check(context: OAuthContext, config: ServerConfig, oauth: OAuthConfig) -> None:
    """Check what the SDK leaves to its caller.

    Raises:
        LoginError: the client is not known at this authorization server, or it takes codes from any client.
    """
    if oauth.client_id and context.client_info is None:
        raise LoginError(
            f"{config.name!r} now uses another authorization server than {oauth.issuer!r},"
            " where the client is registered.",
            advice="Check `issuer` and `client_id` of the entry, and whether the server is to be trusted.",
        )
    metadata = context.oauth_metadata
    methods = None if metadata is None else metadata.code_challenge_methods_supported
    if oauth.grant == "authorization_code" and methods is not None and "S256" not in methods:
        raise LoginError(
            f"The authorization server of {config.name!r} does not protect codes with PKCE (S256).",
            advice=(
                "Report this to the operator of the server: without it, a stolen code would be enough for "
                "a login."
            ),
        )


def _provider(
    config: ServerConfig, oauth: OAuthConfig, login: Login, browser: Browser | None
) -> OAuthClientProvider:
    tokens = login.tokens
    granted = (
        None
        if tokens is None
        else OAuthToken(access_token=tokens.access.get_secret_value(), scope=tokens.scope or None)
    )
    wanted = union_scopes(" ".join(oauth.scopes), login.wanted) or ""
    if oauth.grant == "client_credentials":
        provider = _of_client(config, oauth, _Memory(granted, None))
    else:
        provider = _of_person(config, oauth, login, _check_metadata(config, browser), granted)
    provider.scopes = wanted
    return provider


def _of_client(config: ServerConfig, oauth: OAuthConfig, memory: _Memory) -> _WithSecret | _WithKey:
    if oauth.private_key is not None:
        signing = SignedJWTParameters(
            issuer=oauth.client_id,
            subject=oauth.client_id,
            signing_key=oauth.private_key.get_secret_value(),
            signing_algorithm=oauth.algorithm,
        )
        return _WithKey(
            config.url, memory, oauth.client_id, signing.create_assertion_provider(), issuer=oauth.issuer
        )
    secret = oauth.client_secret.get_secret_value() if oauth.client_secret else ""
    return _WithSecret(config.url, memory, oauth.client_id, secret, secret_method(oauth), issuer=oauth.issuer)


def _of_person(
    config: ServerConfig, oauth: OAuthConfig, login: Login, browser: Browser, granted: OAuthToken | None
) -> _WithPerson:
    async def visit(url: str) -> None:
        if not is_secure_address(url, server_url=config.url):
            raise unsafe_address_error(config, url)
        await browser.visit(url)

    async def answer() -> AuthorizationCodeResult:
        found = await browser.answer()
        if "code" not in found:
            reason = found.get("error_description") or found.get("error") or "it gives no reason"
            raise LoginError(
                f"The login at {config.name!r} was refused: {_shorten(reason)}.",
                advice="Start the login again.",
            )
        return AuthorizationCodeResult(code=found["code"], state=found.get("state"), iss=found.get("iss"))

    metadata = OAuthClientMetadata(
        redirect_uris=[AnyUrl(browser.redirect_uri)],
        client_name=_CLIENT_NAME,
        token_endpoint_auth_method=secret_method(oauth) if oauth.client_secret else None,
    )
    return _WithPerson(
        config.url,
        metadata,
        _Memory(granted, _find_client(oauth, login, browser)),
        visit,
        answer,
        oauth.client_metadata_url or None,
    )


def _check_metadata(config: ServerConfig, browser: Browser | None) -> Browser:
    if browser is None:
        raise LoginError(
            f"A person has to log in at {config.name!r}.", advice=f"Use {verb(f'login {config.name}')}."
        )
    return browser


def _find_client(oauth: OAuthConfig, login: Login, browser: Browser) -> OAuthClientInformationFull | None:
    """Find the client's registration: by the user, or by a login with the same redirect URI."""
    known = find_client(oauth, login)
    if known is None or known.redirect_uri not in ("", browser.redirect_uri):
        return None
    return OAuthClientInformationFull(
        client_id=known.client_id,
        client_secret=known.client_secret.get_secret_value() if known.client_secret else None,
        token_endpoint_auth_method=known.method,
        issuer=known.issuer,
    )


def _outcome(context: OAuthContext, oauth: OAuthConfig, browser: Browser | None) -> Login:
    """Return the SDK's result as a `Login` to store, without what is configured."""
    tokens, client = context.current_tokens, context.client_info
    assert tokens is not None  # the flow has come to the MCP server again
    assert client is not None
    metadata = context.oauth_metadata
    origin = context.get_authorization_base_url(context.server_url)
    return Login(
        registration=None
        if oauth.client_id
        else Registration(
            client_id=client.client_id,
            client_secret=SecretStr(client.client_secret) if client.client_secret else None,
            method=client.token_endpoint_auth_method,
            issuer=client.issuer,
            redirect_uri="" if browser is None else browser.redirect_uri,
        ),
        tokens=Tokens(
            access=SecretStr(tokens.access_token),
            refresh=SecretStr(tokens.refresh_token) if tokens.refresh_token else None,
            scope=tokens.scope or "",
            expires=expiry_of(tokens),
            endpoint=f"{origin}/token" if metadata is None else str(metadata.token_endpoint),
            resource=(
                context.get_resource_url()
                if context.should_include_resource_param(context.protocol_version)
                else ""
            ),
            issuer=oauth.issuer or client.issuer or "",
        ),
    )


def _add_scopes(context: OAuthContext, scopes: str) -> None:
    context.client_metadata.scope = union_scopes(context.client_metadata.scope, scopes)


def _failure(config: ServerConfig, error: Exception) -> LoginError:
    return LoginError(
        f"The login at {config.name!r} has failed: {_shorten(str(error))}.",
        advice="Check the entry's `oauth`, or ask the operator of the server.",
    )


def _shorten(reason: str) -> str:
    """Shorten another party's text to one line, without what looks like a secret."""
    line = (reason.splitlines() or [""])[0]  # an error of validation shows its input on the next ones
    shown = _SECRET_FIELD.sub(r'\1"[secret]"', line)
    return "".join(character for character in shown if character.isprintable())[:_MAX_REASON].rstrip(".")
