from __future__ import annotations

from pathlib import Path

import pytest
from loom_kb.cli import run

from loom_core.embedding.registry import requirement_of


@pytest.mark.skipif(bool(requirement_of("static")), reason="wordllama is not installed")
def test_a_change_of_the_embedder_is_shown_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    home = ["--home", str(tmp_path / "home")]
    (tmp_path / "note.md").write_text("The quay stays closed.\n\n台风期间码头关闭。", encoding="utf-8")
    assert run(["add", str(tmp_path / "note.md"), *home, "--embedder", "hashing"]) == 0
    capsys.readouterr()
    assert run(["rebuild", *home, "--embedder", "static"]) == 0
    told = capsys.readouterr()
    assert "1/1 passages" in told.err
    assert "0/1 passages" not in told.err
