"""A small server for the tests of the server layer; run it as a program to serve over stdio or HTTP.

    sample.py [http PORT]

As a program it writes to standard output wherever a careless server would: while it is built and in a tool,
from Python, by descriptor and from a child process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Literal

import anyio
import anyio.lowlevel
from pydantic import BaseModel, Field

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.observability.metrics import LoomMetrics, new_registry
from loom_core.server.calls.context import ToolContext, progress
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.resources import ResourceContent, ResourceEntry, ResourcePage, resource_uri
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.protocol.tools import ToolWording

DOCUMENTS = {("产品文档", "一"): "你好，世界", ("docs", "a/b"): "hello", ("docs", "raw"): b"\x00\x01"}
TEMPLATE = "loom://{kb}/{id}"


class Hit(BaseModel):
    """One hit."""

    title: str
    score: float = 1.0


class Hits(BaseModel):
    hits: list[Hit]


class Sources(BaseModel):
    names: list[str]


class Sample:
    """A sample server, whose lifespan appends to `log`."""

    def __init__(self, log: list[str]) -> None:
        self.sources = ["docs"]
        self._log = log
        self.server = LoomServer(
            "sample",
            version="1.2.3",
            title="Sample",
            instructions="Call `query` first.",
            lifespan=self.lifespan,
            resource_updates=True,
            metrics=LoomMetrics(registry=new_registry()),
        )

    @asynccontextmanager
    async def lifespan(self) -> AsyncGenerator[None]:
        self._log.append("opened")
        try:
            yield
        finally:
            await anyio.lowlevel.checkpoint()  # fails if closing is cancelled
            self._log.append("closed")

    async def query_wording(self) -> ToolWording:
        if "broken" in self.sources:
            raise OSError("the store is damaged")
        return ToolWording(f"Searches {', '.join(self.sources)}.", {"source": {"enum": self.sources}})

    async def query(
        self,
        query: Annotated[str, Field(description="What to look for.", min_length=1)],
        limit: Annotated[int, Field(ge=1, le=50)] = 5,
        tags: list[str] | None = None,
        source: str = "",
        order: Literal["best", "newest"] = "best",
    ) -> ToolReply[Hits]:
        """Searches the documents."""
        hits = [Hit(title=f"{query}{number}") for number in range(limit)]
        return tool_result(f"{query} {source} {tags} {order}", Hits(hits=hits))

    async def add(self, name: str) -> ToolReply[Sources]:
        """Adds a source."""
        self.sources.append(name)
        await self.server.tools_changed()
        await self.server.resources_changed()
        await self.server.resource_updated(resource_uri(TEMPLATE, kb="docs", id="a/b"))
        return tool_result(f"added {name}", Sources(names=self.sources))

    async def fail(self, how: str) -> ToolReply[Sources]:
        """Fails in the way asked for."""
        if how == "expected":
            raise NotFoundError("There is no 文件.", advice="Ask for another.")
        if how == "grouped":
            async with anyio.create_task_group():
                raise InvalidInputError("One of the tasks refused.")
        if how == "surrogate":
            return tool_result("name \udce9", Sources(names=["name \udce9"]))
        raise RuntimeError("a secret detail")

    async def work(self, steps: int, ctx: ToolContext) -> ToolReply[Sources]:
        """Works and reports progress."""
        reporter = progress(ctx, total=steps)
        for step in range(1, steps + 1):
            await reporter.report(step, f"step {step}")
        return tool_result(f"done at {ctx.protocol_version}", Sources(names=self.sources))

    async def wait(self) -> ToolReply[Sources]:
        """Waits for ever."""
        await anyio.sleep_forever()
        raise AssertionError

    async def hang(self) -> ToolReply[Sources]:
        """Hangs in a thread that nothing can interrupt."""
        await anyio.to_thread.run_sync(threading.Event().wait)
        raise AssertionError

    async def chatter(self) -> ToolReply[Sources]:
        """Writes to standard output in every way."""
        chat("tool")
        return tool_result("said it", Sources(names=self.sources))

    async def document(self, kb: str, id: str) -> ResourceContent:  # noqa: A002 - the template's variable
        if id == "crash":
            raise RuntimeError("a secret detail")
        if (kb, id) not in DOCUMENTS:
            raise NotFoundError(f"There is no document {id!r} in {kb!r}.")
        data = DOCUMENTS[(kb, id)]
        return ResourceContent(data, "text/markdown" if isinstance(data, str) else "application/octet-stream")

    async def documents(self, cursor: str | None) -> ResourcePage:
        if cursor is not None and not cursor.isdigit():
            raise InvalidInputError(
                f"The cursor {cursor!r} is not one of this list's.", advice="Start without one."
            )
        start = int(cursor or 0)
        entries = [
            ResourceEntry(resource_uri(TEMPLATE, kb=kb, id=name), name, title=kb)
            for kb, name in sorted(DOCUMENTS)[start : start + 2]
        ]
        return ResourcePage(entries, str(start + 2) if start + 2 < len(DOCUMENTS) else None)


def sample_server(log: list[str] | None = None) -> LoomServer:
    """The server with a tool of each sort."""
    sample = Sample([] if log is None else log)
    server = sample.server
    server.tool(
        title="Search",
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
        wording=sample.query_wording,
        meta={"anthropic/maxResultSizeChars": 200_000},
    )(sample.query)
    for function in (sample.add, sample.fail, sample.work, sample.wait, sample.hang, sample.chatter):
        server.tool(
            title=function.__name__.title(),
            read_only=function != sample.add,
            destructive=False,
            idempotent=True,
            open_world=False,
        )(function)
    server.resource(TEMPLATE, name="document", title="Document", description="A document.")(sample.document)
    server.resource_list(sample.documents)
    return server


def chat(place: str) -> None:
    """Write to standard output from Python, by descriptor and from a child."""
    print(f"{place}: print")  # noqa: T201
    os.write(1, f"{place}: descriptor\n".encode())
    subprocess.run(["echo", f"{place}: child"], check=True)


def main(arguments: list[str]) -> None:
    """Serve, and write what the lifespan did to the file named by SAMPLE_LOG."""
    from loom_core.server.serving.http_settings import HttpSettings
    from loom_core.server.serving.run import serve

    log = _Log(os.environ.get("SAMPLE_LOG", os.devnull))

    def build() -> LoomServer:
        chat("import")
        return sample_server(log)

    if arguments[:1] == ["http"]:
        serve(build, http=HttpSettings(port=int(arguments[1])), on_ready=log.append)
    else:
        serve(build, deadline=float(os.environ.get("SAMPLE_DEADLINE", "5")))


class _Log(list[str]):
    """A list that another process can read: each line is on disk as soon as it is appended."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = Path(path)

    def append(self, line: str) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
