"""OAuth settings of one server: how a token is got, and where tokens, secrets and people may be sent."""

from __future__ import annotations

from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

__all__ = ["OAuthConfig", "is_secure_address", "origin_of"]


class OAuthConfig(BaseModel):
    """OAuth client settings for the authorization server of one MCP server; all are optional.

    A client that is registered nowhere describes itself by `client_metadata_url`, where the authorization
    server reads such documents, and registers itself otherwise.
    """

    # Inputs stay out of messages, as one may be a secret in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    grant: Literal["authorization_code", "client_credentials"] = Field(
        default="authorization_code", description="With a person in a browser, or as the client itself."
    )
    client_id: str = Field(
        default="", description="What the client is called where it is registered already."
    )
    client_secret: SecretStr | None = Field(default=None, description="Its secret there.")
    proof_in: Literal["header", "body"] = Field(
        default="header", description="Where in a request for tokens the secret stands."
    )
    private_key: SecretStr | None = Field(
        default=None, description="Instead of a secret, a private key (PEM) that signs who the client is."
    )
    algorithm: Literal["RS256", "PS256", "ES256", "ES384", "EdDSA"] = Field(
        default="RS256", description="How the private key signs."
    )
    issuer: str = Field(
        default="",
        description="The authorization server that knows the client; its secret goes nowhere else.",
    )
    client_metadata_url: str = Field(
        default="", description="https address where the client describes itself (CIMD)."
    )
    scopes: tuple[str, ...] = Field(
        default=(), description="What is asked for besides what the server names; by default nothing."
    )
    redirect_port: int = Field(
        default=0, ge=0, le=65535, description="Port of this machine that the browser returns to; 0 for any."
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
    """Scheme, host and port of a web address, comparable: in lower case, with the port that is meant.

    Raises:
        ValueError: its port is none.
    """
    place = urlsplit(url)
    return place.scheme, place.hostname or "", place.port or _PORTS.get(place.scheme)


def is_secure_address(url: str, *, server_url: str = "") -> bool:
    """Return whether a secret may be sent to an address.

    It may over https; over http on this machine; and over http to the origin of `server_url`, where the user
    has chosen to speak without encryption already.

    Args:
        url: where it would be sent.
        server_url: the MCP server that led there, or empty where the user names the address.
    """
    try:
        scheme, host, _ = origin = origin_of(url)
        if scheme == "https":
            return bool(host)
        if server_url and origin == origin_of(server_url):
            return True
        # A server elsewhere has no business with what listens on this machine.
        is_local = not server_url or origin_of(server_url)[1] in _LOOPBACK
        return scheme == "http" and host in _LOOPBACK and is_local
    except ValueError:
        return False
