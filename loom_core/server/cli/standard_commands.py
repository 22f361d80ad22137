"""Declaration of the commands that every server has; `server.program` runs them.

A server adds its own, and omits those that make no sense for it.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from loom_core.server.cli.audit_command import add_audit_options
from loom_core.server.cli.command_line import add_command
from loom_core.server.cli.http_options import add_http_options
from loom_core.server.cli.token_command import add_token_options

if TYPE_CHECKING:
    from loom_core.server.auth.caller import Scope

__all__ = [
    "CLIENT_IDS",
    "ClientId",
    "ServerCommands",
    "add_install_options",
    "add_junit_option",
    "add_mcp_options",
    "add_profile",
    "add_uninstall_options",
    "configuration_file",
]

ImportSource = Literal["claude-desktop", "claude-code", "cursor", "vscode", "gemini-cli"]
IMPORT_SOURCES: tuple[ImportSource, ...] = get_args(ImportSource)
"""Clients whose servers can be imported."""

_PAIR = re.compile(r"\s*([^=:\s]+)\s*[=:]\s*(.*)", re.DOTALL)
_SECRET = "of {0}; write a secret as ${{VARIABLE}}, env:NAME or keyring:NAME (may be repeated)"
ClientId = Literal[
    "claude-desktop", "claude-code", "cursor", "vscode", "codex", "gemini-cli", "goose", "zed", "windsurf"
]
CLIENT_IDS: tuple[ClientId, ...] = get_args(ClientId)


class ServerCommands:
    """The commands of a server, with common options.

    Attributes:
        parser: parser of all commands; the chosen one is `command` in the result.
    """

    def __init__(
        self, program: str, *, description: str, options: Callable[[argparse.ArgumentParser], None]
    ) -> None:
        """Start without commands.

        Args:
            program: the server's command, and the name of its distribution.
            description: description of the server.
            options: adds the options of this server to each command.
        """
        self.parser = argparse.ArgumentParser(prog=program, description=description)
        self.parser.add_argument("--version", action="version", version=f"{program} {version(program)}")
        self._commands = self.parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
        self._program = program
        self._options = options

    def add(self, name: str, text: str, *, alias: str = "") -> argparse.ArgumentParser:
        """Declare a command by its name and what it does, see `add_command`."""
        command = add_command(self._commands, name, text, alias=alias)
        self._options(command)
        return command

    def add_serve(self) -> argparse.ArgumentParser:
        """Declare `serve`; return its parser, for further options."""
        serve = self.add("serve", "serve MCP over stdio (the default), or over HTTP")
        add_http_options(serve)
        return serve

    def add_mcp(self) -> None:
        """Declare `mcp`, for a server that uses other servers."""
        add_mcp_options(
            self.add("mcp", "list, add, remove, test, trust, approve or import other MCP servers")
        )

    def add_install(self) -> argparse.ArgumentParser:
        """Declare `install` and `uninstall`; return the parser of `install`."""
        install = self.add("install", "add this server to the configuration of an MCP client")
        add_install_options(install, program=self._program)
        uninstall = self.add("uninstall", "remove this server from the configuration of an MCP client")
        add_uninstall_options(uninstall, program=self._program)
        return install

    def add_token(
        self, *, source_option: str, source: str, key: str = "sources", scope: Scope = "read"
    ) -> argparse.ArgumentParser:
        """Declare `token`; return its parser. The arguments are those of `add_token_options`."""
        token = self.add("token", "create, list or revoke tokens for `serve --http --tokens`")
        add_token_options(token, source_option=source_option, source=source, key=key, scope=scope)
        return token

    def add_audit(self) -> None:
        """Declare `audit`."""
        add_audit_options(self.add("audit", "show the audit log, or verify that no entry was changed"))

    def add_doctor(self, *, named: str) -> None:
        """Declare `doctor`.

        Args:
            named: the things whose names its answer has, such as `sources and folders`.
        """
        doctor = self.add("doctor", "check the installation quickly; change nothing")
        doctor.add_argument(
            "--port", type=int, default=8765, help="what `serve --http` would use (default 8765)"
        )
        doctor.epilog = (
            "Exit code 0 if there is no problem (there may be warnings), 1 if there is one. The answer holds"
            f" no key and can be pasted into an issue; it contains names of {named}."
        )


def add_profile(serve: argparse.ArgumentParser) -> None:
    """Add `--profile`, which limits a search server to the two tools that ChatGPT requires."""
    serve.add_argument(
        "--profile", choices=["full", "chatgpt"], default="full", help="`chatgpt`: exactly search and fetch"
    )


def add_junit_option(command: argparse.ArgumentParser) -> None:
    """Add `--junit` to a command that tests something; see `evaluation.write_junit`."""
    command.add_argument("--junit", type=Path, metavar="FILE", help="also write a report as JUnit XML")


def configuration_file(args: argparse.Namespace, home: Path, *, default: str) -> Path:
    """Return the file of `--config`; by default the one with this name in Loom's folder."""
    given: Path | None = args.config
    return given.expanduser().absolute() if given else home / default


