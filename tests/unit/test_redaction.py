from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from loom_core.keys import find_key, list_known_secrets, register_secret
from loom_core.redaction import (
    SECRET,
    Redaction,
    hide_forms,
    is_secret_name,
    redact_log_text,
    secrets_in_environment,
    without_secrets,
)

pytestmark = pytest.mark.hostile("secrets")


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghijklmnop",
        "sk-ant-api03-0123456789abcdef",
        "ghp_abcdefghijklmnopqrstu",
        "github_pat_11ABCDEFG0abcdefghij",
        "glpat-abcdefghij0123456789",
        "xoxb-1234567890-abcdef",
        "hf_abcdefghij0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA0123456789abcdefghijklmnopqrstu",
        "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJ",
        "gsk_a1B2a1B2a1B2a1B2a1B2a1B2",
        "xai-a1B2a1B2a1B2a1B2a1B2a1B2",
        "pplx-a1B2a1B2a1B2a1B2a1B2a1B2",
        "ya29.a0AfH6SMBx1-xxxxxxxxxxxxxxxx",
        "0123456789abcdef0123456789abcdef.AbCdEfGh1jKlMnOp",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOY\n-----END PGP PRIVATE KEY BLOCK-----",
        "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn cut off",
    ],
)
def test_what_has_the_form_of_a_key_is_hidden_wherever_it_stands(secret: str) -> None:
    assert hide_forms(f"密钥是{secret}") == f"密钥是{SECRET}"
    assert hide_forms(f"the key: {secret}") == f"the key: {SECRET}"
    assert secret not in hide_forms(repr(f"line\n{secret}"))
    assert secret not in hide_forms(json.dumps({"k": f"a\n{secret}"}))


def test_what_follows_a_key_in_chinese_is_left() -> None:
    assert hide_forms("用AKIAIOSFODNN7EXAMPLE登录，密钥sk-proj-0123456789abcdefgh过期了") == (
        f"用{SECRET}登录，密钥{SECRET}过期了"
    )


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("https://anna:geheim@host/mcp", f"https://{SECRET}@host/mcp"),
        ("postgres://u:p%40ss@db:5432/x", f"postgres://{SECRET}@db:5432/x"),
        ("https://u:pa@ss1@host/a?mail=x@y.z", f"https://{SECRET}@host/a?mail=x@y.z"),
        ("https://u:pa/ss1@host/a", f"https://{SECRET}@host/a"),
        ("克隆 https://tok778845ABC@git.example/x", f"克隆 https://{SECRET}@git.example/x"),
        ("Authorization: Bearer abc.def/ghi=", f"Authorization: Bearer {SECRET}"),
        ("proxy-authorization: Basic dXNlcjpwYXNz0", f"proxy-authorization: Basic {SECRET}"),
    ],
)
def test_credentials_in_addresses_and_headers_are_hidden(text: str, safe: str) -> None:
    assert without_secrets(text) == safe


