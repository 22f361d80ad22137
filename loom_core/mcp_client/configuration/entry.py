"""One entry of a configuration file, as Loom and other hosts write it.

Settings that hosts share are read as they write them: `command`, `args`, `env`, `cwd`, `type`, `url`,
`headers`, `disabled`, `timeout`. Loom's own settings are under `loom`, so that other hosts ignore them; a
name there that Loom does not know is an error, one elsewhere is not.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from loom_core.errors import ConfigError
from loom_core.mcp_client.configuration.expansion import is_secret_name

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from loom_core.mcp_client.configuration.expansion import Expansion

__all__ = ["Entry", "EntryError", "LoomSection", "entry_error", "expand_entry"]

_Place = tuple[str | int, ...]

_MAX_SECONDS = 3600.0
"""A larger `timeout` counts milliseconds, which Claude Code and Gemini CLI write; Cline writes seconds."""

_TRANSPORTS: Mapping[str, Literal["stdio", "http", "sse"]] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "sse": "sse",
}
_MAX_LISTED = 3


class EntryError(ConfigError):
    """An entry of a configuration cannot be used.

    Attributes:
        path: the keys and list indices that lead from the entry to the problem.
    """

    def __init__(self, message: str, *, advice: str = "", path: _Place = ()) -> None:
        super().__init__(message, advice=advice)
        self.path = path


class _Form(BaseModel):
    # Inputs stay out of messages, as one may be a secret in the wrong place.
    model_config = ConfigDict(frozen=True, strict=True, hide_input_in_errors=True)


class LoomSection(_Form):
    """The section `loom` of an entry."""

    model_config = ConfigDict(extra="forbid")

    required: bool = Field(default=False, description="Whether the first request waits for this server.")
    start_seconds: float = Field(default=30.0, description="Timeout for its start and its first answer.")
    call_seconds: float | None = Field(
        default=None,
        description="Timeout of a call without progress; by default `timeout`, or 120.",
    )
    era: Literal["auto", "legacy", "modern"] = Field(
        default="auto", description="Protocol era: auto, legacy or modern."
    )
    allow: list[str] = Field(default=["*"], description="Its allowed tools: names with * and ?.")
    deny: list[str] = Field(default=[], description="Its forbidden tools; takes precedence over `allow`.")
    trusted: bool = Field(
        default=False,
        description="Whether its annotations are trusted (a tool changes nothing), it may reword its tools, "
        "and tools that a rule allows need no approval.",
    )
    sampling: bool = Field(default=False, description="Whether it may use Loom's language model.")
    roots: list[str] = Field(default=[], description="Folders announced to it as roots.")
    auth: Literal["none", "oauth"] = Field(default="none", description="none, or oauth: login by a person.")
    oauth: dict[str, Any] | None = Field(
        default=None, description="Settings of the login, if the defaults do not fit; implies auth: oauth."
    )


class Entry(_Form):
    """An entry as it is written; spelling variants of other hosts are normalized."""

    model_config = ConfigDict(extra="ignore")

    type: str = Field(
        default="", description="stdio, http or sse; by default derived from `command` and `url`."
    )
    command: str = Field(default="", description="Program of the server.")
    args: list[str] = Field(default=[], description="Arguments of the program.")
    env: dict[str, str] = Field(
        default={}, description="Environment variables, in addition to PATH and the like."
    )
    cwd: str = Field(default="", description="Working directory of the program.")
    url: str = Field(default="", description="URL of a running server.")
    headers: dict[str, str] = Field(default={}, description="Headers of every request.")
    disabled: bool = Field(default=False, description="Whether the server is disabled.")
    timeout: float | None = Field(
        default=None,
        gt=0,
        description="Timeout of a call in seconds; above 3600 in milliseconds, as in some hosts.",
    )
    loom: LoomSection = Field(default=LoomSection(), description="Settings that only Loom has.")

    @field_validator("args", "env", mode="before")
    @classmethod
    def _as_texts(cls, value: object) -> object:
        """Convert numbers and booleans, which hosts accept here, to texts."""
        if isinstance(value, list):
            return [_text(each) for each in cast("list[object]", value)]
        if isinstance(value, dict):
            members = cast("dict[str, object]", value).items()
            return {key: _text(each) for key, each in members if each is not None}
        return value

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Entry:
        """Validate an entry of a file.

        Raises:
            EntryError: it is not a valid entry.
        """
        try:
            return cls.model_validate({key: value for key, value in written.items() if value is not None})
        except ValidationError as error:
            raise entry_error(error) from None

    @property
    def transport(self) -> Literal["stdio", "http", "sse"]:
        """Transport of the server.

        Raises:
            EntryError: the entry does not define it, or contradicts itself.
        """
        if self.command and self.url:
            raise EntryError("It has a command and a url.", advice="Keep one of them.", path=("url",))
        if not self.command and not self.url:
            raise EntryError(
                "It has neither a command nor a url.",
                advice='Write "command" for a program to start, or "url" for a server that runs already.',
            )
        kind = _TRANSPORTS.get(self.type.lower()) if self.type else "stdio" if self.command else "http"
        if kind is None:
            raise EntryError(
                f"The type {self.type[:40]!r} is not known.",
                advice="Write stdio, http or sse, or leave it out.",
                path=("type",),
            )
        if (kind == "stdio") != bool(self.command):
            raise EntryError(
                f"The type {kind} does not go with {'a command' if self.command else 'a url'}.",
                advice="Leave the type out.",
                path=("type",),
            )
        return kind

    @property
    def call_seconds(self) -> float:
        """Timeout of a call."""
        if self.loom.call_seconds is not None:
            return self.loom.call_seconds
        if self.timeout is None:
            return 120.0
        return self.timeout / 1000 if self.timeout > _MAX_SECONDS else self.timeout


def expand_entry(entry: Entry, expansion: Expansion, *, folder: Path) -> dict[str, Any]:
    """Expand an entry to the attributes of a `ServerConfig`, without its name. Blocks; see `Expansion`.

    Args:
        entry: the entry as it is written.
        expansion: inserts variables and secrets.
        folder: the folder that a relative `cwd` or root is relative to.

    Raises:
        EntryError: a variable is not set, or the entry does not say how the server is reached.
    """
    loom = entry.loom
    fields: dict[str, Any] = {
        "transport": entry.transport,
        "args": [_at(("args", i), expansion.text, value) for i, value in enumerate(entry.args)],
        "enabled": not entry.disabled,
        "call_seconds": entry.call_seconds,
        "cwd": _folder(entry.cwd, expansion, folder, ("cwd",)) if entry.cwd else None,
        "roots": [
            _folder(root, expansion, folder, ("loom", "roots", i)) for i, root in enumerate(loom.roots)
        ],
        "oauth": loom.oauth and _oauth(loom.oauth, expansion),
        **loom.model_dump(
            include={"required", "start_seconds", "era", "allow", "deny", "trusted", "sampling"}
        ),
        "auth": "oauth" if loom.oauth else loom.auth,
    }
    for name, value in (("command", entry.command), ("url", entry.url)):
        fields[name] = _at((name,), expansion.text, value)
    for name, values in (("env", entry.env), ("headers", entry.headers)):
        fields[name] = {key: _at((name, key), expansion.secret, value) for key, value in values.items()}
    return {**fields, "expanded": tuple(expansion.secrets)}


def entry_error(error: ValidationError) -> EntryError:
    """Convert Pydantic's errors about an entry to an `EntryError`; values are not repeated."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    paths = [_path_in_entry(each["loc"]) for each in found]
    told = [_describe_problem(each, path) for each, path in zip(found, paths, strict=True)]
    known = [_close(str(path[-1])) for each, path in zip(found, paths, strict=True) if _unknown(each)]
    return EntryError(
        " ".join(told[:_MAX_LISTED]),
        advice=next(filter(None, known), ""),
        path=paths[0],
    )


