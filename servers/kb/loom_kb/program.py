"""The program of this server: what is its own in all that every server does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.server.cli.command_line import split_line
from loom_core.server.program import ServerProgram, run_server
from loom_kb import PROGRAM
from loom_kb.cli import checked_settings, parser, settings_of
from loom_kb.introduction import introduction
from loom_kb.language_model import NO_MODEL, configuration

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from loom_core.server.doctor.examination import Check
    from loom_core.server.protocol.factory import LoomServer
    from loom_kb.settings import Settings

__all__ = ["SERVER", "run"]

_END_SECONDS = 20.0  # a batch under way may have to load an index before it can end


def _settings_of(args: argparse.Namespace) -> Settings:
    settings = settings_of(args)
    return checked_settings(settings) if args.command == "serve" else settings


def _options(settings: Settings) -> list[str]:
    options = ["--embedder", settings.embedder] if settings.embedder != "auto" else []
    options += ["--llm", settings.llm] if settings.llm else []
    for name in settings.sources:
        options += ["--kb", name]
    for root in settings.roots:
        options += ["--root", str(root)]
    return options


def _key_variables(settings: Settings) -> list[str]:
    return list(dict.fromkeys([*_of_language_model(settings.llm), *_of_embedder(settings.embedder)]))


def _of_language_model(choice: str) -> Iterator[str]:
    if not choice or choice == NO_MODEL:
        return
    from loom_core.llm.config import ProviderConfig
    from loom_core.server.install.front import model_variables

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


def _unknown(settings: Settings, names: Sequence[str]) -> list[str]:
    from loom_core.knowledge.sources.catalogue import Catalogue

    catalogue = Catalogue(settings.home)
    for name in names:
        catalogue.folder(name)  # an error, if a name cannot be one of a knowledge base
    known = {entry.name for entry in catalogue.list()}
    return [name for name in names if name not in known]


def _build(settings: Settings) -> LoomServer:
    from loom_kb.app import build

    return build(settings)


def _run_command(args: argparse.Namespace, settings: Settings) -> int:
    from loom_kb.command_line.commands import run_command

    return run_command(args, settings)


def _examined_variables(settings: Settings) -> set[str]:
    from loom_kb.command_line.doctor import variables

    return variables(settings)


def _own_checks(settings: Settings) -> list[Check]:
    from loom_kb.command_line.doctor import own_checks

    return own_checks(settings)


SERVER = ServerProgram(
    name=PROGRAM,
    module="loom_kb",
    description="Answers from your own documents, with their sources.",
    end_seconds=_END_SECONDS,
    parser=parser,
    settings_of=_settings_of,
    introduction=introduction,
    build=_build,
    run_command=_run_command,
    options=_options,
    key_variables=_key_variables,
    unknown=_unknown,
    examined_variables=_examined_variables,
    own_checks=_own_checks,
)
"""loom-kb, for the commands that every server has."""


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns the exit code."""
    line, served = split_line(arguments)
    args = parser().parse_args(line)
    return run_server(SERVER, args, served)
