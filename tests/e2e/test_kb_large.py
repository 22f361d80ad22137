"""Much at once: the server answers at once, works on in the background, and stops when it is told to."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

FILES = 5000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of so many small files, half of them Chinese."""
    for number in range(FILES):
        part = tmp_path / "notes" / str(number // 500)
        part.mkdir(parents=True, exist_ok=True)
        text = f"第{number}座灯塔位于青岛。" if number % 2 else f"Lighthouse {number} stands on a cape."
        (part / f"{number}.md").write_text(text, encoding="utf-8")
    return tmp_path / "notes"


def test_a_large_folder_is_acknowledged_within_seconds_and_cancelled_within_two(start_kb, folder: Path):
    server = start_kb("--root", folder)
    server.request(
        "tools/list"
    )  # as a host does first: the handshake is answered before the server has loaded
    began = time.monotonic()
    job = server.call("add", paths=["."])["structuredContent"]["job"]
    assert time.monotonic() - began <= 5
    assert job["state"] in {"queued", "listing", "running"}
    began = time.monotonic()
    assert server.call("job_cancel", id=job["id"])["structuredContent"]["state"] == "cancelled"
    done = server.call("job", id=job["id"], action="wait")["structuredContent"]["jobs"][0]
    assert time.monotonic() - began <= 2
    assert done["state"] == "cancelled"
    listed = server.call("sources", source="default")["structuredContent"]
    assert len(listed["documents"]) <= done["counts"].get("added", 0)
    assert server.close_input() == 0


def test_a_file_larger_than_any_document_may_be_is_refused_alone(start_kb, folder: Path):
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(300 << 20)  # takes no room on the disk
    server = start_kb("--root", folder)
    server.request("tools/list")
    began = time.monotonic()
    job = server.call("add", paths=["huge.txt", "0/0.md"])["structuredContent"]["job"]
    assert time.monotonic() - began <= 5
    done = server.call("job", id=job["id"], action="wait")["structuredContent"]["jobs"][0]
    assert done["counts"] == {"added": 1, "failed": 1}
    assert "more than a document may" in done["problems"][0]
    assert server.close_input() == 0
