from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.text.keywords import extract_chunk_keywords


@pytest.mark.parametrize(
    "identifier",
    [
        "HTTPServer",
        "StructureChunker",
        "iPhone",
        "getValue",
        "mRNA",
        "pDCs",
        "APIs",
        "ÉcoleNormale",
        "snake_case",
        "MAX_SIZE",
        "_private",
        "__init__",
        "SHA256",
        "UTF-8",
        "GPT-4",
        "COVID-19",
        "IL-6",
        "HTTP",
        "a.b.c",
        "loom_core.knowledge.model",
        "settings.toml",
        "docker-compose.yml",
        "404.html",
        "python3.11",
        "www.example.com",
        "v2.3.1",
        "V1.0-rc1",
        "--flag-name",
        "--verbose",
    ],
)
def test_identifiers_are_known_by_their_form(identifier: str):
    assert extract_chunk_keywords(f"Here is {identifier}.") == [identifier]
    assert extract_chunk_keywords(f"这里是{identifier}，") == [identifier]


@pytest.mark.parametrize(
    "text",
    [
        "A plain sentence. Nothing else.",
        "The end.The next one begins.",
        "It costs 3.14 or 2.71 for 12 pieces of 1.5mm.",
        "On 12.03.2020 at 192.168.0.1 there were 1999.",
        "In the U.S. at 5 p.m., e.g. with a Ph.D. and J.R.R. Tolkien.",
        "See Fig.3 by Dr.Who in Sec.2.",
        "IT IS WHAT IT IS, Part II and XIV.",
        "_Emphasis_ and well-known state-of-the-art - or -- dashes ---- ____",
        "I am 3D, a 4K screen at 5GHz and 2nd.",
        "wait...what",
        "O'brien's 'As-is' 1914-1918, (Word.) “Förster’s” E-cadherin 1952.",
        "x" * 200 + "_" + "y" * 200,
        "Base" + "Ab9" * 100,
        "--" + "option" * 40,
    ],
)
def test_ordinary_text_has_no_identifiers(text: str):
    assert extract_chunk_keywords(text) == []


@given(st.text("aAbBzZ09.'’-_ ,()“”éßΑα", max_size=60))
def test_text_in_another_script_next_to_an_identifier_does_not_change_it(text: str):
    # Text without Chinese or Japanese is cut in another way.
    assert extract_chunk_keywords(text, limit=99) == extract_chunk_keywords(f"{text} か", limit=99)


def test_identifiers_inside_hyphens_and_after_a_lost_space_are_found():
    assert extract_chunk_keywords("A CLIP-based non-HTTPServer") == ["HTTPServer", "CLIP"]
    assert extract_chunk_keywords("It uses SHA256.The rest") == ["SHA256"]
    assert extract_chunk_keywords("multi-part.Word in my-JSON.Files") == ["JSON"]


def test_significance_is_frequency_times_weight_then_position():
    text = "HTTP and JSON, read_file and JSON, JSON, read_file, open_file"
    assert extract_chunk_keywords(text) == ["JSON", "read_file", "open_file", "HTTP"]


def test_forms_that_differ_in_case_are_one_written_as_at_first():
    assert extract_chunk_keywords("Settings.toml, settings.toml and SETTINGS.TOML") == ["Settings.toml"]


def test_no_more_than_the_limit_are_given():
    text = " ".join(f"name_{n}" for n in range(50))
    assert extract_chunk_keywords(text, limit=3) == ["name_0", "name_1", "name_2"]
    assert len(extract_chunk_keywords(text)) == 20
    assert extract_chunk_keywords(text, limit=0) == []


def test_a_real_english_abstract():
    text = (
        "On recognition of influenza virus (Flu) by TLR7, plasmacytoid dendritic cells (pDCs) produce type "
        "I IFN in significant amounts. Synthetic TLR7 ligands induce the maturation of pDCs, as evidenced by "
        "the expression of costimulatory molecules, via p38MAPK. STAT1 is phosphorylated."
    )
    assert extract_chunk_keywords(text) == ["pDCs", "TLR7", "p38MAPK", "IFN", "STAT1"]


def test_a_real_python_docstring():
    text = (
        "Return a new array. `numpy.ndarray.reshape(shape, order='C')` is the same as `np.reshape`; "
        "see ArrayLike and `order` in numpy/core/fromnumeric.py. Use --no-cache with NPY_ORDER."
    )
    assert extract_chunk_keywords(text) == [
        "numpy.ndarray.reshape",
        "np.reshape",
        "fromnumeric.py",
        "--no-cache",
        "ArrayLike",
        "NPY_ORDER",
    ]


def test_a_real_chinese_paragraph():
    text = (
        "《战国无双3》是由光荣和ω-force开发的战国无双系列的正统第三续作。本作以三大故事为主轴，"
        "分别是以武田信玄等人为主的《关东三国志》，织田信长等人为主的《战国三杰》，"
        "石田三成等人为主的《关原的年轻武者》，丰富游戏内的剧情。"
    )
    keywords = extract_chunk_keywords(text, limit=40)
    assert "战国" in keywords[:3]
    assert {"游戏", "剧情", "光荣", "关东", "三国志"} <= set(keywords)
    assert not {"的", "由", "为主", "第三"} & set(keywords)


def test_common_chinese_words_and_numbers_are_left_out():
    assert extract_chunk_keywords("我们使用这个，因为二十年来没有问题。") == []
    assert extract_chunk_keywords("我們認為這個沒有問題，因為已經開始。") == []


def test_mixed_text_gives_both_kinds():
    text = "知识图谱存储在Kuzu中，由GraphStore接口读写；知识图谱的知识来自文档。"
    keywords = extract_chunk_keywords(text)
    assert keywords[:2] == ["知识", "GraphStore"]
    assert "文档" in keywords
    assert "图谱" in keywords


def test_longer_chinese_words_weigh_more():
    assert extract_chunk_keywords("气候与人工智能") == ["人工智能", "气候"]


@given(st.text(), st.integers(0, 30))
def test_keywords_of_any_text_are_in_it_and_unique(text: str, limit: int):
    keywords = extract_chunk_keywords(text, limit=limit)
    assert len(keywords) <= limit
    assert all(keyword in text for keyword in keywords)
    assert len({keyword.casefold() for keyword in keywords}) == len(keywords)


@given(st.text(alphabet="aBC_-.1 é知识图谱\n", max_size=200))
def test_keywords_of_near_identifiers_are_in_the_text(text: str):
    assert all(keyword in text for keyword in extract_chunk_keywords(text, limit=1000))


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a" * 2_000_000, id="one word"),
        pytest.param("a.b-" * 300_000, id="joined"),
        pytest.param("_" * 1_000_000, id="underscores"),
        pytest.param("--a" * 300_000, id="options"),
        pytest.param("知识图谱" * 100_000, id="Chinese"),
    ],
)
def test_time_grows_with_the_length_only(text: str):
    began = time.process_time()
    extract_chunk_keywords(text)
    assert time.process_time() - began < 20
