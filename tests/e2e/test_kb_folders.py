"""Folders of files through the tool `add`: every format, broken files, large folders."""

from __future__ import annotations

import shutil
import time

import pytest

ADD_SECONDS = 5.0  # in which `add` gives at least a handle


def add_folder(server, folder, **arguments):
    """Adds a folder and waits until the job is done."""
    job = server.call("add", paths=[str(folder)], **arguments)["structuredContent"]["job"]
    return server.call("job", id=job["id"], action="wait")["structuredContent"]["jobs"][0]


@pytest.fixture
def mixed(documents, tmp_path):
    """Real files of many formats, with some that cannot be read."""
    folder = shutil.copytree(documents, tmp_path / "mixed", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing")
    (folder / "broken.docx").write_bytes(b"PK\x03\x04 not a package")
    (folder / "empty.md").touch()
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (folder / "国标.txt").write_bytes("青岛港的港长是李明。".encode("gb18030"))
    return folder


def test_a_folder_of_mixed_files_is_added_and_what_cannot_be_read_is_a_line_each(start_kb, mixed, until):
    server = start_kb("--root", mixed)
    job = add_folder(server, mixed)
    assert job["state"] == "done"
    assert job["total"] == sum(1 for _ in mixed.iterdir())
    # All of them: those that failed, and by the cursor those that were skipped.
    rest = server.call("job", id=job["id"], cursor=job["next_cursor"])["structuredContent"]["jobs"][0]
    job["problems"] += rest.get("problems", [])
    assert job["counts"]["added"] + len(job["problems"]) == job["total"]
    assert all("\n" not in problem for problem in job["problems"])
    problems = {path.name: [p for p in job["problems"] if path.name in p] for path in mixed.iterdir()}
    for name in ("broken.pdf", "broken.docx", "empty.md", "photo.png", "encrypted.pdf", "scan.pdf"):
        assert len(problems[name]) == 1, name
    assert problems["harbour.pdf"] == problems["国标.txt"] == []
    assert [p.partition(":")[0] for p in job["problems"]] == sorted(
        p.partition(":")[0] for p in job["problems"]
    ), "what failed comes before what was skipped"

    listed = server.call("sources", source="default", limit=200)["structuredContent"]["documents"]
    assert len({document["uri"] for document in listed}) == job["counts"]["added"]

    def covered():
        return "total" not in server.call("query", query="harbour")["structuredContent"]

    until(covered)
    for question, name, page in [
        ("Who founded the harbour of Veld?", "harbour.pdf", 1),
        ("青岛港的港长是谁？", "%E5%9B%BD%E6%A0%87.txt", None),
        ("维尔德港是什么时候建的？", "%E6%B8%AF%E5%8F%A3.pdf", 1),
    ]:
        found = server.call("query", query=question)["structuredContent"]["passages"]
        assert (name, page) in {(p["uri"].rpartition("/")[2], p.get("page")) for p in found[:3]}, question


def test_the_same_folder_again_is_unchanged_and_only_what_changed_is_read_anew(start_kb, tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("one", "two", "three"):
        (folder / f"{name}.md").write_text(f"# {name}\n\nThe first text of {name}.", encoding="utf-8")
    server = start_kb("--root", folder)
    assert add_folder(server, folder)["counts"] == {"added": 3}
    assert add_folder(server, folder)["counts"] == {"unchanged": 3}
    (folder / "two.md").write_text("# two\n\nA second text, about whales.", encoding="utf-8")
    assert add_folder(server, folder)["counts"] == {"unchanged": 2, "updated": 1}
    found = server.call("query", query="Which text is about whales?", filters={"path": str(folder)})
    assert found["structuredContent"]["passages"][0]["title"] == "two"


def test_skipped_files_are_counted_by_reason_and_type_and_a_cursor_names_each(start_kb, tmp_path):
    folder = tmp_path / "照片"
    folder.mkdir()
    for i in range(60):
        (folder / f"图{i}.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "old.DOC").write_bytes(b"old")
    (folder / "空.md").write_bytes(b"")
    for i in range(12):
        (folder / f"z-broken{i:02}.pdf").write_bytes(b"%PDF-1.7")
    server = start_kb("--root", folder)
    job = add_folder(server, folder)
    assert [(each["count"], each["types"]) for each in job["skipped"]] == [
        (60, {".png": 60}),
        (1, {".doc": 1}),
        (1, {".md": 1}),
    ]
    assert len(job["problems"]) == 10
    assert all("z-broken" in problem for problem in job["problems"])
    told = server.call("job", id=job["id"])["content"][0]["text"]
    assert "skipped 60 × .png: unsupported type. Convert it to PDF" in told
    assert told.count("Convert it to PDF") == 1
    assert "skipped 1 × .doc: unsupported type. Save it as .docx." in told
    assert f'[2 more failed: job(id="{job["id"]}", cursor="{job["next_cursor"]}")]' in told
    assert told.count("\n") == 3 + 10 + 1
    named, cursor = [], job["next_cursor"]
    while cursor:
        page = server.call("job", id=job["id"], cursor=cursor)["structuredContent"]["jobs"][0]
        assert "skipped" not in page
        named += page["problems"]
        cursor = page.get("next_cursor")
    assert [problem.partition(":")[0] for problem in named] == ["failed"] * 2 + ["skipped"] * 62
    assert len({*named, *job["problems"]}) == 74
    assert any("图59.png" in problem for problem in named)


def test_a_list_of_jobs_names_each_failed_file_once_and_goes_on_by_cursor(start_kb, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7")
    server = start_kb("--root", folder)
    ids = [server.call("add", text=f"# {i}")["structuredContent"]["job"]["id"] for i in range(9)]
    ids += [add_folder(server, folder)["id"] for _ in range(2)]
    first = server.call("job")
    listed = first["structuredContent"]["jobs"]
    assert [each["id"] for each in listed] == ids[:0:-1]
    cursor = first["structuredContent"]["next_cursor"]
    assert f'[older jobs: job(cursor="{cursor}")]' in first["content"][0]["text"]
    rest = server.call("job", cursor=cursor)["structuredContent"]
    assert [each["id"] for each in rest["jobs"]] == ids[:1]
    assert "next_cursor" not in rest
    assert first["content"][0]["text"].count("broken.pdf") == 1
    assert f'[1 failed: job(id="{ids[-2]}")]' in first["content"][0]["text"]


@pytest.mark.slow
def test_a_large_folder_goes_on_in_the_background_and_can_be_asked_meanwhile(start_kb, write_lighthouses):
    folder = write_lighthouses(2000)
    server = start_kb("--root", folder)
    started = time.monotonic()
    added = server.call("add", paths=["."])
    assert time.monotonic() - started < ADD_SECONDS
    job = added["structuredContent"]["job"]
    assert job["state"] == "running"
    assert f'Ask job(id="{job["id"]}")' in added["content"][0]["text"]

    content = answer = {}
    while not content.get("passages"):
        assert time.monotonic() - started < 60
        answer = server.call("query", query="Who is the keeper of Lighthouse 0?")
        content = answer["structuredContent"]
    assert content["passages"][0]["title"] == "Lighthouse 0"
    assert content.get("embedded", 0) < content["total"]
    assert f"{content['total']:,} passages have vectors so far" in answer["content"][0]["text"]

    later = server.call("job", id=job["id"])["structuredContent"]["jobs"][0]
    assert later["processed"] > 0
    assert server.call("job_cancel", id=job["id"])["structuredContent"]["state"] == "cancelled"
    cancelled = server.call("job", id=job["id"])["structuredContent"]["jobs"][0]
    assert cancelled["state"] == "cancelled"
    assert cancelled["counts"]["skipped"] > 0
    listed = server.call("sources")["structuredContent"]["sources"][0]
    assert 0 < listed["documents"] < 2000


@pytest.mark.slow
def test_waiting_for_a_job_reports_progress(start_kb, write_lighthouses):
    folder = write_lighthouses(300)
    server = start_kb("--root", folder)
    params = {"name": "add", "arguments": {"paths": ["."]}, "_meta": {"progressToken": "p"}}
    server.request("tools/call", params)
    job = server.call("job")["structuredContent"]["jobs"][0]
    server.call("job", id=job["id"], action="wait")
    told = [m["params"] for m in server.notifications if m["method"] == "notifications/progress"]
    values = [message["progress"] for message in told]
    assert values == sorted(set(values))
    assert {message["progressToken"] for message in told} == {"p"}
    assert any(message["message"].endswith("of 300 documents") for message in told)
