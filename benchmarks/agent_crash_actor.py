"""One process of the crash run of agents (`agent_crash.py`), which goes on until it is killed.

    python benchmarks/agent_crash_actor.py drive JOURNAL SOCKET
    python benchmarks/agent_crash_actor.py person JOURNAL SEED

`drive` executes runs. Their model's replies follow from the conversation alone, so that they are the same in
every process; the process that listens at the socket counts the effects of tools. One of the tools is an
agent, with its own task and the same other tools. Some runs are of a router, as in agent.json, which gives
the task to one of two such agents; others of two agents that hand the conversation over to each other. Users
say what they are allergic to, which is noted. `person` starts runs, answers their questions, and now and then
pauses, aborts, resumes or messages one; once the file `JOURNAL.stop` is there, it starts nothing and lets all
runs come to their end.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import anyio
from killing import journal_place
from loom_agent.profiles.composition import CompositionModel
from loom_agent.profiles.profile_config import HandoffConfig, ProfileConfig
from loom_agent.profiles.step_tools import StepTool, handoff_tools, step_tools
from person import BY, Person, act

from loom_core.agent.agent import Agent
from loom_core.agent.compaction.summary import SECTIONS
from loom_core.agent.compaction_settings import Compaction
from loom_core.agent.teams.agent_tool import AgentTool
from loom_core.agent.user_memory.memory import UserMemory
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.errors import InvalidInputError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import AssistantMessage, ToolCallPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.commands import ApprovalDecision, Reply
from loom_core.runs.host import RunHost
from loom_core.runs.journal import Journal
from loom_core.runs.memory import SQLiteMemory
from loom_core.runs.run import Pending, Run, RunRequest
from loom_core.tools.execution.retries import ToolRetries
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import CallContext, ToolFailure, ToolOutput
from loom_core.tools.permission.permissions import Permissions
from loom_core.tools.permission.rule import PermissionRule

_GOAL = "任务 {number}：把该读的读完，该寄的寄出，该付的付清，该签的签好。"
_STEP = "任务 {task} 第 {step} 步"
_TOOLS = ("read", "fetch", "put", "send", "post", "pay", "pay", "sign")
_FAILING = 0.4  # share of the attempts of `fetch` and `post`
_RETRIES = ToolRetries(base=0.3)  # long enough for some processes to be killed meanwhile
_WINDOW = 4000  # tokens, so that a run of many steps is shortened
_FIRST_HELP = 1_000_000  # tasks from here on are those of the agent that is a tool
_LOOK_SECONDS = 0.3
_HANDOFF = {"members": ["front", "back"]}
_MEMBERS = {"left", "right", "front", "back"}
_ROUTES = {"left": {"when": "任务 \\d*[02468]："}, "right": {}}
_ENDED = {"completed", "aborted"}
_Decide = Callable[[ChatRequest], MockAnswer | str]
_USERS = ("小李", "小张", "小陈")
_ALLERGIES = ("花生", "虾", "牛奶", "芒果", "花粉")


class World:
    """Return the tools; each reports its effect to the counting process before the call has a result."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.tools = [
            tool(self._read, name="read", read_only=True, open_world=False),
            tool(self._put, name="put", idempotent=True, concurrency_safe=True),
            tool(self._send, name="send", concurrency_safe=True),
            tool(self._fetch, name="fetch", read_only=True, open_world=False),
            tool(self._post, name="post", concurrency_safe=True),
            tool(self._pay, name="pay"),
            tool(self._sign, name="sign"),
        ]

    async def _read(self, what: str, context: CallContext) -> str:
        """Read: may be done again, side by side."""
        return await self._done("read", what, context)

    async def _put(self, what: str, context: CallContext) -> str:
        """Put somewhere: may be done again, side by side."""
        return await self._done("put", what, context)

    async def _send(self, what: str, context: CallContext) -> str:
        """Send: once, side by side."""
        return await self._done("send", what, context)

    async def _fetch(self, what: str, context: CallContext) -> str:
        """Fetch: may be done again, and its answer may get lost."""
        fetched = await self._done("fetch", what, context)
        if random.random() < _FAILING:
            raise TimeoutError
        return fetched

    async def _post(self, what: str, context: CallContext) -> ToolOutput:
        """Post: once; it may be refused before anything is done."""
        if random.random() < _FAILING:
            failure = ToolFailure("unavailable", nothing_done=True)
            return ToolOutput("The office is closed.", is_error=True, failure=failure)
        return ToolOutput(await self._done("post", what, context))

    async def _pay(self, what: str, context: CallContext) -> str:
        """Pay: once, one after the other."""
        return await self._done("pay", what, context)

    async def _sign(self, what: str, context: CallContext) -> str:
        """Sign: once, if a person agrees."""
        return await self._done("sign", what, context)

    async def _done(self, name: str, what: str, context: CallContext) -> str:
        await asyncio.sleep(random.random() * 0.03)
        reader, writer = await asyncio.open_unix_connection(self._address)
        effect = {"run": context.run_id, "call": context.call_id, "tool": name, "what": what}
        writer.write(json.dumps(effect).encode() + b"\n")
        await reader.readline()
        writer.close()
        await asyncio.sleep(random.random() * 0.03)
        return f"{name} {what}：" + "山高水长" * 60


