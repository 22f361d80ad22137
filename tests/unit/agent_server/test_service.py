"""What calls are told where runs cannot be driven."""

from __future__ import annotations

import sys

import anyio
import pytest

from loom_core.errors import LoomError


async def test_calls_are_told_that_runs_cannot_be_driven_rather_than_wait_for_ever(running, monkeypatch):
    monkeypatch.setitem(sys.modules, "loom_core.runs.host", None)  # as where an installation is broken
    with anyio.fail_after(30):
        async with running() as service:
            with pytest.raises(LoomError, match="cannot execute runs"):
                await service.start("What time is it?")
            assert await service.runs() == []


@pytest.mark.slow
async def test_who_waits_for_a_run_is_told_why_it_does_not_go_on(running, configure):
    configure(研究={})
    async with running() as service:
        run = await service.start("wait 30")
    configure(研究={"model": "deepseek"})
    async with running() as service:
        with anyio.fail_after(30):
            while not (held := await service.changed(run.id, after=run.last_seq, seconds=0.1)).problem:
                pass
        assert held.status == "working"
        assert "DEEPSEEK_API_KEY" in held.problem
        assert (await service.run(run.id)).problem == held.problem
