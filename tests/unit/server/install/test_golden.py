"""Each client's configuration, byte for byte, before and after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loom_core.errors import ConfigError
from loom_core.server.install.clients import CLIENTS

if TYPE_CHECKING:
    from tests.unit.server.install.conftest import RunInstall

_BROKEN = {
    "claude-desktop": "3:37: a comma too many",
    "claude-code": "3:27: a comment",
    "cursor": "2:1: the text ends too early",
    "vscode": "4:9: expected a comma or }",
    "codex": "2:18: Expected ']'",
    "gemini-cli": "1:11: NaN is not a JSON number",
    "goose": "3:1: found character '\\t'",
    "zed": "3:3: the name 'vim_mode' is duplicated",
    "windsurf": "3:33: invalid control character",
}

Golden = Callable[[str, str], bytes]
FileOf = Callable[[str], Path]

pytestmark = pytest.mark.parametrize("client", CLIENTS)


def test_without_a_file_one_is_made(
    client: str, run_install: RunInstall, file_of: FileOf, golden: Golden
) -> None:
    report = run_install(client)
    assert (report.action, report.backup) == ("added", None)
    assert file_of(client).read_bytes() == golden(client, "new")


@pytest.mark.parametrize("content", [b"", b"\n"])
def test_an_empty_file_is_filled(
    client: str, content: bytes, run_install: RunInstall, file_of: FileOf, golden: Golden
) -> None:
    file_of(client).write_bytes(content)
    assert run_install(client).action == "added"
    assert file_of(client).read_bytes().lstrip() == golden(client, "new")


def test_other_servers_comments_and_settings_are_kept_byte_for_byte(
    client: str, run_install: RunInstall, run_uninstall: RunInstall, file_of: FileOf, golden: Golden
) -> None:
    before = golden(client, "others.before")
    file_of(client).write_bytes(before)
    report = run_install(client)
    assert report.action == "added"
    assert file_of(client).read_bytes() == golden(client, "others.after")
    assert report.backup is not None
    assert Path(report.backup).read_bytes() == before
    assert Path(report.backup).parent == file_of(client).parent
    assert run_uninstall(client).action == "removed"
    assert file_of(client).read_bytes() == before


def test_a_second_run_changes_nothing(client: str, run_install: RunInstall, file_of: FileOf) -> None:
    run_install(client)
    written = file_of(client).stat().st_mtime_ns
    report = run_install(client)
    assert (report.action, report.backup, report.diff) == ("unchanged", None, "")
    assert "nothing changes" in report.lines()[0]
    assert file_of(client).stat().st_mtime_ns == written
    assert list(file_of(client).parent.glob("*.bak")) == []


def test_what_someone_has_changed_in_the_entry_is_brought_up_to_date_and_additions_stay(
    client: str, run_install: RunInstall, file_of: FileOf, golden: Golden
) -> None:
    file_of(client).write_bytes(golden(client, "changed.before"))
    assert run_install(client).action == "updated"
    assert file_of(client).read_bytes() == golden(client, "changed.after")
    assert run_install(client).action == "unchanged"


def test_additions_of_someone_else_go_by_force_only(
    client: str, run_uninstall: RunInstall, file_of: FileOf, golden: Golden
) -> None:
    file_of(client).write_bytes(golden(client, "changed.before"))
    with pytest.raises(ConfigError, match="holds what `install` does not write"):
        run_uninstall(client)
    assert file_of(client).read_bytes() == golden(client, "changed.before")
    report = run_uninstall(client, "--force")
    assert report.action == "removed"
    assert b"loom-kb" not in file_of(client).read_bytes()
    assert Path(report.backup or "").read_bytes() == golden(client, "changed.before")


def test_a_broken_file_is_refused_with_its_place_and_left_alone(
    client: str, run_install: RunInstall, run_uninstall: RunInstall, file_of: FileOf, golden: Golden
) -> None:
    path = file_of(client)
    path.write_bytes(golden(client, "broken"))
    for run in (run_install, run_uninstall):
        with pytest.raises(ConfigError) as caught:
            run(client)
        assert caught.value.message.startswith(f"{path}:{_BROKEN[client]}")
    assert path.read_bytes() == golden(client, "broken")
    assert list(path.parent.iterdir()) == [path]


def test_no_secret_is_shown_or_reported(
    client: str, run_install: RunInstall, file_of: FileOf, golden: Golden, shown: list[str]
) -> None:
    for name in ("others.before", "changed.before"):
        file_of(client).write_bytes(golden(client, name))
        report = run_install(client)
        assert report.diff == shown[-1] != ""
        assert "not-to-be-shown" not in report.model_dump_json()
