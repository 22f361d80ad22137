"""The command line: parser and program.

Exit codes: 0 done (for a run: completed), 1 an error (for a run: failed or aborted; for `eval`: too few runs
passed; for `doctor` and `mcp test`: there is a problem), 2 wrong usage (for `eval`: or an invalid line), 3
the run waits for a person, 130 interrupted, 141 the reader of the output is gone.
"""

from __future__ import annotations

import argparse
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from loom_agent import PROGRAM
from loom_agent.settings import Settings
from loom_core.errors import ConfigError
from loom_core.paths import loom_home
from loom_core.server.cli.database_option import add_database_option, add_move_command, database_setting
from loom_core.server.cli.option_types import fraction, whole_number
from loom_core.server.cli.standard_commands import ServerCommands, add_junit_option, configuration_file
from loom_core.server.cli.token_command import add_token_context
from loom_core.server.program import ServerProgram
from loom_core.server.runs.html_option import add_html_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_agent.profiles.agent_file import AgentFile

__all__ = ["SERVER", "run"]

_CONFIG = "agent.json"
_KEPT = "those in this file, which `eval` has kept"


class AgentServer(ServerProgram[Settings]):
    """The program of loom-agent-server."""

    name = PROGRAM
    package = "loom_agent"
    description = "Autonomous agents whose runs survive restarts, with approvals and budgets."
    end_seconds = 10.0  # for child processes to end, and for queued writes to reach the disk

    def parser(self) -> argparse.ArgumentParser:
        commands = ServerCommands(
            PROGRAM,
            description="Autonomous agents as an MCP server: runs that survive restarts, approvals, budgets,"
            " and the tools of your other MCP servers. Without a command it serves MCP over stdio.",
            options=_options,
        )
        commands.add_serve()
        _running(commands)
        _evaluation(commands)
        _runs(commands)
        _memory(commands)
        add_move_command(commands)
        tools = commands.add("tools", "list what an agent can call, or find tools by what they do")
        tools.add_argument("query", nargs="*", help="words, in English or Chinese; left out, all tools")
        _profile(tools)
        graph = commands.add(
            "graph", "draw the profiles, their members, tools and knowledge: as a Mermaid diagram"
        )
        graph.add_argument(
            "profile", nargs="?", default="", metavar="PROFILE", help="only this one and its members"
        )
        commands.add("schema", "print the JSON Schema of agent.json, for editors")
        commands.add_mcp()
        commands.add_install()
        add_token_context(commands.add_token(source_option="--profile", source="profile"))
        commands.add_audit()
        commands.add_doctor(named="profiles and folders")
        return commands.parser

    def settings_of(self, args: argparse.Namespace) -> Settings:
        home = loom_home(args.home)
        root: Path | None = args.root
        journal: Path | None = getattr(args, "journal", None)
        return Settings(
            home=home,
            config=configuration_file(args, home, default=_CONFIG),
            config_given=args.config is not None,
            provider=args.provider,
            root=root.expanduser().absolute() if root else None,
            over_http=getattr(args, "http", False),
            database=database_setting(args.database),
            journal_file=journal.expanduser().absolute() if journal else None,
            version=version(PROGRAM),
        )

    def options(self, settings: Settings) -> list[str]:
        options = ["--config", str(settings.config)] if settings.config_given else []
        options += ["--root", str(settings.root)] if settings.root else []
        options += ["--database", settings.database] if settings.database else []
        return options + (["--provider", settings.provider] if settings.provider else [])

    def key_variables(self, settings: Settings) -> list[str]:
        from loom_agent.profiles.model_choice import choose_model
        from loom_core.server.install.terminal import model_variables
        from loom_core.storage.postgres_pool import SECRET_VARIABLE

        file = _file(settings)
        names = [*file.variables, *((SECRET_VARIABLE,) if settings.database else ())]
        for profile in file.profiles.values():
            if not profile.needs_model:
                continue
            try:
                config, _ = choose_model(profile, settings)
            except ConfigError:  # the server starts without a model, and reports what to set
                continue
            names += model_variables(config)
        return list(dict.fromkeys(names))

    def unknown(self, settings: Settings, names: Sequence[str]) -> list[str]:
        profiles = _file(settings).profiles
        return [name for name in names if name not in profiles]


SERVER = AgentServer()
"""The program, for the commands that all servers share."""

run = SERVER.run
"""Run a command line; returns the exit code."""


