"""Notes about users in the server: by token, switched on by a profile, and managed at the command line."""

from __future__ import annotations

import json

import anyio
import pytest
from loom_agent.cli import run as run_command
from loom_agent.settings import LOCAL_USER

from loom_core.errors import ConfigError
from loom_core.paths import token_path
from loom_core.server.auth.caller import use_caller
from loom_core.server.auth.tokens import TokenFile

pytestmark = pytest.mark.slow

_NAMES = ("default", "other")
_ON = {"user_memory": {"enabled": True}}


async def _say(service, goal):
    run = await service.start(goal)
    while run.status == "working":
        run = await service.wait_until_idle(run.id, after=run.last_seq, seconds=10)
    assert run.status == "completed", run.problem
    return run.output


@pytest.fixture
def callers(home):
    """The callers of two tokens, by name."""
    tokens = TokenFile(token_path(home, "loom-agent-server"))
    return {name: tokens.create(name, scopes=["read", "write"])[0].caller() for name in ("ada", "bob")}


@pytest.fixture
def command(home, capsys):
    """Runs `memory` on the home; gives the exit code, standard output and standard error."""

    def call(*arguments):
        code = run_command(["memory", *arguments, "--home", str(home)])
        return code, *capsys.readouterr()

    return call


def test_each_token_has_its_own_notes_which_the_operator_can_delete(configure, running, callers, command):
    configure(default=_ON)

    async def talk():
        async with running(over_http=True) as service:
            with use_caller(callers["ada"]):
                await _say(service, "My name is Ada. What time is it")
            with use_caller(callers["bob"]):
                assert "no notes" in await _say(service, "use recall {}")
            await _say(
                service, "I live in Leeds. What time is it"
            )  # without a token it is not known who that is

    anyio.run(talk)
    assert command("users")[1].split() == [callers["ada"].id]
    [note] = json.loads(command("export", "--user", "ada")[1])["notes"]
    assert (note["text"], note["source"]) == ("My name is Ada", "rules")
    assert command("forget", note["id"], "--user", "ada") == (0, f"Deleted: {note['id']}.\n", "")
    assert json.loads(command("list", "--user", callers["ada"].id, "--json")[1])["notes"] == []
    assert command("clear", "--user", "ada")[0] == 0
    assert command("users")[1] == "There are no notes.\n"


def test_over_stdio_there_is_the_user_of_this_machine(configure, running, command):
    configure(default=_ON, other={})

    async def talk():
        async with running() as service:
            await _say(service, "My name is Ada. What time is it")
            tools = [{each.name for each in (await service.agent(name)).toolbox.tools()} for name in _NAMES]
            assert tools[0] - tools[1] == {"remember", "recall", "forget"}

    anyio.run(talk)
    assert "identity My name is Ada" in command()[1]
    assert command("users")[1].split() == [LOCAL_USER]
    assert "no note 'm0'" in command("show", "m0")[2]
    assert "no token 'adda'" in command("list", "--user", "adda")[2]
    assert command("clear")[1] == "Notes deleted: 1.\n"


async def test_notes_do_not_stay_on_one_of_several_machines(configure, running):
    configure(default=_ON)
    async with running(database="postgresql://db.example/loom") as service:
        with pytest.raises(ConfigError, match="--database"):
            await service.agent("default")
