"""Files in the outputs of tools: what the model reads of them."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

from loom_core.agent import Agent, Journal
from loom_core.agent.attachments import read_files
from loom_core.llm.messages import ImagePart, ToolMessage
from loom_core.mcp_client import MCPToolRegistry, ServerConfig
from loom_core.testing import MockLLM, call
from loom_core.tools import OutputFile, ToolOutput, tool
from tests.unit.agent.test_attachments import JPEG, PDF, PNG

LISTED_SERVER = Path(__file__).parents[1] / "mcp_client/listed_server.py"


async def test_files_are_read_as_attachments_are_and_within_the_limit_of_an_output(tmp_path: Path):
    @tool(read_only=True, open_world=False)
    def mailbox() -> ToolOutput:
        return ToolOutput(
            "Four attachments.",
            parts=(ImagePart(PNG.read_bytes(), "image/png"),),
            files=(
                OutputFile("年假每满一年多一天。".encode("gb18030"), "rules.txt"),
                OutputFile(JPEG.read_bytes(), "mail://7/photo\n[x]", "application/octet-stream"),
                OutputFile(b"PK\x03\x04 broken", "b.docx"),
                OutputFile(PDF.read_bytes(), "https://host/core?v=2", "application/pdf"),
            ),
        )

    model = MockLLM([call("mailbox"), "Read."])
    async with Agent(
        model, tools=[mailbox], output_tokens=300, journal=Journal(tmp_path / "runs.db")
    ) as agent:
        run = (await agent.run("What came by mail?")).or_raise()
        (message,) = [each for each in model.calls[-1].messages if isinstance(each, ToolMessage)]
        number = message.text.partition("/blobs/")[2].partition("]")[0]
        whole = (await agent.journal.blob(run.run_id, int(number)))[0].decode()

    assert message.text.startswith("Four attachments.\n\n[text of rules.txt]\n年假每满一年多一天。")
    assert "\n\n[mail://7/photo [x]: the image that follows]\n\n" in message.text
    assert "[b.docx is not shown: b.docx cannot be read as a Word document: " in message.text
    assert "[text of https://host/core?v=2]\n" in message.text
    assert [each.media_type for each in message.parts if isinstance(each, ImagePart)] == [
        "image/png",
        "image/jpeg",
    ]
    assert "Apollo Guidance Computer" in whole


async def test_texts_that_are_very_long_together_are_truncated():
    files = [OutputFile(b"word " * 30_000, name) for name in ("a.txt", "b.txt", "c.txt")]

    read = await read_files(ToolOutput("", files=tuple(files)))

    assert read.files == ()
    assert "[50,000 of 150,000 characters shown]\n\n[text of c.txt]\n …\n\n[0 of 150,000" in read.text


async def test_a_model_reads_the_document_that_a_server_links_to(tmp_path: Path):
    says, uri = tmp_path / "says.json", "docs://7/core-rope-memory.pdf"
    link = {"type": "resource_link", "uri": uri, "name": "memory", "mimeType": "application/pdf"}
    pdf = {"blob": base64.b64encode(PDF.read_bytes()).decode(), "mimeType": "application/pdf"}
    find = {"name": "find", "inputSchema": {"type": "object"}}
    says.write_text(json.dumps({"tools": [find], "links": [link], "resources": {uri: pdf}}), encoding="utf-8")
    config = ServerConfig(
        name="docs",
        transport="stdio",
        command=sys.executable,
        args=("-S", str(LISTED_SERVER), str(says)),
        trusted=True,
    )
    model = MockLLM([call("docs__find"), call("docs__read_resource", uri=uri), "Read."])
    async with MCPToolRegistry(home=tmp_path, servers=[config]) as registry:
        await registry.load_servers()
        async with Agent(model, tools=registry.tools(), permissions="allow") as agent:
            (await agent.run("What is core rope memory?")).or_raise()
    found, read = model.tool_results

    assert f"[resource {uri} (memory, application/pdf)]" in found
    assert f"[resource {uri}: application/pdf, " in read
    assert f"[text of {uri}]\n" in read
    assert "Apollo Guidance Computer" in read
