"""The options of `serve --http`, the same for every server's command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.server.serving.http_settings import HttpSettings

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from loom_core.server.auth.authentication import AuthSettings

__all__ = ["add_http_options", "http_settings", "ready_lines"]


def add_http_options(command: argparse.ArgumentParser) -> None:
    """Add the options that `http_settings` reads."""
    command.add_argument("--http", action="store_true", help="serve Streamable HTTP")
    command.add_argument(
        "--host",
        default="127.0.0.1",
        help="with --http: the address to listen on (default 127.0.0.1, this machine only);"
        " any other needs --tokens or --issuer",
    )
    command.add_argument(
        "--port", type=int, default=8765, help="with --http (default 8765; 0 for any free one)"
    )
    command.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="with --http: a further host name that clients or a proxy in front use",
    )
    command.add_argument(
        "--node-url",
        default="",
        metavar="URL",
        help="with --http, for several servers behind one load balancer: where the others reach this one,"
        " such as http://10.0.0.5:8765; they need the same home or the same LOOM_STATE_KEYS",
    )
    command.add_argument(
        "--tokens", action="store_true", help="with --http: require a token made by `token create`"
    )
    command.add_argument(
        "--issuer",
        metavar="URL",
        help="with --http: accept access tokens (OAuth 2.1, JWT) of this issuer; needs --public-url",
    )
    command.add_argument(
        "--public-url",
        metavar="URL",
        help="with --issuer: the endpoint as clients reach it, such as https://kb.example/mcp; tokens must be"
        " for it (aud)",
    )
    command.add_argument(
        "--jwks-url",
        metavar="URL",
        help="with --issuer: URL of its keys (default: from its metadata)",
    )
    command.add_argument(
        "--typed-tokens",
        action="store_true",
        help="with --issuer: accept only tokens whose header says at+jwt (RFC 9068)",
    )
    command.add_argument(
        "--drain",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="with --http: on shutdown, seconds for which /readyz fails before connections are refused",
    )


def http_settings(args: argparse.Namespace, *, tokens: Path) -> HttpSettings | None:
    """Build the HTTP settings from arguments; None without --http.

    Args:
        args: parsed arguments, with those of `add_http_options`.
        tokens: the file of the server's tokens, see `paths.token_path`.

    Raises:
        ConfigError: the options cannot be combined, or one is not valid.
    """
    if not args.http:
        if unused := _given(args):
            raise ConfigError(
                f"{unused[0]} is for HTTP; over stdio there is one client, which has started the server.",
                advice="Add --http.",
            )
        return None
    if (args.public_url or args.jwks_url or args.typed_tokens) and not args.issuer:
        raise ConfigError(
            "--public-url, --jwks-url and --typed-tokens have no effect without --issuer.",
            advice="Give --issuer.",
        )
    from loom_core.server.serving.nodes import check_node_url

    return HttpSettings(
        node_url=check_node_url(args.node_url) if args.node_url else "",
        host=args.host,
        port=args.port,
        allowed_hosts=tuple(map(_host_name, args.allow_host)),
        auth=_auth(args, tokens) if args.tokens or args.issuer else None,
        drain_seconds=max(0.0, args.drain),
    )


def ready_lines(name: str, url: str, settings: HttpSettings) -> list[str]:
    """Describe a started HTTP server to a person: its URL, its access, and an entry for `mcp.json`.

    Args:
        name: the server's name.
        url: its endpoint.
        settings: its settings.
    """
    auth = settings.auth
    who = "no authentication"
    if auth is not None:
        issued = [f"OAuth by {auth.issuer.url}"] if auth.issuer else []
        who = " or ".join([*(["tokens"] if auth.tokens else []), *issued])
    where = "this machine only" if settings.listens_locally else "the network"
    lines = [f"{name} serves {url} ({where}, {who})"]
    if not settings.listens_locally:
        lines.append(
            "Tokens are sent unencrypted: put a TLS proxy in front, and name its host with --allow-host."
        )
    header = ', "headers": {"Authorization": "Bearer ${LOOM_TOKEN}"}' if auth and auth.tokens else ""
    shown = auth.issuer.resource if auth and auth.issuer else url
    entry = f'{{"mcpServers": {{"{name}": {{"type": "http", "url": "{shown}"{header}}}}}}}'
    return [*lines, f"For mcp.json: {entry}"]


def _given(args: argparse.Namespace) -> list[str]:
    """Return the options of HTTP that differ from their defaults."""
    import argparse

    parser = argparse.ArgumentParser(add_help=False)
    add_http_options(parser)
    defaults = vars(parser.parse_args([]))
    given = [name for name, default in defaults.items() if getattr(args, name) != default]
    return [f"--{name.replace('_', '-')}" for name in given]


def _host_name(text: str) -> str:
    """Return a name in the form that clients send: in small letters, and in ASCII (IDNA)."""
    from loom_core.net.url import host_of

    if text.startswith("["):  # an IPv6 address
        return text
    name, colon, port = text.partition(":")
    host = host_of(name)
    if host is None or (colon and not port.isdecimal()):
        raise ConfigError(
            f"--allow-host {text!r} is not the name of a host.",
            advice="Give the name only, such as kb.example, without https:// and path.",
        )
    return f"{host}{colon}{port}"


def _auth(args: argparse.Namespace, tokens: Path) -> AuthSettings:
    from loom_core.server.auth.access_tokens import Issuer
    from loom_core.server.auth.authentication import AuthSettings

    if args.issuer and not args.public_url:
        raise ConfigError(
            "--issuer needs --public-url: only tokens for this server are taken.",
            advice="Give the endpoint as clients reach it, such as --public-url https://kb.example/mcp.",
        )
    issuer = None
    if args.issuer:
        issuer = Issuer(args.issuer, args.public_url, args.jwks_url or "", typed=args.typed_tokens)
    return AuthSettings(tokens if args.tokens else None, issuer)
