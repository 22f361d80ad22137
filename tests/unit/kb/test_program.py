from __future__ import annotations

from pathlib import Path

import pytest
from loom_kb.cli import SERVER

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.server.program import served_arguments


def _served(*line: str, after: tuple[str, ...] = ()) -> list[str]:
    return served_arguments(SERVER, SERVER.parser().parse_args(["install", "zed", *line]), after)


def _variables(*options: str) -> list[str]:
    return SERVER.key_variables(SERVER.settings_of(SERVER.parser().parse_args(["serve", *options])))


def test_what_the_shell_knows_is_told_to_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOOM_HOME", raising=False)
    monkeypatch.delenv("LOOM_KB_LLM", raising=False)
    assert _served() == ["serve"]
    monkeypatch.setenv("LOOM_HOME", "家")
    monkeypatch.setenv("LOOM_KB_LLM", "deepseek")
    assert _served() == ["serve", "--home", str(Path.cwd() / "家"), "--llm", "deepseek"]
    assert _served("--home", "other", "--llm", "none")[1:] == [
        "--home",
        str(Path.cwd() / "other"),
        "--llm",
        "none",
    ]


def test_folders_become_absolute_and_everything_else_is_handed_on(tmp_path: Path) -> None:
    line = _served("--root", "文档", "--kb", "a", "--kb", "b", after=("--allow-urls", f"--watch={tmp_path}"))
    assert line[line.index("--kb") :] == [
        "--kb", "a", "--kb", "b", "--root", str(Path.cwd() / "文档"), "--allow-urls", f"--watch={tmp_path}",
    ]  # fmt: skip
    assert SERVER.parser().parse_args(line).watch == [tmp_path]


@pytest.mark.parametrize("after", [("--http",), ("--watch", "notes"), ("--root=notes",)])
def test_what_makes_no_sense_for_a_client_is_refused(after: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInputError):
        _served(after=after)


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ((), []),
        (("--llm", "none"), []),
        (("--llm", "mock"), []),
        (("--llm", "deepseek/deepseek-flash"), ["DEEPSEEK_API_KEY"]),
        (("--llm", '{"provider": "deepseek", "api_key": "env:MY_KEY"}'), ["MY_KEY"]),
        (("--llm", '{"provider": "deepseek", "api_key": "keyring:MY_KEY"}'), []),
        (
            (
                "--llm",
                '{"provider": "deepseek", "fallbacks": ["openai"], "headers": {"X-Key": "env:PROXY_KEY"}}',
            ),
            ["DEEPSEEK_API_KEY", "PROXY_KEY", "OPENAI_API_KEY"],
        ),
        (("--embedder", "openai:text-embedding-3-small"), ["OPENAI_API_KEY"]),
        (("--embedder", "ollama:bge-m3"), []),
        (("--embedder", "hashing"), []),
        (("--embedder", '{"provider": "openai", "model": "x", "api_key_env": "EMB_KEY"}'), ["EMB_KEY"]),
        (("--llm", "openai", "--embedder", "openai"), ["OPENAI_API_KEY"]),
    ],
)
def test_the_variables_with_keys_are_known_without_asking_anybody(
    options: tuple[str, ...], variables: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOOM_KB_LLM", raising=False)
    assert _variables(*options) == variables


def test_a_wrong_model_is_told_when_it_is_installed() -> None:
    with pytest.raises(ConfigError):
        _variables("--llm", '{"provider": "deepseek", "api_key": "sk-something-secret"}')
