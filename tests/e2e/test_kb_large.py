"""Much at once: the server answers before it has read all, works on in the background, and can be stopped."""

from __future__ import annotations

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


def test_a_large_folder_is_acknowledged_before_it_is_read_and_can_be_cancelled(start_kb, folder: Path):
    server = start_kb("--root", folder)
    job = server.call("add", paths=["."])["structuredContent"]["job"]
    assert job["state"] in {"queued", "listing", "running"}
    assert server.call("job_cancel", id=job["id"])["structuredContent"]["state"] == "cancelled"
    done = server.call("job", id=job["id"], action="wait")["structuredContent"]["jobs"][0]
    assert done["state"] == "cancelled"
    assert done["counts"].get("added", 0) < FILES
    listed = server.call("sources", source="default")["structuredContent"]
    assert len(listed["documents"]) <= done["counts"].get("added", 0)
    assert server.close_input() == 0


def test_a_file_larger_than_any_document_may_be_is_refused_alone(start_kb, tmp_path: Path):
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(300 << 20)  # takes no room on the disk
    (tmp_path / "note.md").write_text("Lighthouse 0 stands on a cape.", encoding="utf-8")
    server = start_kb("--root", tmp_path)
    job = server.call("add", paths=["huge.txt", "note.md"])["structuredContent"]["job"]
    done = server.call("job", id=job["id"], action="wait")["structuredContent"]["jobs"][0]
    assert done["counts"] == {"added": 1, "failed": 1}
    assert "more than a document may" in done["problems"][0]
    assert server.close_input() == 0
