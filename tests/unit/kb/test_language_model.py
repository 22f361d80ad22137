"""A language model for `loom-kb`: how it is chosen, what it may read, and what is told of it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from loom_kb.cli import SERVER, run
from loom_kb.language_model import configuration, model_section, model_setting, run_with_confirmation
from loom_kb.service import KnowledgeService
from loom_kb.settings import Settings
from loom_kb.texts import confirmation_text, job_text, source_line

from loom_core.errors import ConfigError, InvalidInputError
from loom_core.knowledge.ingest.extraction_estimate import ConfirmationNeededError, ExtractionEstimate

SAID = json.dumps({"entities": [{"name": "zell", "type": "town"}, {"name": "泽尔", "type": "town"}]})
# A limit of one dollar is above what no one knows the price of; a model that costs has one.
DEAR = {"input": 1e6, "output": 1e6}


def mock(*answers: str) -> str:
    return json.dumps({"provider": "mock", "options": {"responses": list(answers)}})


def without_key(**settings: Any) -> str:
    return json.dumps({"provider": "deepseek", "model": "deepseek-flash", **settings})


@pytest.fixture
async def services(tmp_path: Path) -> AsyncGenerator[Callable[[str], KnowledgeService]]:
    """Makes services of one home, each with the language model that it is given."""
    made: list[KnowledgeService] = []

    def make(llm: str) -> KnowledgeService:
        made.append(
            KnowledgeService(Settings(home=tmp_path, embedder="hashing", llm=llm, version="1"), look=1.5)
        )
        return made[-1]

    yield make
    for service in made:
        await service.library.close_connections()
        service.library.close()


async def added(service: KnowledgeService, text: str, **options: Any):
    (knowledge_base,), job = await service.add(
        replace(service.request_texts([text]), **options), source="notes"
    )
    await knowledge_base.worker.drain()
    (info,) = [info for info in (await service.jobs()).jobs if info.id == job]
    return knowledge_base, info


# -- choosing ---------------------------------------------------------------------------------------


def test_the_option_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOOM_KB_LLM", " deepseek ")
    assert model_setting(None) == "deepseek"
    assert model_setting("ollama/qwen") == "ollama/qwen"
    assert SERVER.settings_of(SERVER.parser().parse_args(["add", "x", "--llm", "none"])).llm == "none"
    monkeypatch.delenv("LOOM_KB_LLM")
    assert SERVER.settings_of(SERVER.parser().parse_args(["add", "x"])).llm == ""


def test_a_text_is_taken_as_it_is_and_json_is_read():
    assert configuration("deepseek/deepseek-flash") == "deepseek/deepseek-flash"
    assert configuration("none") == configuration("") == ""
    assert configuration('{"provider": "mock"}') == {"provider": "mock"}


def test_broken_json_is_not_repeated_as_a_key_may_be_in_it():
    with pytest.raises(ConfigError) as refused:
        configuration('{"api_key": "sk-secret"')
    assert "sk-secret" not in str(refused.value)
    assert refused.value.advice


def test_a_key_in_the_configuration_is_refused_without_being_shown(tmp_path: Path, capsys: Any):
    (tmp_path / "note.md").write_text("在泽尔有一个湖。", encoding="utf-8")
    add = ["add", str(tmp_path / "note.md"), "--home", str(tmp_path), "--embedder", "hashing"]
    assert run([*add, "--llm", without_key(api_key="sk-secret")]) == 1
    said = capsys.readouterr().err
    assert "sk-secret" not in said
    assert said.startswith("loom-kb: ")


@pytest.mark.slow
def test_nothing_that_reads_or_prepares_documents_is_loaded_at_the_start(tmp_path: Path):
    program = (
        "import sys; from pathlib import Path; from loom_kb.app import build; "
        "from loom_kb.settings import Settings; build(Settings(home=Path(sys.argv[1]))); "
        "parts = ('ingest.extraction', 'ingest.workers', 'rag.knowledge_base'); "
        "print(*(f'loom_core.knowledge.{part}' in sys.modules for part in parts))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, timeout=60)
    assert done.stdout.split() == [b"False"] * 3


@pytest.mark.slow
def test_no_sdk_is_loaded_before_the_first_use(tmp_path: Path):
    program = (
        "import sys; from pathlib import Path; from loom_kb.app import build; "
        "from loom_kb.settings import Settings; build(Settings(home=Path(sys.argv[1]), llm='deepseek')); "
        "sys.exit(len({'openai', 'anthropic', 'genai_prices', 'keyring'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, timeout=60)


# -- reading ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["in zell there is a lake.", "泽尔有一个湖。"])
async def test_what_the_model_takes_is_told_with_the_job(
    services: Callable[[str], KnowledgeService], text: str
):
    knowledge_base, info = await added(services(mock(SAID)), text)
    assert "llm" in {row["method"] for row in knowledge_base.store.database.rows("SELECT * FROM mentions")}
    assert (info.tokens_read or 0) > 0
    assert (info.tokens_written or 0) > 0
    assert info.cost is None
    assert "written by a model (cost not known)" in job_text([info])


async def test_without_a_model_nothing_is_told_of_one(services: Callable[[str], KnowledgeService]):
    service = services("")
    _, info = await added(service, "in zell there is a lake.")
    assert (info.tokens_read, info.tokens_written, info.cost) == (None, None, None)
    assert "model" not in job_text([info])
    assert service.library.list()[0].llm == ""
    assert model_section(service.library) is None


async def test_whose_documents_a_model_read_is_not_gone_on_with_by_rules_unnoticed(
    services: Callable[[str], KnowledgeService],
):
    await added(services(mock(SAID)), "in zell there is a lake.")
    forgetful = services("")
    assert forgetful.library.list()[0].llm == "mock/mock"
    with pytest.raises(ConfigError, match=r"mock/mock read the documents .* --llm none"):
        await added(forgetful, "泽尔有一个湖。")
    await added(services("none"), "泽尔有一个湖。")
    assert forgetful.library.list()[0].llm == ""
    await added(forgetful, "more.")


async def test_a_dear_text_is_not_begun_until_someone_agrees(
    services: Callable[[str], KnowledgeService], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-test")
    service = services(without_key(prices=DEAR, base_url="http://127.0.0.1:9", retry={"attempts": 1}))
    with pytest.raises(ConfirmationNeededError) as asked:
        await added(service, "in zell there is a lake.")
    assert asked.value.estimate.passages == 1
    assert (asked.value.estimate.cost or 0) > 1
    assert (await service.jobs()).jobs == []
    (knowledge_base,), job = await service.add(
        replace(service.request_texts(["in zell there is a lake."]), confirm=True), source="notes"
    )
    assert knowledge_base.job(job).request["confirmed"] is True


async def test_a_folder_and_a_page_are_refused_where_the_key_is_missing(
    services: Callable[[str], KnowledgeService], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    service = services(without_key())
    (tmp_path / "note.md").write_text("泽尔有一个湖。", encoding="utf-8")
    files = await service.request_files([tmp_path / "note.md"])
    for request in (files, service.request_texts(["x y"])):
        with pytest.raises(ConfigError, match="DEEPSEEK_API_KEY"):
            await service.add(request, source="notes")
    section = model_section(service.library)
    assert section is not None
    assert section.facts == {"model": "deepseek/deepseek-flash", "usable": False}
    [finding] = section.findings
    assert (finding.code, finding.message) == ("model-unusable", "There is no key for DeepSeek.")
    assert "DEEPSEEK_API_KEY" in finding.remedy


async def test_the_doctor_says_which_model_is_set_and_never_its_key(
    services: Callable[[str], KnowledgeService], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-of-the-doctor")
    section = model_section(services("deepseek/deepseek-flash").library)
    assert section is not None
    assert section.facts == {"model": "deepseek/deepseek-flash", "usable": True}
    assert "sk-of-the-doctor" not in section.model_dump_json()
    wrong = model_section(services("no-such-vendor").library)
    assert wrong is not None
    assert "no-such-vendor" in wrong.findings[0].message
    assert wrong.findings[0].remedy


def test_a_source_tells_what_finds_its_entities(capsys: Any, tmp_path: Path):
    home = ["--home", str(tmp_path), "--embedder", "hashing"]
    (tmp_path / "note.md").write_text("在泽尔有一个湖。", encoding="utf-8")
    assert run(["add", str(tmp_path / "note.md"), *home, "--llm", mock(SAID)]) == 0
    capsys.readouterr()
    assert run(["list", *home]) == 0
    assert "entities by mock/mock and rules" in capsys.readouterr().out
    assert run(["stats", *home, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["extraction"] == "mock/mock and rules"


def test_syncing_rebuilding_and_importing_ask_first_too(
    capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-test")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "note.md").write_text("在泽尔有一个湖。", encoding="utf-8")
    home = ["--home", str(tmp_path / "home")]
    assert run(["sync", str(folder), *home, "--embedder", "hashing"]) == 0
    dear = ["--llm", without_key(prices=DEAR, base_url="http://127.0.0.1:9", retry={"attempts": 1})]
    (folder / "note.md").write_text("在泽尔有一个大湖。", encoding="utf-8")
    for command in (["sync", str(folder)], ["rebuild", "--all-from-text"], ["add", str(folder)]):
        capsys.readouterr()
        assert run([*command, *home, *dear]) == 1
        said = capsys.readouterr().err
        assert "1 passages of 1 documents" in said
        assert "Agree to it with --yes." in said
    archive = str(tmp_path / "notes.zip")
    assert run(["export", archive, *home]) == 0
    capsys.readouterr()
    assert run(["import", archive, "--kb", "other", *home, *dear]) == 1
    assert "more needs a confirmation" in capsys.readouterr().out
    assert run(["sync", str(folder), "--watch", "--yes", *home, *dear]) == 1
    assert "Sync once with --yes" in capsys.readouterr().err


# -- agreeing ---------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("answer", "agreed"), [("y\n", True), ("Yes\n", True), ("\n", False), ("是\n", False)]
)
def test_a_person_at_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch, answer: str, agreed: bool):
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", Terminal())
    calls: list[bool] = []

    async def add(confirm: bool) -> str:
        calls.append(confirm)
        if not confirm:
            raise ConfirmationNeededError(ExtractionEstimate(1, 2, 3, 4, 5, None))
        return "done"

    if agreed:
        assert anyio.run(lambda: run_with_confirmation(add, yes=False)) == "done"
        assert calls == [False, True]
    else:
        with pytest.raises(InvalidInputError, match=r"Nothing was done\."):
            anyio.run(lambda: run_with_confirmation(add, yes=False))
        assert calls == [False]
    shown = sys.stderr.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
    assert "2 passages of 1 documents in 3 requests" in shown
    assert shown.endswith("Begin? [y/N] ")


def test_what_would_be_read_is_told_with_how_to_agree():
    told = confirmation_text(ExtractionEstimate(3, 20, 4, 9000, 3000, None, by_size=True, more=True))
    assert "more than 20 passages of 3 documents" in told
    assert "at an unknown price, estimated by the sizes of files" in told
    assert "confirm: true" in told


def test_a_source_read_by_rules_says_nothing_of_it(tmp_path: Path):
    from loom_kb.models import SourceDetails

    details = SourceDetails(
        name="a", description="", documents=1, passages=1, filters=[], extraction="rules", held_by=""
    )
    assert "entities by" not in source_line(details)
