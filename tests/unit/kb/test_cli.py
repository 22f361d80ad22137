from __future__ import annotations

import itertools
import re
import threading
from pathlib import Path

import pytest
from loom_kb.cli import SERVER, run

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.server.program import server_arguments


def _served(*line: str, after: tuple[str, ...] = ()) -> list[str]:
    return server_arguments(SERVER, SERVER.parser().parse_args(["install", "zed", *line]), after)


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
def test_the_variables_with_keys_are_known_without_asking_anyone(
    options: tuple[str, ...], variables: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOOM_KB_LLM", raising=False)
    assert _variables(*options) == variables


def test_a_wrong_model_is_told_when_it_is_installed() -> None:
    with pytest.raises(ConfigError):
        _variables("--llm", '{"provider": "deepseek", "api_key": "sk-something-secret"}')


def settings(*arguments):
    return SERVER.settings_of(SERVER.parser().parse_args(arguments))


def test_serving_knows_its_folders_its_sources_and_its_profile(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    found = settings("serve", "--kb", "知识库", "--kb", "notes", "--root", "docs", "--profile", "chatgpt")
    assert found.sources == ("知识库", "notes")
    assert found.roots == (tmp_path / "docs",)
    assert found.profile == "chatgpt"
    assert found.embedder == "auto"
    assert found.version


def test_the_source_of_a_command_limits_nothing_else():
    assert settings("query", "x", "--kb", "notes").sources == ()
    assert settings("add", "a", "--kb", "notes").sources == ()


def test_home_is_the_option_or_the_environment_or_the_users_own(tmp_path, monkeypatch):
    monkeypatch.setenv("LOOM_HOME", str(tmp_path / "environment"))
    assert settings("list").home == tmp_path / "environment"
    assert settings("list", "--home", str(tmp_path / "option")).home == tmp_path / "option"
    monkeypatch.delenv("LOOM_HOME")
    assert settings("list").home == Path.home() / ".loom"


def test_a_root_may_be_written_with_a_tilde(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "docs").mkdir()
    assert settings("serve", "--root", "~/docs").roots == (Path.home() / "docs",)


@pytest.mark.parametrize("arguments", [["-h"], ["--help"], ["query", "--help"], ["--version"]])
def test_help_and_version_are_answers(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 0
    assert "loom-kb" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [["--root"], ["--port", "x"], ["add", ""], ["demo", "x"], ["x"], ["query", "x", "--limit", "0"]],
)
def test_wrong_usage_ends_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("usage: loom-kb")


def test_options_alone_mean_serving(tmp_path, capsys):
    assert run(["--root", str(tmp_path / "missing")]) == 1
    assert capsys.readouterr().err == (
        f"loom-kb: --root {tmp_path / 'missing'} is not a folder.\n  Give a folder that exists.\n"
    )


@pytest.fixture
def command(tmp_path, capsys):
    """Runs a command on a home of the test; gives the exit code and what went to the two outputs."""

    def run_it(name, *arguments):
        code = run([name, "--home", str(tmp_path / "home"), "--embedder", "hashing", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run_it


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "手册.md").write_text("# 港口手册\n\n小船免费。", encoding="utf-8")
    return folder


FAILURES = {
    "a blank question": (["query", " "], "Ask in a few words"),
    "a filter without a value": (["query", "x", "--filter", "tags"], "Write it as NAME=VALUE."),
    "an unknown filter": (["query", "x", "--filter", "colour=red"], "Use: source, path, "),
    "an unknown knowledge base": (["query", "x", "--kb", "none"], "There are: default."),
    "statistics of an unknown one": (["stats", "--kb", "none"], "There are: default."),
    "documents of an unknown one": (["list", "--kb", "none"], "There are: default."),
    "a missing file": (["add", "{folder}/missing"], "Check the path."),
    "nothing to remove": (["remove"], "Give ids, URIs or paths, or --all."),
    "everything and something": (["remove", "x", "--all"], "Give ids, URIs or paths, or --all."),
    "a home inside a file": (["add", "{folder}", "--home", "{folder}/手册.md/x"], "another with --home"),
    "cancelling no job": (["jobs", "--cancel"], "loom-kb jobs ID --cancel"),
    "a filter for all documents": (["overview", "--question", "x", "--filter", "a=b"], "Leave --filter out."),
    "an unknown embedder": (["query", "x", "--embedder", "none"], "e5-small"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_is_a_line_of_cause_and_a_line_of_remedy(case, command, folder):
    assert command("add", folder)[0] == 0
    arguments, remedy = FAILURES[case]
    code, shown, said = command(*(argument.format(folder=folder) for argument in arguments))
    assert (code, shown) == (1, "")
    first, second = said.splitlines()
    assert first.startswith("loom-kb: ")
    assert second.startswith("  ")
    assert remedy in second


def test_statistics_do_not_fail_while_another_process_replaces_files(command, folder, tmp_path):
    command("add", folder)
    store = tmp_path / "home" / "kb" / "default"
    done = threading.Event()

    def replace_files() -> None:
        for number in itertools.count():
            index = store / f"words-{100 + number % 7}"
            index.mkdir()
            (index / "segment").write_text("x", encoding="utf-8")
            (index / "segment").unlink()
            index.rmdir()
            if done.is_set():
                break

    other = threading.Thread(target=replace_files)
    other.start()
    try:
        assert [command("stats")[0] for _ in range(8)] == [0] * 8
    finally:
        done.set()
        other.join()


def test_an_error_while_watching_is_no_traceback(command, folder):
    code, _, said = command("sync", "--watch", folder / "手册.md")
    assert (code, said.splitlines()[1:]) == (
        1,
        [f"loom-kb: {folder / '手册.md'} is a file, not a folder.", "  Files are added."],
    )


def test_what_is_there_is_added_though_something_else_is_not(command, folder):
    code, shown, said = command("add", folder, folder / "不存在.pdf")
    assert code == 3
    assert "1 of 1 documents (1 added)" in shown
    assert said.splitlines()[-1] == f"There is no file or folder {folder / '不存在.pdf'}."
    assert "小船免费" in command("query", "小船免费吗？")[1]


def test_adding_says_how_long_reading_took_and_how_long_all_of_it(command, folder):
    shown = command("add", folder)[1]
    seconds = re.fullmatch(
        r"job-\w+ in default: done, .+, read in ([\d.]+) s\nAll of it took ([\d.]+) s, vectors included\.\n",
        shown,
    )
    assert seconds
    assert float(seconds[1]) <= float(seconds[2]) + 0.1
    assert "vectors" not in command("add", folder)[1], "nothing was new"


def test_the_first_commands_on_an_empty_home_say_how_to_begin(command):
    assert command("list") == (0, "", "There is no knowledge base yet. Make one: loom-kb add FOLDER\n")
    assert command("list", "--json") == (0, '{\n  "sources": [],\n  "unusable": []\n}\n', "")
    for name in (["query", "x"], ["stats"], ["remove", "x"], ["add"]):
        code, shown, said = command(*name)
        assert (code, shown) == (1, "")
        assert "There is no" in said


def test_answers_for_people_name_place_scores_and_reasons(command, folder):
    assert command("add", folder, "--description", "港口规则", "--tag", "规则")[0] == 0
    code, shown, said = command("query", "小船", "免费", "--detailed", "--filter", "tags=规则")
    assert (code, said) == (0, "")
    first, scores, why, *text = shown.splitlines()
    assert first.startswith("[1] 港口手册 (file://")
    assert first.endswith("手册.md#2-13)")
    assert scores.startswith("    scores: bm25 ")
    assert why.startswith("    why: ")
    assert text == ["    港口手册", "    ", "    小船免费。", ""]
    assert command("query", "x", "--filter", "tags=other") == (
        0,
        "Nothing was found. Try other words, fewer filters, or another source.\n",
        "",
    )
    assert command("list")[1] == "default  1 documents, 1 passages\n    港口规则\n"
    (line,) = command("list", "--kb", "default")[1].splitlines()
    assert line.endswith(f"  港口手册  ({folder / '手册.md'}, 13 characters)")
    statistics = dict(line.split(maxsplit=1) for line in command("stats")[1].splitlines())
    assert statistics["languages"] == "zh 1"
    assert statistics["filters"].startswith("source, path, ")
    assert command("remove", folder / "手册.md")[1].startswith("removed ")
    assert command("remove", "--all")[1] == "Removed the knowledge base 'default'.\n"


def test_what_is_found_can_be_reranked_varied_and_shown_with_its_section(command, folder):
    filler = "The ferry leaves from the northern quay at nine in the morning. " * 40
    text = f"# Manual\n\n## Mooring\n\n{filler}\n\nDouble the rope in a storm. {filler}"
    (folder / "manual.md").write_text(text, encoding="utf-8")
    assert command("add", folder)[0] == 0
    plain = command("query", "storm rope", "--limit", "1")[1]
    section = command("query", "storm rope", "--limit", "1", "--expand", "section")[1]
    assert len(section) > len(plain)
    code, shown, said = command(
        "query", "storm rope", "--rerank", "features", "--diversity", "0.4", "--detailed"
    )
    assert (code, said) == (0, "")
    assert "rerank " in shown.splitlines()[1]


def test_an_error_can_be_seen_whole(command):
    code, _, said = command("query", "x", "--debug")
    assert code == 1
    assert "loom_core.errors.NotFoundError: " in said
