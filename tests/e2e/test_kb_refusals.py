"""Errors of `loom-kb`: always a result with `isError`, a reason and advice, never a traceback."""

from __future__ import annotations

import sys

import pytest

from tests.e2e.jsonrpc import JsonRpcError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="makes symbolic links")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Return an allowed folder with links to a file outside it, which is not allowed."""
    folder = tmp_path_factory.mktemp("roots")
    root = folder / "allowed"
    root.mkdir()
    (folder / "secret.txt").write_text("The secret word is xyzzy.", encoding="utf-8")
    (root / "note.md").write_text("# Note\n\nNothing secret.", encoding="utf-8")
    (root / "link.txt").symlink_to(folder / "secret.txt")
    (root / "up").symlink_to(folder)
    (root / "loop").symlink_to(root / "loop")
    return root


@pytest.fixture(scope="module")
def server(shared_kb, root):
    with shared_kb("--root", root) as server:
        server.call("add", text="# Note\n\nThe harbour is old.", source="notes")
        yield server
        assert "Traceback" not in server.stderr


@pytest.fixture(scope="module")
def rootless(shared_kb):
    with shared_kb() as server:
        yield server
        assert "Traceback" not in server.stderr


def refusal(result):
    assert result.get("isError") is True, result
    (content,) = result["content"]
    assert "Internal error" not in content["text"]
    assert "Traceback" not in content["text"]
    return content["text"]


BAD_ARGUMENTS = {
    "an unknown argument": ("query", {"query": "x", "sorce": "notes"}, "did you mean `source`"),
    "no query": ("query", {}, "`query` is required"),
    "an empty query": ("query", {"query": ""}, "at least 1 character"),
    "a blank query": ("query", {"query": " \n\u3000"}, "The question is empty."),
    "limit 0": ("query", {"query": "x", "limit": 0}, "greater than or equal to 1, got 0"),
    "a limit that is no number": ("query", {"query": "x", "limit": "many"}, "valid integer"),
    "a tiny budget": ("query", {"query": "x", "max_tokens": 10}, "greater than or equal to 200"),
    "another format": ("query", {"query": "x", "response_format": "xml"}, "'concise' or 'detailed'"),
    "an unknown source": ("query", {"query": "x", "source": "nots"}, "There are: notes."),
    "a source like a path": ("query", {"query": "x", "source": "../notes"}, "without slashes"),
    "an unknown filter": ("query", {"query": "x", "filters": {"colour": "red"}}, "Use: source, path, "),
    "an unknown operator": (
        "query",
        {"query": "x", "filters": {"title": {"like": "a"}}},
        "no operator 'like'",
    ),
    "a filter without values": ("query", {"query": "x", "filters": {"title": []}}, "allows no value"),
    "filters that are no conditions": ("query", {"query": "x", "filters": ["a"]}, "not a condition"),
    "an unknown id": ("fetch", {"id": "d0"}, "Take an id from `query` or `sources`."),
    "a negative start": ("fetch", {"id": "d0", "start": -1}, "greater than or equal to 0"),
    "an unknown source to list": ("sources", {"source": "x"}, "There are: notes."),
    "a cursor that is none": ("sources", {"source": "notes", "cursor": "zz"}, "Use `next_cursor`"),
    "a negative cursor": ("sources", {"source": "notes", "cursor": "-1"}, "Use `next_cursor`"),
    "a cursor past all numbers": ("sources", {"source": "notes", "cursor": "9" * 40}, "Use `next_cursor`"),
    "neither text nor paths": ("add", {}, "Give one of `text` and `paths`."),
    "text and paths": ("add", {"text": "x", "paths": ["note.md"]}, "Give one of `text` and `paths`."),
    "text and urls": ("add", {"text": "x", "urls": ["https://example.com/"]}, "Give one of `text`"),
    "web pages without leave": (
        "add",
        {"urls": ["https://example.com/"]},
        "restart the server with --allow-urls",
    ),
    "blank text": ("add", {"text": " \n"}, "There is no text to add."),
    "a source with a slash": ("add", {"text": "x", "source": "a/b"}, "without slashes"),
    "a source of control characters": ("add", {"text": "x", "source": "a\nb"}, "without slashes"),
    "a source too long": ("add", {"text": "x", "source": "知" * 65}, "1 to 64 characters"),
    "nothing to remove": ("remove", {"ids": []}, "at least 1 item"),
    "an unknown job": ("job", {"id": "job-0"}, "Call `job` without an id"),
    "waiting for no job": ("job", {"action": "wait"}, "To wait, give the job's id."),
    "an unknown action": ("job", {"id": "job-0", "action": "stop"}, "'status', 'wait' or 'cancel'"),
    "cancelling by the tool that looks": ("job", {"id": "job-0", "action": "cancel"}, "Call `job_cancel`"),
    "cancelling an unknown job": ("job_cancel", {"id": "job-0"}, "There is no job 'job-0'"),
    "an unknown entity": ("graph", {"entity": "Unknown Name"}, "There is no entity like"),
    "a blank entity": ("graph", {"entity": " "}, "There is no entity like"),
    "too many hops": ("graph", {"entity": "x", "hops": 9}, "less than or equal to 3"),
    "an unknown tool": ("search", {}, "Tools: query, fetch, "),
}


@pytest.mark.parametrize("case", BAD_ARGUMENTS)
def test_a_bad_call_is_answered_with_what_to_do_instead(case, server):
    tool, arguments, advice = BAD_ARGUMENTS[case]
    assert advice in refusal(server.call(tool, **arguments))


OUTSIDE = [
    "/etc/passwd", "../secret.txt", "up/secret.txt", "link.txt", "up", "..", "{root}/../secret.txt",
    "./../allowed/../secret.txt", "/proc/self/environ", "/dev/zero", "{root}x", "//etc/passwd",
    "~root/.profile",
]  # fmt: skip


@pytest.mark.hostile("paths and links")
@pytest.mark.parametrize("path", OUTSIDE)
def test_a_path_that_leads_out_of_the_roots_is_refused(path, server, root):
    text = refusal(server.call("add", paths=["note.md", path.format(root=root)], source="outside"))
    assert "is outside the folders that this server may read." in text
    assert str(root) in text


@pytest.mark.hostile("paths and links")
@pytest.mark.parametrize(
    "path",
    [
        "missing.md",
        "{root}/missing",
        "note.md/x",
        "file:///etc/passwd",
        "file://host/etc/passwd",
        "%2e%2e/secret.txt",
        "note.md.",
        "note.md ",
        "..\\secret.txt",
    ],
)
def test_a_path_that_does_not_exist_is_refused(path, server, root):
    text = refusal(server.call("add", paths=[path.format(root=root)], source="outside"))
    assert "There is no file or folder" in text


@pytest.mark.parametrize("path", ["a\0b", "x" * 5000, "~no-such-user/x", "loop"])
def test_a_path_that_can_be_none_is_refused(path, server):
    refusal(server.call("add", paths=[path], source="outside"))


def test_no_paths_at_all_are_refused(server):
    assert "There is no path to add." in refusal(server.call("add", paths=[], source="outside"))


def test_refused_additions_leave_no_knowledge_base_behind(server):
    listed = server.call("sources")["structuredContent"]["sources"]
    assert [source["name"] for source in listed] == ["notes"]


@pytest.mark.hostile("paths and links")
def test_a_link_inside_an_added_folder_is_left_out_when_it_leads_outside(shared_kb, root):
    with shared_kb("--root", root) as server:
        added = server.call("add", paths=["."])["structuredContent"]["job"]
        job = server.call("job", id=added["id"], action="wait")["structuredContent"]["jobs"][0]
        assert job["counts"]["added"] == 1
        rest = server.call("job", id=added["id"], cursor=job["next_cursor"])["structuredContent"]["jobs"][0]
        assert any("link.txt" in problem for problem in rest["problems"])
        assert "xyzzy" not in str(server.call("query", query="What is the secret word?"))


@pytest.mark.hostile("paths and links")
def test_without_a_root_only_texts_are_taken(rootless, root):
    text = refusal(rootless.call("add", paths=[str(root / "note.md")]))
    assert "reads no files" in text
    assert "--root FOLDER" in text


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("query", {"query": "x"}),
        ("fetch", {"id": "x"}),
        ("graph", {"entity": "x"}),
        ("remove", {"ids": ["x"]}),
    ],
)
def test_without_a_knowledge_base_the_answer_says_how_to_make_one(tool, arguments, rootless):
    text = refusal(rootless.call(tool, **arguments))
    assert text == "There is no knowledge base yet. Add a document first; that makes one."


def test_without_a_knowledge_base_lists_are_empty_and_no_errors(rootless):
    assert rootless.call("job")["structuredContent"] == {"jobs": []}
    assert rootless.call("sources")["structuredContent"]["sources"] == []
    assert rootless.request("resources/list")["resources"] == []


@pytest.mark.parametrize("cursor", ["notes:x", "notes:-1", "notes:" + "9" * 40])
def test_a_resource_cursor_that_is_none_is_refused_as_the_callers_mistake(cursor, server):
    with pytest.raises(JsonRpcError) as refused:
        server.request("resources/list", {"cursor": cursor})
    assert refused.value.code == -32602


@pytest.mark.hostile("paths and links")
@pytest.mark.parametrize(
    "uri", ["loom://notes/d0", "loom://nothing/d0", "file:///etc/passwd", "loom://notes/.."]
)
def test_a_resource_that_does_not_exist_is_the_callers_mistake(uri, server):
    with pytest.raises(JsonRpcError) as refused:
        server.request("resources/read", {"uri": uri})
    assert refused.value.code == -32602
    assert refused.value.data == {"uri": uri}


def test_odd_questions_are_answered_like_any_other(server):
    for question in ("?!?", "the of and", "\0", "a" * 100_000, "NOT (x OR", '"', "source:notes", "🚢" * 50):
        answer = server.call("query", query=question)
        assert not answer.get("isError"), question
