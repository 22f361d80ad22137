"""The file of tokens: what it holds, and who sees its changes."""

from __future__ import annotations

import json
import sys

import pytest

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.server.auth.tokens import TokenFile, has_token_form


@pytest.fixture
def tokens(tmp_path):
    return TokenFile(tmp_path / "tokens" / "kb.json")


def made(tokens, name="laptop", **further):
    token, secret = tokens.create(name, scopes=["read"], **further)
    return token, secret.get_secret_value()


def test_a_token_is_found_by_itself_alone_and_only_its_hash_is_kept(tokens):
    token, secret = made(tokens, "张三的电脑", sources=["产品文档"])
    assert tokens.find(secret) == token
    assert tokens.find(secret[:-1] + ("0" if secret[-1] != "0" else "1")) is None
    assert secret not in tokens.path.read_text(encoding="utf-8")
    assert secret not in repr(token)
    assert token.caller().sources == {"产品文档"}


def test_a_token_has_a_form_that_scanners_know_and_a_checksum(tokens):
    _, secret = made(tokens)
    assert secret.startswith("loom_")
    assert len(secret) == 54
    assert has_token_form(secret)
    assert not has_token_form(secret[:20] + ("a" if secret[20] != "a" else "b") + secret[21:])
    assert not has_token_form(secret + "\n")
    assert not has_token_form("")


def test_tokens_differ(tokens):
    assert len({made(tokens, f"t{i}")[1] for i in range(20)}) == 20


def test_what_another_process_changes_is_seen_at_once(tokens):
    _, first = made(tokens)
    running = TokenFile(tokens.path)
    found = running.find(first)
    assert running.holds(found)
    _, second = made(tokens, "second")
    assert running.find(second)
    tokens.revoke("laptop")
    assert running.find(first) is None
    assert not running.holds(found)
    tokens.path.unlink()
    assert running.find(second) is None


def test_a_new_token_of_an_old_name_is_not_the_old_one(tokens):
    old, _ = made(tokens)
    tokens.revoke("laptop")
    new, _ = made(tokens)
    assert not tokens.holds(old)
    assert old.caller().id != new.caller().id


def test_an_expired_token_is_known_and_does_not_hold(tokens):
    token, secret = made(tokens, seconds=-1.0)
    assert tokens.find(secret) == token
    assert token.expired
    assert not tokens.holds(token)


@pytest.mark.skipif(sys.platform == "win32", reason="rights are POSIX")
def test_only_the_owner_may_read_the_file_and_nothing_else_is_left(tokens):
    made(tokens)
    assert tokens.path.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tokens.path.parent.iterdir()) == ["kb.json", "kb.lock"]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"version": 2, "tokens": []}',
        '{"version": 1, "tokens": [{"name": "x"}]}',
        '{"version": 1, "tokens": [], "x": 1}',
    ],
)
def test_a_file_that_cannot_be_read_lets_no_one_in_and_is_left_alone(tokens, content, caplog):
    token, secret = made(tokens)
    tokens.path.write_text(content, encoding="utf-8")
    assert tokens.find(secret) is None
    assert not tokens.holds(token)
    assert "no token is accepted" in caplog.text
    with pytest.raises(ConfigError, match="cannot be read"):
        tokens.list()
    with pytest.raises(ConfigError, match="cannot be read"):
        made(tokens, "another")
    assert tokens.path.read_text(encoding="utf-8") == content


def test_a_scope_that_is_unknown_is_not_taken(tokens):
    made(tokens)
    content = json.loads(tokens.path.read_text(encoding="utf-8"))
    content["tokens"][0]["scopes"] = ["everything"]
    tokens.path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"tokens\.0\.scopes"):
        tokens.list()


@pytest.mark.parametrize("name", ["", " ", "a b", "-x", "_x", "a/b", "x" * 65, "a\n"])
def test_a_name_has_letters_and_digits(tokens, name):
    with pytest.raises(InvalidInputError, match="cannot be the name of a token"):
        made(tokens, name)


def test_a_name_is_taken_once_and_revoked_once(tokens):
    made(tokens)
    with pytest.raises(InvalidInputError, match="already"):
        made(tokens)
    tokens.revoke("laptop")
    with pytest.raises(NotFoundError, match="There is no token 'laptop'"):
        tokens.revoke("laptop")


def test_a_folder_that_cannot_be_made_is_a_configuration_error(tmp_path):
    (tmp_path / "tokens").write_text("a file", encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be"):
        made(TokenFile(tmp_path / "tokens" / "kb.json"))
