"""The command line: what can be asked for, and how errors end.

Exit codes: 0 done, 1 an error (for `doctor` and `check`: there is a problem), 2 wrong usage, 3 done but some
documents failed, 130 interrupted, 141 nobody reads the answer any more.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib.metadata import version
from pathlib import Path

from loom_core.errors import ConfigError
from loom_core.paths import loom_home
from loom_core.server.cli.command_line import Commands, add_command
from loom_core.server.cli.standard_commands import (
    add_audit,
    add_doctor,
    add_install,
    add_profile,
    add_serve,
    add_token,
    program_parser,
)
from loom_kb import PROGRAM
from loom_kb.settings import DEFAULT_SOURCE, Settings

__all__ = ["checked_settings", "parser", "settings_of"]

_MOST_ENTITIES = 20_000  # that a browser still draws


def parser() -> argparse.ArgumentParser:
    """The parser of all arguments."""
    top, commands = program_parser(
        PROGRAM,
        description="A GraphRAG knowledge base as an MCP server. Without a command it serves MCP over stdio.",
    )
    declare = partial(_command, commands)

    serve = add_serve(declare)
    serve.add_argument(
        "--kb", action="append", default=[], metavar="NAME", help="only this knowledge base (may be repeated)"
    )
    serve.add_argument(
        "--root",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="a folder that the tool `add` may read (may be repeated)",
    )
    serve.add_argument(
        "--watch",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="a folder to keep the knowledge base (the first --kb) in step with (may be repeated)",
    )
    serve.add_argument(
        "--allow-urls",
        action="store_true",
        help="let the tool `add` fetch web pages; without it a model cannot make the server ask any address",
    )
    _allow_net(serve)
    add_profile(serve)

    add = _command(
        commands, "add", "add files and folders, or web pages; without any, go on with unfinished jobs"
    )
    add.add_argument(
        "paths",
        nargs="*",
        type=_path_or_url,
        help="files and folders, or addresses of web pages (https://…), or - for text from stdin",
    )
    _allow_net(add)
    _one_kb(add)
    add.add_argument("--title", default="", help="title of the text from stdin")
    add.add_argument("--description", default="", help="what the knowledge base holds, for models to read")
    add.add_argument("--tag", action="append", default=[], help="for the filter `tags` (may be repeated)")
    add.add_argument("--include", action="append", default=[], metavar="PATTERN", help="as in .gitignore")
    add.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="as in .gitignore")
    _agreeing(add)

    query = _command(commands, "query", "ask a question")
    query.add_argument("question", nargs="+")
    query.add_argument("--kb", metavar="NAME", help="only this knowledge base (default: all)")
    query.add_argument("--limit", type=int, default=5, help="how many passages (default 5)")
    query.add_argument(
        "--filter", action="append", default=[], metavar="NAME=VALUE", help="such as tags=draft, path=docs/"
    )
    query.add_argument(
        "--strategy",
        choices=["hybrid", "vector_first", "graph_first", "graph_only", "bm25"],
        help="another than the knowledge base's own",
    )
    query.add_argument("--rerank", choices=["features"], help="order the best passages anew, by this")
    query.add_argument(
        "--diversity",
        type=float,
        metavar="0..1",
        help="how much variety counts (default 0)",
    )
    query.add_argument(
        "--expand", choices=["passage", "section"], help="`section`: each passage with the text around it"
    )
    query.add_argument("--detailed", action="store_true", help="with scores and why each passage was found")

    listing = _command(commands, "list", "list knowledge bases, or the documents of one")
    listing.add_argument("--kb", metavar="NAME", help="list the documents of this one")

    remove = _command(commands, "remove", "remove documents, or a whole knowledge base")
    remove.add_argument("ids", nargs="*", help="ids, URIs or paths of documents")
    _one_kb(remove)
    remove.add_argument("--all", action="store_true", help="the knowledge base with all its files")

    stats = _command(commands, "stats", "show what a knowledge base holds, and how its indexes stand")
    _one_kb(stats)

    _keeping_in_step(commands)
    _aliases(commands)
    _maintenance(commands)
    add_token(declare, source_option="--kb", source="knowledge base")
    add_audit(declare)
    install = add_install(declare, program=PROGRAM)
    for name, kind in (("kb", str), ("root", _path)):
        install.add_argument(
            f"--{name}",
            action="append",
            default=[],
            type=kind,
            metavar="NAME" if kind is str else "DIR",
            help="as of `serve` (may be repeated)",
        )
    add_doctor(declare, named="knowledge bases and folders")

    _command(commands, "demo", "build a small knowledge base and ask it three questions")
    return top


def settings_of(args: argparse.Namespace) -> Settings:
    """The settings that arguments ask for."""
    from loom_kb.language_model import chosen

    names: list[str] | str | None = getattr(args, "kb", None)
    only = tuple(names) if isinstance(names, list) else ()
    return Settings(
        home=loom_home(args.home),
        sources=only,
        roots=tuple(root.expanduser().absolute() for root in getattr(args, "root", ())),
        watched=_folders(args) if args.command == "serve" else (),
        allow_urls=getattr(args, "allow_urls", True),  # a person who types an address means it
        allow_net=tuple(getattr(args, "allow_net", ())),
        embedder=args.embedder,
        llm=chosen(args.llm),
        profile=getattr(args, "profile", "full"),
        version=version(PROGRAM),
    )


def checked_settings(settings: Settings) -> Settings:
    """The settings of a server as they are.

    Raises:
        ConfigError: a server cannot be started with them.
    """
    for root in settings.roots:
        if not root.is_dir():
            raise ConfigError(f"--root {root} is not a folder.", advice="Give a folder that exists.")
    if settings.allow_net:
        from loom_core.net import NetPolicy

        NetPolicy.allowing(settings.allow_net)
        if not settings.allow_urls:
            raise ConfigError("--allow-net allows nothing by itself.", advice="Give --allow-urls too.")
    return settings


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("an empty path")  # `Path` would take it for the current folder
    return Path(text)


def _some(text: str) -> int:
    number = int(text)
    if not 1 <= number <= _MOST_ENTITIES:
        raise argparse.ArgumentTypeError(f"not from 1 to {_MOST_ENTITIES}")
    return number


def _path_or_url(text: str) -> Path | str:
    return text if text.lower().startswith(("http://", "https://")) else _path(text)


def _allow_net(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--allow-net",
        action="append",
        default=[],
        metavar="CIDR_OR_HOST",
        help="a private network or host whose web pages may be fetched too (may be repeated)",
    )


def _command(commands: Commands, name: str, text: str) -> argparse.ArgumentParser:
    command = add_command(commands, name, text)
    command.add_argument(
        "--embedder",
        default="auto",
        metavar="NAME",
        help="for new knowledge bases: auto, e5-small, minilm, static, hashing; a server's model, such as"
        " openai:text-embedding-3-small or ollama:bge-m3; or its configuration as JSON",
    )
    command.add_argument(
        "--llm",
        metavar="MODEL",
        help="a language model that finds entities and relations in addition to the rules, such as deepseek"
        " or deepseek/deepseek-flash; or its configuration as JSON; none for rules alone"
        " (default $LOOM_KB_LLM)",
    )
    return command


def _folders(args: argparse.Namespace) -> tuple[Path, ...]:
    return tuple(folder.expanduser().absolute() for folder in args.watch)


def _keeping_in_step(commands: Commands) -> None:
    sync = _command(commands, "sync", "bring a knowledge base in step with folders: add, update, remove")
    sync.add_argument("folders", nargs="+", type=_path, metavar="FOLDER", help="the folders")
    _one_kb(sync)
    sync.add_argument("--watch", action="store_true", help="stay, and sync whatever changes")
    sync.add_argument("--tag", action="append", default=[], help="for the filter `tags` (may be repeated)")
    sync.add_argument("--include", action="append", default=[], metavar="PATTERN", help="as in .gitignore")
    sync.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="as in .gitignore")
    sync.add_argument(
        "--allow-empty",
        action="store_true",
        help="remove all documents of a folder that is gone or empty, which is refused otherwise",
    )
    _agreeing(sync)

    jobs = _command(commands, "jobs", "list the newest jobs, or tell all about one")
    jobs.add_argument("id", nargs="?", metavar="ID", help="id of a job")
    jobs.add_argument("--cancel", action="store_true", help="with ID: cancel it")

    graph = _command(commands, "graph", "write the graph as a page for a browser, which needs no network")
    graph.add_argument("--html", required=True, type=_path, metavar="FILE", help="the page to write")
    _one_kb(graph)
    graph.add_argument("--entity", metavar="NAME", help="only what is around this one")
    graph.add_argument(
        "--hops", type=int, choices=range(1, 5), default=2, help="with --entity: how far to go (default 2)"
    )
    graph.add_argument(
        "--limit",
        type=_some,
        default=2000,
        metavar="N",
        help=f"entities at the most, the best connected first (default 2000, at the most {_MOST_ENTITIES})",
    )

    duplicates = _command(commands, "duplicates", "list documents that are the same, or nearly")
    _one_kb(duplicates)


def _aliases(commands: Commands) -> None:
    aliases = _command(commands, "aliases", "list entities under several names, merge or split them")
    aliases.add_argument("names", nargs="*", metavar="NAME", help="names as the documents use them")
    _one_kb(aliases)
    aliases.add_argument("--suggested", action="store_true", help="list names that may be the same")
    deciding = aliases.add_mutually_exclusive_group()
    deciding.add_argument("--merge", action="store_true", help="take two names for the same entity's")
    deciding.add_argument(
        "--split",
        action="store_true",
        help="keep two names apart; not the scripts of one name, such as 臺灣 and 台湾",
    )
    deciding.add_argument("--undecide", action="store_true", help="forget what you decided of two names")


def _maintenance(commands: Commands) -> None:
    check = _command(commands, "check", "check a knowledge base through and through")
    _one_kb(check)
    check.add_argument("--repair", action="store_true", help="put right what can be")

    rebuild = _command(
        commands,
        "rebuild",
        "build indexes anew, or with --embedder all vectors by another model, in the background",
    )
    _one_kb(rebuild)
    rebuild.add_argument(
        "--index",
        action="append",
        choices=["words", "vectors", "graph"],
        help="only this one (may be repeated)",
    )
    rebuild.add_argument(
        "--all-from-text",
        action="store_true",
        help="cut all documents into passages and extract from them anew, where today's rules are others",
    )
    _agreeing(rebuild)

    export = _command(commands, "export", "write a knowledge base into one file")
    export.add_argument("file", type=_path, help="the archive to make, such as notes.loom.zip")
    _one_kb(export)

    import_ = _command(commands, "import", "take such a file into a knowledge base")
    import_.add_argument("file", type=_path, help="the archive")
    import_.add_argument("--kb", metavar="NAME", help="default: the name in the archive, if that is free")
    _agreeing(import_)


def _agreeing(command: argparse.ArgumentParser) -> None:
    command.add_argument("--yes", action="store_true", help="let the language model read much without asking")


def _one_kb(command: argparse.ArgumentParser) -> None:
    command.add_argument("--kb", default=DEFAULT_SOURCE, metavar="NAME", help=f"default: {DEFAULT_SOURCE}")
