"""The numbers of a server in a file."""

from __future__ import annotations

import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loom_core.errors import ConfigError
from loom_core.observability.families import ITERATIONS
from loom_core.server.serving.metrics_file import maintain_metrics

if TYPE_CHECKING:
    from loom_core.server.protocol.factory import LoomServer


def soon(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    ends = time.monotonic() + 20
    while not done():
        assert time.monotonic() < ends
        time.sleep(0.005)


def test_the_file_is_there_at_once_follows_and_has_the_last_number(sample: LoomServer, tmp_path: Path):
    path = tmp_path / "loom.prom"
    with maintain_metrics(path, sample, every_seconds=0.01):
        assert 'loom_iterations_total{loom_server="sample"} 0\n' in path.read_text(encoding="utf-8")
        sample.metrics.add(ITERATIONS)
        soon(lambda: 'loom_iterations_total{loom_server="sample"} 1\n' in path.read_text(encoding="utf-8"))
    with maintain_metrics(path, sample, every_seconds=3600):
        sample.metrics.add(ITERATIONS)
    assert 'loom_iterations_total{loom_server="sample"} 2\n' in path.read_text(encoding="utf-8")
    assert [each.name for each in tmp_path.iterdir()] == ["loom.prom"], "nothing half is left"


def test_a_reader_never_sees_half_of_it(sample: LoomServer, tmp_path: Path):
    path = tmp_path / "loom.prom"
    with maintain_metrics(path, sample, every_seconds=0.001):
        for _ in range(200):
            assert path.read_text(encoding="utf-8").endswith(
                "loom_tool_execution_duration_seconds histogram\n"
            )


@pytest.mark.skipif(os.name == "nt", reason="modes are those of POSIX")
def test_the_collector_which_is_another_user_may_read_it(sample: LoomServer, tmp_path: Path):
    with maintain_metrics(tmp_path / "loom.prom", sample):
        assert stat.S_IMODE((tmp_path / "loom.prom").stat().st_mode) == 0o644


def test_processes_of_one_server_have_files_of_their_own_that_go_with_them(
    sample: LoomServer, tmp_path: Path
):
    path = tmp_path / f"loom-{os.getpid()}.prom"
    with maintain_metrics(tmp_path / "loom-{pid}.prom", sample):
        labels = f'{{loom_server="sample",pid="{os.getpid()}"}}'
        assert f"loom_iterations_total{labels} 0\n" in path.read_text(encoding="utf-8")
    assert not path.exists()


def test_a_file_that_cannot_be_written_is_told_at_the_start(sample: LoomServer, tmp_path: Path):
    with (
        pytest.raises(
            ConfigError, match=r"loom\.prom cannot be written: .*Name a file in a folder that is there"
        ),
        maintain_metrics(tmp_path / "nowhere" / "loom.prom", sample),
    ):
        pass


def test_a_folder_that_goes_meanwhile_is_told_once_and_ends_nothing(
    sample: LoomServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING)
    folder = tmp_path / "here"
    folder.mkdir()
    path = folder / "loom.prom"
    with maintain_metrics(path, sample, every_seconds=0.005):
        path.unlink()
        folder.rename(tmp_path / "there")
        soon(lambda: "cannot be written" in caplog.text)
        (tmp_path / "there").rename(folder)
        soon(path.exists)
    assert caplog.text.count("cannot be written") == 1


def test_what_a_killed_process_has_left_is_removed_and_nothing_else(sample: LoomServer, tmp_path: Path):
    left, young, other = (tmp_path / name for name in ("loom-12.prom", "loom-13.prom", "loom-of-12.prom"))
    for each in (left, young, other):
        each.write_text("x", encoding="utf-8")
    hour_ago = time.time() - 3600
    os.utime(left, (hour_ago, hour_ago))
    os.utime(other, (hour_ago, hour_ago))
    with maintain_metrics(tmp_path / "loom-{pid}.prom", sample):
        assert not left.exists()
        assert young.exists()
        assert other.exists()
    (tmp_path / "loom-14.prom").write_text("x", encoding="utf-8")
    with maintain_metrics(tmp_path / "loom-{pid}.prom", sample, every_seconds=0.01):
        soon(lambda: not (tmp_path / "loom-14.prom").exists())
