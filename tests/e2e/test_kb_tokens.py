"""`loom-kb token`: as a person and as a script use it."""

from __future__ import annotations

import json


def test_the_token_is_all_that_standard_output_holds(loom_kb, home):
    done = loom_kb("token", "create", "张三", "--kb", "文档", "--expires", "30d")
    token = done.stdout.decode().strip()
    assert done.returncode == 0
    assert token.startswith("loom_")
    assert token not in done.stderr.decode()
    assert "There is no knowledge base '文档' yet." in done.stderr.decode()
    assert token not in (home / "tokens" / "loom-kb.json").read_text(encoding="utf-8")
    listed = json.loads(loom_kb("token", "list", "--json").stdout)["tokens"]
    assert [(entry["name"], entry["scopes"], entry["sources"]) for entry in listed] == [
        ("张三", ["read"], ["文档"])
    ]
    assert loom_kb("token", "revoke", "张三").returncode == 0
    assert json.loads(loom_kb("token", "list", "--json").stdout) == {"tokens": []}


def test_what_cannot_be_done_is_said_in_a_line_with_advice(loom_kb):
    for arguments, reason in [
        (["revoke", "unknown"], "There is no token 'unknown'"),
        (["create"], "needs a name"),
        (["create", "x", "--kb", "a/b"], "cannot be the name of a knowledge base"),
    ]:
        done = loom_kb("token", *arguments)
        assert done.returncode == 1
        assert reason in done.stderr.decode()
        assert b"Traceback" not in done.stderr


def test_options_that_do_not_go_together_are_refused(loom_kb):
    for options, reason in [
        (["--tokens"], "--tokens is for HTTP"),
        (["--http", "--issuer", "https://login.example"], "needs --public-url"),
        (
            ["--http", "--issuer", "http://login.example", "--public-url", "https://kb.example/mcp"],
            "not an https",
        ),
    ]:
        done = loom_kb("serve", *options)
        assert done.returncode == 1
        assert reason in done.stderr.decode()
