"""Command line of loom-flow-server.

Exit codes: 0 done (of a run: completed; of `test`: all as expected), 1 an error (of a run: failed or aborted;
of `validate`, `doctor` and `mcp test`: there is a problem; of `test`: a difference), 2 wrong usage, 3 the run
waits for a person, 130 interrupted, 141 the reader of the output has closed it.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.paths import loom_home
from loom_core.server.cli.database_option import add_database_option, add_move_command, database_setting
from loom_core.server.cli.option_types import whole_number
from loom_core.server.cli.standard_commands import ServerCommands, add_junit_option, configuration_file
from loom_core.server.cli.token_command import add_token_context
from loom_core.server.program import ServerProgram
from loom_core.server.runs.html_option import add_html_option
from loom_flow import PROGRAM
from loom_flow.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SERVER", "run"]

_CONFIG = "flow.json"


class FlowServer(ServerProgram[Settings]):
    """The program of loom-flow-server."""

    name = PROGRAM
    package = "loom_flow"
    description = "Business flows: rules first, then a model; questions, confirmations, durable steps."
    end_seconds = 10.0  # for steps that must not be done twice to end, and for the journal to be on disk

    def parser(self) -> argparse.ArgumentParser:
        commands = ServerCommands(
            PROGRAM,
            description="Business flows as an MCP server: rules first, then one decision of a model; durable"
            " steps, questions, confirmations, skills. Without a command it serves MCP over stdio.",
            options=_add_options,
        )
        commands.add_serve()
        _add_file_commands(commands)
        _add_conversation_commands(commands)
        _add_run_commands(commands)
        _add_operator_commands(commands)
        add_move_command(commands)
        commands.add_mcp()
        commands.add_install()
        # A read-only token cannot start anything, so it is no token for a conversation.
        token = commands.add_token(source_option="--flow", source="flow", key="flows", scope="write")
        add_token_context(token)
        commands.add_audit()
        commands.add_doctor(named="flows and hosts")
        return commands.parser

    def settings_of(self, args: argparse.Namespace) -> Settings:
        home = loom_home(args.home)
        return Settings(
            home=home,
            config=configuration_file(args, home, default=_CONFIG),
            config_given=args.config is not None,
            home_given=args.home is not None,
            provider=args.provider,
            database=database_setting(args.database),
            version=version(PROGRAM),
        )

    def options(self, settings: Settings) -> list[str]:
        from loom_flow.settings import own_options

        options = own_options(replace(settings, home_given=False))
        return options + (["--provider", settings.provider] if settings.provider else [])

    def key_variables(self, settings: Settings) -> list[str]:
        from loom_core.flow.config import read_flow_file
        from loom_core.server.install.terminal import model_variables
        from loom_core.storage.postgres_pool import SECRET_VARIABLE
        from loom_flow.engine import choose_model

        secrets = [SECRET_VARIABLE] if settings.database else []
        if not settings.config_given and not settings.config.exists():
            return secrets  # the server starts without it, and says what to configure
        loaded = read_flow_file(settings.config)
        config = choose_model(loaded.file, settings)
        names = [*secrets, *loaded.variables, *(model_variables(config) if config else ())]
        return list(dict.fromkeys(names))

    def unknown(self, settings: Settings, names: Sequence[str]) -> list[str]:
        from loom_core.flow.config import read_flow_file

        file = read_flow_file(settings.config).file
        return [name for name in names if file.flow(name) is None]


SERVER = FlowServer()
"""loom-flow-server, for the commands that every server has."""

run = SERVER.run
"""Run a command line; returns the exit code."""


def _add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="the file with the flows (default flow.json in Loom's folder)",
    )
    command.add_argument(
        "--provider",
        default="",
        metavar="MODEL",
        help="the language model, where the file names none, such as deepseek or ollama/qwen3 (default: rules"
        " alone)",
    )
    add_database_option(command)


def _add_file_commands(commands: ServerCommands) -> None:
    init = commands.add("init", "write a starter flow.json")
    init.add_argument("--force", action="store_true", help="overwrite an existing file")
    init.add_argument(
        "--from",
        type=Path,
        dest="description",
        metavar="OPENAPI",
        help="make flows for operations of an OpenAPI description, JSON or YAML, instead",
    )
    init.add_argument(
        "--operation",
        action="append",
        default=[],
        metavar="OPERATION",
        help="with --from: its id, or method and path (may be repeated; left out, they are listed)",
    )
    commands.add("validate", "list all problems of the file, with line and column", alias="check")
    commands.add("schema", "print the JSON Schema of flow.json, for editors")
    graph = commands.add("graph", "draw flows: as Mermaid diagrams, or as a page for a browser")
    graph.add_argument("flow", nargs="?", default="", metavar="FLOW", help="id of a flow; left out, all")
    graph.add_argument("--html", type=Path, metavar="FILE", help="the page to write, instead of Mermaid")
    importing = commands.add("import-arazzo", "convert an Arazzo document (1.0, 1.1) to a flow.json")
    importing.add_argument("document", type=Path, metavar="DOCUMENT", help="the document, JSON or YAML")
    importing.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="an OpenAPI description that it names (may be repeated)",
    )
    importing.add_argument("--out", type=Path, metavar="FILE", help="output file (default standard output)")
    exporting = commands.add("export-arazzo", "convert the flows to an Arazzo document")
    exporting.add_argument(
        "--out", type=Path, metavar="DIR", help="the folder for it and the OpenAPI descriptions that it needs"
    )


def _add_conversation_commands(commands: ServerCommands) -> None:
    explain = commands.add("explain", "explain what a message would do, without doing it")
    explain.add_argument("message", nargs="+", help="a user's message")
    explain.set_defaults(takes_more="message")
    _add_conversation_options(explain)

    running = commands.add("run", "run a flow")
    running.add_argument("flow", metavar="FLOW", help="its id")
    running.add_argument(
        "inputs", nargs="*", default=[], metavar="NAME=VALUE", help="its inputs; JSON, or plain text"
    )
    running.add_argument("--message", default="", help="the user's message")
    running.add_argument("--dry-run", action="store_true", help="show the requests, without sending them")
    _add_conversation_options(running)
    running.set_defaults(takes_more="inputs", run_id="")
    running.epilog = (
        "Exit code 0 if the run is completed (with --dry-run: nothing is missing or refused), 1 if it has"
        " failed or was aborted, 3 if it waits for a person."
    )

    chat = commands.add("chat", "chat with the assistant; Ctrl-D ends")
    _add_conversation_options(chat)
    chat.set_defaults(run_id="")
    chat.epilog = (
        "Exit code 0 when nothing is open at the end, also if the user has cancelled it; 1 if the latest run"
        " has failed; 3 if it waits for an answer: continue with --session or `resume`."
    )

    test = commands.add("test", "test the routing of messages, in JSON Lines")
    test.add_argument("file", type=Path, metavar="FILE.jsonl", help="see docs/flow.md for its format")
    how = test.add_mutually_exclusive_group()
    how.add_argument("--rules", action="store_true", help="rules only, without a model")
    how.add_argument(
        "--with-model", action="store_true", help="let the model of the file decide, not the script"
    )
    add_junit_option(test)


def _add_conversation_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--session", default="", metavar="SESSION", help="continue this conversation")
    command.add_argument(
        "--context",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a variable of it, such as tenantId=acme (may be repeated)",
    )


def _add_run_commands(commands: ServerCommands) -> None:
    runs = commands.add("runs", "list runs, the latest first; or find some by words")
    runs.add_argument("query", nargs="*", default=[], help="words of their messages and outcomes")
    runs.set_defaults(takes_more="query")
    runs.add_argument("--status", action="append", default=[], help="only these (may be repeated)")
    runs.add_argument("--limit", type=whole_number(), default=20, help="how many (default 20)")
    add_html_option(runs)

    status = commands.add("status", "show the state of a run")
    status.add_argument("run_id", metavar="RUN", help="its id, or `latest`")
    status.add_argument("--events", action="store_true", help="with all of its events")

    resume = commands.add("resume", "continue a run that waits, has failed or was interrupted")
    resume.add_argument("run_id", metavar="RUN", help="its id")
    doing = resume.add_mutually_exclusive_group()
    doing.add_argument("--approve", action="store_true", help="yes to what it waits for")
    doing.add_argument("--deny", action="store_true", help="no to what it waits for")
    doing.add_argument("--answer", metavar="JSON", help="what it asks for, as an object")
    doing.add_argument(
        "--retry",
        nargs="*",
        metavar="STEP|NAME=VALUE",
        help="once more from a step, or where it failed; with inputs that were wrong",
    )
    doing.add_argument("--abort", action="store_true", help="end it")
    resume.add_argument("--id", default="", help="id of the question, if several are pending")
    resume.add_argument("--reason", default="", help="with --deny and --abort: why")


def _add_operator_commands(commands: ServerCommands) -> None:
    operator = commands.add("operator", "the conversations that flows hand over to people")
    operator.add_argument(
        "action",
        nargs="?",
        default="list",
        choices=("list", "show", "say", "take", "return", "decline"),
        help="list them (the default); show one; say something; take one, also from another operator; return"
        " one with what was agreed; decline one, with the reason",
    )
    operator.add_argument("run_id", nargs="?", default="", metavar="RUN", help="its run")
    operator.add_argument(
        "words", nargs="*", default=[], metavar="TEXT|NAME=VALUE", help="the message, or the agreed values"
    )
    operator.add_argument(
        "--as", default="", dest="name", metavar="NAME", help="your name, which the customer reads"
    )
    operator.set_defaults(takes_more="words")

    event = commands.add("event", "send an event to the runs that wait for it")
    event.add_argument("name", metavar="NAME", help="its name, such as payment.received")
    event.add_argument("payload", nargs="?", default="null", metavar="JSON", help="its data")
    event.add_argument("--key", default="", help="only where a run waits for this key, such as an order")
