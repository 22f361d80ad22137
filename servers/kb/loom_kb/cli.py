"""The command line of loom-kb: its commands and their options.

Exit codes: 0 done, 1 an error (for `doctor` and `check`: there is a problem; for `eval`: a metric is too low,
or a question failed), 2 wrong usage (for `eval`: or an invalid line), 3 done but some documents failed, 130
interrupted, 141 the reader of the output closed it.
"""

from __future__ import annotations

import argparse
import os
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError
from loom_core.paths import loom_home
from loom_core.server.cli.database_option import add_database_option, add_move_command, database_setting
from loom_core.server.cli.option_types import fraction, whole_number
from loom_core.server.cli.standard_commands import ServerCommands, add_junit_option, add_profile
from loom_core.server.program import ServerProgram
from loom_kb import PROGRAM
from loom_kb.language_model import NO_MODEL, configuration
from loom_kb.settings import DEFAULT_SOURCE, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["SERVER", "run"]

_VECTORS = "LOOM_KB_VECTORS"
_LEXICAL = "LOOM_KB_LEXICAL"
_SECRET = "LOOM_VECTORS_SECRET"
_DATABASE_SECRET = "LOOM_DATABASE_SECRET"
_GRAPH, _GRAPH_SECRET = "LOOM_KB_GRAPH", "LOOM_GRAPH_SECRET"
_LEXICAL_SECRET = "LOOM_LEXICAL_SECRET"
_MOST_ENTITIES = 20_000  # a browser can still draw them
_MOST_TOPICS = 100  # and sentences of each
_MOST_PASSAGES = 100


class KnowledgeBaseServer(ServerProgram[Settings]):
    """The program of loom-kb."""

    name = PROGRAM
    package = "loom_kb"
    description = "Answers from your own documents, with their sources."
    end_seconds = 20.0  # a batch under way may have to load an index before it can end

    def parser(self) -> argparse.ArgumentParser:
        commands = ServerCommands(
            PROGRAM,
            description="A GraphRAG knowledge base as an MCP server. Without a command it serves MCP over"
            " stdio.",
            options=_options,
        )

        _serving(commands)
        _documents(commands)
        _keeping_in_step(commands)
        _aliases(commands)
        _maintenance(commands)
        commands.add_token(source_option="--kb", source="knowledge base")
        commands.add_audit()
        _installing(commands)
        commands.add_doctor(named="knowledge bases and folders")
        commands.add("demo", "build a small knowledge base and ask it three questions")
        return commands.parser

    def settings_of(self, args: argparse.Namespace) -> Settings:
        from loom_kb.language_model import model_setting

        names: list[str] | str | None = getattr(args, "kb", None)
        only = tuple(names) if isinstance(names, list) else ()
        settings = Settings(
            home=loom_home(args.home),
            database=database_setting(args.database),
            sources=only,
            roots=tuple(root.expanduser().absolute() for root in getattr(args, "root", ())),
            watched=_folders(args) if args.command == "serve" else (),
            allow_urls=getattr(args, "allow_urls", True),  # a person who types an address means it
            allow_net=tuple(getattr(args, "allow_net", ())),
            embedder=args.embedder,
            vectors=(args.vectors or os.environ.get(_VECTORS, "")).strip(),
            lexical=(args.lexical or os.environ.get(_LEXICAL, "")).strip(),
            graph=(args.graph or os.environ.get(_GRAPH, "")).strip(),
            llm=model_setting(args.llm),
            profile=getattr(args, "profile", "full"),
            version=version(PROGRAM),
        )
        if args.command == "serve":
            _check(settings)
        return settings

    def options(self, settings: Settings) -> list[str]:
        options = ["--database", settings.database] if settings.database else []
        options += ["--embedder", settings.embedder] if settings.embedder != "auto" else []
        options += ["--vectors", settings.vectors] if settings.vectors else []
        options += ["--lexical", settings.lexical] if settings.lexical else []
        options += ["--graph", settings.graph] if settings.graph else []
        options += ["--llm", settings.llm] if settings.llm else []
        for name in settings.sources:
            options += ["--kb", name]
        for root in settings.roots:
            options += ["--root", str(root)]
        return options

    def key_variables(self, settings: Settings) -> list[str]:
        keys = [*_of_language_model(settings.llm), *_of_embedder(settings.embedder)]
        if settings.database:
            keys.append(_DATABASE_SECRET)
        if "://" in settings.vectors:
            keys.append(_SECRET)
        if "://" in settings.lexical:
            keys.append(_LEXICAL_SECRET)
        if "://" in settings.graph:
            keys.append(_GRAPH_SECRET)
        return list(dict.fromkeys(keys))

    def unknown(self, settings: Settings, names: Sequence[str]) -> list[str]:
        from loom_core.knowledge.sources.catalogue import Catalogue

        with closing(Catalogue(settings.home, database=settings.database)) as catalogue:
            for name in names:
                catalogue.place(name)  # raises if no knowledge base can have this name
            known = {entry.name for entry in catalogue.list()}
        return [name for name in names if name not in known]


