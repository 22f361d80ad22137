"""Permission rules: patterns of tools, callers and arguments, with an action."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from posixpath import normpath
from types import NoneType
from typing import Any, Literal, Self, cast
from unicodedata import normalize
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from loom_core.errors import ConfigError
from loom_core.llm.json_schema.values import readable_path
from loom_core.tools.calls import Verdict
from loom_core.tools.patterns import Matcher, matcher

__all__ = [
    "AddressPattern",
    "CompiledRule",
    "PermissionRule",
    "WebAddress",
    "as_path",
    "as_windows_path",
    "climbs",
    "is_path_pattern",
    "leaves",
    "members",
    "normalise_path",
    "read_rules",
]

_MAX_LISTED = 3
_ADVICE = 'Write a rule as {"action": "deny", "tool": "fs:*", "args": {"path": "/etc/**"}}.'
_BELOW = ("/**", "/*")


class PermissionRule(BaseModel):
    """A rule in a configuration. A missing field matches everything.

    Patterns are texts with `*` (any characters) and `?` (one), or `re:` and a regular expression.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    action: Literal["allow", "ask", "deny"] = Field(
        description="What happens to a matching call; the strictest rule applies."
    )
    tool: str = Field(
        default="*",
        description="Pattern of the tool's name, in the form for people (`github:create_issue`) or models "
        "(`github__create_issue`).",
    )
    args: dict[str, str] = Field(
        default={},
        description="Patterns of values by the pattern of the argument's name, such as `path` or "
        "`options.path`; all must match. A missing argument without a default matches nothing.",
    )
    source: str = Field(
        default="*",
        description="Pattern of the caller: `token:*`, `oauth:*`, or `?*` for any authenticated caller over "
        "HTTP; the user of this machine has an empty name.",
    )
    reason: str = Field(
        default="",
        description="Shown to the person who is asked, and to the model after a denial.",
    )

    @field_validator("tool", "source")
    @classmethod
    def _is_pattern(cls, pattern: str) -> str:
        return _check_pattern(pattern)

    @field_validator("args")
    @classmethod
    def _are_patterns(cls, args: dict[str, str]) -> dict[str, str]:
        for name, pattern in args.items():
            _check_pattern(name)
            _check_pattern(pattern)
        return args

    @property
    def summary(self) -> str:
        """The rule on one line, for people and the audit."""
        conditions = [f"{name}={pattern}" for name, pattern in self.args.items()]
        source = [f"source={self.source}"] if self.source != "*" else []
        return " ".join([self.action, self.tool, *conditions, *source])

    @property
    def specificity(self) -> tuple[int, int]:
        """Specificity: number of conditions first, then of characters that are no wildcards."""
        patterns = [self.tool, self.source, *self.args, *self.args.values()]
        return len(self.args), sum(len(each) - each.count("*") - each.count("?") for each in patterns)


def _check_pattern(pattern: str) -> str:
    if not pattern:
        raise ValueError("a pattern must not be empty; * fits everything")
    try:
        matcher(pattern)
    except ConfigError as error:
        raise ValueError(error.message) from None
    return pattern


def read_rules(written: object) -> tuple[PermissionRule, ...]:
    """Parse the rules of a configuration.

    Raises:
        ConfigError: a rule is invalid; the message says which, and why.
    """
    if not isinstance(written, Sequence) or isinstance(written, str):
        raise ConfigError("The permissions are not a list of rules.", advice=_ADVICE)
    rules: list[PermissionRule] = []
    for number, each in enumerate(cast("Sequence[object]", written)):
        try:
            rules.append(PermissionRule.model_validate(each))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            told = [
                f"{readable_path(('permissions', number, *detail['loc']))}: "
                f"{detail['msg'].removeprefix('Value error, ').rstrip('.')}."
                for detail in found[:_MAX_LISTED]
            ]
            raise ConfigError(f"A permission is wrong: {' '.join(told)}", advice=_ADVICE) from None
    return tuple(rules)