def answer(request: ChatRequest) -> MockAnswer | str:
    """The next step of the task: a few calls, or the end."""
    said = "\n".join(message.text for message in request.messages)
    task = max(int(number) for number in re.findall(r"任务 (\d+)：", said))
    done = [int(step) for step in re.findall(rf"任务 {task} 第 (\d+) 步", said)]
    step = max(done, default=0) + 1
    if step > (4 + task % 5 if task < _FIRST_HELP else 1 + task % 2):
        return f"任务 {task} 完成"
    dice = random.Random(f"{task}/{step}")
    names = dice.sample(_TOOLS, dice.randrange(1, 5))
    calls = [
        ToolCallPart(f"t{task}s{step}c{number}", name, {"what": f"t{task}s{step}c{number}"})
        for number, name in enumerate(names)
    ]
    if task < _FIRST_HELP and dice.random() < 0.15:
        goal = _GOAL.format(number=_FIRST_HELP + 10 * task + step)
        calls.append(ToolCallPart(f"t{task}s{step}help", "help", {"goal": goal}))
    return MockAnswer(_STEP.format(task=task, step=step), reasoning="想一想。" * 5, calls=tuple(calls))


def answer_or_hand_over(request: ChatRequest) -> MockAnswer | str:
    """The same; but of some tasks, the other member does everything again before the end."""
    turn = answer(request)
    tool_name = next((spec.name for spec in request.tools if spec.name.startswith("handoff_to_")), "")
    if isinstance(turn, MockAnswer) or not tool_name:
        return turn
    task = int(turn.split()[1])
    made = [message for message in request.messages if isinstance(message, AssistantMessage)]
    is_done = any(call.id == f"t{task}h" for message in made for call in message.tool_calls)
    if is_done or task % 3 < (1 if tool_name == "handoff_to_back" else 2):
        return turn
    return MockAnswer(calls=(ToolCallPart(f"t{task}h", tool_name, {"note": "请你也做一遍。"}),))


def summary(request: ChatRequest) -> str:
    """A summary that says how far the task is."""
    said = "\n".join(message.text for message in request.messages)
    steps = re.findall(r"任务 \d+ 第 \d+ 步", said)
    told = "；".join(sorted(set(steps))[-40:]) or "无"
    return "\n\n".join(f"## {section.title_zh}\n{told}" for section in SECTIONS[:1]) + "".join(
        f"\n\n## {section.title_zh}\n无" for section in SECTIONS[1:]
    )


def user_memory(path: Path) -> UserMemory:
    """Return the memory of users that belongs to a journal."""
    return UserMemory(path.with_name("users"), embedder=HashingEmbedder())


