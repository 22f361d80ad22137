"""The graph's page in a browser, as a person uses it: with a mouse, keys or fingers, in two languages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from loom_kb.cli import run
from loom_kb.graph_pages.page import graph_html
from loom_kb.graph_pages.view import GraphView, TextSpan, ViewEntity, ViewPassage, ViewRelation

from tests.fixtures.browser import Browser, Page

if TYPE_CHECKING:
    from tests.e2e.conftest import RunCommand

pytestmark = pytest.mark.slow

_HOSTILE = "</script><img src=x onerror=alert(1)>"
_DOCUMENT = """# 花楼与分析机

## Ada Lovelace

Ada Lovelace wrote about the Analytical Engine. Charles Babbage designed the Analytical Engine in London.

## 提花机

里昂的雅卡尔改进了提花机。The Jacquard loom was invented in Lyon. Charles Babbage visited Lyon.
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of six entities in a ring, two of them with names to be careful with."""
    names = ["Ada Lovelace", "Lyon", "里昂的雅卡尔", "提花机", _HOSTILE, "Ｃharles Bábbage"]
    types = ["person", "place", "person", "thing", "work", "person"]
    text = "Ada Lovelace never saw Lyon, 里昂的雅卡尔 did. " + _HOSTILE
    places = [text.find(name) for name in names]
    entities = [
        ViewEntity(name, kind, 2, (), (TextSpan(0, at, at + len(name)),) if at >= 0 else ())
        for name, kind, at in zip(names, types, places, strict=True)
    ]
    relations = [ViewRelation(n, "next to", (n + 1) % 6, n + 1, TextSpan(0, 0, 12)) for n in range(5)]
    relations.append(ViewRelation(5, "", 0, 1))
    view = GraphView(
        name="织",
        description="A ring",
        focus=None,
        entities=entities,
        relations=relations,
        passages=[ViewPassage("d.a", text, "Ring", "https://example.com/", ("Ring", "Part"), False, True)],
        entities_in_all=40,
        relations_in_all=90,
        without_passages=0,
    )
    path = tmp_path_factory.mktemp("graph") / "图 graph.html"
    path.write_text(graph_html(view), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Loom's home with a document in it, which `loom_kb` works with in all tests here."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "花楼.md").write_text(_DOCUMENT, encoding="utf-8")
    (folder / "other.md").write_text("Grace Hopper worked at Harvard University.", encoding="utf-8")
    options = ["--home", str(folder / "home"), "--embedder", "hashing"]
    assert run(["add", str(folder / "花楼.md"), *options]) == 0
    return folder / "home"


_BUTTONS = "[...document.querySelectorAll('#panel button')]"


def _panel(page: Page) -> str:
    return page.run("document.querySelector('#panel').innerText")


def _chosen(page: Page) -> str:
    return page.run("document.querySelector('#panel h2').textContent")


def _at(page: Page, name: str) -> tuple[float, float]:
    """Where an entity is in the window."""
    x, y = page.run(
        f"(([x, y], box) => [x + box.x, y + box.y])(picture.at(graph.named({json.dumps(name)})),"
        " document.querySelector('#picture').getBoundingClientRect())"
    )
    return x, y


def _search(page: Page, text: str) -> list[str]:
    page.click("#search")
    page.run("search.value = ''")
    page.type(text)
    return page.run("[...document.querySelectorAll('#hits .grow')].map((hit) => hit.textContent)")


def test_the_command_writes_a_page_that_works_without_a_network(
    loom_kb: RunCommand, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "graph.html"
    done = loom_kb("graph", "--html", file, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["entities"] == told["entities_in_all"] > 3
    assert told["bytes"] == file.stat().st_size
    with browser.page(file) as page:
        assert page.run("graph.nodes.length") == told["entities"]
        assert _search(page, "babb") == ["Charles Babbage"]
        page.press("Enter")
        assert _chosen(page) == "Charles Babbage"
        assert "Charles Babbage visited Lyon" in _panel(page)
        marks = page.run("[...document.querySelectorAll('article mark')].map((mark) => mark.textContent)")
        assert set(marks) == {"Charles Babbage"}


def test_the_command_shows_what_is_around_an_entity(
    loom_kb: RunCommand, browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "near.html"
    assert loom_kb("graph", "--html", file, "--entity", "Lyon", "--hops", "1").returncode == 0
    with browser.page(file) as page:
        assert _chosen(page) == "Lyon"
        assert page.run("graph.named('London') !== undefined")
        assert page.run("graph.named('Grace Hopper') === undefined")


def test_the_command_says_what_it_cannot_do(loom_kb: RunCommand, tmp_path: Path) -> None:
    missing = loom_kb("graph", "--html", tmp_path / "no" / "folder.html")
    assert missing.returncode == 1
    assert b"cannot be written" in missing.stderr
    unknown = loom_kb("graph", "--html", tmp_path / "x.html", "--entity", "Unknown Name")
    assert unknown.returncode == 1
    assert b"no entity like 'Unknown Name'" in unknown.stderr
    assert loom_kb("graph", "--html", tmp_path / "x.html", "--limit", "0").returncode == 2


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("ada", ["Ada Lovelace"]),
        ("LOVE a", ["Ada Lovelace"]),
        ("提花", ["提花机"]),
        ("雅卡尔", ["里昂的雅卡尔"]),
        ("charles babbage", ["Ｃharles Bábbage"]),
        ("img", [_HOSTILE]),
        ("unknown", []),
    ],
)
def test_a_search_finds_names_in_any_script(
    typed: str, found: list[str], browser: Browser, page_file: Path
) -> None:
    with browser.page(page_file) as page:
        assert _search(page, typed) == found
        if not found:
            assert "No entity" in page.run("hits.textContent")


def test_a_search_is_used_with_the_keys_alone(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file) as page:
        page.press("/")
        page.type("a")
        before = page.run("document.querySelector('[aria-selected=true] .grow').textContent")
        page.press("ArrowDown")
        assert page.run("field.getAttribute('aria-activedescendant')") == "hit-1"
        page.press("ArrowUp")
        page.press("Enter")
        assert _chosen(page) == before
        page.press("Escape")
        assert _chosen(page) == "织"


def test_a_click_on_an_entity_shows_its_passages_and_relations(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file) as page:
        page.click(_at(page, "Ada Lovelace"))
        assert _chosen(page) == "Ada Lovelace"
        said = _panel(page)
        assert "Person" in said
        assert "next to →" in said
        assert "← mentions" in said
        assert page.run("document.querySelector('article mark').textContent") == "Ada Lovelace"
        assert "Ring › Part" in said
        assert page.run("document.querySelector('article a').rel") == "noopener noreferrer"
        page.click("#panel .rows .entity")
        assert _chosen(page) != "Ada Lovelace"
        page.click("#panel .close")
        assert _chosen(page) == "织"


def test_what_is_left_out_is_said(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file) as page:
        assert "6 of 40 entities are shown" in _panel(page)
        assert "5 of 90 relations between them are shown" in _panel(page)


@pytest.mark.hostile("pages")
def test_names_with_markup_are_names(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file) as page:
        _search(page, "script")
        page.press("Enter")
        assert _chosen(page) == _HOSTILE
        assert page.run("document.images.length") == 0
        page.hover(_at(page, _HOSTILE))
        assert page.wait("!tip.hidden && tip.textContent").startswith(_HOSTILE)


def test_the_path_between_two_entities_is_shown_and_listed(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file) as page:
        page.click(_at(page, "Ada Lovelace"))
        page.click("#panel .primary")
        assert "Path from Ada Lovelace" in page.run("pathing.textContent")
        page.type("提花机")
        page.press("Enter")
        assert _chosen(page) == "Ada Lovelace → 提花机"
        steps = page.run("[...document.querySelectorAll('#panel ol .line')].map((line) => line.innerText)")
        assert len(steps) == 3
        assert page.run("picture.path.length") == 3
        page.press("Escape")
        # The same with a mouse; and the shorter way goes over what is only mentioned.
        page.click(_at(page, "Ada Lovelace"))
        page.click(_at(page, _HOSTILE), modifier="Shift")
        assert page.run("document.querySelectorAll('#panel ol > li').length") == 2


def test_a_path_goes_over_nothing_that_is_switched_off(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file) as page:
        for number in (3, 5):  # things, and what is only mentioned
            page.click(f"#legend button:nth-of-type({number})")
        page.run(f"showPath(graph.named('Ada Lovelace'), graph.named({json.dumps(_HOSTILE)}))")
        assert "No path connects" in _panel(page)


def test_the_legend_filters_by_type(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file) as page:
        assert re.sub(r"\s+", " ", page.run("legend.innerText")) == (
            "Shown Person 3 Place 1 Thing 1 Work, law, standard 1 mentions 1"
        )
        x, y = _at(page, "Lyon")
        page.click("#legend button:nth-of-type(2)")
        assert page.run("legend.querySelectorAll('button')[1].getAttribute('aria-pressed')") == "false"
        page.click((x, y))
        assert _chosen(page) == "织"  # nothing is there
        for number in (1, 3, 4):
            page.click(f"#legend button:nth-of-type({number})")
        assert "Everything is switched off" in page.run("nothing.textContent")
        # What is found by its name is shown again.
        _search(page, "lyon")
        page.press("Enter")
        assert page.run("legend.querySelectorAll('button')[1].getAttribute('aria-pressed')") == "true"


def test_the_picture_moves_with_mouse_wheel_and_keys(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file) as page:
        x, y = _at(page, "Lyon")
        ground = (30.0, 100.0)
        page.drag(ground, (130.0, 140.0))
        assert _at(page, "Lyon") == pytest.approx((x + 100, y + 40), abs=1)
        page.scroll((400, 400), -240)
        page.wait(f"picture.at(graph.named('Lyon'))[0] !== {x + 100}")
        page.run("picture.fit()")
        page.run("document.getElementById('picture').focus()")
        before = _at(page, "Lyon")
        page.press("ArrowLeft")
        assert _at(page, "Lyon") == pytest.approx((before[0] + 60, before[1]), abs=1)
        page.press("+")
        page.press("0")
        assert _at(page, "Lyon") == pytest.approx(before, abs=1)
        page.drag(before, (before[0] + 50, before[1]))
        assert _at(page, "Lyon") == pytest.approx((before[0] + 50, before[1]), abs=1)
        assert _chosen(page) == "织"  # who drags does not choose


def test_fingers_move_pinch_and_choose(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file, width=390, height=780, scale=3, touch=True) as page:
        one, other = _at(page, "Lyon"), _at(page, "提花机")
        middle = page.place("#picture")
        page.touch(
            [(middle[0] - 20, middle[1]), (middle[0] - 60, middle[1])],
            [(middle[0] + 20, middle[1]), (middle[0] + 60, middle[1])],
        )
        wider = abs(_at(page, "Lyon")[0] - _at(page, "提花机")[0]) / abs(one[0] - other[0])
        assert wider == pytest.approx(3, rel=0.2)
        page.run("picture.fit()")
        x, y = _at(page, "Lyon")
        page.touch([(x + 8, y)])  # a finger need not be exact
        assert _chosen(page) == "Lyon"
        assert page.run("document.documentElement.scrollWidth") == 390


def test_labels_follow_the_language_of_the_browser_and_the_switch(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file, language="zh-CN") as page:
        assert page.run("document.documentElement.lang") == "zh"
        assert "人物" in page.run("legend.innerText")
        assert "联系最多的实体" in _panel(page)
        page.click("[data-switch=language]")
        assert "Best connected" in _panel(page)
        assert "Person" in page.run("legend.innerText")


def test_the_picture_follows_the_scheme_of_the_system_and_the_switch(
    browser: Browser, page_file: Path
) -> None:
    # How bright a corner of the picture is, read from a copy of it.
    ground = """(() => {
        const copy = Object.assign(document.createElement("canvas"), { width: 9, height: 9 });
        const context = copy.getContext("2d", { willReadFrequently: true });
        context.drawImage(document.getElementById("picture"), 0, 0);
        return context.getImageData(3, 3, 1, 1).data.slice(0, 3).reduce((sum, part) => sum + part);
    })()"""
    with browser.page(page_file, scheme="dark") as page:
        page.wait(f"{ground} < 150")
        page.prefer("light")
        page.wait(f"{ground} > 600")
        page.click("[data-switch=theme]")
        page.wait(f"{ground} < 150")


def test_the_picture_is_as_sharp_as_the_screen(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file, scale=2) as page:
        assert page.run("(c => c.width / c.clientWidth)(document.getElementById('picture'))") == 2


def test_what_is_chosen_is_told_to_screen_readers(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file) as page:
        page.click(_at(page, "Lyon"))
        assert page.run("said.textContent") == "Lyon, Place, 2 relations"
        nameless = page.run(
            "[...document.querySelectorAll('button, input, canvas')].filter((each) => "
            "!each.hidden && !each.textContent.trim() && !each.getAttribute('aria-label')).length"
        )
        assert nameless == 0


@pytest.fixture(scope="module")
def topics_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 13 topics, of which the first has most entities, and of an entity without a topic."""
    numbers = [min(n, 12) for n in range(12, -1, -1) for _ in range(13 - n)]
    entities = [
        ViewEntity(f"{'𝒰' * 30} {n}", "thing" if n % 2 else "place", 1, topic=number)
        for n, number in enumerate(numbers)
    ]
    entities.append(ViewEntity("alone", "place", 1))
    relations = [ViewRelation(n, "near", n + 1, 1) for n in range(len(entities) - 2)]
    topics = ["bread, flour, " + "𝒰" * 40, *(f"topic {n}" for n in range(1, 13))]
    path = tmp_path_factory.mktemp("topics") / "graph.html"
    view = GraphView("sorts", "", None, entities, relations, [], len(entities), len(relations), 0, topics)
    path.write_text(graph_html(view), encoding="utf-8")
    return path


