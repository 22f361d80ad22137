"""A deterministic flow: outline, check, story. The program decides on the order, not a model.

    uv run examples/agents/story.py 一条怕火的龙

A subject that the check does not pass gets no story: the step is skipped. LOOM_EXAMPLE_MODEL=deepseek asks
that model; otherwise scripts answer.
"""

from __future__ import annotations

import asyncio
import os
import sys

from pydantic import BaseModel

from loom_core.agent import Agent, Results, Workflow, WorkflowStep
from loom_core.errors import LoomError
from loom_core.testing import MockLLM

SUBJECTS = ["一条怕火的龙", "第三季度的销售报告"]


class Verdict(BaseModel):
    """Judgement of an outline."""

    is_for_children: bool
    reason: str


def flow(outliner: Agent, critic: Agent, writer: Agent) -> Workflow:
    """Return the steps, and what each of them waits for."""

    async def check(outline: str) -> Verdict:
        return (await critic.run(outline, output_schema=Verdict)).data

    def passes(results: Results) -> bool:
        verdict = results["check"]
        return isinstance(verdict, Verdict) and verdict.is_for_children

    return Workflow(
        [
            WorkflowStep("outline", outliner),
            WorkflowStep("check", check, after=["outline"]),
            WorkflowStep("story", writer, after=["check"], given=lambda it: it["outline"], when=passes),
        ]
    )


async def main(subjects: list[str]) -> None:
    model = os.environ.get("LOOM_EXAMPLE_MODEL")
    outliner = Agent(
        model or MockLLM(lambda request: f"提纲：{request.messages[-1].text}，出门，遇险，回家。"),
        system_prompt="Write the outline of a story in one sentence, in the language of the subject.",
    )
    critic = Agent(
        model or MockLLM(lambda request: judge(request.messages[-1].text).model_dump_json()),
        system_prompt="Say whether the outline is one for a children's story.",
    )
    writer = Agent(
        model or MockLLM(["从前有一条龙，它怕火。一天，它出门去找水……"]),
        system_prompt="Write a story of three sentences along the outline.",
    )
    async with outliner, critic, writer:
        workflow = flow(outliner, critic, writer)
        for subject in subjects:
            result = await workflow.run(subject)
            for step in result.steps:
                print(f"{step.step} ({step.status}): {step.value}")


def judge(outline: str) -> Verdict:
    """Stand in for the critic's model."""
    is_tale = "龙" in outline
    return Verdict(is_for_children=is_tale, reason="龙很可爱。" if is_tale else "这是报告，不是故事。")


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1:] or SUBJECTS))
    except LoomError as error:
        sys.exit(str(error))
