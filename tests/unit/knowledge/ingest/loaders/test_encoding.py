from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.knowledge.ingest.loaders import decode

SIMPLIFIED = (
    "知识图谱是一种用图结构来表示知识的方法，节点代表实体，边代表实体之间的关系。它最早由搜索公司提出，"
    "现在已经广泛用于搜索、推荐和问答系统，帮助人们更快地找到需要的信息。"
)
TRADITIONAL = (
    "知識圖譜是一種用圖結構來表示知識的方法，節點代表實體，邊代表實體之間的關係。它最早由搜尋公司提出，"
    "現在已經廣泛用於搜尋、推薦和問答系統，幫助人們更快地找到需要的資訊。"
)
JAPANESE = "日本語の文章を判定するための短い例文です。東京は日本の首都で、多くの人が住んでいます。"
KOREAN = (
    "한국어 문장을 판별하기 위한 짧은 예문입니다. 서울은 대한민국의 수도이며 많은 사람들이 살고 있습니다."
)
RUSSIAN = "Это короткий пример русского текста для проверки. Москва является столицей России."
FRENCH = "Voilà un texte français où l’on trouve des caractères accentués : élève, forêt, déjà vu."
GERMAN = "Übungen für Anfänger: die Größe der Straße ist schön, aber das Mädchen hört nichts."


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (SIMPLIFIED, "gb18030"),
        (SIMPLIFIED, "gbk"),
        (TRADITIONAL, "big5"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        (JAPANESE, "iso2022_jp"),
        (KOREAN, "euc_kr"),
        (RUSSIAN, "cp1251"),
        (RUSSIAN, "koi8-r"),
        (FRENCH, "cp1252"),
        (GERMAN, "cp1252"),
        (SIMPLIFIED, "utf-16-le"),
        (SIMPLIFIED, "utf-16-be"),
        (FRENCH, "utf-16-le"),
        (FRENCH, "utf-16-be"),
    ],
)
def test_a_paragraph_is_decoded_without_any_declaration(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding))[0] == text


@pytest.mark.parametrize("length", [20, 40])
@pytest.mark.parametrize(
    ("text", "encoding", "name"), [(SIMPLIFIED, "gb18030", "gb18030"), (TRADITIONAL, "big5", "big5hkscs")]
)
def test_a_short_chinese_text_is_decoded_wherever_it_is_cut(
    text: str, encoding: str, name: str, length: int
) -> None:
    for start in range(len(text) - length):
        piece = text[start : start + length]
        assert decode(piece.encode(encoding)) == (piece, name)


def test_utf_8_that_decodes_is_utf_8_whatever_is_declared() -> None:
    assert decode(SIMPLIFIED.encode(), hint="gb18030") == (SIMPLIFIED, "utf-8")
    assert decode(f'<meta charset="big5">{SIMPLIFIED}'.encode())[1] == "utf-8"


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_a_byte_order_mark_decides_and_is_dropped(mark: bytes, encoding: str) -> None:
    assert decode(mark + "织机 loom".encode(encoding)) == ("织机 loom", encoding)


@pytest.mark.parametrize(
    "text",
    [
        '<html><head><meta charset="gb2312"></head>织机镕',
        '<meta http-equiv="Content-Type" content="text/html; charset=gbk">织机镕',
        '<?xml version="1.0" encoding="GBK"?><a>织机镕</a>',
        "#!/usr/bin/python\n# -*- coding: gbk -*-\n# 织机镕",
        '@charset "gbk"; /* 织机镕 */',
    ],
)
def test_a_declaration_is_believed_and_widened_to_what_people_mean(text: str) -> None:
    assert decode(text.encode("gb18030")) == (text, "gb18030")


def test_a_hint_from_outside_is_believed_where_the_bytes_decode() -> None:
    assert decode("caf\u00e9 \u2211".encode("mac_roman"), hint="mac_roman")[1] == "mac-roman"
    assert decode(SIMPLIFIED.encode("gb18030"), hint="shift_jis")[0] == SIMPLIFIED


@pytest.mark.parametrize("hint", ["nonsense", "rot13", "hex", "utf-16", "x\0y"])
def test_a_nonsensical_hint_is_passed_over(hint: str) -> None:
    assert decode(SIMPLIFIED.encode("gb18030"), hint=hint)[0] == SIMPLIFIED


def test_utf_8_with_a_few_bad_bytes_stays_utf_8() -> None:
    data = SIMPLIFIED.encode() * 3
    text, encoding = decode(data[:90] + b"\xff" + data[90:-1])
    assert encoding == "utf-8"
    assert text.count("\ufffd") == 2


def test_chinese_with_a_few_bad_bytes_is_still_read() -> None:
    text, encoding = decode(SIMPLIFIED.encode("gb18030") * 2 + b"\xff\xff")
    assert encoding == "gb18030"
    assert text.startswith(SIMPLIFIED)


def test_bytes_that_read_like_nothing_come_back_all_the_same() -> None:
    text, encoding = decode(bytes(range(0x80, 0x100)) * 3)
    assert text
    assert codecs.lookup(encoding)


@pytest.mark.hostile("files of any kind")
@given(st.binary(max_size=400), st.text(max_size=8))
def test_any_bytes_decode(data: bytes, hint: str) -> None:
    text, encoding = decode(data, hint=hint)
    assert isinstance(text, str)
    assert codecs.lookup(encoding)


@given(st.text(max_size=200))
def test_utf_8_comes_back_as_it_was(text: str) -> None:
    clean = text.encode("utf-8", "ignore").decode().replace("\0", "").replace("\x1b", "").lstrip("\ufeff")
    assert decode(clean.encode())[0] == clean


@pytest.mark.parametrize("encoding", ["gb18030", "big5"])
def test_the_first_foreign_line_may_come_late(encoding: str) -> None:
    text = "x = 1  # plain\n" * 5_000 + {"gb18030": SIMPLIFIED, "big5": TRADITIONAL}[encoding] + "\n"
    assert decode(text.encode(encoding))[0] == text
