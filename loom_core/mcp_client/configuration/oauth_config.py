"""OAuth settings of one server: how to get a token, and where tokens, secrets and people may be sent."""

from __future__ import annotations

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

__all__ = ["OAuthConfig", "is_secure_address", "origin_of"]


class OAuthConfig(BaseModel):
    """OAuth client settings for the authorization server of one MCP server; all are optional.

    An unregistered client identifies itself by `client_metadata_url` if the authorization server supports
    such documents, and registers itself otherwise.
    """

    # Inputs stay out of messages, as one may be a secret in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    grant: Literal["authorization_code", "client_credentials"] = Field(
        default="authorization_code", description="Grant: by a person in a browser, or by the client itself."
    )
    client_id: str = Field(default="", description="Client id, if the client is already registered.")
    client_secret: SecretStr | None = Field(default=None, description="Client secret.")
    proof_in: Literal["header", "body"] = Field(
        default="header", description="Where a token request carries the secret."
    )
    private_key: SecretStr | None = Field(
        default=None, description="Private key (PEM) that authenticates the client instead of a secret."
    )
    algorithm: Literal["RS256", "PS256", "ES256", "ES384", "EdDSA"] = Field(
        default="RS256", description="Signature algorithm of the private key."
    )
    issuer: str = Field(
        default="",
        description="Authorization server where the client is registered; the secret is sent nowhere else.",
    )
    client_metadata_url: str = Field(
        default="", description="https URL of the client's metadata document (CIMD)."
    )
    scopes: tuple[str, ...] = Field(
        default=(), description="Scopes to request in addition to those that the server names."
    )
    redirect_port: int = Field(
        default=0, ge=0, le=65535, description="Loopback port that the browser returns to; 0 for any."
    )

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        secret = self.client_secret is not None or self.private_key is not None
        if secret and not (self.client_id and self.issuer):
            raise ValueError(
                "a client with a secret or a private key needs client_id, and issuer: the secret must go"
                " to no other authorization server"
            )
        if self.grant == "client_credentials" and not secret:
            raise ValueError("client_credentials needs client_secret or private_key")
        if self.client_secret is not None and self.private_key is not None:
            raise ValueError("client_secret and private_key exclude each other")
        if self.private_key is not None and self.grant != "client_credentials":
            raise ValueError("private_key is for client_credentials only")
        if self.issuer and not is_secure_address(self.issuer):
            raise ValueError("issuer must be an https address")
        document = urlsplit(self.client_metadata_url)
        if self.client_metadata_url and (document.scheme != "https" or document.path in {"", "/"}):
            raise ValueError("client_metadata_url must be an https address with a path")
        return self


_PORTS = {"https": 443, "http": 80}
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return the origin of a URL for comparison: scheme, host in lower case, and explicit or default port.

    Raises:
        ValueError: its port is invalid.
    """
    place = urlsplit(url)
    return place.scheme, place.hostname or "", place.port or _PORTS.get(place.scheme)


def is_secure_address(url: str, *, server_url: str = "") -> bool:
    """Return whether a secret may be sent to an address.

    Allowed are https, http on this machine, and http to the origin of `server_url`, for which the user has
    already accepted an unencrypted connection.

    Args:
        url: the address that the secret would be sent to.
        server_url: the MCP server that gave the address, or empty if the user gave it.
    """
    try:
        scheme, host, _ = origin = origin_of(url)
        if scheme == "https":
            return bool(host)
        if server_url and origin == origin_of(server_url):
            return True
        # A remote server must not direct requests to services on this machine.
        is_local = not server_url or origin_of(server_url)[1] in _LOOPBACK
        return scheme == "http" and host in _LOOPBACK and is_local
    except ValueError:
        return False
