"""OAuth for requests to one MCP server: stored tokens, refresh before expiry, and interactive login.

Imported at first use only: it loads the HTTP library and the SDK.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import anyio
import httpx2
from anyio import to_thread

from loom_core.errors import ConfigError, LoginError, LoomError
from loom_core.mcp_client.configuration.command_names import verb
from loom_core.mcp_client.configuration.oauth_config import OAuthConfig, origin_of
from loom_core.mcp_client.oauth.store import Login, LoginStore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from pydantic import SecretStr

    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.oauth.browser import Browser

__all__ = ["OAuth", "oauth_auth"]

_log = logging.getLogger(__name__)

_LOCK_SECONDS = 30.0
_ROUNDS = 2  # of one request: for a token, and for one with more scopes
_PARAMETER = r'(?:^|[\s,]){}\s*=\s*(?:"([^"]*)"|([^\s,"]+))'


def oauth_auth(
    config: ServerConfig, home: Path, *, browser: Browser | None = None, keyring: bool = True
) -> OAuth | None:
    """Return the OAuth authentication of requests to a server; None where it is configured without OAuth.

    Args:
        config: the server.
        home: Loom's folder, where logins are kept.
        browser: for an interactive login; without it, no person is asked.
        keyring: whether logins are encrypted with a key in the system's keyring, if there is one.
    """
    if config.auth != "oauth":
        return None
    store = LoginStore(home, config.name, config.url, keyring=keyring)
    return OAuth(config, config.oauth or OAuthConfig(), store, browser=browser)


class OAuth(httpx2.Auth):
    """httpx authentication with the tokens of one server, for concurrent requests.

    The tokens go to the origin of the server's address only. If no token can be obtained, the server's
    refusal (401 or 403) is the answer to the request, and `problem` has the reason; the connection and other
    requests are not affected.

    Args:
        config: the server.
        oauth: how to log in there.
        store: where the login is kept.
        browser: for an interactive login. With it, a stored login is not used: the person makes a new one.
    """

    def __init__(
        self, config: ServerConfig, oauth: OAuthConfig, store: LoginStore, *, browser: Browser | None = None
    ) -> None:
        self._config = config
        self._oauth = oauth
        self._store = store
        self._browser = browser
        self._origin = origin_of(config.url)
        self._login = Login()
        self._in_vain: tuple[SecretStr | None, str] | None = None  # the refused token, and its scopes
        self._turn = anyio.Lock()
        self.problem: LoomError | None = None
        """Reason why the last request had no token that the server accepts; None if it had one."""

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send a request with a token, and again with another one if the server demands it."""
        if origin_of(str(request.url)) != self._origin:
            yield request
            return
        access = await self._access()
        response = yield _with_token(request, access)
        for _ in range(_ROUNDS):
            if not _wants_token(response):
                self.problem = None
                return
            renewed = await self._obtain_token(access, request, response)
            if renewed is None:
                return
            wanted, access = _challenge_scopes(response), renewed
            response = yield _with_token(request, access)
            if response.status_code == 401 or (
                _wants_token(response) and _challenge_scopes(response) == wanted
            ):
                break
        if _wants_token(response):
            self._in_vain = access, _challenge_scopes(response)
            self.problem = LoginError(
                f"{self._config.name!r} refuses a token that is new: {_refusal_text(response)}.",
                advice="Ask the operator of the server which permissions its users need.",
            )
        else:
            self.problem = None

    async def _access(self) -> SecretStr | None:
        """Return the token to try first; None if there is none yet."""
        try:
            if self._login.tokens is None and self._browser is None:
                self._login = await to_thread.run_sync(self._store.read)
            tokens = self._login.tokens
            if tokens is not None and not tokens.fresh and tokens.refresh is not None:
                async with self._turn, self._store.exclusive(_LOCK_SECONDS):
                    await self._refresh(tokens.access)
        except LoomError as error:  # the server may take the old token, or none
            _log.warning("The token for %s is not renewed: %s", self._config.name, error)
        tokens = self._login.tokens
        return None if tokens is None else tokens.access

    async def _obtain_token(
        self, access: SecretStr | None, request: httpx2.Request, response: httpx2.Response
    ) -> SecretStr | None:
        """Replace a refused token; None if there is no other, and `problem` says why."""
        try:
            async with self._turn:
                if self._newer(access):
                    return self._current()
                if self._in_vain == (access, _challenge_scopes(response)):
                    # Neither a person nor the authorization server is asked again and again.
                    self._login = self._login if self._browser else await self._load_login()
                    return self._current() if self._newer(access) else None
                async with self._store.exclusive(_LOCK_SECONDS):
                    await self._renew(access, request, response)
                return self._current()
        except LoomError as error:
            self.problem = error
            if self._browser is not None:
                self._in_vain = access, _challenge_scopes(response)
            return None

    async def _renew(
        self, access: SecretStr | None, request: httpx2.Request, response: httpx2.Response
    ) -> None:
        """Get another token: from another process, by refresh, or by a login. Call it within the locks.

        Raises:
            LoomError: no token can be obtained.
        """
        from loom_core.mcp_client.oauth.flow import TokenChallenge, authorize, union_scopes

        stored = await self._load_login()
        if self._browser is None:
            self._login = stored
            if self._newer(access) or (response.status_code == 401 and await self._refresh(access)):
                return
        wanted = union_scopes(
            stored.wanted, _challenge_scopes(response) if response.status_code == 403 else ""
        )
        if self._browser is None and self._oauth.grant == "authorization_code":
            if (wanted or "") != stored.wanted:
                await self._keep(self._login.model_copy(update={"wanted": wanted or ""}))
            raise self._not_logged_in(response)
        granted = "" if stored.tokens is None else stored.tokens.scope
        known = Login(
            registration=stored.registration,
            tokens=self._login.tokens,
            wanted=union_scopes(wanted, granted) or "",
        )
        refusal = TokenChallenge(request, response)
        await self._keep(
            await authorize(self._config, self._oauth, refusal, login=known, browser=self._browser)
        )

    async def _load_login(self) -> Login:
        """Return the stored login; a person can log in again where it cannot be read.

        Raises:
            LoomError: it cannot be read, and no person can be asked.
        """
        try:
            return await to_thread.run_sync(self._store.read)
        except ConfigError as error:
            if self._browser is None:
                raise
            _log.warning("What is known of a login at %s is left out: %s", self._config.name, error)
            return Login()

    async def _refresh(self, access: SecretStr | None) -> bool:
        """Refresh the token, unless another process has; return whether there is a newer one. Locked."""
        from loom_core.mcp_client.oauth.renewal import refresh

        self._login = await to_thread.run_sync(self._store.read)
        if self._newer(access):
            return True
        tokens = self._login.tokens
        if tokens is None or tokens.refresh is None:
            return False
        login: Login | None = None
        # Not to be interrupted: once the old refresh token is sent, the new one must not be lost.
        with anyio.CancelScope(shield=True):
            login = await refresh(self._config, self._oauth, self._login)
            if login is None:  # a refresh token that is refused once is of no use
                spent = tokens.model_copy(update={"refresh": None})
                await self._keep(self._login.model_copy(update={"tokens": spent}))
            else:
                await self._keep(login)
        return login is not None

    async def _keep(self, login: Login) -> None:
        await to_thread.run_sync(self._store.write, login)
        self._login = login

    def _current(self) -> SecretStr | None:
        return None if self._login.tokens is None else self._login.tokens.access

    def _newer(self, access: SecretStr | None) -> bool:
        """Return whether there is a token other than the refused one."""
        return self._current() not in (None, access)

    def _not_logged_in(self, response: httpx2.Response) -> LoginError:
        name = self._config.name
        if response.status_code == 403:
            scopes = _challenge_scopes(response)
            message = f"The login at {name!r} does not allow this: the server wants {scopes!r}."
        elif self._current() is None:
            message = f"There is no login at {name!r}."
        else:
            message = f"The login at {name!r} has ended."
        return LoginError(message, advice=f"Log in, in a terminal: {verb(f'login {name}')}.")


def _with_token(request: httpx2.Request, access: SecretStr | None) -> httpx2.Request:
    if access is not None:
        request.headers["Authorization"] = f"Bearer {access.get_secret_value()}"
    return request


def _wants_token(response: httpx2.Response) -> bool:
    return response.status_code == 401 or (
        response.status_code == 403 and _parameter(response, "error") == "insufficient_scope"
    )


def _challenge_scopes(response: httpx2.Response) -> str:
    """Return the scopes that a refusal names, separated by spaces."""
    return _parameter(response, "scope")


def _parameter(response: httpx2.Response, name: str) -> str:
    found = re.search(_PARAMETER.format(name), response.headers.get("WWW-Authenticate", ""))
    return "" if found is None else found[1] or found[2] or ""


def _refusal_text(response: httpx2.Response) -> str:
    """Return a refusal's text for people, or its status."""
    text = _parameter(response, "error_description") or _parameter(response, "error")
    shown = "".join(character for character in text if character.isprintable())[:200].rstrip(".")
    return shown or f"status {response.status_code}"
