"""Common parts of the servers' command lines: commands, exit codes, output.

Exit codes: 0 done, 1 an error, 2 wrong usage, 130 interrupted, 141 broken pipe; a server
may have its own.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast

from loom_core.errors import InvalidInputError, LoomError, unwrap_group
from loom_core.paths import token_path

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from loom_core.server.cli.health import HealthReport
    from loom_core.server.protocol.factory import LoomServer
    from loom_core.server.protocol.handshake import Introduction

__all__ = [
    "Commands",
    "add_command",
    "bundle_line",
    "parse_filters",
    "parse_line",
    "report_wrong_usage",
    "run_to_exit_code",
    "serve_from_arguments",
    "show_health",
    "show_report",
    "split_arguments",
    "split_line",
]

_log = logging.getLogger(__name__)
_WRONG_USAGE = 2
_INTERRUPTED = 130
_NOT_READ = 141
_SPLIT = {"install", "mcp"}
_OF_THE_PROGRAM = {"-h", "--help", "--version"}
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # pyright: ignore[reportPrivateUsage]
"""The return type of `ArgumentParser.add_subparsers`."""

_REFERENCE = "${user_config."


class CommandReport(Protocol):
    """Outcome of a shared command, which prints nothing itself."""

    @property
    def lines(self) -> Sequence[str]:
        """Lines for standard output."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """Notes for people, in addition to the answer."""
        ...

    @property
    def data(self) -> dict[str, Any]:
        """The same for programs, as it goes into JSON."""
        ...


def add_command(commands: Commands, name: str, text: str, *, alias: str = "") -> argparse.ArgumentParser:
    """Declare a command with the options that every command has.

    Args:
        commands: the subparsers that it is added to.
        name: its name; `serve` has options for metrics and logs instead of `--json`.
        text: description for the help; begins with a small letter, ends without a full stop.
        alias: another name; empty for none.
    """
    command = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        aliases=[alias] if alias else [],
    )
    command.set_defaults(command=name)
    command.add_argument(
        "--home", type=Path, metavar="DIR", help="Loom's folder (default $LOOM_HOME or ~/.loom)"
    )
    command.add_argument("--debug", action="store_true", help="show tracebacks")
    if name == "serve":
        command.add_argument(
            "--metrics-file",
            default=os.environ.get("LOOM_METRICS_FILE", ""),
            metavar="FILE",
            help="write metrics to this file, for node_exporter; {pid} in its name is the number"
            " of the process (default $LOOM_METRICS_FILE; over HTTP, /metrics has them, too)",
        )
        command.add_argument(
            "--log-format",
            default="",
            metavar="FORMAT",
            help="log format on standard error: text, or json (one object per line; default"
            " $LOOM_LOG_FORMAT or text)",
        )
        command.add_argument(
            "--log-level",
            default="",
            metavar="LEVEL",
            help="lowest severity to log: debug, info, warning or error (default $LOOM_LOG_LEVEL or info)",
        )
    else:
        command.add_argument("--json", action="store_true", help="print JSON on standard output")
    command.set_defaults(own_parser=command, takes_more="")
    return command


def parse_line(parser: argparse.ArgumentParser, line: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; options may stand between the arguments of a command.

    A command whose last argument is optional or may be repeated sets its name as the default of `takes_more`:
    argparse does not look for it after an option. For unknown arguments, the command's own usage is shown.

    Args:
        parser: parser of all commands, which are declared by `add_command`.
        line: the arguments of the process.
    """
    args, left = parser.parse_known_args(line)
    taken: Any = getattr(args, args.takes_more, "")
    if isinstance(taken, list) and not any(each.startswith("-") for each in left):
        cast("list[str]", taken).extend(left)
    elif taken is None and len(left) == 1 and not left[0].startswith("-"):
        setattr(args, args.takes_more, left[0])
    elif left:
        args.own_parser.error(f"unrecognized arguments: {' '.join(left)}")
    return args


