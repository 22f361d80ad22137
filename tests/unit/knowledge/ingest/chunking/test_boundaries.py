from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.ingest.chunking.boundaries import find_split, is_joined, sentence_ends


def sentences(text: str) -> list[str]:
    cuts = [0, *sentence_ends(text, 0, len(text)), len(text)]
    pieces = [text[a:b].strip() for a, b in pairwise(cuts)]
    return [piece for piece in pieces if piece]


@pytest.mark.parametrize(
    "text",
    [
        "Dr. Smith met Mrs. Jones and Prof. Li.",
        "It holds for mammals, e.g. Whales, i.e. Large ones, cf. Darwin.",
        "The U.S. Army left at 5 p.m. Tuesday.",
        "The value is 3.14 and not 2.71.",
        "See Fig. 3 and Sec. 4 of Brown et al. (2020) in vol. 7.",
        "J. R. R. Tolkien wrote it.",
        '"Why?" he asked, "and how?" she said.',
        "Wait... there is more.",
        "Well… not quite.",
        "Read settings.toml first.",
        "1. First item",
        "Apple Inc. Chairman Levinson agreed.",
    ],
)
def test_marks_inside_an_english_sentence_do_not_end_it(text: str):
    assert sentences(text) == [text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One ends. Two ends! Does three? Yes.", ["One ends.", "Two ends!", "Does three?", "Yes."]),
        ("He lives in the U.S. The others do not.", ["He lives in the U.S.", "The others do not."]),
        ("It was in 1999. Then it stopped.", ["It was in 1999.", "Then it stopped."]),
        ('She said "No." Then she left.', ['She said "No."', "Then she left."]),
        ("Nothing... But then.", ["Nothing...", "But then."]),
        ("Take plan B. It works.", ["Take plan B.", "It works."]),
        ("天下雨了。他问：「真的吗？」然后走了。", ["天下雨了。", "他问：「真的吗？」", "然后走了。"]),
        (
            "“好。”他说。这是第一点；这是第二点……完",
            ["“好。”", "他说。", "这是第一点；", "这是第二点……", "完"],
        ),
        ("她喊：『快跑！』」接着", ["她喊：『快跑！』」", "接着"]),
        ("यह पहला है। यह दूसरा है।", ["यह पहला है।", "यह दूसरा है।"]),
        (") . Then", [") .", "Then"]),
    ],
)
def test_sentences_end_with_their_marks_and_closing_quotes(text: str, expected: list[str]):
    assert sentences(text) == expected


def test_a_sentence_end_at_the_edge_of_a_stretch_is_judged_by_what_follows():
    text = "The value is 3.14 today. Next"
    assert list(sentence_ends(text, 0, 15)) == []
    assert list(sentence_ends(text, 0, 24)) == [24]
    assert list(sentence_ends("他说：「好。」走了", 0, 6)) == []


@pytest.mark.parametrize(
    "character",
    [
        "e\u0301",  # e with a combining acute
        "\u2764\ufe0f",  # heart with a variation selector
        "葛\U000e0100",  # Han with an ideographic variation selector
        "👍🏽",
        "👩‍👩‍👧",
        "🇨🇳",
        "\ud83d\ude00",  # a surrogate pair that was not joined
        "🏴\U000e0067\U000e0062\U000e007f",
        "ก้",
    ],
)
def test_the_code_points_of_one_character_are_joined(character: str):
    text = f"字{character}x"
    assert not is_joined(text, 1)
    assert all(is_joined(text, index) for index in range(2, 1 + len(character)))
    assert not is_joined(text, 1 + len(character))


def test_flags_in_a_row_are_parted_in_pairs():
    assert [is_joined("🇨🇳🇩🇪🇫🇷", index) for index in range(6)] == [False, True, False, True, False, True]


def test_nothing_is_joined_at_the_ends_of_a_text_or_after_white_space():
    assert not is_joined("e\u0301", 0)
    assert not is_joined("e\u0301", 2)
    assert not is_joined("\n\u0301", 1)
    assert not is_joined("", 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aaaa bbb. ccc\n\nddd eee. fff, ggg hhh iii", "aaaa bbb. ccc\n\n"),
        ("aaaa bbb ccc. Ddd eee, fff\nggg hhh iii jjj", "aaaa bbb ccc."),
        ("aaaa bbb ccc ddd\neee, fff ggg hhh iii jjj", "aaaa bbb ccc ddd\n"),
        ("aaaa bbb ccc ddd, eee fff ggg hhh iii jjj", "aaaa bbb ccc ddd,"),
        ("aaaa bbb ccc ddd eee fff ggg hhh iii jjj", "aaaa bbb ccc ddd eee fff ggg "),
        ("知识图谱是一种方法，它使用图结构来表示知识以及知识之间的关系和推理", "知识图谱是一种方法，"),
    ],
)
def test_a_cut_takes_the_best_kind_of_boundary(text: str, expected: str):
    assert text[: find_split(text, 5, 30)] == expected


def test_a_cut_through_unbroken_chinese_leaves_latin_words_whole():
    text = "使用图结构表示知识的方法HTTPServer类来完成"
    assert text[: find_split(text, 2, 18)] == "使用图结构表示知识的方法"


def test_a_cut_moves_past_a_character_that_fills_all_the_room():
    text = "e" + "\u0301" * 6 + "xyz"
    assert find_split(text, 0, 2) == 7


@pytest.mark.hostile("files of any kind")
def test_endless_combining_marks_are_cut_all_the_same():
    text = "e" + "\u0301" * 500
    assert 100 <= find_split(text, 50, 100) <= 150


@given(st.text(min_size=3), st.data())
def test_a_cut_lies_between_its_bounds_or_after_a_joined_character(text: str, data: st.DataObject):
    limit = data.draw(st.integers(1, len(text) - 1))
    floor = data.draw(st.integers(0, limit - 1))
    cut = find_split(text, floor, limit)
    assert floor < cut
    assert cut <= limit or all(is_joined(text, index) for index in range(limit, min(cut, limit + 32)))
    assert not is_joined(text, cut)