@pytest.mark.parametrize(
    "text",
    [
        "use Bearer authentication, or basic understanding of tokens",
        "sk-learn-notes-of-anna, skeletons_of_the_museum, task-force-of-the-century",
        "https://host:8765/mcp?query=a@b.c and mailto:anna@example.com",
        "token = tokens.create(name); password = getpass()",
        "git clone ssh://git@host/anna.git, https://anna@host/, http://[::1]:8080/a?mail=x@y.z",
        "https://localhost:8765/a/b@v1.2.3, http://host:{port}/users/@me, oci://registry:5000/image@sha256:ab",
        "commit 3f786850e387550fdaca1f7ad6b2d2b1a3f2c4d5, d41d8cd98f00b204e9800998ecf8427e.md",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08  loom-0.9.1-py3.whl",
        "xai-research-group-of-the-harbour, pplx-as-a-word, gsk_as_the_name_of_a_folder_here",
        "eyJ is how a JSON web token begins; AKIA is how a key of AWS does",
        "港长的密码学笔记：第七章",
        "",
    ],
)
def test_what_is_no_secret_is_left_as_it_is(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("token=abcdef123, next", f"token={SECRET}, next"),
        ('{"password": "hunter2-long", "path": "a"}', f'{{"password": "{SECRET}", "path": "a"}}'),
        (json.dumps(json.dumps({"api_key": "a1b2c3d4"})), None),
        ("密码：hunter2-long，然后登录", f"密码：{SECRET}，然后登录"),
        ("authorization: whatever", f"authorization: {SECRET}"),
        ("set api_key=env:DEEPSEEK_API_KEY1", "set api_key=env:DEEPSEEK_API_KEY1"),
        ("a password is required", "a password is required"),
        ("Cookie: session=abc-1; csrf=xyz-2", f"Cookie: {SECRET}"),
        ("Set-Cookie: sid=abc-1; Path=/，然后重试", f"Set-Cookie: {SECRET}，然后重试"),
        ("{'cookie': 'sid=abc-1'}", f"{{'cookie': '{SECRET}'}}"),
        ("aws_secret_access_key = wJalr/K7MDENG", f"aws_secret_access_key = {SECRET}"),
        ('{"secretKey": "abc778852"}', f'{{"secretKey": "{SECRET}"}}'),
        ("private_key=abc778853 pwd=abc778851", f"private_key={SECRET} pwd={SECRET}"),
        ("passphrase: abc778850; 私钥：abc778850", f"passphrase: {SECRET}; 私钥：{SECRET}"),
        ("AccountName=a;AccountKey=azkey778820==;X=y", f"AccountName=a;AccountKey={SECRET};X=y"),
        (
            "[('x-api-key', 'k-778836'), (b'cookie', b'a=7')]",
            f"[('x-api-key', '{SECRET}'), (b'cookie', b'{SECRET}')]",
        ),
        ('{"name": "X-Api-Key", "value": "vv778862"}', f'{{"name": "X-Api-Key", "value": "{SECRET}"}}'),
        ("run --password abc778871 --token=abc778872 x", f"run --password {SECRET} --token={SECRET} x"),
        (
            "GET /a?X-Amz-Signature=dead778841&sig=abc778842&n=1",
            f"GET /a?X-Amz-Signature={SECRET}&sig={SECRET}&n=1",
        ),
        ("https://h/cb?code=authcode778844&state=1", f"https://h/cb?code={SECRET}&state=1"),
    ],
)
def test_in_logs_what_is_assigned_to_the_name_of_a_secret_is_hidden_too(text: str, safe: str | None) -> None:
    hidden = redact_log_text(text)

    assert SECRET in hidden if safe is None else hidden == safe
    assert "a1b2c3d4" not in hidden


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 4096, tokenizer: bert-base-v2, tokens = 1234567, token_count: 12",
        "cd /home/anna && echo PWD=/home/anna/loom-2 pwd: ~/notes2024",
        "the cookie was eaten: see page 12345678 of 厨房手册2024版",
        'fields: ["password", "username"], ("token", "name"), keys: a1b2c3d4',
        "密码学笔记2024：第七章，令牌环网络802.5，港长的口令是什么？",
        "HTTP 404, code=E1234567; ?page=12345678&code=404&sort=name2&q=signal12345",
        "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08 at v2.1.0-rc.1",
        "run --tokens 12345678 --tokenizer bert2024 --cookie-free -p 8080:8080",
        "the secretary of room 12345678: Anna; an author, a monkey = 12345678",
    ],
)
def test_ordinary_words_are_left_in_logs(text: str) -> None:
    assert redact_log_text(text) == text


def test_pairs_and_options_in_json_name_what_follows_them() -> None:
    value = {
        "headers": [["X-Api-Key", "k 1"], ["Accept", "text/html"]],
        "list": [{"name": "Cookie", "value": "sid"}, {"name": "page", "value": "12"}],
        "args": ["run", "--password", "geheim", "--token", "--verbose", "-n", "5"],
        "fields": ["password", "username"],
    }

    assert Redaction.now(assigned=True).value(value) == {
        "headers": [["X-Api-Key", SECRET], ["Accept", "text/html"]],
        "list": [{"name": "Cookie", "value": SECRET}, {"name": "page", "value": "12"}],
        "args": ["run", "--password", SECRET, "--token", "--verbose", "-n", "5"],
        "fields": ["password", "username"],
    }


@pytest.mark.parametrize("before", ["", "u:", "ab", "用户"])
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
def test_a_known_secret_in_base64_is_hidden_whatever_stands_around_it(
    monkeypatch: pytest.MonkeyPatch, encode: Callable[[bytes], bytes], before: str
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "Hunter2-Quartz?>~-99x")
    for behind in ("", "b", "cc"):
        told = without_secrets(encode(f"{before}Hunter2-Quartz?>~-99x{behind}".encode()).decode())
        assert SECRET in told
        assert len(told) < 25
    assert without_secrets(b64encode(b"Hunter2-Quartz?>~-99x").decode()) == SECRET


def test_of_many_secrets_each_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = [SecretStr(f"{number:03}-geheim-密码") for number in range(300)]
    redaction = Redaction.now(secrets)

    assert redaction.text("; ".join(each.get_secret_value() for each in secrets)) == "; ".join([SECRET] * 300)
    assert redaction.text("300-geheim-密码 ist keines") == "300-geheim-密码 ist keines"


def test_members_of_json_that_are_called_a_secret_are_hidden_in_logs_and_kept_in_what_models_read() -> None:
    value = {"password": "short", "list": [{"apiKey": "k", "name": "王"}], "tokens": "a b", "n": 5}

    assert Redaction.now(assigned=True).value(value) == {
        "password": SECRET,
        "list": [{"apiKey": SECRET, "name": "王"}],
        "tokens": "a b",
        "n": 5,
    }
    assert Redaction.now().value(value) == value


