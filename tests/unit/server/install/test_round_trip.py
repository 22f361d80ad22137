"""`uninstall` undoes what `install` changed: byte for byte, in every client's file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loom_core.server.install.clients import CLIENTS, Machine
from loom_core.server.install.json_text import JsonText
from loom_core.server.install.toml_text import TomlText

if TYPE_CHECKING:
    from tests.unit.server.install.conftest import RunInstall

FileOf = Callable[[str], Path]

every_client = pytest.mark.parametrize("client", CLIENTS)


def _befores(client: str) -> list[bytes]:
    """Files as users have them: empty ones, ones with an empty section, with and without a last line end."""
    row = CLIENTS[client]
    section = row.section.encode()
    blank = [b"", b"\n", b"\r\n\r\n", b" "]
    if isinstance(row.format, JsonText):
        comments = (
            [b"// \xe6\x88\x91\xe7\x9a\x84\n", b'{\n  // mine\n  "a": [1,2,],\n}']
            if client not in {"claude-desktop", "claude-code"}
            else []
        )
        return [
            *blank,
            b"{}",
            b"{\n}\n",
            b'{"%s": {}}' % section,
            b'{\r\n\t"a": 1,\r\n\t"%s": {\r\n\t}\r\n}' % section,
            b'{\n  "%s": null,\n  "b": "\xe4\xb8\xad"\n}\n\n\n' % section,
            b'\xef\xbb\xbf{"a": {"%s": {}}}\r\n' % section,
            *(comments if client not in {"claude-desktop", "claude-code"} else ()),
        ]
    if isinstance(row.format, TomlText):
        return [
            *blank,
            b"a = 1",
            b"a = 1\n\n\n",
            b"[%s]\n" % section,
            b"# \xe6\x88\x91\r\n[b]\r\nc = 1\r\n\r\n",
        ]
    return [
        *blank,
        b"a: 1",
        b"%s: {}" % section,
        b"a: 1\n%s:   # mine\n\n" % section,
        b"# \xe6\x88\x91\r\na: 1\r\n",
    ]


def _written(path: Path, client: str) -> Iterator[bytes]:
    """Write a client's file in each of the forms that it may have, without backups of the one before."""
    for before in _befores(client):
        for backup in path.parent.glob("*.bak"):
            backup.unlink()
        path.write_bytes(before)
        yield before


@every_client
def test_a_file_is_the_same_again_byte_for_byte(
    client: str, run_install: RunInstall, run_uninstall: RunInstall, file_of: FileOf
) -> None:
    path = file_of(client)
    for before in _written(path, client):
        assert run_install(client).action == "added"
        assert run_uninstall(client).action == "removed"
        assert path.read_bytes() == before, before


@every_client
def test_it_is_the_same_again_after_an_update_and_after_a_second_server(
    client: str, run_install: RunInstall, run_uninstall: RunInstall, file_of: FileOf
) -> None:
    path = file_of(client)
    for before in _written(path, client):
        run_install(client)
        run_install(client, variables=())
        run_install(client, "--name", "second")
        run_uninstall(client, "--name", "second")
        run_uninstall(client)
        assert path.read_bytes() == before, before


@every_client
def test_a_file_that_install_made_is_gone_with_its_folders(
    client: str, run_install: RunInstall, run_uninstall: RunInstall, machine: Machine
) -> None:
    path = Path(os.fspath(CLIENTS[client].user_file(machine)))
    run_install(client)
    assert path.is_file()
    assert "would be removed" in run_uninstall(client, "--dry-run").lines()[0]
    assert path.is_file()
    report = run_uninstall(client)
    assert (report.action, report.backup) == ("removed", None)
    assert "Nothing else was in the file: it is deleted." in report.lines()
    assert list(Path(machine.home).iterdir()) == []


def test_a_file_of_a_project_is_gone_and_the_project_stays(
    run_install: RunInstall, run_uninstall: RunInstall, machine: Machine
) -> None:
    run_install("vscode", "--scope", "project")
    run_uninstall("vscode", "--scope", "project")
    assert Path(machine.project).is_dir()
    assert list(Path(machine.project).iterdir()) == []


@every_client
def test_what_has_changed_since_stays_and_no_empty_section_is_left(
    client: str,
    run_install: RunInstall,
    run_uninstall: RunInstall,
    file_of: FileOf,
    theirs: Callable[[str], bytes],
) -> None:
    path = file_of(client)
    path.write_bytes(theirs(client))
    run_install(client)
    later = path.read_bytes().replace(b"dark", b"light")
    path.write_bytes(later)
    run_uninstall(client)
    assert path.read_bytes() == theirs(client).replace(b"dark", b"light")


def test_what_a_user_has_put_into_the_entry_is_in_a_backup_when_it_goes_by_force(
    run_install: RunInstall, run_uninstall: RunInstall, file_of: FileOf
) -> None:
    path = file_of("cursor")
    run_install("cursor")
    changed = path.read_bytes().replace(b'"env": {', b'"env": {\n        "MINE": "1",')
    path.write_bytes(changed)
    report = run_uninstall("cursor", "--force")
    assert Path(report.backup or "").read_bytes() == changed
    assert path.read_bytes() == b"{}\n"


def test_a_backup_that_cannot_be_read_is_passed_over(
    run_install: RunInstall, run_uninstall: RunInstall, file_of: FileOf
) -> None:
    path = file_of("zed")
    path.write_bytes(b'{"vim_mode": true}')
    run_install("zed")
    path.with_name("settings.json.29990101-000000.loom.bak").write_bytes(b"\xff{")
    run_uninstall("zed")
    assert path.read_bytes() == b'{"vim_mode": true}'


@pytest.fixture
def theirs() -> Callable[[str], bytes]:
    """A file without a section for servers, which the user changes later."""

    def text(client: str) -> bytes:
        form = CLIENTS[client].format
        if isinstance(form, JsonText):
            return b'{\n    "theme": "dark"\n}\n'
        return b'theme = "dark"\n' if isinstance(form, TomlText) else b"theme: dark\n"

    return text
