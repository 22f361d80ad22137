"""The commands that ask sources: query, fetch, ask, sources."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from loom_core.server.cli.command_line import parse_filters
from loom_core.server.cli.console import emphasize, out, out_json, say, strong
from loom_core.server.search.citations import citation
from loom_query.service import QueryService
from loom_query.texts import passage_lines, sentence_line, source_line

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loom_query.models import Passage, QueryResult
    from loom_query.settings import Settings

__all__ = ["run_command"]

_PARTIAL = 3  # exit code: answered, but a source that was asked, or a part of it, is missing


def run_command(args: argparse.Namespace, settings: Settings) -> int:
    """Run a parsed command; returns the exit code.

    Args:
        args: the command and its options.
        settings: of the run.
    """
    commands = {"query": _query, "fetch": _fetch, "ask": _ask, "sources": _sources}

    async def run() -> int:
        service = QueryService(settings, upkeep=False)
        service.sources.load()
        async with service:
            return await commands[args.command](service, args)

    return anyio.run(run)


async def _query(service: QueryService, args: argparse.Namespace) -> int:
    result = await service.query(
        " ".join(args.question),
        sources=args.source,
        filters=parse_filters(args.filter),
        limit=args.limit,
    )
    if args.json:
        out_json(result)
    else:
        if note := result.match.note():
            out(note)
        _print_passages(result.passages, detailed=args.detailed)
        for note in result.notes:
            say(note)
    return _code(result)


async def _fetch(service: QueryService, args: argparse.Namespace) -> int:
    result = await service.fetch(args.id, start=args.start, tokens=args.max_tokens)
    if args.json:
        out_json(result)
        return 0
    out(strong(f"{result.title or 'untitled'} ({result.uri or result.source})"))
    out(result.text)
    if result.end < result.length:
        shown = f"{result.start:,} to {result.end:,} of {result.length:,} characters"
        say(f"{shown}; go on with --start {result.end}")
    return 0


async def _ask(service: QueryService, args: argparse.Namespace) -> int:
    result = await service.ask(
        " ".join(args.question),
        sources=args.source,
        filters=parse_filters(args.filter),
        pattern=args.pattern,
        limit=args.limit,
    )
    if args.json:
        out_json(result)
    elif result.answered:
        out(result.answer)
        out()
        for sentence in result.sentences:
            if not sentence.supported or sentence.weak:
                say(sentence_line(sentence))
        for passage in result.passages:
            out(citation(passage))
    else:
        _print_passages(result.passages, detailed=False)
    if not args.json:
        for note in result.notes:
            say(note)
    if not result.answered:
        return 1
    return 0 if all(outcome.is_whole for outcome in result.sources) else _PARTIAL


async def _sources(service: QueryService, args: argparse.Namespace) -> int:
    result = await service.list_sources()
    if args.json:
        out_json(result)
        return 0
    for source in result.sources:
        out(source_line(source))
    for problem in result.problems:
        say(problem)
    if not result.sources and not result.problems:
        config = service.settings.config
        say(f"There is no source yet. Add documents with loom-kb, or name sources in {config}.")
    return 0


def _print_passages(passages: Sequence[Passage], *, detailed: bool) -> None:
    for passage in passages:
        text = emphasize(passage.text, passage.answer_sentence)
        out(strong(citation(passage)))
        out(f"    id: {passage.id}")
        for line in (*passage_lines(passage, detailed=detailed), *text.strip().splitlines()):
            out(f"    {line}")
        out()


def _code(result: QueryResult) -> int:
    return 0 if all(outcome.is_whole for outcome in result.sources) else _PARTIAL
