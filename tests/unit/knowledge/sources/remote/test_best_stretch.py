from __future__ import annotations

from loom_core.knowledge.sources.remote.mcp import best_stretch

_FILLER = "The town has a market, a church and a school, and people like to live there. " * 60


async def test_the_stretch_that_answers_is_found_with_its_place():
    text = f"{_FILLER}\n\nThe harbour of Visby was opened in 1901.\n\n{_FILLER}"
    stretch, start = await best_stretch("When was the harbour opened?", text, above="Visby")
    assert "opened in 1901" in stretch
    assert len(stretch) <= 1600
    assert text[start : start + len(stretch)] == stretch


async def test_chinese_is_cut_between_sentences():
    text = (
        "城里有市场、教堂和学校，人们喜欢住在那里。" * 100 + "港口在一九零一年开放。" + "河边有很多树。" * 200
    )
    stretch, start = await best_stretch("港口什么时候开放？", text)
    assert "一九零一年" in stretch
    assert text[start : start + len(stretch)] == stretch
    assert stretch.endswith("。")


async def test_a_short_text_is_itself_and_an_empty_one_nothing():
    assert await best_stretch("rope?", "  Rope.\n") == ("Rope.", 2)
    assert await best_stretch("rope?", " \n") == ("", 0)