def test_colours_show_topics_and_the_reader_may_switch_to_types(browser: Browser, topics_file: Path) -> None:
    with browser.page(topics_file) as page:
        groups = page.run("graph.nodes.map((node) => node.group)")
        assert len(set(groups)) == 9  # eight topics, and the others
        assert len(set(page.run("graph.nodes.map((node) => node.colour)"))) == 9
        assert groups[-1] == "other"
        assert "Colours show topics" in _panel(page)
        names = page.run("[...document.querySelectorAll('#legend button')].map((each) => each.textContent)")
        assert names[0].startswith("bread, flour, ")
        assert names[0].endswith("13")  # entities
        assert names[-2].startswith("other topics")
        assert names[-1] == "Colour by type"
        whole = "[...legend.querySelectorAll('button')].every((each) => each.textContent.isWellFormed())"
        assert page.run(whole)
        page.click("#colouring")
        assert len(set(page.run("graph.nodes.map((node) => node.colour)"))) == 2
        assert "Colours show types" in _panel(page)
        page.click("#colouring")
        assert page.run("graph.nodes.map((node) => node.group)") == groups


def test_without_topics_there_is_nothing_to_switch(browser: Browser, page_file: Path) -> None:
    with browser.page(page_file) as page:
        assert page.run("document.querySelector('#colouring') === null")
        assert "Colours show" not in _panel(page)


