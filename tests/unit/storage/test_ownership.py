"""Who works on a folder: the lock decides, `owner.json` only says more about it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from loom_core.storage.ownership import (
    Holder,
    OwnerCard,
    holder_of,
    lock_of,
    read_card,
    remove_card,
    write_card,
)

CARD = OwnerCard(
    protocol=1,
    pid=os.getpid(),
    program="loom-kb",
    version="1.2",
    since=1000.5,
    transport="unix",
    place="/run/知识.sock",
    secret="5ec4e7",
)


def test_what_is_written_down_is_read_again_by_its_owner_only(tmp_path: Path):
    write_card(tmp_path, CARD)
    assert read_card(tmp_path) == CARD
    assert CARD.address.place == "/run/知识.sock"
    assert stat.S_IMODE((tmp_path / "owner.json").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["owner.json"]
    assert "5ec4e7" not in repr(CARD)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"pid": 1', b"\xff\xfe", b"[" * 100_000, b"0" * 100_000])
def test_what_cannot_be_read_is_nothing(tmp_path: Path, content: bytes):
    assert read_card(tmp_path) is None
    (tmp_path / "owner.json").write_bytes(content)
    assert read_card(tmp_path) is None


def test_only_ones_own_words_are_taken_back(tmp_path: Path):
    write_card(tmp_path, CARD)
    other = CARD.model_copy(update={"secret": "another"})
    remove_card(tmp_path, other)
    assert read_card(tmp_path) == CARD
    remove_card(tmp_path, CARD)
    remove_card(tmp_path, CARD)
    assert read_card(tmp_path) is None


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path):
    (tmp_path / "owner.json").mkdir()
    with pytest.raises(OSError, match="owner"):
        write_card(tmp_path, CARD)
    assert [path.name for path in tmp_path.iterdir()] == ["owner.json"]


def test_the_holder_is_told_with_what_it_says_of_itself(tmp_path: Path):
    assert holder_of(tmp_path) is None
    lock = lock_of(tmp_path)
    assert lock.acquire()
    assert holder_of(tmp_path) == Holder(os.getpid())
    write_card(tmp_path, CARD)
    assert holder_of(tmp_path) == Holder(os.getpid(), "loom-kb", "1.2", 1000.5)
    assert str(holder_of(tmp_path)) == f"loom-kb (process {os.getpid()})"
    lock.release()
    assert holder_of(tmp_path) is None  # whatever is still written there
    assert str(Holder(7)) == "a program (process 7)"


def test_what_a_killed_owner_said_is_not_taken_for_what_the_next_one_is(tmp_path: Path):
    write_card(tmp_path, CARD)
    program = (
        "import sys; from pathlib import Path; from loom_core.storage.ownership import lock_of\n"
        "lock = lock_of(Path(sys.argv[1])); print(lock.acquire(), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == b"True"
        assert holder_of(tmp_path) == Holder(other.pid)
        other.kill()