SERVER = KnowledgeBaseServer()
"""loom-kb, for the commands that every server has."""

run = SERVER.run
"""Run a command line; returns the exit code."""


def _check(settings: Settings) -> None:
    """Check that a server can be started with these settings.

    Raises:
        ConfigError: it cannot.
    """
    for root in settings.roots:
        if not root.is_dir():
            raise ConfigError(f"--root {root} is not a folder.", advice="Give a folder that exists.")
    if settings.allow_net:
        from loom_core.net import NetPolicy

        NetPolicy.allowing(settings.allow_net)
        if not settings.allow_urls:
            raise ConfigError("--allow-net allows nothing by itself.", advice="Give --allow-urls too.")


def _path(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("an empty path")  # `Path` would take it for the current folder
    return Path(text)


def _threshold(text: str) -> tuple[str, float]:
    from loom_kb.command_line.evaluation import METRICS

    name, _, value = text.partition("=")
    known = {metric.casefold(): metric for metric in METRICS}
    metric = known.get(name.strip().casefold(), "")
    if not metric:
        raise argparse.ArgumentTypeError(f"there is no metric {name!r}; there are {', '.join(METRICS)}")
    try:
        return metric, fraction(value)
    except argparse.ArgumentTypeError:
        said = f"write it as {metric}=0.8, with a number from 0 to 1"
        raise argparse.ArgumentTypeError(said) from None


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


def _options(command: argparse.ArgumentParser) -> None:
    add_database_option(command, what="the knowledge bases")
    command.add_argument(
        "--embedder",
        default="auto",
        metavar="NAME",
        help="for new knowledge bases: auto, e5-small, e5-small+bge-small-en, minilm, static, hashing; a"
        " server's model, such as openai:text-embedding-3-small or ollama:bge-m3; or a configuration as JSON",
    )
    command.add_argument(
        "--vectors",
        default="",
        metavar="WHERE",
        help="where new knowledge bases search their vectors: auto, exact, chroma, or a vector database as"
        " engine+URL, such as qdrant+http://localhost:6333 or pgvector+postgresql://localhost/loom; its"
        f" password or API key in ${_SECRET} (default ${_VECTORS}, else auto)",
    )
    command.add_argument(
        "--lexical",
        default="",
        metavar="WHERE",
        help="where new knowledge bases search words: tantivy, or a search engine as engine+URL, such as"
        " elasticsearch+http://localhost:9200 or opensearch+https://search.example; its password or API key"
        f" in ${_LEXICAL_SECRET} (default ${_LEXICAL}, else tantivy)",
    )
    command.add_argument(
        "--graph",
        default="",
        metavar="WHERE",
        help="where new knowledge bases keep their graph of entities: kuzu, none (only in their own tables),"
        " or a graph database, such as falkordb://localhost:6379; its password in"
        f" ${_GRAPH_SECRET} (default ${_GRAPH}, else kuzu)",
    )
    command.add_argument(
        "--llm",
        metavar="MODEL",
        help="a language model that finds entities and relations in addition to the rules, such as deepseek"
        " or deepseek/deepseek-flash; or its configuration as JSON; none for rules alone"
        " (default $LOOM_KB_LLM)",
    )


def _folders(args: argparse.Namespace) -> tuple[Path, ...]:
    return tuple(folder.expanduser().absolute() for folder in args.watch)


def _serving(commands: ServerCommands) -> None:
    serve = commands.add_serve()
    serve.add_argument(
        "--kb",
        action="append",
        default=[],
        metavar="NAME",
        help="only this knowledge base (may be repeated)",
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
        help="a folder to synchronise the knowledge base (the first --kb) with (may be repeated)",
    )
    serve.add_argument(
        "--allow-urls",
        action="store_true",
        help="let the tool `add` fetch web pages; without it, a model cannot fetch any address",
    )
    _allow_net(serve)
    add_profile(serve)


def _documents(commands: ServerCommands) -> None:
    add = commands.add("add", "add files, folders or web pages; without any, resume unfinished jobs")
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

    query = commands.add("query", "ask a question")
    query.add_argument("question", nargs="+")
    query.add_argument(
        "--limit", type=whole_number(_MOST_PASSAGES), default=5, help="how many passages (default 5)"
    )
    _searching(query)
    query.add_argument("--detailed", action="store_true", help="with scores and why each passage was found")

    evaluation = commands.add("eval", "measure retrieval by questions with known documents or passages")
    evaluation.add_argument(
        "file", type=_path, metavar="FILE.jsonl", help="a question in each line; see docs/howto/evaluation.md"
    )
    _searching(evaluation)
    evaluation.add_argument(
        "--at-least",
        action="append",
        default=[],
        type=_threshold,
        metavar="METRIC=VALUE",
        help="such as R@5=0.8: exit code 1 if the result is lower (may be repeated)",
    )
    evaluation.add_argument(
        "--worst", type=int, default=10, metavar="N", help="explain this many of the worst (default 10)"
    )
    add_junit_option(evaluation)

    listing = commands.add("list", "list knowledge bases, or the documents of one")
    listing.add_argument("--kb", metavar="NAME", help="list the documents of this one")

    remove = commands.add("remove", "remove documents, or a whole knowledge base")
    remove.add_argument("ids", nargs="*", help="ids, URIs or paths of documents")
    _one_kb(remove)
    remove.add_argument("--all", action="store_true", help="the knowledge base with all its files")

    stats = commands.add("stats", "show the contents of a knowledge base and the state of its indexes")
    _one_kb(stats)


def _keeping_in_step(commands: ServerCommands) -> None:
    sync = commands.add("sync", "synchronise a knowledge base with folders: add, update, remove")
    sync.add_argument("folders", nargs="+", type=_path, metavar="FOLDER", help="the folders")
    _one_kb(sync)
    sync.add_argument("--watch", action="store_true", help="keep running, and sync every change")
    sync.add_argument("--tag", action="append", default=[], help="for the filter `tags` (may be repeated)")
    sync.add_argument("--include", action="append", default=[], metavar="PATTERN", help="as in .gitignore")
    sync.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="as in .gitignore")
    sync.add_argument(
        "--allow-empty",
        action="store_true",
        help="remove all documents of a folder that is gone or empty; refused without this option",
    )
    _agreeing(sync)

    jobs = commands.add("jobs", "list the newest jobs, or show one in full")
    jobs.add_argument("id", nargs="?", metavar="ID", help="id of a job")
    jobs.add_argument("--cancel", action="store_true", help="with ID: cancel it")

    graph = commands.add("graph", "write the graph as an HTML page that needs no network")
    graph.add_argument("--html", required=True, type=_path, metavar="FILE", help="the page to write")
    _one_kb(graph)
    graph.add_argument("--entity", metavar="NAME", help="only the neighbourhood of this one")
    graph.add_argument(
        "--hops", type=int, choices=range(1, 5), default=2, help="with --entity: how far to go (default 2)"
    )
    graph.add_argument(
        "--limit",
        type=whole_number(_MOST_ENTITIES),
        default=2000,
        metavar="N",
        help=f"maximum number of entities: those that say most (default 2000, at most {_MOST_ENTITIES})",
    )

    overview = commands.add("overview", "summarise a knowledge base: its topics, terms and main sentences")
    _one_kb(overview)
    few = whole_number(_MOST_TOPICS)
    overview.add_argument("--topics", type=few, default=12, metavar="N", help="how many topics (default 12)")
    overview.add_argument(
        "--sentences", type=few, default=2, metavar="N", help="how many sentences for each (default 2)"
    )
    _filtering(overview)
    overview.add_argument(
        "--question",
        metavar="TEXT",
        help="answer a question about all documents by the language model of --llm, topic by topic; "
        "says what it costs first",
    )
    _agreeing(overview)

    duplicates = commands.add("duplicates", "list duplicate and near-duplicate documents")
    _one_kb(duplicates)


