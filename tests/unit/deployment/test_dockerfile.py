"""The Dockerfile, and how `tools.dockerfile` parses one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tools.dockerfile import assignments, context_files, expand, read_stages

_ROOT = Path(__file__).parents[3]
_TEXT = (_ROOT / "Dockerfile").read_text(encoding="utf-8")
_SERVERS = ["loom-agent-server", "loom-flow-server", "loom-kb", "loom-query-server"]


@pytest.fixture(scope="module")
def sent() -> frozenset[str]:
    """The files of the build context."""
    return frozenset(context_files(_ROOT))


def test_lines_go_on_comments_do_not_and_flags_are_apart():
    stages = read_stages(
        "ARG BASE=python:3\n"
        "# a comment\n"
        "FROM ${BASE} AS build\n"
        "ENV A=1 \\\n"
        "# between\n"
        "    B='$A 二'\n"
        "COPY --from=x --chown=1:2 a b/ /c\n"
        'RUN --mount=type=cache,target=/k echo "$A" \\\n'
        "    && echo b\n",
        {"BASE": "debian:12"},
    )
    [stage] = stages
    environment, copy, run = stage.instructions
    assert (stage.name, stage.base) == ("build", "debian:12")
    assert assignments(environment, {"A": "0"}) == {"A": "1", "B": "0 二"}
    assert (copy.flag("from"), copy.flag("chown"), copy.value) == ("x", "1:2", "a b/ /c")
    assert (run.flag("mount"), run.line) == ("type=cache,target=/k", 8)
    assert run.value.split() == ["echo", '"$A"', "&&", "echo", "b"]
    assert expand("${A}-$A-$B", {"A": "1"}) == "1-1-"


@pytest.mark.parametrize("text", ["FROM x\nADD a b\n", "RUN a\nFROM x\n", "FROM x\nRUN a \\\n"])
def test_what_is_not_known_is_refused(text: str):
    with pytest.raises(ValueError, match="line"):
        read_stages(text, {})


def test_a_later_rule_takes_back_what_an_earlier_one_leaves_out(tmp_path: Path):
    rules = "# first nothing\n*\n!文档\n!a.txt\n**/*.pyc\n文档/草稿\n"
    (tmp_path / ".dockerignore").write_text(rules, encoding="utf-8")
    for name in (
        "a.txt",
        "b.txt",
        "文档/甲.md",
        "文档/deep/x.pyc",
        "文档/deep/y.py",
        "文档/草稿/乙.md",
        "c/d",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sorted(context_files(tmp_path)) == ["a.txt", "文档/deep/y.py", "文档/甲.md"]


def test_a_build_is_sent_sources_and_pins_and_nothing_else(sent: frozenset[str]):
    assert {path.split("/")[0] for path in sent} == {
        "CHANGELOG.md", "LICENSE", "README.md", "loom_core", "pyproject.toml", "requirements", "servers",
    }  # fmt: skip
    assert not [path for path in sent if path.endswith((".pyc", ".env")) or "/." in path]


@pytest.mark.parametrize("server", _SERVERS)
def test_all_that_is_copied_for_a_server_is_sent(server: str, sent: frozenset[str]):
    build, _ = read_stages(_TEXT, {"SERVER": server})
    copied = [
        expand(source, {"SERVER": server})
        for each in build.instructions
        if each.name == "COPY"
        for source in each.value.split()[:-1]
    ]
    assert f"requirements/{server}.txt" in copied
    assert {path for path in copied if path != "."} <= sent


def test_the_image_runs_as_no_one_in_particular_and_ends_when_told_to():
    _, image = read_stages(_TEXT, {"SERVER": "loom-kb"})
    user, _, group = image.last("USER").value.partition(":")
    assert int(user) >= 10_000  # a number, that is no one's on the host
    assert int(group) >= 10_000
    assert image.last("STOPSIGNAL").value == "SIGTERM"
    assert image.last("ENTRYPOINT").words() == ["loom-server"]
    assert image.last("CMD").words() == ["serve", "--http", "--host", "0.0.0.0", "--tokens"]
    assert image.last("VOLUME").value == "/data"
    assert "/healthz" in image.last("HEALTHCHECK").value
    assert [each.value for each in image.instructions if each.name == "RUN"] == []


def test_other_programs_in_the_image_have_telemetry_off_too():
    _, image = read_stages(_TEXT, {"SERVER": "loom-kb"})
    assert assignments(image.last("ENV"), {"PATH": ""})["ORT_DISABLE_TELEMETRY"] == "1"


def test_the_image_has_the_python_that_the_tests_run_with_at_the_least():
    base = re.search(r"^ARG PYTHON=(\d+)\.(\d+)-slim-\w+$", _TEXT, re.MULTILINE)
    assert base
    assert (int(base[1]), int(base[2])) >= (3, 11)
    assert {stage.base for stage in read_stages(_TEXT, {})} == {
        f"python:{base[0].removeprefix('ARG PYTHON=')}"
    }


def test_uv_is_the_same_for_the_image_and_for_ci():
    pinned = re.search(r"^uv==(\S+)", (_ROOT / "requirements" / "image.txt").read_text(), re.MULTILINE)
    in_ci = re.search(r"UV_VERSION=(\S+)", (_ROOT / ".ci" / "run").read_text())
    assert pinned
    assert in_ci
    assert pinned[1] == in_ci[1]


def _pins(name: str) -> dict[str, str]:
    text = (_ROOT / "requirements" / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("server", _SERVERS)
def test_every_image_can_ask_a_language_model_and_say_what_it_cost(server: str):
    assert {"anthropic", "genai-prices", "keyring", "openai"} <= _pins(f"{server}.txt").keys()


@pytest.mark.parametrize("server", _SERVERS)
def test_the_extras_are_pinned_in_the_versions_of_the_server(server: str):
    of_server, of_extras = _pins(f"{server}.txt"), _pins("image-extras.txt")
    both = of_server.keys() & of_extras.keys()
    assert both
    assert {name: of_server[name] for name in both} == {name: of_extras[name] for name in both}


def test_what_the_audit_reads_is_there():
    [names] = re.findall(r"for pins in ([a-z -]+);", (_ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert {"dev", "image", "image-extras", *_SERVERS} == set(names.split())
    assert all((_ROOT / "requirements" / f"{name}.txt").is_file() for name in names.split())


def _recipe() -> list[list[str]]:
    """The commands that docs/deployment.md has operators type for an image of one server."""
    page = (_ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
    block = page.partition("\n## An image\n")[2].partition("```sh\n")[2].partition("```")[0]
    return [shlex.split(line, comments=True) for line in block.replace("\\\n", " ").splitlines()]


def test_every_image_that_the_recipe_starts_was_built_before():
    built: dict[str, str] = {}
    started: list[str] = []
    for command in _recipe():
        if command[1] == "build":
            server = command[command.index("--build-arg") + 1].removeprefix("SERVER=")
            built[command[command.index("--tag") + 1]] = server
        if command[1] == "run":
            started += [word for word in command if word in _SERVERS]
            assert built.get(started[-1]) == started[-1]
    assert started == ["loom-agent-server", "loom-kb"]


def test_a_container_whose_port_no_one_asks_has_no_health_check():
    [checked] = set(re.findall(r"127\.0\.0\.1:(\d+)/healthz", _TEXT))
    for command in [each for each in _recipe() if each[1] == "run"]:
        arguments = command[next(at for at, word in enumerate(command) if word in _SERVERS) + 1 :]
        over_http = not arguments or "--http" in arguments  # without any, the image's own CMD
        asked = over_http and ("--port" not in arguments or checked in arguments)
        assert asked != ("--no-healthcheck" in command), command
