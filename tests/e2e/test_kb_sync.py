"""`loom-kb sync`, once and watching, `jobs` and `duplicates`, as a person uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "笔记"
    folder.mkdir()
    (folder / "a.md").write_text("# 灯塔\n\n灯塔的看守人是李明。", encoding="utf-8")
    (folder / "b.md").write_text("# Harbour\n\nThe harbour of Veld has two piers.", encoding="utf-8")
    return folder


def test_a_folder_is_brought_in_step_and_the_jobs_are_told(loom_kb, folder):
    done = loom_kb("sync", folder, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["job"]["counts"] == {"added": 2}
    (folder / "a.md").rename(folder / "a2.md")
    (folder / "b.md").write_text("# 灯塔\n\n灯塔的看守人是李明。", encoding="utf-8")
    (folder / "d.pdf").write_bytes(b"%PDF-1.7 and nothing")
    done = loom_kb("sync", folder, "--json")
    assert done.returncode == 3
    job = json.loads(done.stdout)["job"]
    assert job["counts"] == {"moved": 1, "updated": 1, "failed": 1}
    assert job["finished_at"] >= job["started_at"]
    told = loom_kb("jobs", job["id"]).stdout.decode()
    assert "d.pdf" in told
    assert "b.md: same text as" in told
    listed = json.loads(loom_kb("jobs", "--json").stdout)["jobs"]
    assert [each["state"] for each in listed] == ["done", "done"]
    (group,) = json.loads(loom_kb("duplicates", "--json").stdout)["groups"]
    assert group["likeness"] == 1
    assert {each["uri"].rpartition("/")[2] for each in group["documents"]} == {"a2.md", "b.md"}


def test_a_folder_that_is_gone_empties_nothing_unless_asked_to(loom_kb, folder):
    loom_kb("sync", folder)
    folder.rename(folder.with_name("away"))
    refused = loom_kb("sync", folder)
    assert refused.returncode == 1
    assert b"--allow-empty" in refused.stderr
    done = loom_kb("sync", folder, "--allow-empty", "--json")
    assert json.loads(done.stdout)["job"]["counts"] == {"removed": 2}


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGTERM")
@pytest.mark.parametrize("end", ["SIGTERM", "SIGINT"])
def test_watching_tells_every_change_and_ends_cleanly(home, folder, end):
    command = [sys.executable, "-m", "loom_kb", "sync", "--home", home, "--embedder", "hashing"]
    with subprocess.Popen(
        [*command, "--watch", folder], stdout=subprocess.PIPE, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        try:
            assert process.stdout is not None
            assert sorted(process.stdout.readline().decode().split()[0] for _ in range(2)) == ["added"] * 2
            (folder / "新.md").write_text("A new one.", encoding="utf-8")
            line = process.stdout.readline().decode()
            assert line.startswith("added")
            assert line.rstrip().endswith("新.md")
            (folder / "b.md").unlink()
            assert process.stdout.readline().decode().startswith("removed")
            process.send_signal(getattr(signal, end))
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_a_server_keeps_a_folder_in_step_and_another_takes_over(start_kb, folder, until):
    first = start_kb("--watch", folder)
    second = start_kb("--watch", folder)

    def titles(server):
        listed = server.call("sources", source="default")["structuredContent"]["documents"]
        return {document["title"] for document in listed}

    until(lambda: (folder.parent / "home" / "kb" / "default" / "record.db").exists())
    until(lambda: titles(second) == {"灯塔", "Harbour"})
    (folder / "b.md").write_text("# Changed\n\nAnother text.", encoding="utf-8")
    until(lambda: titles(second) == {"灯塔", "Changed"})
    first.close_input()
    (folder / "b.md").write_text("# Once more\n\nYet another text.", encoding="utf-8")
    until(lambda: titles(second) == {"灯塔", "Once more"})
