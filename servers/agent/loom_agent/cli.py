"""The command line: what can be asked for.

Exit codes: 0 done (of a run: completed), 1 an error (of a run: failed or aborted; for `doctor` and
`mcp test`: there is a problem), 2 wrong usage, 3 the run waits for somebody, 130 interrupted, 141 nobody
reads the answer any more.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib.metadata import version
from pathlib import Path

from loom_agent import PROGRAM
from loom_agent.settings import Settings
from loom_core.paths import loom_home
from loom_core.server.cli.command_line import Commands, add_command
from loom_core.server.cli.standard_commands import (
    add_audit,
    add_doctor,
    add_install,
    add_mcp,
    add_serve,
    add_token,
    program_parser,
)
from loom_core.server.runs.page_option import add_html_option

__all__ = ["parser", "settings_of"]

_CONFIG = "agent.json"


def parser() -> argparse.ArgumentParser:
    """The parser of all arguments."""
    top, commands = program_parser(
        PROGRAM,
        description="Autonomous agents as an MCP server: runs that survive restarts, approvals, budgets, and"
        " the tools of your other MCP servers. Without a command it serves MCP over stdio.",
    )
    declare = partial(_command, commands)
    add_serve(declare)
    _running(commands)
    _runs(commands)
    tools = _command(commands, "tools", "list what an agent can call, or find tools by what they do")
    tools.add_argument("query", nargs="*", help="words, in English or Chinese; left out, all tools")
    _profile(tools)
    _command(commands, "schema", "print the JSON Schema of agent.json, for editors")
    add_mcp(declare)
    add_install(declare, program=PROGRAM)
    add_token(declare, source_option="--profile", source="profile")
    add_audit(declare)
    add_doctor(declare, named="profiles and folders")
    return top


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that arguments ask for."""
    home = loom_home(args.home)
    given: Path | None = args.config
    root: Path | None = args.root
    return Settings(
        home=home,
        config=given.expanduser().absolute() if given else home / _CONFIG,
        config_given=given is not None,
        provider=args.provider,
        root=root.expanduser().absolute() if root else None,
        over_http=getattr(args, "http", False),
        version=version(PROGRAM),
    )


def _command(commands: Commands, name: str, text: str) -> argparse.ArgumentParser:
    command = add_command(commands, name, text)
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="which file has the profiles (default agent.json in Loom's folder; without it, one profile)",
    )
    command.add_argument(
        "--provider",
        default="",
        metavar="MODEL",
        help="the language model of profiles that name none, such as deepseek or ollama/qwen3; `mock` is a"
        " demonstration without a model (default: the first vendor whose key is in the environment)",
    )
    command.add_argument(
        "--root",
        type=Path,
        metavar="DIR",
        help="a folder whose files agents may read, where their profile says nothing of files",
    )
    return command


def _profile(command: argparse.ArgumentParser) -> None:
    command.add_argument("--profile", default="", metavar="NAME", help="which kind of agent")


def _running(commands: Commands) -> None:
    for name, text in (
        ("run", "have an agent work on a goal, and show what it does"),
        ("chat", "talk with an agent; Ctrl-C pauses it, twice aborts"),
    ):
        command = _command(commands, name, text)
        if name == "run":
            command.add_argument("goal", nargs="+", help="what is wanted; - reads it from standard input")
        _profile(command)
        command.add_argument("--session", default="", metavar="SESSION", help="go on with this conversation")
        command.add_argument(
            "--allow",
            action="append",
            metavar="TOOL",
            help="only tools of this name, with * and ? (may be repeated)",
        )
        command.add_argument("--iterations", type=int, help="how many turns the model may take")
        command.add_argument("--tokens", type=int, help="how many tokens the run may take")
        command.add_argument("--cost", type=float, metavar="DOLLARS", help="what it may cost")
        command.add_argument("--calls", type=int, help="how many calls of tools it may make")
        command.add_argument("--seconds", type=float, help="how long it may work")
        command.add_argument("--quiet", action="store_true", help="show the answer only")


def _runs(commands: Commands) -> None:
    runs = _command(commands, "runs", "list runs; show, resume, pause, abort, decide, forget one")
    runs.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=["list", "show", "resume", "pause", "abort", "decide", "forget"],
        help="what to do (default list)",
    )
    runs.add_argument("run_id", nargs="?", default="", metavar="RUN", help="id of the run; with list: words")
    runs.add_argument("decided", nargs="?", default="", metavar="ID", help="with decide: what it waits for")
    runs.add_argument(
        "decision",
        nargs="?",
        default="",
        choices=["", "approve", "deny", "edit", "answer"],
        metavar="DECISION",
        help="with decide: approve, deny, edit or answer",
    )
    runs.add_argument(
        "--with", dest="given", metavar="JSON", help="with edit and answer: arguments or answer"
    )
    runs.add_argument("--reason", default="", help="with deny and abort: why")
    runs.add_argument("--status", action="append", default=[], help="with list: only these (may be repeated)")
    runs.add_argument("--limit", type=int, default=20, help="with list: how many (default 20)")
    add_html_option(runs)
    runs.add_argument("--quiet", action="store_true", help="with resume: show the answer only")

    events = _command(commands, "events", "show what happened in a run")
    events.add_argument("run_id", metavar="RUN", help="id of the run")
    events.add_argument("--after", type=int, default=0, metavar="SEQ", help="only events after this one")
    events.add_argument("--follow", action="store_true", help="go on as they come, to the end of the run")