def _searching(command: argparse.ArgumentParser) -> None:
    """Add the options of a question."""
    command.add_argument("--kb", metavar="NAME", help="only this knowledge base (default: all)")
    _filtering(command)
    command.add_argument(
        "--strategy",
        choices=["hybrid", "vector_first", "graph_first", "graph_only", "bm25"],
        help="instead of the knowledge base's own",
    )
    command.add_argument("--rerank", choices=["features"], help="rerank the best passages with this")
    command.add_argument(
        "--diversity",
        type=fraction,
        metavar="0..1",
        help="weight of variety among the passages (default 0)",
    )
    command.add_argument(
        "--expand", choices=["passage", "section"], help="`section`: each passage with its surrounding text"
    )
    command.add_argument("--thorough", action="store_true", help="take longer: 12 sub-questions instead of 4")


def _filtering(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--filter",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="such as tags=draft, path=docs/",
    )


def _aliases(commands: ServerCommands) -> None:
    aliases = commands.add("aliases", "list entities under several names; merge, split or hide entities")
    aliases.add_argument("names", nargs="*", metavar="NAME", help="names as the documents use them")
    _one_kb(aliases)
    aliases.add_argument("--suggested", action="store_true", help="list names that may be the same entity")
    deciding = aliases.add_mutually_exclusive_group()
    deciding.add_argument("--merge", action="store_true", help="merge two names into one entity")
    deciding.add_argument(
        "--split",
        action="store_true",
        help="keep two names apart; not the scripts of one name, such as 臺灣 and 台湾",
    )
    deciding.add_argument("--undecide", action="store_true", help="forget your decision about two names")
    deciding.add_argument("--hide", action="store_true", help="hide entities: no graph or answer shows them")
    deciding.add_argument("--unhide", action="store_true", help="show hidden entities again")
    deciding.add_argument("--hidden", action="store_true", help="list the hidden names")


