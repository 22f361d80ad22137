"""Nothing acknowledged is lost: a server killed while it works, and several on one home."""

from __future__ import annotations

import signal
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills by SIGKILL")

FILES = 768  # some seconds of work, so that a job is seen amid it on a busy machine, too


def listed(server):
    """The addresses of all documents, as often as they are listed."""
    uris, cursor = [], None
    while not uris or cursor:
        page = server.call("sources", source="default", limit=200, **({"cursor": cursor} if cursor else {}))
        uris += [document["uri"] for document in page["structuredContent"]["documents"]]
        cursor = page["structuredContent"].get("next_cursor")
    return uris


def kill_amid(server, folder, until):
    """Adds a folder and kills the server once some of it is in the record; gives the job as last seen."""
    server.send_request("tools/call", {"name": "add", "arguments": {"paths": [str(folder)]}})

    def amid():
        jobs = server.call("job")["structuredContent"]["jobs"]
        return next((job for job in jobs if 0 < job["processed"] < job["total"]), None)

    job = until(amid)
    server.terminate(signal.SIGKILL)
    return job


@pytest.mark.slow
def test_a_job_of_a_killed_server_is_finished_by_the_next_one(start_kb, write_lighthouses, until):
    folder = write_lighthouses(FILES)
    interrupted = kill_amid(start_kb("--root", folder), folder, until)
    assert interrupted["total"] == FILES

    server = start_kb("--root", folder, era="legacy")
    resumed = server.call("job", id=interrupted["id"])["structuredContent"]["jobs"][0]
    assert resumed["processed"] >= interrupted["processed"]
    done = server.call("job", id=interrupted["id"], action="wait")["structuredContent"]["jobs"][0]
    assert done["state"] == "done"
    assert done["counts"] == {"added": FILES}

    uris = listed(server)
    assert len(uris) == len(set(uris)) == FILES

    def covered():
        content = server.call("query", query="boats", limit=1)["structuredContent"]
        return "total" not in content  # which is told as long as vectors are missing

    assert until(covered)

    for number in (0, FILES // 2, FILES - 1):
        asked = server.call("query", query=f"Who is the keeper of Lighthouse {number}?", limit=1)
        assert asked["structuredContent"]["passages"][0]["title"] == f"Lighthouse {number}"


@pytest.mark.slow
def test_another_server_takes_over_from_a_killed_one(start_kb, write_lighthouses, until):
    folder = write_lighthouses(FILES)
    first = start_kb("--root", folder)
    first.call("add", text="# Pier\n\nThe pier is of stone.")
    second = start_kb("--root", folder)
    second.call("query", query="pier")  # has it open, and waits for its turn
    interrupted = kill_amid(first, folder, until)
    done = second.call("job", id=interrupted["id"], action="wait")["structuredContent"]["jobs"][0]
    assert done["counts"] == {"added": FILES}
    uris = listed(second)
    assert len(uris) == len(set(uris)) == FILES + 1


def settled(server, added):
    """The job of an `add`, when it is no longer under way: on a busy machine that takes a while."""
    id_ = added["structuredContent"]["job"]["id"]
    return server.call("job", id=id_, action="wait")["structuredContent"]["jobs"][0]


def test_two_servers_on_one_home_both_answer_and_both_add(start_kb):
    first, second = start_kb(), start_kb(era="legacy")
    first.call("add", text="# Pier\n\nThe pier is made of granite from Holm.", uri="note:pier")
    added = second.call("add", text="# 青岛港\n\n青岛港位于山东省。", uri="note:青岛港")
    assert settled(second, added)["state"] == "done"
    for server in (first, second):
        english = server.call("query", query="What is the pier made of?")["structuredContent"]
        chinese = server.call("query", query="青岛港位于哪里？")["structuredContent"]
        assert english["passages"][0]["uri"] == "note:pier"
        assert chinese["passages"][0]["uri"] == "note:青岛港"
        around = server.call("graph", entity="青岛港")["structuredContent"]
        assert "山东省" in {entity["name"] for entity in around["entities"]}
    second.call("remove", ids=["note:pier"])
    gone = first.call("query", query="What is the pier made of?")["structuredContent"]
    assert not gone["passages"]  # the hashing embedder compares nothing across languages
    assert first.call("query", query="青岛港位于哪里？")["structuredContent"]["passages"]
    assert first.close_input() == 0
    after = second.call("add", text="# Quay\n\nThe quay is of oak.")
    assert settled(second, after)["state"] == "done"
    assert second.close_input() == 0
