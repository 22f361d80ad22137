"""`loom-kb aliases` as a person runs it, and what the `graph` tool then says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

NOTES = {
    "weather.md": (
        "# Weather\n\nIn 1950 the World Meteorological Organization (WMO) has its seat in Geneva. "
        "Anna Berg worked for the WMO in Lisbon."
    ),
    "學校.md": "# 學校\n\n國立臺灣大學（簡稱臺大）位於臺北市。臺大的圖書館很大。",
    "校园.md": "# 校园\n\n国立台湾大学（简称台大）位于台北市。李明在台大教书。",
}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, text in NOTES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def listed(loom_kb, *arguments: str) -> list[set[str]]:
    done = loom_kb("aliases", "--json", *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return [set(group["names"]) for group in json.loads(done.stdout)["groups"]]


def test_merges_are_listed_with_what_they_rest_on(loom_kb, notes: Path):
    loom_kb("add", notes)
    shown = loom_kb("aliases").stdout.decode()
    assert "WMO is an acronym of World Meteorological Organization" in shown
    assert "“World Meteorological Organization (WMO” [" in shown
    assert " is said to be another name of " in shown
    assert "“國立臺灣大學（簡稱臺大” [" in shown
    merged, scripts = shown.split("Same name in another script\n")
    assert "    國立臺灣大學 = 国立台湾大学\n" in scripts or "    国立台湾大学 = 國立臺灣大學\n" in scripts
    assert "WMO" not in scripts
    assert "WMO" in merged
    told = json.loads(loom_kb("aliases", "--json").stdout)
    assert any(set(names) == {"國立臺灣大學", "国立台湾大学"} for names in told["in_several_scripts"])


def test_a_merge_is_split_for_good_and_taken_back(loom_kb, notes: Path):
    loom_kb("add", notes)
    group = {"WMO", "World Meteorological Organization"}
    assert listed(loom_kb, "WMO") == [group]
    split = loom_kb("aliases", "--split", "WMO", "World Meteorological Organization")
    assert split.returncode == 0, split.stderr.decode()
    assert split.stdout.decode().splitlines() == ["WMO", "World Meteorological Organization"]
    loom_kb("add", "-", stdin=b"Once more: the World Meteorological Organization (WMO) met.")
    assert group not in listed(loom_kb)
    assert listed(loom_kb, "--undecide", "WMO", "World Meteorological Organization") == [group]
    assert group in listed(loom_kb)
    again = loom_kb("aliases", "--undecide", "WMO", "World Meteorological Organization")
    assert (again.returncode, "There is no decision" in again.stderr.decode()) == (1, True)


def test_an_entity_is_hidden_for_good_and_shown_again(loom_kb, notes: Path):
    loom_kb("add", notes)
    hidden = loom_kb("aliases", "--hide", "WMO")
    assert hidden.returncode == 0, hidden.stderr.decode()
    assert hidden.stdout.decode() in {
        "hidden: WMO = World Meteorological Organization\n",
        "hidden: World Meteorological Organization = WMO\n",
    }
    loom_kb("add", "-", stdin=b"Once more: the World Meteorological Organization (WMO) met.")
    assert not any("WMO" in group for group in listed(loom_kb))
    assert loom_kb("aliases", "--hidden").stdout.decode() == "wmo\n"
    assert loom_kb("check").returncode == 0
    shown = loom_kb("aliases", "--unhide", "WMO")
    assert shown.returncode == 0, shown.stderr.decode()
    assert {"WMO", "World Meteorological Organization"} in listed(loom_kb)
    assert "No entity is hidden." in loom_kb("aliases", "--hidden").stderr.decode()
    again = loom_kb("aliases", "--unhide", "WMO")
    assert (again.returncode, again.stderr.decode()) == (1, "'WMO' was not hidden.\n")
    assert "No name is given." in loom_kb("aliases", "--hide").stderr.decode()


def test_names_that_nothing_connects_are_merged_by_hand_in_either_script(loom_kb, notes: Path):
    loom_kb("add", notes)
    assert listed(loom_kb, "--merge", "李明", "Anna Berg") == [{"李明", "Anna Berg"}]
    assert "was merged by you of" in loom_kb("aliases", "李明").stdout.decode()
    # Whichever script a name is given in, it is the same.
    (grown,) = listed(loom_kb, "--merge", "国立台湾大学", "Lisbon")
    assert "Lisbon" in grown
    assert listed(loom_kb, "臺大") == listed(loom_kb, "台大") == [grown]
    assert loom_kb("check").returncode == 0


def test_what_cannot_be_decided_is_refused_with_advice(loom_kb, notes: Path):
    loom_kb("add", notes)
    for arguments, said in {
        ("--merge", "WMO", "没有这个名字"): "There is no entity '没有这个名字'",
        ("Unknown Name",): "There is no entity 'Unknown Name'",
        ("--split", "WMO"): "Two names are needed, not 1",
        ("--split", "國立臺灣大學", "国立台湾大学"): "are spellings of one name",
    }.items():
        refused = loom_kb("aliases", *arguments)
        assert refused.returncode == 1
        assert said in refused.stderr.decode()
        assert "Traceback" not in refused.stderr.decode()


def test_an_empty_knowledge_base_has_nothing_to_list_or_suggest(loom_kb):
    loom_kb("add", "-", stdin="港口很大。".encode())
    assert "No entity has several names yet." in loom_kb("aliases").stderr.decode()
    assert "There is nothing to suggest." in loom_kb("aliases", "--suggested").stderr.decode()


def test_aliases_are_decided_while_a_server_holds_the_knowledge_base(loom_kb, start_kb, notes: Path, until):
    loom_kb("add", notes)
    server = start_kb("--root", str(notes))
    before = server.call("graph", entity="WMO")["structuredContent"]
    assert {before["entity"], *before["also_known_as"]} == {"WMO", "World Meteorological Organization"}
    text = server.call("graph", entity="國立臺灣大學")["content"][0]["text"]
    assert "is also known as: " in text
    assert "臺大" in text
    split = loom_kb("aliases", "--split", "WMO", "World Meteorological Organization")
    assert split.returncode == 0, split.stderr.decode()

    def names() -> list[str]:
        return server.call("graph", entity="WMO")["structuredContent"]["also_known_as"]

    assert until(lambda: names() == [])
    assert loom_kb("aliases", "--undecide", "WMO", "World Meteorological Organization").returncode == 0
    assert until(lambda: names() != [])
