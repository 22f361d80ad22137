from __future__ import annotations

import pytest

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.runs.journal import Journal
from loom_core.runs.run import PARALLEL_RUNS, RunRequest


async def test_a_session_has_a_state_before_it_has_a_run(place: str) -> None:
    journal = Journal(place)
    session = await journal.begin_session(caller="ann")
    assert (await journal.session_state(session, caller="ann")).content == {}
    assert await journal.save_session_state(session, {"上次": "请假"}, version=0, caller="ann")
    await journal.aclose()

    again = Journal(place)
    state = await again.session_state(session, caller="ann")
    assert (state.content, state.version) == ({"上次": "请假"}, 1)
    run = await again.create(RunRequest(goal="go on", session_id=session, caller="ann"))
    assert run.request.session_id == session
    await again.aclose()


async def test_a_state_that_was_made_of_an_older_one_is_not_kept(place: str) -> None:
    journal = Journal(place)
    session = await journal.begin_session()
    assert await journal.save_session_state(session, {"n": 1}, version=0)
    assert not await journal.save_session_state(session, {"n": 2}, version=0)
    assert (await journal.session_state(session)).content == {"n": 1}
    await journal.aclose()


async def test_a_session_is_its_callers_alone(place: str) -> None:
    journal = Journal(place)
    session = await journal.begin_session(caller="ann")
    for caller in ("", "bob"):
        with pytest.raises(NotFoundError):
            await journal.session_state(session, caller=caller)
        with pytest.raises(NotFoundError):
            await journal.save_session_state(session, {}, version=0, caller=caller)
    with pytest.raises(InvalidInputError, match="lone surrogate"):
        await journal.session_state("\ud800")
    await journal.aclose()


async def test_a_run_starts_concurrently_with_those_that_it_knows_and_no_others() -> None:
    journal = Journal()
    first = await journal.create(RunRequest(goal="one"))
    session = first.request.session_id
    with pytest.raises(InvalidInputError, match="has not ended"):
        await journal.create(RunRequest(goal="two", session_id=session))
    second = await journal.create(
        RunRequest(goal="two", session_id=session, metadata={PARALLEL_RUNS: [first.id]})
    )
    with pytest.raises(InvalidInputError, match=second.id):
        await journal.create(
            RunRequest(goal="three", session_id=session, metadata={PARALLEL_RUNS: [first.id]})
        )
    await journal.aclose()
