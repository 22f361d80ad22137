"""Configuration of MCP servers: their names, transports and options."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from loom_core.keys import register_secret
from loom_core.mcp_client.configuration.entry import Entry, entry_error, expand_entry
from loom_core.mcp_client.configuration.expansion import Expansion, is_secret_name
from loom_core.mcp_client.configuration.masking import mask_arguments, mask_url
from loom_core.mcp_client.configuration.oauth_config import OAuthConfig

__all__ = ["Era", "ServerConfig", "Transport", "check_name", "is_name_character"]

Transport = Literal["stdio", "http", "sse"]
Era = Literal["auto", "legacy", "modern"]

_MAX_NAME_LENGTH = 64
_MAX_WAIT_SECONDS = 86_400.0
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_PLAIN_HEADERS = {"accept", "accept-language", "content-type", "user-agent"}


def is_name_character(char: str) -> bool:
    """Return whether a character may be part of a server's name."""
    return char.isalnum() or char in "_.-" or unicodedata.category(char)[0] == "M"


def check_name(name: str) -> str:
    """Validate a server's name: letters and digits of any script, and `_`, `-`, `.`; no colon.

    Raises:
        ValueError: it cannot be one, as `server:tool` would be ambiguous, or people could not read it.
    """
    if not all(map(is_name_character, name)) or not 0 < len(name) <= _MAX_NAME_LENGTH:
        raise ValueError("the name of a server consists of letters, digits, - _ and ., at most 64")
    return name


def _seconds(value: float) -> float:
    if not (math.isfinite(value) and 0 < value <= _MAX_WAIT_SECONDS):
        raise ValueError("should be a number of seconds above 0, at most 86400")
    return value


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("it must not contain NUL")
    return text


def _environment(values: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in values.items():
        if not name or "=" in name or "\0" in name + value:
            raise ValueError("the name of a variable must not contain =, and neither name nor value NUL")
    return values


def _headers(values: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in values.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError("a header consists of one line of ASCII")
    return values


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        right = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if url and (not right or not url.isprintable() or " " in url):
        raise ValueError("an address begins with https:// or http:// and a host")
    return url


_Text = Annotated[str, AfterValidator(_without_nul)]
_Seconds = Annotated[float, AfterValidator(_seconds)]


class ServerConfig(BaseModel):
    """Configuration of one server, expanded and ready to start. Its `repr` has no values that may be secret.

    Attributes:
        name: its id: letters and digits of any script, and `_.-`; no colon, as a tool is `server:tool`.
        transport: how it is reached.
        command: the program, for `stdio`.
        args: arguments of the program.
        env: environment variables, in addition to those of `environment.child_environment`.
        cwd: working directory; None for that of this process.
        url: its URL, for `http` and `sse`.
        headers: headers of every request.
        auth: whether requests authenticate by OAuth.
        oauth: settings of OAuth; None for the defaults.
        enabled: whether it is to be used.
        required: whether the first request waits for it.
        start_seconds: timeout for its start and its first answer.
        call_seconds: timeout of a call without progress.
        era: protocol era to use.
        allow: which of its tools may be used: names with `*` and `?`.
        deny: which may not; takes precedence over `allow`.
        trusted: whether its annotations may lower the risk of a tool, and an approval stays valid if the tool
            is reworded.
        sampling: whether it may use Loom's language model.
        roots: folders announced to it as roots.
        where: `file:line:column` of its entry, for messages; empty where it is in no file.
        expanded: secrets that were put into it from variables and the keyring.
    """

    # Inputs stay out of messages, as one may be a secret in the wrong place.
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: Annotated[str, AfterValidator(check_name)]
    transport: Transport
    command: _Text = ""
    args: tuple[_Text, ...] = ()
    env: Annotated[Mapping[str, str], AfterValidator(_environment)] = {}
    cwd: Path | None = None
    url: Annotated[str, AfterValidator(_address)] = ""
    headers: Annotated[Mapping[str, str], AfterValidator(_headers)] = {}
    auth: Literal["none", "oauth"] = "none"
    oauth: OAuthConfig | None = None
    enabled: bool = True
    required: bool = False
    start_seconds: _Seconds = 30.0
    call_seconds: _Seconds = 120.0
    era: Era = "auto"
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    trusted: bool = False
    sampling: bool = False
    roots: tuple[Path, ...] = ()
    where: str = ""
    expanded: tuple[SecretStr, ...] = Field(default=(), repr=False)

    def allows(self, tool: str) -> bool:
        """Return whether a tool may be used, by the server's own name for it; case matters.

        This is checked when tools are listed, and again at each call.
        """
        return _fits(tool, self.allow) and not _fits(tool, self.deny)

    @model_validator(mode="after")
    def _is_reachable(self) -> Self:
        if self.transport == "stdio":
            if not self.command or self.url or self.headers:
                raise ValueError("a server over stdio has a command, and no url or headers")
            if self.auth == "oauth":
                raise ValueError("a server over stdio has no login; give it what it needs by env")
        elif not self.url or self.command:
            raise ValueError(f"a server over {self.transport} has a url, and no command")
        return self

    @classmethod
    def of_entry(
        cls,
        name: str,
        written: Mapping[str, Any],
        *,
        expansion: Expansion,
        folder: Path,
        where: str = "",
    ) -> ServerConfig:
        """Create a server's configuration from an entry of a file. Blocks if it reads the keyring.

        Args:
            name: what it is called there.
            written: the entry, with Loom's own settings under `loom`.
            expansion: inserts variables and secrets; one for each entry.
            folder: the folder that relative paths of the entry are relative to.
            where: `file:line:column` of the entry.

        Raises:
            EntryError: the entry cannot be used; its `path` leads to the problem.
        """
        fields = expand_entry(Entry.of(written), expansion, folder=folder)
        try:
            config = cls(name=name, where=where, **fields)
        except ValidationError as error:
            raise entry_error(error) from None
        for secret in config.secrets:
            register_secret(secret)
        return config

    @property
    def target(self) -> str:
        """The command or URL of the server, without parts that may be secret."""
        return self.command if self.transport == "stdio" else mask_url(self.url)

    @property
    def secrets(self) -> tuple[SecretStr, ...]:
        """Secrets that no message of this server may contain, for `loom_core.keys.redact`."""
        oauth = self.oauth or OAuthConfig()
        kept = filter(None, (oauth.client_secret, oauth.private_key))
        return (*self.expanded, *kept, *map(SecretStr, self._likely_secrets()))

    def _likely_secrets(self) -> Iterator[str]:
        yield from (value for name, value in self.env.items() if is_secret_name(name))
        for name, value in self.headers.items():
            if name.lower() not in _PLAIN_HEADERS:
                yield value
                yield value.rpartition(" ")[2]  # of `Bearer …`
        for argument, shown in zip(self.args, mask_arguments(self.args), strict=True):
            if shown != argument:
                yield from filter(None, (argument, argument.partition("=")[2]))
        parts = urlsplit(self.url)
        yield from filter(None, (parts.password, parts.username))
        yield from (value for name, value in parse_qsl(parts.query) if is_secret_name(name))

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield from (("name", self.name), ("transport", self.transport), ("target", self.target))


def _fits(tool: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