def split_line(arguments: Sequence[str], *, default: str = "serve") -> tuple[list[str], list[str]]:
    """Split a command line at the `--` of `install` and `mcp add`.

    Args:
        arguments: the arguments of the process.
        default: the command if none is named.
    """
    line = list(arguments)
    if not line or (line[0].startswith("-") and line[0] not in _OF_THE_PROGRAM):
        line.insert(0, default)
    return split_arguments(line) if line[0] in _SPLIT else (line, [])


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into the arguments of `install` and those after `--`."""
    if "--" not in arguments:
        return list(arguments), []
    at = list(arguments).index("--")
    return list(arguments[:at]), list(arguments[at + 1 :])


def parse_filters(options: Sequence[str]) -> dict[str, Any]:
    """Parse `--filter NAME=VALUE` options; a repeated name has several values.

    Raises:
        InvalidInputError: one of them has no value.
    """
    filters: dict[str, Any] = {}
    for given in options:
        name, equals, value = given.partition("=")
        if not equals:
            raise InvalidInputError(f"--filter {given} has no value.", advice="Write it as NAME=VALUE.")
        filters.setdefault(name, []).append(value)
    return filters


def run_to_exit_code(program: str, run: Callable[[], int], *, debug: bool) -> int:
    """Run a command, and return the exit code. Errors are printed to standard error.

    Secret files become environment variables before it begins, see `secret_files`.

    Args:
        program: the command's name, a prefix of the message.
        run: runs the command, and returns the exit code.
        debug: whether to show tracebacks of Loom's errors, too; those of others are always shown. Secrets are
            redacted.
    """
    _open_closed_streams()
    try:
        if os.environ.get("LOOM_SECRETS_DIR"):
            from loom_core.server.cli.secret_files import take_secret_files

            take_secret_files()
        code = run()
        sys.stdout.flush()  # here, where a broken pipe is handled
    except Exception as raised:  # noqa: BLE001 - the process ends; Python would show it with its secrets
        error = unwrap_group(raised)
        if isinstance(error, BrokenPipeError):
            from loom_core.server.cli.console import close_output

            close_output()
            return _NOT_READ
        if debug or not isinstance(error, LoomError):
            _print_error("".join(traceback.format_exception(raised)).rstrip("\n"))
        else:
            _print_error(_error_text(program, error))
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    return code


def report_wrong_usage(program: str, error: LoomError) -> int:
    """Print an error about a file of the user to standard error; return the exit code for wrong usage."""
    _print_error(_error_text(program, error))
    return _WRONG_USAGE


def _error_text(program: str, error: LoomError) -> str:
    return f"{program}: {error.message}" + (f"\n  {error.advice}" if error.advice else "")


def _print_error(text: str) -> None:
    """Print to standard error, without secrets, and without control characters, as of a file's name."""
    from loom_core.redaction import redact_log_text
    from loom_core.server.cli.console import say

    say(redact_log_text(text))


def _open_closed_streams() -> None:
    """Connect standard streams that are closed to the null device.

    Otherwise the next file or socket to be opened would become standard input, output or error, of this
    process and of all that it starts.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free: the stream's own
            os.set_inheritable(number, number <= 2)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def serve_from_arguments(
    introduction: Introduction,
    build: Callable[[], LoomServer],
    args: argparse.Namespace,
    *,
    home: Path,
    deadline: float,
) -> int:
    """Run `serve` until it is stopped, over stdio or with --http over HTTP, and return the exit code.

    Args:
        introduction: the server's introduction in the handshake; its name is the command's.
        build: creates the server; it imports the server's modules, see `serving.run.serve`.
        args: parsed arguments, with those of `add_http_options`.
        home: Loom's folder, where the tokens are.
        deadline: as for `serving.run.serve`.

    Raises:
        ConfigError: as `http_settings` and `serving.run.serve`; or the log level or format is unknown.
    """
    from loom_core.observability.logs import resolve_log_format, resolve_log_level
    from loom_core.server.cli.http_options import http_settings, ready_lines
    from loom_core.server.serving.run import serve

    program = introduction.name
    http = http_settings(args, tokens=token_path(home, program))
    log_format, log_level = resolve_log_format(args.log_format), resolve_log_level(args.log_level)
    if http is None and sys.stdin.isatty() and sys.stderr.isatty():
        sys.stderr.write(
            f"{program} speaks MCP on standard input, with a program. What people can do: {program} --help\n"
            "(Ctrl-C ends this.)\n"
        )

    def say_ready(url: str) -> None:
        if http is None:
            return
        if log_format == "json":
            _log.info("ready: %s", url)
        else:
            sys.stderr.write("".join(f"{line}\n" for line in ready_lines(program, url, http)))

    serve(
        build,
        introduction=introduction,
        http=http,
        on_ready=say_ready,
        metrics_file=args.metrics_file or None,
        log_level=log_level,
        log_format=log_format,
        service=program,
        deadline=deadline,
    )
    return 0


def show_report(report: CommandReport, *, as_json: bool) -> None:
    """Print a shared command's report: the answer to standard output, notes to standard error."""
    from loom_core.server.cli.console import out, out_json, say

    if as_json:
        out_json(report.data)
    else:
        for line in report.lines:
            out(line)
    for note in report.notes:
        say(note)


def show_health(report: HealthReport, *, as_json: bool) -> int:
    """Print the report of `doctor`; return the exit code: 0 if there is no problem, 1 otherwise."""
    from loom_core.server.cli.console import out, out_json
    from loom_core.server.cli.health import report_lines

    if as_json:
        out_json(report)
    else:
        for line in report_lines(report):
            out(line)
    return 0 if report.healthy else 1


def bundle_line(given: Sequence[str], *, options: Iterable[str]) -> list[str]:
    """Build the command line of a server in a bundle.

    Args:
        given: the host's values, in the order of the manifest. A value that was not chosen may be its
            unexpanded reference, or empty.
        options: the option of `serve` for each value.
    """
    chosen = (
        (option, value)
        for option, value in zip(options, given, strict=False)
        if value and not value.startswith(_REFERENCE)
    )
    return ["serve", *(part for pair in chosen for part in pair)]