@dataclass(frozen=True, slots=True)
class _Condition:
    """A rule's condition on arguments.

    Attributes:
        name: matches names of arguments.
        raw: matches the text as it is.
        paths: match the text as a path; empty if the pattern is no path.
        address: matches the text as a web address; None if the pattern is no address.
        base: base of relative paths.
    """

    name: Matcher
    raw: Matcher
    paths: tuple[Matcher, ...]
    address: AddressPattern | None
    base: str

    @classmethod
    def of(cls, name: str, pattern: str, *, base: str, wide: bool) -> _Condition:
        is_text = pattern.startswith("re:")
        address = None if is_text else AddressPattern.of(pattern, any_form=wide)
        paths: list[str] = []
        if not is_text and address is None and (is_path_pattern(pattern) or wide):
            paths.append(as_path(pattern + "**" if pattern.endswith("/") else pattern, base))
            paths.append(paths[0].replace("/**/", "/"))  # `**` matches zero folders, too
            for below in _BELOW:
                if wide and paths[0].endswith(below):  # the folder itself, too
                    paths.append(paths[0].removesuffix(below) or "/")
        return cls(
            matcher(name, any_form=wide),
            matcher(pattern, any_form=wide),
            tuple(matcher(each, any_form=wide) for each in dict.fromkeys(paths)),
            address,
            base,
        )

    def fits_any(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether any text of the arguments matches, in any reading, at any depth."""
        return any(
            self._may_fit(text)
            for whole, own, value in members(arguments)
            if self.name(whole) or self.name(own)
            for text in leaves(value)
        )

    def fits_all(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether there is a text, and all match in every reading, also nested ones of the name."""
        is_given = False
        for whole, own, value in members(arguments):
            if (is_meant := self.name(whole)) or self.name(own):
                for text in leaves(value):
                    if not self._surely_fits(text):
                        return False
                    is_given = is_given or is_meant
        return is_given

    def _may_fit(self, text: str) -> bool:
        bare = text.strip()
        return self._fits_somehow(text) or (bare != text and self._fits_somehow(bare))

    def _fits_somehow(self, text: str) -> bool:
        if self.raw(text) or self.raw(normalise_path(text)):
            return True
        if (address := WebAddress.of(text)) is not None and (
            self.raw(address.text) or (self.address is not None and self.address.may_fit(address))
        ):
            return True
        path = as_path(text, self.base)
        if any(fits(path) or fits(as_windows_path(path)) for fits in self.paths):
            return True
        return climbs(text) and self.raw(path)

    def _surely_fits(self, text: str) -> bool:
        if self.address is not None:
            address = WebAddress.of(text)
            return address is not None and self.address.surely_fits(address)
        if self.paths:
            readings = [as_path(text, self.base)]
            if "\\" in text and os.sep == "/":
                readings.append(as_path(text, self.base, backslashes=False))
            return all(any(fits(path) for fits in self.paths) for path in readings)
        if not climbs(text):
            return self.raw(text)
        address = WebAddress.of(text)
        return (
            self.raw(text)
            and self.raw(as_path(text, self.base))
            and (address is None or self.raw(address.text))
        )


class CompiledRule:
    """A compiled rule.

    A rule that denies or asks matches if any reading of the call does, case-insensitively; one that allows,
    only if every reading does, case-sensitively. So `/tmp/../etc/passwd` is in `/etc`, not in `/tmp`.

    Args:
        rule: the rule.
        base: base of relative paths.

    Attributes:
        rule: see above.
        action: what it decides.
        reason: why, for people and models.
    """

    def __init__(self, rule: PermissionRule, *, base: str) -> None:
        self.rule = rule
        self.action: Verdict = rule.action
        self.reason = rule.reason or f"A rule says so: {rule.summary}."
        self._strict = rule.action != "allow"
        self._tool = matcher(rule.tool, any_form=self._strict)
        self._source = matcher(rule.source, any_form=self._strict)
        self._conditions = tuple(
            _Condition.of(name, pattern, base=base, wide=self._strict) for name, pattern in rule.args.items()
        )

    def is_about(self, names: Sequence[str], source: str) -> bool:
        """Return whether it applies to a tool and a caller, whatever the arguments.

        Args:
            names: names of the tool, for people and for models.
            source: the caller.
        """
        return self._source(source) and any(map(self._tool, names))

    def fits(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether it matches the arguments, too."""
        if self._strict:
            return all(condition.fits_any(arguments) for condition in self._conditions)
        return all(condition.fits_all(arguments) for condition in self._conditions)


_CLIMBS = re.compile(r"(?:^|[/\\])(?:\.\.)(?:[/\\]|$)|%2e|%5c", re.IGNORECASE)
_DRIVE = re.compile(r"[A-Za-z]:/")
_WINDOWS = re.compile(r"[A-Za-z]:\\|\\\\")  # start of a Windows path
_DEVICE = re.compile(r"//[?.]/(?:UNC(/))?", re.IGNORECASE)  # prefix that Windows ignores
_PASSED_OVER = re.compile(r"[. ]+(?=/|\Z)|(?<=[^/]):[^/]*(?=/|\Z)")  # ignored too: streams, ends of names
_FILE = re.compile(r"file:(?://[^/\\]*)?(?=[/\\]|\Z)", re.IGNORECASE)  # with the host


def leaves(value: object) -> Iterator[str]:
    """Iterate over all texts in an argument, at any depth, and the names of members.

    Numbers, booleans and nulls are in JSON form.
    """
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping):
            inner = cast("Mapping[str, object]", part)
            yield from inner
            waiting += inner.values()
        elif isinstance(part, list | tuple):
            waiting += cast("list[object]", part)
        elif part is None or isinstance(part, bool):
            yield {None: "null", True: "true", False: "false"}[part]
        elif isinstance(part, float) and part.is_integer():
            yield str(int(part))  # 22.0 is the port 22
        else:
            yield str(part)


_FLAT = (str, int, float, NoneType)


def members(arguments: Mapping[str, object]) -> Iterator[tuple[str, str, object]]:
    """Iterate over all named values, at any depth: full name (`options.path`), own name, and value."""
    waiting: list[tuple[str, object]] = [("", arguments)]
    while waiting:
        above, part = waiting.pop()
        if isinstance(part, Mapping):
            for name, value in cast("Mapping[str, object]", part).items():
                whole = f"{above}.{name}" if above else name
                yield whole, name, value
                if not isinstance(value, _FLAT):
                    waiting.append((whole, value))
        elif isinstance(part, list | tuple):
            waiting += ((above, each) for each in cast("list[object]", part))


def climbs(text: str) -> bool:
    """Return whether a text has path traversal (`..`), plain or percent-encoded."""
    return _CLIMBS.search(text) is not None


def is_path_pattern(pattern: str) -> bool:
    """Return whether a pattern is for paths: it has a `/`, and neither white space nor a scheme."""
    if _FILE.match(pattern) or _WINDOWS.match(pattern):
        return True
    return (
        ("/" in pattern or pattern.startswith("~"))
        and not any(map(str.isspace, pattern))
        and "://" not in pattern
    )


def normalise_path(text: str) -> str:
    """Normalise a relative or absolute path (`./`, `a/../`, double slashes)."""
    return normpath(text.replace("\\", "/")) if text else text


def as_path(text: str, base: str, *, backslashes: bool = True) -> str:
    """Convert a text to an absolute path without `.`, `..` and double slashes. The disk is not accessed.

    Args:
        text: a path, POSIX or Windows, a `file:` URL, or a pattern of paths.
        base: base of a relative path.
        backslashes: whether they separate names, as on Windows, or are plain characters.
    """
    if file := _FILE.match(text):
        text = unquote(text[file.end() :]) or "/"
    if backslashes:
        text = _DEVICE.sub(lambda match: "//" if match[1] else "", text.replace("\\", "/"), count=1)
    if text == "~" or text.startswith("~/"):
        text = f"{Path.home().as_posix()}{text[1:]}"
    if not text.startswith("/") and not _DRIVE.match(text):
        text = f"{base}/{text}"
    path = normpath(text)
    return path[1:] if path.startswith("//") else path  # POSIX keeps two leading slashes; here they are one


def as_windows_path(path: str) -> str:
    """Drop the parts of an absolute path that Windows ignores: trailing dots and spaces, and streams."""
    drive = path[:2] if _DRIVE.match(path) else ""
    return drive + _PASSED_OVER.sub("", path[len(drive) :])


_PATTERN = re.compile(r"([A-Za-z*?][A-Za-z0-9+.*?-]*)://([^/?#\s]*)(\S*)", re.DOTALL)
# Browsers accept addresses of known schemes without the slashes.
_ADDRESS = re.compile(
    r"((?i:https?|wss?|ftp)(?=:)|[A-Za-z][A-Za-z0-9+.-]*(?=:[/\\]{2})):[/\\]*([^/\\?#]*)([^#]*)", re.DOTALL
)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/\\?#@]+(?:[/?#][^\s\\]*)?")
_DROPPED = re.compile(r"[\t\r\n]")  # browsers ignore these anywhere
_PORT = re.compile(r":(\d*)\Z")
_DEFAULT_PORTS = {"ftp": "21", "http": "80", "https": "443", "ws": "80", "wss": "443"}


@dataclass(frozen=True, slots=True)
class WebAddress:
    """A web address in its parts, as a browser parses it.

    Attributes:
        scheme: in lower case.
        host: in lower case, without user, final dot and port.
        port: empty for the default port.
        rest: path and query as written.
        clean: the same with a decoded path without `..`.
        is_plain: whether all programs parse it alike: it has no user name, backslash or white space.
    """

    scheme: str
    host: str
    port: str
    rest: str
    clean: str
    is_plain: bool

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Parse an address; return None if the text is none."""
        stripped = _DROPPED.sub("", text.strip())
        match = _ADDRESS.fullmatch(stripped.partition("#")[0])
        if match is None:
            return None
        scheme, authority, rest = match[1].lower(), match[2].rpartition("@")[2], match[3]
        host = _one_form(unquote(authority))
        port = _PORT.search(host)
        number = port[1] if port and port[1] != _DEFAULT_PORTS.get(scheme) else ""
        host = _readable(_PORT.sub("", host).removesuffix("."))
        path, mark, query = rest.partition("?")
        clean = normpath("/" + unquote(path).replace("\\", "/").lstrip("/"))
        clean += "/" if path.endswith(("/", "\\")) and clean != "/" else ""
        plain = _PLAIN.fullmatch(text) is not None and host.isprintable()
        return cls(scheme, host, number, rest, f"{clean}{mark}{query}", plain)

    @property
    def place(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}" if self.port else self.host

    @property
    def text(self) -> str:
        """The address in canonical form."""
        return f"{self.scheme}://{self.place}{self.clean}"


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """A pattern such as `https://*.example.com/v1/*`: `*` in the host does not reach into the path.

    In a pattern for whole texts, the `*` of `https://*.example.com/*` would match
    `https://evil.example/?.example.com/` as well. So each part of a pattern is matched with its part of an
    address.

    Attributes:
        scheme: matches the scheme.
        host: matches host and port.
        rest: matches path and query.
    """

    scheme: Matcher
    host: Matcher
    rest: Matcher

    @classmethod
    def of(cls, pattern: str, *, any_form: bool) -> Self | None:
        """Parse a pattern; return None if it is for other texts.

        Args:
            pattern: see `loom_core.tools.patterns`.
            any_form: as in `matcher`.
        """
        match = _PATTERN.fullmatch(pattern)
        if match is None or match[1].lower() == "file":
            return None
        host, rest = match[2], match[3]
        if not rest and host != "*" and host.endswith("*"):  # it means everything on that host
            host, rest = host.rstrip("*"), "*"
        if not rest.startswith(("/", "*")):
            rest = f"/{rest}"
        default = _DEFAULT_PORTS.get(match[1].lower(), "")
        host = _readable(_one_form(host).removesuffix(f":{default}" if default else "").removesuffix("."))
        if not host:
            return None
        return cls(
            matcher(match[1].lower()), matcher(host, any_form=any_form), matcher(rest, any_form=any_form)
        )

    def may_fit(self, address: WebAddress) -> bool:
        """Return whether it matches in any reading, and on any port."""
        return (
            self.scheme(address.scheme)
            and (self.host(address.place) or self.host(address.host))
            and (self.rest(address.clean) or self.rest(address.rest or "/"))
        )

    def surely_fits(self, address: WebAddress) -> bool:
        """Return whether it matches in every reading."""
        return (
            address.is_plain
            and self.scheme(address.scheme)
            and self.host(address.place)
            and self.rest(address.clean)
            and self.rest(address.rest or "/")
        )


def _one_form(host: str) -> str:
    return normalize("NFKC", host).lower().replace("\u3002", ".")  # 。 separates labels, too


def _readable(host: str) -> str:
    """Return a host name in Unicode, not as `xn--…`."""
    if "xn--" in host:
        try:
            return host.encode("ascii").decode("idna")
        except UnicodeError:
            return host
    return host