def test_an_entity_is_hidden_by_a_click_and_the_page_says_how_to_hide_it_for_good(
    browser: Browser, page_file: Path
) -> None:
    with browser.page(page_file) as page:
        at = _at(page, "Lyon")
        page.click(at)
        page.run(f"{_BUTTONS}.find((each) => each.textContent === 'Hide').click()")
        assert 'loom-kb aliases --kb 织 --hide "Lyon"' in _panel(page)
        page.click(at)
        assert _chosen(page) == "织"  # nothing is there
        page.run("showPath(graph.named('Ada Lovelace'), graph.named('里昂的雅卡尔'))")
        assert page.run("picture.path.length") == 4  # the other way round the ring
        # What is found by its name is shown again.
        _search(page, "lyon")
        page.press("Enter")
        assert _chosen(page) == "Lyon"


def test_quotes_cut_no_word_and_no_character(browser: Browser, tmp_path: Path) -> None:
    text = "maintained " * 6 + "𝒰𝒰 wohnte À propos Lyon lies here and was maintaining " + "maintained " * 6
    at = text.index("Lyon")
    view = GraphView(
        "q", "", None,
        [ViewEntity("Lyon", "place", 1, (), (TextSpan(0, at, at + 4),)), ViewEntity("x", "place", 1)],
        [ViewRelation(0, "lies", 1, 1, TextSpan(0, at, at + 4))],
        [ViewPassage("d", text, "T", "file:///t", (), False, False)], 2, 1, 0,
    )  # fmt: skip
    path = tmp_path / "q.html"
    path.write_text(graph_html(view), encoding="utf-8")
    with browser.page(path) as page:
        page.run("choose(graph.nodes[0])")
        quote = page.wait("document.querySelector('#panel blockquote')?.textContent")
        assert quote.isprintable()
        words = set(text.split())
        assert all(word in words for word in quote.replace("…", "").split())


