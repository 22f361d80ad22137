from __future__ import annotations

from loom_core.errors import LLMError
from loom_core.llm.mock import MockProvider
from tests.unit.flow.conftest import LEAVE, decides, talking


async def test_rules_are_explained_with_pattern_and_place() -> None:
    llm = MockProvider([])
    async with talking(llm=llm) as talk:
        found = await talk.assistant.explain("我要请三天假")
        assert (found.decided_by, found.action, found.flow_id) == ("rules", "flow", "leave")
        assert found.parameters == {"days": 3}
        first = found.match.matches[0]
        assert (first.pattern, first.start, first.end) == (LEAVE["trigger_patterns"][0], 2, 6)
        assert found.timings["rules"] < 1
        assert await talk.assistant.journal.runs() == []
    assert llm.calls == []


async def test_doubt_is_explained() -> None:
    async with talking() as talk:
        refused = await talk.assistant.explain("我不请假了")
        assert (refused.decided_by, refused.action) == ("rules", "clarify")
        assert refused.match.matches[0].negation == "negation"
        asked = await talk.assistant.explain("怎么请假")
        assert (asked.decided_by, asked.action) == ("rules", "respond")
        assert (await talk.assistant.explain("今天天气怎样")).decided_by == "none"
        assert (await talk.assistant.explain("你好")).action == "greet"


async def test_what_the_model_would_decide_is_asked_and_not_done() -> None:
    llm = MockProvider([decides("flow", "leave", parameters={"days": 3, "reason": "感冒"})])
    async with talking(llm=llm) as talk:
        without = await talk.assistant.explain("我感冒了，想休息三天", ask_model=False)
        assert (without.decided_by, without.action, without.decision) == ("model", "", None)
        found = await talk.assistant.explain("我感冒了，想休息三天")
        assert (found.decided_by, found.action, found.flow_id) == ("model", "flow", "leave")
        assert found.decision is not None
        assert found.decision.confidence == 0.9
        assert found.timings["decision"] < 1
        assert talk.api.asked == []
        assert await talk.assistant.journal.runs() == []


async def test_where_the_model_fails_it_says_why() -> None:
    def down(_: object) -> LLMError:
        return LLMError("The model is overloaded.", failure="overloaded")

    async with talking(llm=MockProvider(down)) as talk:
        found = await talk.assistant.explain("今天天气怎样")
        assert (found.decided_by, found.problem) == ("none", "The model is overloaded.")


async def test_what_a_waiting_run_would_be_told_is_explained_and_not_told() -> None:
    async with talking({**LEAVE, "confirm": "always"}) as talk:
        begun = await talk("我要请三天假")
        for _ in range(2):
            found = await talk.assistant.explain("感冒了", session_id=begun.session_id)
            assert (found.decided_by, found.action, found.run_id) == ("pending", "answer", begun.run_id)
            assert found.parameters == {"reason": "感冒了"}
        assert (await talk.assistant.explain("算了", session_id=begun.session_id)).action == "cancel"
        await talk("感冒了")
        assert (await talk.assistant.explain("好的", session_id=begun.session_id)).action == "approve"
        corrected = await talk.assistant.explain("改成五天", session_id=begun.session_id)
        assert (corrected.action, corrected.parameters) == ("correct", {"days": 5})
    assert talk.api.asked == []


async def test_an_offer_stays_while_it_is_explained() -> None:
    async with talking() as talk:
        await talk("我不请假了")
        assert (await talk.assistant.explain("是的", session_id=talk.session_id)).decided_by == "choice"
        assert (await talk("是的")).flow_id == "leave"
