"""Commands that need only the file: init, validate, schema, graph, import-arazzo, export-arazzo."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from importlib.resources import files
from typing import TYPE_CHECKING, Any, get_args

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.flow.config import (
    export_arazzo,
    flow_file_problems,
    flow_file_warnings,
    flow_json_schema,
    import_arazzo,
    parse_flow_file,
    read_flow_file,
)
from loom_core.flow.config.localization import localize
from loom_core.flow.config.openapi import flows_of_openapi, source_addresses
from loom_core.flow.diagram.drawing import draw_flow
from loom_core.flow.diagram.shape import render_mermaid, shape_of
from loom_core.flow.understanding.language import Language
from loom_core.server.cli.console import out, out_json, say
from loom_core.server.cli.evaluation import read_text
from loom_flow import PROGRAM
from loom_flow.settings import invocation

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from loom_core.flow.config import FlowConfig, FlowFile
    from loom_flow.settings import Settings

__all__ = ["CONFIG_COMMANDS"]

_CORRECT = "Correct it there; docs/reference/flow-config.md has every key."


def _init(args: argparse.Namespace, settings: Settings) -> int:
    path = settings.config
    if path.exists() and not args.force:
        raise InvalidInputError(
            f"{path} already exists.", advice="Choose another with --config, or overwrite it with --force."
        )
    text = files("loom_flow.starter").joinpath("flow.json").read_text(encoding="utf-8")
    notes, tried = list[str](), [("chat",), ("explain", "请给我回电")]
    if args.description:
        found = flows_of_openapi(read_text(args.description), args.operation, name=str(args.description))
        text, notes, tried = found.text(), [*found.notes], [("validate",), ("chat",)]
    elif args.operation:
        raise InvalidInputError("--operation belongs to --from.", advice="Name the description: --from FILE.")
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, text)
    if args.json:
        out_json({"file": str(path), "notes": notes})
    else:
        out(f"Wrote {path}. Try it:")
        for command in (*tried, ("install", "claude-desktop")):
            out(f"  {invocation(settings, *command)}")
        for note in notes:
            say(note)
    return 0


def _validate(args: argparse.Namespace, settings: Settings) -> int:
    problems = flow_file_problems(settings.config)
    file = None if problems else read_flow_file(settings.config).file
    warnings = [] if problems else flow_file_warnings(settings.config, has_model=bool(settings.provider))
    if args.json:
        told = {
            "problems": [asdict(replace(each, advice=each.advice or _CORRECT)) for each in problems],
            "warnings": [asdict(each) for each in warnings],
        }
        out_json({"file": str(settings.config), **told, **_count(file)})
    else:
        for problem in problems:
            out(str(problem))
        for warning in warnings:
            say(f"Warning: {warning}")
    if file is not None:
        counted = ", ".join(
            f"{count} {what.replace('_', ' ').removesuffix('s') if count == 1 else what.replace('_', ' ')}"
            for what, count in _count(file).items()
        )
        say(f"{settings.config} is valid: {counted}.")
    return 1 if problems else 0


def _count(file: FlowFile | None) -> dict[str, int]:
    if file is None:
        return {}
    return {
        "flows": sum(flow.enabled for flow in file.flows),
        "trigger_patterns": sum(len(flow.trigger_patterns) for flow in file.flows if flow.enabled),
        "skills": sum(skill.enabled for skill in file.skills),
        "system_tools": sum(tool.enabled for tool in file.system_tools),
    }


def _schema(_args: argparse.Namespace, _settings: Settings) -> int:
    out_json(flow_json_schema())
    return 0


def _graph(args: argparse.Namespace, settings: Settings) -> int:
    file = read_flow_file(settings.config).file
    flows = [flow for flow in file.flows if flow.enabled and args.flow in {"", flow.flow_id}]
    if args.flow and not flows:
        known = ", ".join(flow.flow_id for flow in file.flows if flow.enabled)
        raise NotFoundError(f"There is no flow {args.flow!r}.", advice=f"There are: {known or 'none'}.")
    if args.html:
        return _write_diagrams(args, file, flows)
    drawn = {flow.flow_id: render_mermaid(shape_of(file, flow)) for flow in flows}
    if args.json:
        out_json({**drawn})
    else:
        out("\n".join(drawn.values()).rstrip("\n"))
    return 0


def _write_diagrams(args: argparse.Namespace, file: FlowFile, flows: Sequence[FlowConfig]) -> int:
    from loom_core.server.pages.flows_page import flows_page
    from loom_core.server.pages.page import write_page

    files = {language: localize(file, language) for language in get_args(Language)}
    drawn = {
        language: [draw_flow(shape_of(each, each.counterpart_of(flow))) for flow in flows]
        for language, each in files.items()
    }
    size = write_page(args.html, flows_page(drawn, title=file.basic_settings.name or PROGRAM))
    if args.json:
        out_json({"html": str(args.html), "flows": [flow.flow_id for flow in flows], "bytes": size})
    else:
        count = "1 flow" if len(flows) == 1 else f"{len(flows)} flows"
        out(f"{args.html}: {count}, {size:,} bytes. Open it in a browser; it needs no network.")
    return 0


def _import(args: argparse.Namespace, _settings: Settings) -> int:
    document = read_text(args.document)
    sources: dict[str, str] = {}
    for given in args.source:
        name, equals, file = given.partition("=")
        if not equals:
            raise InvalidInputError(f"--source {given} names no file.", advice="Write it as NAME=FILE.")
        sources[name] = read_text(args.document.parent / file)
    sources = {**_read_neighbours(args.document, document), **sources}
    found = import_arazzo(document, name=str(args.document), sources=sources)
    text = found.text()
    problem = ""
    try:
        parse_flow_file(text, name=str(args.out or "flow.json"))
    except ConfigError as error:  # such as a missing `flow_url`
        problem = str(error)
    if args.out:
        _write(args.out, text)
    if args.json:
        out_json({"file": json.loads(text), "notes": [*found.notes], "problem": problem})
    elif not args.out:
        out(text.rstrip("\n"))
    for note in [*found.notes, *([problem] if problem else [])]:
        say(note)
    return 0


def _read_neighbours(path: Path, text: str) -> dict[str, str]:
    """Read the descriptions that a document names, if they are in its folder or below; texts by name."""
    folder = path.parent.resolve()
    found: dict[str, str] = {}
    for name, address in source_addresses(text, name=str(path)).items():
        file = (folder / address).resolve()
        if address and "://" not in address and file.is_relative_to(folder) and file.is_file():
            found[name] = read_text(file)
    return found


def _export(args: argparse.Namespace, settings: Settings) -> int:
    found = export_arazzo(read_flow_file(settings.config))
    files: dict[str, Any] = {"flows.arazzo.json": found.document, **found.descriptions}
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            _write(args.out / name, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
        say(f"{args.out}: {', '.join(files)}")
    if args.json or not args.out:
        out_json({"files": files, "left_out": [*found.left_out]})
    for reason in found.left_out:
        say(f"Left out: {reason}")
    return 0


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be written: {error.strerror}.") from error


CONFIG_COMMANDS: Mapping[str, Callable[[argparse.Namespace, Settings], int]] = {
    "init": _init,
    "validate": _validate,
    "schema": _schema,
    "graph": _graph,
    "import-arazzo": _import,
    "export-arazzo": _export,
}
"""Functions by command; each returns the exit code."""