def test_a_graph_without_entities_says_so(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "empty.html"
    path.write_text(graph_html(GraphView("empty", "", None, [], [], [], 0, 0, 0)), encoding="utf-8")
    with browser.page(path) as page:
        assert page.run("nothing.textContent") == "There are no entities here yet."


def test_five_thousand_entities_are_there_at_once_and_can_be_moved(browser: Browser, tmp_path: Path) -> None:
    entities = [ViewEntity(f"实体 {n}", "person" if n % 2 else "place", 1) for n in range(5000)]
    relations = [ViewRelation(n * 7 % 5000, "knows", (n * n + n // 5 + 1) % 5000, 1) for n in range(20_000)]
    relations = [each for each in relations if each.subject != each.object]
    path = tmp_path / "large.html"
    path.write_text(
        graph_html(GraphView("large", "", None, entities, relations, [], 5000, 20_000, 0)), encoding="utf-8"
    )
    with browser.page(path) as page:
        painted = page.wait("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
        # A tenth of it on a quiet machine: see benchmarks/RESULTS.md.
        assert painted < 4000
        frames = page.run(
            """new Promise((done) => {
                const began = performance.now();
                let left = 20;
                const next = () => {
                    picture.move(3, 2);
                    if (left-- > 0) requestAnimationFrame(next);
                    else done(20_000 / (performance.now() - began));
                };
                requestAnimationFrame(next);
            })"""
        )
        assert frames > 5
        assert _search(page, "4999") == ["实体 4999"]
