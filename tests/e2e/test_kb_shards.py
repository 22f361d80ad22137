"""`loom-kb shard`: a knowledge base that is split, from command to command."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

_DEADLINE = 60.0  # of a killed process's first steps


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of short documents, in English and Chinese."""
    folder = tmp_path / "documents"
    folder.mkdir()
    for n in range(12):
        (folder / f"town{n}.md").write_text(f"# Town {n}\n\nIts river is called Ys{n}.", encoding="utf-8")
    (folder / "丝绸.md").write_text("# 丝绸\n\n丝绸之路从长安出发。", encoding="utf-8")
    return folder


def test_all_commands_work_with_the_name_of_what_was_split_or_say_what_to_do(loom_kb, folder: Path):
    def ask(*arguments: str | Path) -> Any:
        done = loom_kb(*arguments, "--json")
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    ask("add", folder, "--kb", "notes")
    split = ask("shard", "notes", "--into", "3")
    assert split["shards"] == ["notes_shard_1", "notes_shard_2", "notes_shard_3"]
    assert split["next"] == "loom-kb shard notes --delete-original"
    (listed,) = ask("list")["sources"]
    assert (listed["name"], listed["documents"]) == ("notes", 13)
    assert len(ask("list", "--kb", "notes")["documents"]) == 13
    assert ask("query", "长安", "--kb", "notes", "--limit", "1")["passages"][0]["title"] == "丝绸"
    (folder / "town3.md").write_text("# Town 3\n\nIts river dried up.", encoding="utf-8")
    (folder / "town4.md").unlink()
    (folder / "new.md").write_text("# Nowhere\n\nA place without water.", encoding="utf-8")
    job = ask("sync", folder, "--kb", "notes")["job"]
    assert job["counts"] == {"added": 1, "updated": 1, "unchanged": 11, "removed": 1}
    assert (job["source"], job["state"]) == ("notes", "done")
    assert [each["id"] for each in ask("jobs")["jobs"]].count(job["id"]) == 1
    (found,) = ask("query", "Which river dried up?", "--limit", "1")["passages"]
    assert (found["source"], found["title"]) == ("notes", "Town 3")
    assert ask("remove", str(folder / "new.md"), "--kb", "notes")["removed"][0]["title"] == "Nowhere"
    stats = ask("stats", "--kb", "notes")
    assert (stats["documents"], stats["shards"]) == (12, 3)
    assert loom_kb("check", "--kb", "notes").stdout.decode().count("no problems found") == 3
    for command in ("overview", "duplicates", "rebuild", "aliases"):
        refused = loom_kb(command, "--kb", "notes")
        assert refused.returncode == 1
        assert "Name one of them: notes_shard_1 to notes_shard_3" in refused.stderr.decode()
    assert loom_kb("overview", "--kb", "notes_shard_1").returncode == 0
    assert ask("shard", "notes", "--delete-original")["deleted"]
    assert ask("query", "长安", "--limit", "1")["passages"][0]["title"] == "丝绸"
    assert ask("remove", "--all", "--kb", "notes")["removed"] == "notes"
    assert ask("list")["sources"] == []


def test_a_splitting_that_was_killed_goes_on_when_it_is_called_again(loom_kb, home: Path, folder: Path):
    loom_kb("add", folder, "--kb", "notes")
    line = ["shard", "notes", "--into", "3", "--home", str(home), "--embedder", "hashing"]
    process = subprocess.Popen([sys.executable, "-m", "loom_kb", *line], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + _DEADLINE
    while not (home / "kb" / "notes_shard_3" / "record.db").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    done = loom_kb("shard", "notes", "--into", "3", "--json")
    assert done.returncode == 0, done.stderr.decode()
    assert len(json.loads(loom_kb("list", "--kb", "notes", "--json").stdout)["documents"]) == 13
    assert loom_kb("check", "--kb", "notes").returncode == 0
