"""The command `token create | list | revoke`, the same for every server."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, get_args

from loom_core.errors import InvalidInputError
from loom_core.server.auth.caller import Scope

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from loom_core.server.auth.tokens import Token, TokenFile

__all__ = ["TokenReport", "add_token_context", "add_token_options", "run_token_command"]

_UNITS = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"([1-9][0-9]{0,4})([hdw])")


@dataclass(frozen=True, slots=True)
class TokenReport:
    """Outcome of the command.

    Attributes:
        lines: lines for standard output; for `create` only the token, so that it can be piped into a secret
            store.
        notes: notes for people, in addition to the answer.
        data: the same for programs.
    """

    lines: list[str]
    notes: list[str]
    data: dict[str, Any] = field(repr=False)


def add_token_options(
    command: argparse.ArgumentParser,
    *,
    source_option: str,
    source: str,
    key: str = "sources",
    scope: Scope = "read",
) -> None:
    """Add the options that `run_token_command` reads.

    Args:
        command: the parser of the command `token`.
        source_option: the option for the data that a token is restricted to, such as `--kb`.
        source: name of one unit of that data, such as `knowledge base`.
        key: key of these names in the JSON output.
        scope: default of `--scope`.
    """
    command.add_argument("action", choices=["create", "list", "revoke"], help="what to do")
    command.add_argument("name", nargs="?", metavar="NAME", help="with create and revoke: name of the token")
    command.add_argument(
        "--scope",
        action="append",
        choices=get_args(Scope),
        default=[],
        help="with create: `read` for what changes nothing, `write` for the other tools too, `admin` for"
        f" /metrics and operators (may be repeated; default: {scope})",
    )
    command.add_argument(
        source_option,
        action="append",
        default=[],
        dest="token_sources",
        metavar="NAME",
        help=f"with create: only this {source} (may be repeated; default: all)",
    )
    command.add_argument(
        "--expires",
        type=_duration,
        metavar="TIME",
        help="with create: how long it lasts, such as 12h, 30d or 8w (default: until it is revoked)",
    )
    command.set_defaults(token_source=source, token_key=key, token_scope=scope, token_context=[])
    command.set_defaults(takes_more="name")


def add_token_context(command: argparse.ArgumentParser) -> None:
    """Add the option for data that calls with a token cannot change, where calls have a context."""
    command.add_argument(
        "--context",
        action="append",
        default=[],
        dest="token_context",
        metavar="NAME=VALUE",
        help="with create: a variable that calls with this token cannot change, such as tenantId=acme"
        " (may be repeated)",
    )


def run_token_command(args: argparse.Namespace, tokens: TokenFile) -> TokenReport:
    """Run `token`, and return its outcome.

    Raises:
        InvalidInputError: a name is missing, invalid or taken.
        NotFoundError: there is no such token.
        ConfigError: the file of tokens cannot be read or written.
        StoreBusyError: another process writes it.
    """
    actions: dict[str, Callable[[argparse.Namespace, TokenFile], TokenReport]] = {
        "create": _create,
        "list": _list,
        "revoke": _revoke,
    }
    return actions[args.action](args, tokens)


def _create(args: argparse.Namespace, tokens: TokenFile) -> TokenReport:
    token, secret = tokens.create(
        _name(args),
        scopes=_scopes(args.scope or [args.token_scope]),
        sources=args.token_sources or None,
        seconds=args.expires,
        context=_context(args.token_context),
    )
    shown = secret.get_secret_value()
    notes = [
        f"Token {_describe(token)}.",
        "It is shown only once: only its hash is stored. A running server accepts it at once.",
    ]
    return TokenReport([shown], notes, {"token": shown, **_facts(token, args.token_key)})


def _list(args: argparse.Namespace, tokens: TokenFile) -> TokenReport:
    if args.name:
        raise InvalidInputError("`token list` takes no name.", advice="It lists all tokens.")
    known = tokens.list()
    notes = [] if known else ["There is no token yet. Make one: token create NAME"]
    data = {"tokens": [_facts(token, args.token_key) for token in known]}
    return TokenReport([*map(_describe, known)], notes, data)


def _revoke(args: argparse.Namespace, tokens: TokenFile) -> TokenReport:
    token = tokens.revoke(_name(args))
    return TokenReport(
        [f"Revoked {token.name}: requests with it are refused from now on."], [], {"revoked": token.name}
    )


def _name(args: argparse.Namespace) -> str:
    if not args.name:
        raise InvalidInputError(
            f"`token {args.action}` needs a name.", advice=f"For example: token {args.action} laptop"
        )
    return args.name


def _describe(token: Token) -> str:
    scopes = ", ".join(sorted(token.scopes))
    sources = "everything" if token.sources is None else ", ".join(sorted(token.sources))
    if token.expires is None:
        end = "does not expire"
    else:
        moment = datetime.fromtimestamp(token.expires).astimezone()
        end = f"{'expired' if token.expired else 'expires'} {moment:%Y-%m-%d %H:%M}"
    context = "".join(f"  {name}={value}" for name, value in sorted(token.context.items()))
    return f"{token.name}  {scopes}  on {sources}{context}  {end}"


def _facts(token: Token, key: str) -> dict[str, Any]:
    return {
        "name": token.name,
        "scopes": sorted(token.scopes),
        key: None if token.sources is None else sorted(token.sources),
        **({"context": dict(token.context)} if token.context else {}),
        "created": token.created,
        "expires": token.expires,
        "expired": token.expired,
    }


def _scopes(given: Sequence[Scope]) -> set[Scope]:
    """Return the scopes; `write` includes `read`."""
    return {*given, "read"} if "write" in given else {*given}


def _context(given: Sequence[str]) -> dict[str, str]:
    context: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name or not value or name in context:
            raise InvalidInputError(
                f"--context {each} has no name or no value, or is duplicated.", advice="Write NAME=VALUE."
            )
        context[name] = value
    return context


def _duration(text: str) -> float:
    import argparse

    form = _DURATION.fullmatch(text)
    if form is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 12h, 30d or 8w")
    return float(int(form[1]) * _UNITS[form[2]])