def _maintenance(commands: ServerCommands) -> None:
    check = commands.add("check", "check the whole knowledge base")
    _one_kb(check)
    check.add_argument("--repair", action="store_true", help="repair what can be repaired")

    rebuild = commands.add(
        "rebuild",
        "rebuild indexes, or all vectors with --embedder; or move: --vectors, --lexical, --graph",
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
        help="chunk all documents and extract from them again, where the rules have changed",
    )
    _agreeing(rebuild)

    _one_kb(add_move_command(commands, what="a knowledge base"))

    shard = commands.add("shard", "split a large knowledge base into shards, and verify them")
    shard.add_argument(
        "kb", metavar="NAME", help="the knowledge base, which stands for its shards afterwards"
    )
    shard.add_argument("--into", type=int, metavar="N", help="number of shards")
    shard.add_argument(
        "--to",
        action="append",
        default=[],
        metavar="URL",
        help="PostgreSQL database that gets shards, in turn (may be repeated; default: where it is now)",
    )
    shard.add_argument(
        "--delete-original", action="store_true", help="delete what it had itself before it was split"
    )
    shard.epilog = (
        "Stop all servers that use it first. A command that was interrupted goes on where it stopped."
    )

    export = commands.add("export", "export a knowledge base to one file")
    export.add_argument("file", type=_path, help="the archive to write, such as notes.loom.zip")
    _one_kb(export)

    import_ = commands.add("import", "import such a file into a knowledge base")
    import_.add_argument("file", type=_path, help="the archive")
    import_.add_argument("--kb", metavar="NAME", help="default: the name in the archive, if that is free")
    _agreeing(import_)


def _installing(commands: ServerCommands) -> None:
    install = commands.add_install()
    for name, kind in (("kb", str), ("root", _path)):
        install.add_argument(
            f"--{name}",
            action="append",
            default=[],
            type=kind,
            metavar="NAME" if kind is str else "DIR",
            help="as for `serve` (may be repeated)",
        )


def _agreeing(command: argparse.ArgumentParser) -> None:
    command.add_argument("--yes", action="store_true", help="let the language model read without asking")


def _one_kb(command: argparse.ArgumentParser) -> None:
    command.add_argument("--kb", default=DEFAULT_SOURCE, metavar="NAME", help=f"default: {DEFAULT_SOURCE}")


def _of_language_model(choice: str) -> Iterator[str]:
    if not choice or choice == NO_MODEL:
        return
    from loom_core.llm.config import ProviderConfig
    from loom_core.server.install.terminal import model_variables

    yield from model_variables(ProviderConfig.of(configuration(choice)))


def _of_embedder(choice: str) -> Iterator[str]:
    from loom_core.embedding.registry import is_remote
    from loom_core.embedding.remote_models.config import config_of_text
    from loom_core.embedding.remote_models.vendors import EMBEDDING_VENDORS

    config = config_of_text(choice)
    if config is None or not is_remote(config):
        return
    vendor = EMBEDDING_VENDORS.get(str(config.get("provider")))
    if name := config.get("api_key_env") or (vendor and vendor.needs_key and vendor.key_variable):
        yield str(name)