def _describe_problem(each: ErrorDetails, path: _Place) -> str:
    place = _join_path(path)
    if _unknown(each):
        return f"{place} is not a setting of Loom."
    reason = each["msg"].removeprefix("Value error, ").rstrip(".")
    if reason.startswith("Input "):
        return f"{place} {reason.removeprefix('Input ')}."
    return f"{place}: {reason}." if place else f"{reason}."


def _unknown(each: ErrorDetails) -> bool:
    return each["type"] == "extra_forbidden"


def _close(name: str) -> str:
    near = difflib.get_close_matches(name, LoomSection.model_fields, n=1)
    return f"Did you mean {near[0]}?" if near else f"There are: {', '.join(LoomSection.model_fields)}."


def _path_in_entry(loc: tuple[int | str, ...]) -> _Place:
    return ("loom", *loc) if loc and loc[0] in LoomSection.model_fields else loc


def _join_path(path: Iterable[str | int]) -> str:
    return ".".join(str(part) for part in path)


def _text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _at(path: _Place, expand: Callable[[str], str], text: str) -> str:
    """Expand a text, and add its path to an error."""
    try:
        return expand(text)
    except ConfigError as error:
        raise EntryError(f"{_join_path(path)}: {error.message}", advice=error.advice, path=path) from None


def _folder(written: str, expansion: Expansion, folder: Path, path: _Place) -> Path:
    text = _at(path, expansion.text, written)
    try:
        return folder / Path(text).expanduser()
    except RuntimeError:
        raise EntryError(f"{_join_path(path)}: there is no such home folder.", path=path) from None


def _oauth(written: Mapping[str, Any], expansion: Expansion) -> dict[str, Any]:
    return {
        key: _at(("loom", "oauth", key), expansion.secret if is_secret_name(key) else expansion.text, value)
        if isinstance(value, str)
        else value
        for key, value in written.items()
    }