def test_a_key_that_was_found_is_hidden_from_then_on_also_as_part_of_a_url_or_of_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = 'of/a "vendor\\&1'.replace(" ", "-")
    monkeypatch.setenv("A_VENDORS_NAME", key)
    found = find_key("A_VENDORS_NAME", keyring=False)
    monkeypatch.delenv("A_VENDORS_NAME")

    assert found in list_known_secrets()
    for form in (key, quote(key, safe=""), json.dumps(key)[1:-1], repr(key)[1:-1]):
        assert without_secrets(f"<{form}>") == f"<{SECRET}>"


def test_what_may_be_a_word_is_not_remembered_and_the_oldest_are_forgotten() -> None:
    register_secret(SecretStr("refused"))
    first = register_secret(SecretStr("remembered-first-0"))
    for number in range(2000):
        register_secret(SecretStr(f"remembered-{number:06}"))

    assert without_secrets("it was refused") == "it was refused"
    assert first not in list_known_secrets()
    assert without_secrets("remembered-001999") == SECRET


def test_a_variable_is_known_as_long_as_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("first-of-the-keys", "second-of-the-keys"):
        monkeypatch.setenv("SHOP_API_KEY", value)
        assert without_secrets(f"key: {value}") == f"key: {SECRET}"
    assert without_secrets("first-of-the-keys") == "first-of-the-keys"
    monkeypatch.delenv("SHOP_API_KEY")
    assert without_secrets("second-of-the-keys") == "second-of-the-keys"


def test_variables_that_are_called_secrets_and_passwords_in_addresses_are_known(tmp_path: Path) -> None:
    environment = {
        "OPENAI_API_KEY": "key-of-openai",
        "LOOM_STATE_KEYS": "first-state-key, second-state-key",
        "SHOP_PASSWORD": "短密码但是够长了吧",
        "HTTPS_PROXY": "http://u:proxy%2Dpass@proxy:3128",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-token=of-the-collector,authorization=Bearer%20of-another",
        "TOKENIZERS_PARALLELISM": "false-but-long",
        "KEYBOARD_LAYOUT": "us-international",
        "SSL_KEY_FILE": str(tmp_path / "key.pem"),
        "MY_TOKEN": str(tmp_path),
        "SHORT_TOKEN": "abc",
        "PATH": "/usr/bin:/bin",
        "MY_PASS": "Quiet-River-1",
        "DB_PWD": "Quiet-River-2",
        "GITHUB_PAT": "Quiet-River-3",
        "SESSION_COOKIE": "Quiet-River-4",
        "STORAGE": "AccountName=lighthouse;AccountKey=Quiet-River-5==;EndpointSuffix=x",
        "HOOK": "https://host/x?api_key=Quiet-River-6&page=12345678",
        "MIRROR": "https://Quiet-River-7@host/x",
        "SHOP": "postgres://u:Quiet@River-8@db/x",
        "PWD": "/home/anna/river",
        "OLDPWD": "/home/anna",
        "COMPASS": "north-by-northwest",
    }

    found = {secret.get_secret_value() for secret in secrets_in_environment(environment)}

    assert found == {
        "key-of-openai",
        "first-state-key, second-state-key",
        "first-state-key",
        "second-state-key",
        "短密码但是够长了吧",
        "proxy%2Dpass",
        "proxy-pass",
        "of-the-collector",
        "Bearer%20of-another",
        "of-another",
        *(f"Quiet-River-{number}" for number in (1, 2, 3, 4)),
        "Quiet-River-5==",
        "Quiet-River-6",
        "Quiet-River-7",
        "Quiet@River-8",
    }


@given(st.text(alphabet=st.sampled_from("ab-_.:/@ =\"'\\\nBearsktoknpwd0é密"), max_size=300))
def test_whatever_the_text_hiding_it_twice_changes_nothing_more(text: str) -> None:
    once = redact_log_text(text)

    assert redact_log_text(once).count(SECRET) >= once.count(SECRET) - text.count(SECRET)
    assert is_secret_name("apiKey")


_SLOW = ["-", "--token", "cookie: a=b;", "?sig=", "://u:p@/", "'token', '", "0a" * 16 + ".", "secret_access_"]


@pytest.mark.parametrize(
    "piece", ["sk-", "http://a:", "eyJaaaaaaaaa.", "token=", "Bearer ", "-----BEGIN ", *_SLOW]
)
def test_a_text_that_is_made_to_be_slow_to_look_through_is_not(piece: str) -> None:
    from time import process_time

    text = piece * (100_000 // len(piece))
    began = process_time()
    redact_log_text(text)

    assert process_time() - began < 5.0
