"""A flow file that changes while it is used."""

from __future__ import annotations

import logging

import anyio
import pytest

from loom_core.errors import ConfigError
from loom_core.flow.config import FlowFileWatch, flow_file_problems, flow_file_warnings


def _write(path, name):
    # As editors do: a new file in the place of the old one.
    new = path.with_suffix(".new")
    new.write_text(f'{{"basic_settings": {{"name": "{name}"}}}}', encoding="utf-8")
    new.replace(path)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "flow.json"
    _write(path, "一")
    return path


async def test_what_has_changed_is_read_again(path):
    watch = FlowFileWatch(path, interval=0)
    first = await watch.latest()
    assert await watch.latest() is first
    _write(path, "二")
    second = await watch.latest()
    assert second.file.basic_settings.name == "二"
    assert second.version != first.version
    assert first.file.basic_settings.name == "一"
    assert watch.problem == ""


async def test_a_file_that_becomes_wrong_changes_nothing_and_it_is_said_so(path, caplog):
    watch = FlowFileWatch(path, interval=0)
    first = await watch.latest()
    path.write_text('{"flows": [\n{"flow_id": 3}]}', encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        assert await watch.latest() is first
        assert await watch.latest() is first
    assert f"{path}:2:2: " in watch.problem
    assert len(caplog.records) == 1
    _write(path, "三")
    assert (await watch.latest()).file.basic_settings.name == "三"
    assert watch.problem == ""


@pytest.mark.parametrize("text", ["", "\n", "// later\n"])
async def test_a_file_that_an_editor_has_emptied_changes_nothing(path, text):
    watch = FlowFileWatch(path, interval=0)
    first = await watch.latest()
    path.write_text(text, encoding="utf-8")
    assert await watch.latest() is first
    assert "there is nothing in it" in watch.problem
    with pytest.raises(ConfigError, match="there is nothing in it"):
        await FlowFileWatch(path).latest()
    assert "there is nothing in it" in str(flow_file_problems(path)[0])


async def test_an_address_that_may_not_be_asked_is_warned_of(path, caplog):
    written = '{"flow_url": "http://169.254.169.254/", "net": {"allow": ["10.0.0.1"]}, "flows": [%s]}'
    flows = '{"flow_id": "a", "endpoint": "GET http://10.0.0.%d/x"}'
    path.write_text(written % flows % 1, encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        await FlowFileWatch(path).latest()
    assert ["metadata" in each.getMessage() for each in caplog.records] == [True]
    path.write_text(written % flows % 2, encoding="utf-8")
    assert ["private address" in each.message for each in flow_file_warnings(path)] == [False, True]


async def test_a_file_that_is_taken_away_changes_nothing(path):
    watch = FlowFileWatch(path, interval=0)
    first = await watch.latest()
    path.unlink()
    assert await watch.latest() is first
    assert "There is no file" in watch.problem
    _write(path, "一")
    assert await watch.latest() is first
    assert watch.problem == ""


async def test_what_was_never_in_order_is_refused(path):
    path.write_text("{", encoding="utf-8")
    watch = FlowFileWatch(path, interval=0)
    with pytest.raises(ConfigError):
        await watch.latest()
    _write(path, "一")
    assert (await watch.latest()).file.basic_settings.name == "一"


async def test_between_two_looks_the_file_is_left_alone(path):
    watch = FlowFileWatch(path, interval=3600)
    first = await watch.latest()
    _write(path, "二")
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(watch.latest)
    assert await watch.latest() is first
