"""Skills: found in folders, listed for the model, loaded and read by tools, and broken ones left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from loom_core.agent import Agent, SkillSet
from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.llm.messages import SystemMessage
from loom_core.llm.mock import MockProvider
from loom_core.testing import MockLLM, call

_LONG = "读".join(["说明"] * 600)


def _write(folder: Path, front: str, body: str = "# 表格\n先读 references/forms.md。\n") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(f"---\n{front}\n---\n{body}", encoding="utf-8")
    return folder


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """A folder of two skills, one of which has further files and a link that leads outside."""
    forms = _write(
        tmp_path / "skills" / "pdf-forms",
        "name: pdf-forms\ndescription: >\n  Fills\n  PDF forms.\nallowed-tools: [Bash(git:*), Read]\n"
        "compatibility: Needs qpdf.\nlicense: MIT\nmetadata: {author: 小王}",
    )
    (forms / "references").mkdir()
    (forms / "references" / "forms.md").write_text("一\n二\n三\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("密", encoding="utf-8")
    (forms / "out").symlink_to(tmp_path / "secret.txt")
    _write(tmp_path / "skills" / "letters", "name: letters\ndescription: Writes letters.", "")
    (tmp_path / "skills" / "README.md").write_text("no skill", encoding="utf-8")
    return tmp_path / "skills"


def _prompts(llm: MockProvider) -> list[str]:
    return [
        each.text for request in llm.calls for each in request.messages if isinstance(each, SystemMessage)
    ]


async def test_the_model_sees_descriptions_and_loads_the_rest(skills: Path) -> None:
    llm = MockLLM(
        [
            call("load_skill", name="pdf-forms"),
            call("read_skill_file", skill="pdf-forms", path="references/forms.md", start_line=2),
            "好了。",
        ]
    )
    async with Agent(llm, skills=[skills]) as agent:
        result = await agent.run("填表")
        assert result.or_raise().output == "好了。"
    prompt = _prompts(llm)[0]
    assert "- letters: Writes letters.\n- pdf-forms: Fills PDF forms." in prompt
    assert "references/forms.md" not in prompt
    loaded, read = llm.tool_results
    for part in ("- references/forms.md", "Bash(git:*) Read", "Needs qpdf.", "# 表格\n先读", str(skills)):
        assert part in loaded
    assert "description:" not in loaded
    assert read.startswith("二\n三")


async def test_a_run_that_may_not_load_skills_is_not_told_of_them(skills: Path) -> None:
    llm = MockLLM(["好。", "好。"])
    async with Agent(llm, skills=[skills / "letters"], system_prompt="Be brief.") as agent:
        await agent.run("问", allowed_tools=["other"])
        await agent.run("问")
    without, with_skills = _prompts(llm)
    assert "letters" not in without
    assert with_skills.startswith("Be brief.\n\nSkills are")


def test_a_tool_cannot_leave_the_folder_of_a_skill(skills: Path) -> None:
    loaded = SkillSet.load([skills])
    assert "- references/forms.md" in loaded.read_skill_file("pdf-forms").text
    for path in ("../letters/SKILL.md", str(skills / "letters" / "SKILL.md"), "out"):
        with pytest.raises(InvalidInputError, match="outside"):
            loaded.read_skill_file("pdf-forms", path)
    with pytest.raises(NotFoundError, match="Did you mean: `pdf-forms`"):
        loaded.load_skill("pdf-form")


def test_a_long_skill_is_loaded_in_parts_and_as_it_is_now(skills: Path) -> None:
    loaded = SkillSet.load([skills])
    assert "no instructions" in loaded.load_skill("letters").text
    lines = "\n".join(f"第{number}行，请按说明办理。" for number in range(2000))
    _write(skills / "letters", "name: letters\ndescription: d", lines)
    text = loaded.load_skill("letters").text
    assert "第0行" in text
    assert "第1999行" not in text
    start = int(text.rpartition("start_line=")[2].rstrip("]"))
    assert loaded.read_skill_file("letters", "SKILL.md", start).text.startswith(f"第{start - 5}行")


@pytest.mark.parametrize("pattern", [".", "*", "skills/*", "skills/pdf-*/SKILL.md", "skills/pdf-forms"])
def test_paths_are_folders_and_patterns(skills: Path, pattern: str) -> None:
    base = skills if pattern == "." else skills.parent
    assert "pdf-forms" in SkillSet.load([pattern], folder=base).skills


@pytest.mark.parametrize(
    ("front", "problem", "used"),
    [
        ("name: a\ndescription: b: c", r"a.SKILL\.md:3:15: the front matter is not YAML: .*quotes", False),
        ("- name", "has no fields", False),
        ("name: PDF_Forms\ndescription: d", "`name` is 'PDF_Forms'.*a-z, 0-9", False),
        (f"name: {'a' * 65}\ndescription: d", "`name` is .*1 to 64", False),
        ("description: d", "`name` is missing", False),
        ("name: a", "`description` is missing", False),
        ("name: b\ndescription: d", "'b' is not the name of its folder. Rename", True),
        (f"name: a\ndescription: {_LONG}", "only 1,024 of 1,799 characters", True),
    ],
)
def test_a_problem_of_one_skill_does_not_stop_the_others(
    skills: Path, front: str, problem: str, used: bool
) -> None:
    _write(skills / "a", front)
    loaded = SkillSet.load([skills])
    assert len(loaded.skills) == 2 + used
    (found,) = loaded.problems
    with pytest.raises(ConfigError, match=problem):
        raise found


def test_of_two_skills_with_one_name_the_first_is_used(skills: Path, tmp_path: Path) -> None:
    other = _write(tmp_path / "other" / "letters", "name: letters\ndescription: Others.")
    loaded = SkillSet.load([other, skills, skills / "letters"])
    assert loaded.skills["letters"].description == "Others."
    assert [each.advice for each in loaded.problems] == ["Rename one of them."]


async def test_many_skills_share_the_room_in_the_prompt(tmp_path: Path) -> None:
    for number in range(201):
        _write(tmp_path / f"s{number:03}", f"name: s{number:03}\ndescription: {_LONG[:1000]}")
    loaded = SkillSet.load([tmp_path])
    assert [each.advice for each in loaded.problems] == ["Leave some out."]
    llm = MockLLM(["好。"])
    async with Agent(llm, skills=loaded) as agent:
        await agent.run("问")
    (prompt,) = _prompts(llm)
    assert prompt.count("…\n") == 200
    assert len(prompt) < 20_000


@pytest.mark.parametrize(
    "given", ["skills", [3], ["/no/such/folder"], ["no-*"], ["~no-such-user/a"], ["a\0"], ["**a"]]
)
def test_wrong_paths_are_errors_of_the_program(given: object) -> None:
    with pytest.raises(ConfigError, match=r"[Ss]kill"):
        Agent(MockLLM(["好"]), skills=given)  # pyright: ignore[reportArgumentType] - that is the mistake