def add_mcp_options(command: argparse.ArgumentParser) -> None:
    """Add the verbs of the command `mcp`."""
    verbs = command.add_subparsers(dest="action", metavar="VERB", required=True)
    _verb(verbs, "list", "list the servers, and what is wrong with any of them")

    add = _verb(verbs, "add", "add a server: NAME URL, or NAME -- COMMAND and what it is given")
    add.usage = f"{add.prog} NAME URL [options]\n       {add.prog} NAME [options] -- COMMAND [ARGUMENTS]"
    _name(add)
    add.add_argument("url", nargs="?", metavar="URL", help="URL of a running server")
    add.add_argument(
        "--transport", choices=["http", "sse"], default="http", help="of the URL; `sse` for old servers"
    )
    add.add_argument(
        "--header", action="append", default=[], type=_pair, metavar="NAME=VALUE", help=_SECRET.format("URL")
    )
    add.add_argument(
        "--env", action="append", default=[], type=_pair, metavar="NAME=VALUE", help=_SECRET.format("COMMAND")
    )
    add.add_argument("--cwd", type=Path, metavar="DIR", help="working directory of COMMAND")
    add.add_argument("--force", action="store_true", help="replace the server that has this name")

    _name(_verb(verbs, "remove", "remove a server"))

    test = _verb(verbs, "test", "connect to servers, and say how that went")
    test.add_argument("names", nargs="*", metavar="NAME", help="which servers")
    test.add_argument("--all", action="store_true", help="all enabled servers")

    login = _verb(verbs, "login", "log in at a server that wants OAuth, in a browser")
    _name(login)
    login.add_argument(
        "--no-browser", action="store_true", help="only show the address; do not open a browser"
    )

    _name(_verb(verbs, "logout", "forget the login at a server"))

    trust = _verb(verbs, "trust", "allow the servers of a project's .mcp.json to be started")
    trust.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="by default that of the current folder's project"
    )
    trust.add_argument("--yes", action="store_true", help="do not ask")
    trust.add_argument("--revoke", action="store_true", help="stop trusting it")

    approve = _verb(verbs, "approve", "approve tools of servers beforehand, as they are now")
    approve.add_argument(
        "names", nargs="+", metavar="SERVER[:TOOL]", help="a tool; or a server, for all tools that it has now"
    )
    approve.add_argument("--yes", action="store_true", help="do not ask")
    approve.add_argument("--revoke", action="store_true", help="withdraw their approval")

    import_ = _verb(verbs, "import", "take over the servers of another client")
    import_.add_argument(
        "client", choices=IMPORT_SOURCES, metavar="CLIENT", help=f"one of {', '.join(IMPORT_SOURCES)}"
    )
    import_.add_argument(
        "--scope",
        choices=["user", "project"],
        default="user",
        help="those of the user (the default), or of the project in the current folder",
    )
    import_.add_argument(
        "--name", action="append", default=[], metavar="NAME", help="only this server (may be repeated)"
    )
    import_.add_argument("--dry-run", action="store_true", help="show what would be taken, change nothing")
    import_.add_argument("--yes", action="store_true", help="with --scope project: do not ask")


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser],  # pyright: ignore[reportPrivateUsage]
    name: str,
    text: str,
) -> argparse.ArgumentParser:
    """Add a verb with the options of its command, so that `mcp list --json` means `mcp --json list`."""
    verb = verbs.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")
    verb.add_argument(
        "--home",
        type=Path,
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="Loom's folder (default $LOOM_HOME or ~/.loom)",
    )
    for option, meaning in (("--debug", "show tracebacks"), ("--json", "answer with JSON")):
        verb.add_argument(option, action="store_true", default=argparse.SUPPRESS, help=meaning)
    return verb


def _name(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("name", metavar="NAME", help="what the server is called")


def _pair(text: str) -> tuple[str, str]:
    pair = _PAIR.fullmatch(text)
    if pair is None:
        raise argparse.ArgumentTypeError("write NAME=VALUE")
    return pair[1], pair[2]


def add_install_options(command: argparse.ArgumentParser, *, program: str) -> None:
    """Add the options of `install` for a server."""
    _add_client(command, optional=True)
    _add_place(command, program=program)
    command.add_argument(
        "--print", action="store_true", dest="print_only", help="show what to paste, and change no file"
    )
    command.usage = f"{program} install [CLIENT] [options] [-- options of {program} serve]"
    command.epilog = (
        f"Options after -- are passed to `{program} serve` whenever the client starts it. A second run with"
        " other options changes the entry."
    )


def add_uninstall_options(command: argparse.ArgumentParser, *, program: str) -> None:
    """Add the options of `uninstall` for a server."""
    _add_client(command, optional=False)
    _add_place(command, program=program)
    command.add_argument(
        "--force", action="store_true", help="remove the entry even if it holds what `install` does not write"
    )


def _add_client(command: argparse.ArgumentParser, *, optional: bool) -> None:
    command.add_argument(
        "client",
        choices=CLIENT_IDS,
        nargs="?" if optional else None,
        metavar="CLIENT",
        help=f"one of {', '.join(CLIENT_IDS)}",
    )


def _add_place(command: argparse.ArgumentParser, *, program: str) -> None:
    command.add_argument(
        "--scope",
        choices=["user", "project"],
        default="user",
        help="everywhere (the default), or in the project in the current folder",
    )
    command.add_argument(
        "--name",
        default=program,
        metavar="NAME",
        help=f"what the client calls the server (default {program})",
    )
    command.add_argument("--dry-run", action="store_true", help="show what would change, and change nothing")
