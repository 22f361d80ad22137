"""The knowledge bases of a home folder: listing them, opening them, deleting them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from loom_core.errors import EmbeddingError, InvalidInputError, NotFoundError, StoreBusyError
from loom_core.knowledge.rag.requests import FilesRequest
from loom_core.knowledge.sources.catalogue import Catalogue
from loom_core.knowledge.sources.library import Library

if TYPE_CHECKING:
    from tests.fixtures.local_server import Asked, LocalServer


@pytest.fixture
def library(tmp_path):
    library = Library(tmp_path, embedder="hashing")
    yield library
    library.close()


def test_a_home_that_does_not_exist_holds_nothing(tmp_path):
    assert Catalogue(tmp_path / "nowhere").list() == []


@pytest.mark.parametrize("name", ["", "  ", "a/b", "a\\b", "..\0", "x" * 65, "line\nbreak"])
def test_a_name_that_no_folder_can_have_is_refused(tmp_path, name):
    with pytest.raises(InvalidInputError, match="cannot be the name"):
        Catalogue(tmp_path).place(name)


def test_names_of_any_script_get_a_folder_of_plain_characters(tmp_path):
    catalogue = Catalogue(tmp_path)
    folders = [catalogue.place(name).folder for name in ("docs", "知识库", "Docs", "..", "my notes")]
    assert folders[0].name == "docs"
    assert len(set(folders)) == 5
    assert all(folder.parent == tmp_path / "kb" and folder.name.isascii() for folder in folders)


async def test_a_new_knowledge_base_is_listed_with_what_it_holds(library):
    knowledge_base = await library.get("知识库", create=True, description="产品文档", search_hints=["价格"])
    await knowledge_base.add_texts(["# 价格\n\n标准版每月十元。"], metadatas=[{"tags": ["定价"]}])
    (entry,) = library.list()
    assert entry.name == "知识库"
    assert (entry.documents, entry.chunks, entry.embedder) == (1, 1, "hashing/512-1")
    assert entry.source.description == "产品文档"
    assert entry.source.search_hints == ("价格",)
    assert entry.source.supported_filters == ("source", "path", "language", "type", "title", "tags")


async def test_a_knowledge_base_is_opened_once(library):
    first = await library.get("notes", create=True)
    assert await library.get("notes") is first


async def test_an_unknown_name_is_told_with_those_there_are(library):
    with pytest.raises(NotFoundError, match="There is none yet"):
        await library.get("notes")
    await library.get("docs", create=True)
    with pytest.raises(NotFoundError, match="There are: docs"):
        await library.get("notes")


async def test_only_the_chosen_names_are_listed_and_opened(library, tmp_path):
    await library.get("docs", create=True)
    await library.get("notes", create=True)
    library.close()
    chosen = Library(tmp_path, embedder="hashing", only=["docs"])
    assert [entry.name for entry in chosen.list()] == ["docs"]
    with pytest.raises(NotFoundError):
        await chosen.get("notes", create=True)
    chosen.close()


async def test_a_knowledge_base_is_opened_with_the_embedder_that_made_its_vectors(library, tmp_path):
    await (await library.get("docs", create=True)).add_texts(["Some text."])
    library.close()
    other = Library(tmp_path)  # its choice would be another one
    answer = await (await other.get("docs")).search("text")
    assert answer.items[0].metadata["scores"]["vector"] > 0
    assert answer.notes == ()
    other.close()


async def test_a_damaged_knowledge_base_does_not_hide_the_others(library, tmp_path):
    await library.get("docs", create=True)
    broken = tmp_path / "kb" / "broken"
    broken.mkdir()
    (broken / "record.db").write_bytes(b"this is no database" * 100)
    assert [entry.name for entry in library.list()] == ["docs"]


async def test_deleting_removes_every_file(library, tmp_path):
    await (await library.get("docs", create=True)).add_texts(["Some text."])
    await library.delete("docs")
    assert library.list() == []
    assert not (tmp_path / "kb" / "docs").exists()


@pytest.mark.slow
async def test_what_is_worked_for_in_the_background_can_be_deleted_and_made_again(library, tmp_path):
    async with anyio.create_task_group() as tasks:
        library.work_in(tasks)
        with anyio.fail_after(60):
            for text in ("The first.", "The second."):
                knowledge_base = await library.get("docs", create=True)
                await knowledge_base.add_texts([text])
                assert [item.content for item in await knowledge_base.query(text)] == [text]
                await library.delete("docs")
                assert not (tmp_path / "kb" / "docs").exists()
        tasks.cancel_scope.cancel()


async def test_what_another_process_works_on_is_not_deleted(library, tmp_path):
    knowledge_base = await library.get("docs", create=True)
    knowledge_base.close()
    program = (
        "import sys, pathlib; from loom_core.storage import ProcessLock;"
        "lock = ProcessLock(pathlib.Path(sys.argv[1])); print(lock.acquire(), flush=True); sys.stdin.read()"
    )
    lock = tmp_path / "kb" / "docs" / "lock"
    command = [sys.executable, "-c", program, os.fspath(lock)]
    with subprocess.Popen(  # noqa: ASYNC220
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        other = Library(tmp_path, embedder="hashing")
        with pytest.raises(StoreBusyError, match=f"process {holder.pid}"):
            await other.delete("docs")
        other.close()
        holder.communicate()


async def test_work_goes_on_in_the_background(library):
    async with anyio.create_task_group() as tasks:
        library.work_in(tasks)
        knowledge_base = await library.get("docs", create=True)
        job = knowledge_base.submit(FilesRequest([]))
        with anyio.fail_after(20):
            while not knowledge_base.job(job).finished:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        tasks.cancel_scope.cancel()


async def test_a_remote_embedder_is_remembered_with_the_knowledge_base(tmp_path):
    config = {"provider": "vllm", "model": "m", "dimension": 4, "base_url": "http://127.0.0.1:9/v1"}
    library = Library(tmp_path, embedder=json.dumps(config))
    assert (await library.get("notes", create=True)).embedder_id == "127.0.0.1:9/m/4"
    library.close()
    again = Library(tmp_path)
    assert (await again.get("notes")).embedder_id == "127.0.0.1:9/m/4"
    [entry] = again.list()
    assert entry.embedding_config["base_url"] == config["base_url"]
    again.close()


async def test_a_server_that_does_not_answer_leaves_no_knowledge_base_of_unknown_dimension(tmp_path):
    config = {"provider": "vllm", "model": "m", "base_url": "http://127.0.0.1:9/v1"}
    library = Library(tmp_path, embedder=json.dumps(config))
    with pytest.raises(EmbeddingError, match="connection to vLLM failed during a request to m"):
        await library.get("notes", create=True)
    assert library.list() == []
    library.close()


def _loading(local_servers: Callable[..., LocalServer], loaded: threading.Event) -> tuple[LocalServer, str]:
    """An Ollama that loads its model first, and what a library is given to use it."""
    server = local_servers()
    body = json.dumps({"embeddings": [[0.0, 3.0, 4.0]]}).encode()
    server.answers("/api/embed", body, Content_Type="application/json")
    answer = server.routes["/api/embed"]

    def load(asked: Asked, connection: socket.socket) -> None:
        loaded.wait(20)
        answer(asked, connection)

    server.routes["/api/embed"] = load
    return server, json.dumps({"provider": "ollama", "model": "新模型", "base_url": server.url("")})


async def test_a_model_that_takes_long_to_load_does_not_hold_up_a_server(
    tmp_path: Path, local_servers: Callable[..., LocalServer]
):
    loaded = threading.Event()
    server, choice = _loading(local_servers, loaded)
    library = Library(tmp_path, embedder=choice, start_timeout=0.05)
    async with anyio.create_task_group() as tasks:
        library.work_in(tasks)
        with anyio.fail_after(60):
            for _ in range(2):
                with pytest.raises(
                    EmbeddingError, match="ollama:新模型 is not ready yet: its server may be"
                ) as caught:
                    await library.get("notes", create=True)
                assert "try again in a moment" in caught.value.advice
            assert library.list() == []
            loaded.set()
            while True:
                with suppress(EmbeddingError):
                    knowledge_base = await library.get("notes", create=True)
                    break
        assert knowledge_base.embedder_id.endswith("/新模型/3")
        assert len(server.asked) == 1  # all waited for the same answer
        tasks.cancel_scope.cancel()
    library.close()


async def test_a_model_that_fails_to_load_is_asked_again_by_the_next_call(
    tmp_path: Path, local_servers: Callable[..., LocalServer]
):
    server = local_servers()
    server.answers("/api/embed", b'{"error": "model not found, try pulling it first"}', status=404)
    choice = json.dumps({"provider": "ollama", "model": "m", "base_url": server.url("")})
    library = Library(tmp_path, embedder=choice)
    async with anyio.create_task_group() as tasks:
        library.work_in(tasks)
        for _ in range(2):
            with pytest.raises(EmbeddingError, match="Run: ollama pull m"):
                await library.get("notes", create=True)
        tasks.cancel_scope.cancel()
    assert len(server.asked) == 2
    library.close()


async def test_a_command_waits_until_a_model_is_loaded(
    tmp_path: Path, local_servers: Callable[..., LocalServer]
):
    loaded = threading.Event()
    _, choice = _loading(local_servers, loaded)
    library = Library(tmp_path, embedder=choice, start_timeout=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(anyio.sleep_forever)
        opened: list[str] = []

        async def get() -> None:
            opened.append((await library.get("notes", create=True)).embedder_id)
            tasks.cancel_scope.cancel()

        tasks.start_soon(get)
        await anyio.wait_all_tasks_blocked()
        assert opened == []
        loaded.set()
    assert opened[0].endswith("/新模型/3")
    library.close()


async def test_a_damaged_configuration_of_an_embedder_counts_as_none(tmp_path):
    library = Library(tmp_path, embedder="hashing")
    knowledge_base = await library.get("notes", create=True)
    for damaged in ("{", "[1]"):
        knowledge_base.store.set("embedding_config", damaged)
        assert library.list()[0].embedding_config == {}
    library.close()


async def test_what_may_not_be_used_now_is_as_if_it_were_not_there(tmp_path):
    allowed = {"文档", "notes"}
    library = Library(tmp_path, embedder="hashing", may_use=allowed.__contains__)
    try:
        for name in sorted(allowed):
            await library.get(name, create=True)
        allowed.discard("文档")
        assert [entry.name for entry in library.list()] == ["notes"]
        with pytest.raises(NotFoundError) as hidden:
            await library.get("文档")
        with pytest.raises(NotFoundError) as missing:
            await library.get("缺失")
        assert str(hidden.value).replace("文档", "缺失") == str(missing.value)
        assert str(missing.value).endswith("There are: notes.")
        for name in ("文档", "new"):
            with pytest.raises(NotFoundError):
                await library.get(name, create=True)
    finally:
        library.close()
    assert [entry.name for entry in Library(tmp_path).list()] == ["notes", "文档"]