def _options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the file with the profiles (default agent.json in Loom's folder; without it, one profile)",
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
    add_database_option(command)


def _profile(command: argparse.ArgumentParser) -> None:
    command.add_argument("--profile", default="", metavar="NAME", help="profile of the agent")


def _running(commands: ServerCommands) -> None:
    for name, text in (
        ("run", "run an agent on a goal and show its steps"),
        ("chat", "talk with an agent; Ctrl-C pauses it, twice aborts"),
    ):
        command = commands.add(name, text)
        if name == "run":
            command.add_argument("goal", nargs="+", help="the goal; - reads it from standard input")
            command.add_argument(
                "--attach",
                action="append",
                default=[],
                metavar="FILE",
                help="an image or a document to read with the goal, or its URL (may be repeated)",
            )
        _profile(command)
        command.add_argument("--session", default="", metavar="SESSION", help="continue this conversation")
        _limits(command)
        command.add_argument("--quiet", action="store_true", help="show the answer only")


def _limits(command: argparse.ArgumentParser) -> None:
    """Add the data and the limits of a run."""
    command.add_argument(
        "--context",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="data about the run, as the profile defines them (may be repeated)",
    )
    command.add_argument(
        "--allow",
        action="append",
        metavar="TOOL",
        help="only tools of this name, with * and ? (may be repeated)",
    )
    command.add_argument("--iterations", type=int, help="maximum number of model turns")
    command.add_argument("--tokens", type=int, help="maximum number of tokens")
    command.add_argument("--cost", type=float, metavar="DOLLARS", help="maximum cost")
    command.add_argument("--calls", type=int, help="maximum number of tool calls")
    command.add_argument("--seconds", type=float, help="maximum working time")


def _evaluation(commands: ServerCommands) -> None:
    evaluation = commands.add("eval", "run cases with expected results, and report what differs")
    evaluation.add_argument(
        "file", type=Path, metavar="FILE.jsonl", help="a case in each line; see docs/howto/evaluation.md"
    )
    _profile(evaluation)
    _limits(evaluation)
    several = whole_number()
    evaluation.add_argument(
        "--runs", type=several, default=1, metavar="N", help="run every case so often (default 1)"
    )
    evaluation.add_argument(
        "--parallel", type=several, default=4, metavar="N", help="so many runs at the same time (default 4)"
    )
    evaluation.add_argument(
        "--approve",
        action="append",
        default=[],
        metavar="TOOL",
        help="approve calls of tools of this name, with * and ?; others that need approval are denied (may be"
        " repeated)",
    )
    evaluation.add_argument(
        "--at-least",
        type=fraction,
        default=1.0,
        metavar="SHARE",
        help="share of the runs that must pass for exit code 0, such as 0.9 (default 1)",
    )
    _journal(
        evaluation, "keep the runs in this file, to look at them with `runs` (default: they are deleted)"
    )
    add_junit_option(evaluation)


def _journal(command: argparse.ArgumentParser, text: str) -> None:
    command.add_argument("--journal", type=Path, metavar="FILE", help=text)


def _runs(commands: ServerCommands) -> None:
    runs = commands.add("runs", "list runs; show, resume, fork, pause, abort, decide, forget one")
    runs.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=["list", "show", "resume", "fork", "pause", "abort", "decide", "forget"],
        help="what to do (default list)",
    )
    runs.add_argument("run_id", nargs="?", default="", metavar="RUN", help="id of the run; with list: words")
    runs.add_argument("decided", nargs="?", default="", metavar="ID", help="with decide: id of the request")
    runs.add_argument(
        "decision",
        nargs="?",
        default="",
        choices=["", "approve", "deny", "edit", "answer"],
        metavar="DECISION",
        help="with decide: approve, deny, edit or answer",
    )
    runs.add_argument(
        "--with",
        dest="given",
        metavar="JSON",
        help="with edit and answer: arguments or answer; with fork: the outcome of the step, which is not"
        ' done again then: a text, or the calls of an answer, as {"tool": …, "arguments": …}',
    )
    runs.add_argument(
        "--at",
        type=int,
        metavar="STEP",
        help="with fork: the step, numbered as `runs show` does, from which the new run differs",
    )
    runs.add_argument("--message", default="", metavar="TEXT", help="with fork: a message for the model")
    runs.add_argument(
        "--same-session",
        action="store_true",
        help="with fork: replace the conversation of the session (default: a copy in a new session)",
    )
    runs.add_argument("--profile", default="", metavar="NAME", help="with fork: another profile")
    runs.add_argument("--reason", default="", help="with deny and abort: why")
    runs.add_argument("--status", action="append", default=[], help="with list: only these (may be repeated)")
    runs.add_argument("--limit", type=whole_number(), default=20, help="with list: how many (default 20)")
    add_html_option(runs)
    runs.add_argument("--quiet", action="store_true", help="with resume and fork: show the answer only")
    _journal(runs, _KEPT)

    events = commands.add("events", "show the events of a run")
    events.add_argument("run_id", metavar="RUN", help="id of the run")
    events.add_argument("--after", type=int, default=0, metavar="SEQ", help="only events after this one")
    events.add_argument("--follow", action="store_true", help="follow new events until the run ends")
    _journal(events, _KEPT)


def _memory(commands: ServerCommands) -> None:
    memory = commands.add("memory", "list, show, export or delete what agents remember about a user")
    memory.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=["list", "show", "export", "forget", "clear", "users"],
        help="what to do (default list); forget deletes notes for good, clear all of the user's",
    )
    memory.add_argument("ids", nargs="*", metavar="NOTE", help="with show and forget: ids of notes")
    memory.add_argument(
        "--user",
        default="",
        help="name of a token, or an id that `memory users` lists (default: the user of this machine)",
    )


def _file(settings: Settings) -> AgentFile:
    from loom_agent.profiles.agent_file import read_agent_file

    return read_agent_file(settings.config, required=settings.config_given, provider=settings.provider)