async def drive(path: Path, address: str) -> None:
    """Drive whatever no one drives."""
    journal = Journal(journal_place(path))
    rules = [PermissionRule(action="ask", tool="sign"), PermissionRule(action="allow", tool="*")]
    tools, memory = World(address).tools, SQLiteMemory(journal=journal)

    def member(name: str, *more: AgentTool, decide: _Decide = answer) -> Agent:
        return Agent(
            MockProvider(decide, delay=0.002),
            tools=[*tools, *more],
            journal=journal,
            memory=memory,
            permissions=Permissions(rules),
            compaction=None,
            tool_retries=_RETRIES,
            name=name,
            description="Does a task.",
        )

    helper = member("helper")

    def composition(name: str, config: Mapping[str, object], members: Sequence[StepTool]) -> Agent:
        return Agent(
            CompositionModel(ProfileConfig.model_validate(config), members, llm=None),
            tools=members,
            journal=journal,
            memory=memory,
            permissions=Permissions(rules),
            wait_for_commands=True,
            compaction=None,
            loop_guard=None,
            name=name,
        )

    called = AgentTool(helper, name="help")
    routes = step_tools([member(name, called) for name in _ROUTES])
    desk = composition("desk", {"router": {"routes": _ROUTES, "default": "right"}}, routes)
    speakers = [member(name, called, decide=answer_or_hand_over) for name in _HANDOFF["members"]]
    handing = handoff_tools(speakers, HandoffConfig.model_validate(_HANDOFF).targets)
    office = composition("office", {"handoff": _HANDOFF}, handing)
    agent = Agent(
        MockProvider(answer, delay=0.002),
        tools=[*tools, AgentTool(helper, name="help")],
        journal=journal,
        memory=memory,
        user_memory=user_memory(path),
        permissions=Permissions(rules),
        wait_for_commands=True,
        tool_retries=_RETRIES,
        compaction=Compaction(llm=MockProvider(summary, delay=0.02), window=_WINDOW),
    )
    agents = {each.name: each for each in (agent, desk, office)}
    async with agent, RunHost(journal, agents, look_seconds=_LOOK_SECONDS):
        print("began", flush=True)
        await anyio.sleep_forever()


class Client(Person):
    """Has things done, and sometimes more in the same conversation."""

    resumes = 0.03

    def _is_own(self, run: Run) -> bool:
        return run.request.profile in {"default", "desk", "office"}

    async def _see_to(self, run: Run, *, stopping: bool) -> None:
        if run.request.profile not in _MEMBERS:  # a composition fails if a member is aborted
            await super()._see_to(run, stopping=stopping)

    async def _begin(self) -> None:
        latest = [run for run in await self._journal.runs(limit=100) if self._is_own(run)]
        number = int(latest[0].request.idempotency_key) + 1 if latest else 1
        user, allergy = self._dice.choice(_USERS), self._dice.choice(_ALLERGIES)
        of_user = [run.request for run in latest if run.status in _ENDED and run.request.caller == user]
        earlier = self._dice.choice(of_user[:20]) if of_user and self._dice.random() < 0.4 else None
        profile = self._dice.choices(["default", "desk", "office"], [0.5, 0.2, 0.3])[0]
        request = RunRequest(
            goal=f"{_GOAL.format(number=number)}我对{allergy}过敏。",
            idempotency_key=str(number),
            caller=user,
            profile=profile if earlier is None else earlier.profile,
            session_id="" if earlier is None else earlier.session_id,
        )
        try:
            await self._journal.create(request)
        except InvalidInputError:  # the session is at work
            return

    async def _interfere(self, run: Run, dice: float) -> None:
        if dice < 0.014:
            await self._order(run, Reply(text="请快一点。", by=BY))

    def _said(self, pending: Pending) -> ApprovalDecision:
        if self._dice.random() < (0.5 if pending.kind == "unknown" else 0.2):
            return ApprovalDecision(id=pending.id, action="deny", reason="不用了", by=BY)
        if pending.kind == "approval" and self._dice.random() < 0.3:
            changed = {"what": f"{pending.arguments['what']}（改）"}
            return ApprovalDecision(id=pending.id, action="edit", arguments=changed, by=BY)
        return ApprovalDecision(id=pending.id, action="approve", by=BY)


if __name__ == "__main__":
    anyio.run(act, drive, Client)
