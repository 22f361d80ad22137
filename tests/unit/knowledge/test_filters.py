"""Filters: what they mean for documents in a record, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loom_core.errors import InvalidInputError
from loom_core.knowledge.filters import FieldValue, Filters, Period, filter_names, parse_filters
from loom_core.knowledge.ingest.chunking import create_chunker
from loom_core.knowledge.ingest.pipeline import Pipeline, document_id
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.store.fields import field_rows

KNOWN = filter_names(["tags", "date", "rank"])

Matching = Callable[[dict[str, object]], set[str]]


@pytest.fixture
async def matching() -> Iterator[Matching]:
    """Puts documents with the given addresses and fields into a record, and says which fulfil filters."""
    store = KnowledgeStore(None)
    pipeline = Pipeline(create_chunker("simple"), chunker_id="simple", extractor=None)

    async def put(documents: dict[str, dict[str, object]]) -> Matching:
        for uri, metadata in documents.items():
            title = str(metadata.pop("title", ""))
            text = "这些是文字。" if metadata.pop("chinese", False) else "These are words."
            (prepared,) = await pipeline.prepare([DocumentDraft(uri, text, title, metadata=metadata)])
            store.documents.upsert(prepared)

        def matching(filters: dict[str, object]) -> set[str]:
            parsed = parse_filters(filters, filter_names(store.documents.field_names()))
            keys = store.documents.chunk_keys_where(parsed)
            return {row.uri for row in store.documents.chunks(sorted(keys)).values()}

        return matching

    yield put
    store.close()


# -- values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("red", {"a"}),
        (["red", "蓝"], {"a", "b"}),
        (("red",), {"a"}),
        ({"red"}, {"a"}),
        ("Red", {"a"}),
        ("ＲＥＤ", {"a"}),
        (" red ", {"a"}),
        ("green", {"a", "b"}),
        ("re", set()),
        ({"contains": "re"}, {"a", "b"}),
        ({"contains": ["蓝", "nothing"]}, {"b"}),
        ({"ne": "red"}, {"b", "c"}),
        ({"ne": ["red", "蓝"]}, {"c"}),
        ({"contains": "e", "ne": "red"}, {"b"}),
    ],
)
async def test_tags_are_any_of_and_case_and_width_do_not_matter(matching, wanted, found):
    matches = await matching({"a": {"tags": ["red", "green"]}, "b": {"tags": ["GREEN", "蓝"]}, "c": {}})
    assert matches({"tags": wanted}) == found


async def test_all_fields_must_hold(matching):
    matches = await matching({"a": {"tags": ["x"], "rank": 1}, "b": {"tags": ["x"], "rank": 2}})
    assert matches({"tags": "x", "rank": 2}) == {"b"}
    assert matches({"tags": "x", "rank": {"ne": 2}}) == {"a"}
    assert matches({}) == {"a", "b"}


async def test_every_document_has_a_language_a_type_and_perhaps_a_title(matching):
    matches = await matching({"a": {"title": "Decision 12"}, "b": {"chinese": True}})
    assert matches({"language": "zh"}) == {"b"}
    assert matches({"language": ["EN", "fr"]}) == {"a"}
    assert matches({"type": "text/plain"}) == {"a", "b"}
    assert matches({"title": "decision 12"}) == {"a"}
    assert matches({"title": {"contains": "Decision"}}) == {"a"}
    assert matches({"title": {"ne": "decision 12"}}) == {"b"}


async def test_fields_that_are_not_for_people_are_exact(matching):
    matches = await matching(
        {"a": {"tenant_id": "Acme"}, "b": {"tenant_id": "acme"}, "c": {"tenant_id": "01"}}
    )
    assert matches({"tenant_id": "acme"}) == {"b"}
    assert matches({"tenant_id": "1"}) == set()
    assert matches({"tenant_id": {"contains": "Ac"}}) == {"a"}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (1, {"int", "float", "text"}),
        (1.0, {"int", "float", "text"}),
        ("1", {"int", "float", "text"}),
        ([1, 10], {"int", "float", "text", "ten"}),
        (True, {"bool"}),
        ("true", {"bool"}),
        (0, set()),
        ({"gte": 1}, {"int", "float", "text", "ten"}),
        ({"gt": 1}, {"ten"}),
        ({"gt": "9"}, {"ten"}),
        ({"lt": 10}, {"int", "float", "text", "half"}),
        ({"lte": 0.5}, {"half"}),
        ({"gt": 0.5, "lt": 10}, {"int", "float", "text"}),
        ({"gte": 0, "ne": 1}, {"half", "ten"}),
        ({"contains": 0}, {"half", "ten"}),
        ({"gt": "s"}, {"bool"}),  # what is asked for is text, and is compared with text
        ({"lte": 10**17}, {"int", "float", "text", "half", "ten"}),
    ],
)
async def test_numbers_are_compared_as_numbers_however_they_are_written(matching, wanted, found):
    values = {"int": 1, "float": 1.0, "text": "1", "half": 0.5, "ten": 10, "bool": True, "nan": math.nan}
    matches = await matching({name: {"n": value} for name, value in values.items()} | {"none": {}})
    assert matches({"n": wanted}) == found


async def test_large_whole_numbers_are_not_confused_with_their_neighbours(matching):
    matches = await matching(
        {"a": {"n": 2**53 + 1}, "b": {"n": 2**53}, "c": {"n": 10**400}, "d": {"n": 1e300}}
    )
    assert matches({"n": 2**53 + 1}) == {"a"}
    assert matches({"n": 2**53}) == {"b"}
    assert matches({"n": {"gt": 2**53 + 10}}) == {"d"}


async def test_a_version_is_not_the_number_it_looks_like(matching):
    matches = await matching({"a": {"version": "1.1"}, "b": {"version": "1.10"}})
    assert matches({"version": "1.10"}) == {"b"}
    assert matches({"version": {"gte": "1.1"}}) == {"a", "b"}


async def test_one_value_of_a_list_must_be_within_the_whole_range(matching):
    matches = await matching({"a": {"pages": [1, 10]}, "b": {"pages": [1, 4]}})
    assert matches({"pages": {"gte": 3, "lte": 5}}) == {"b"}


# -- dates ------------------------------------------------------------------------------------------

DATES = {
    "year": "2023",
    "month": "2024-05",
    "day": "2024-05-03",
    "slashes": "2024/6/7",
    "chinese": "2024年5月3日",
    "time": "2024-05-03T10:30:00Z",
    "ahead": "2024-05-01T01:00:00+08:00",  # still April in London
    "blank": "2024-12-31 23:59",
    "words": "in spring",
}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("2024", set(DATES) - {"year", "words"}),
        (2024, set(DATES) - {"year", "words"}),
        (2023, {"year"}),
        ("2024-05", {"month", "day", "chinese", "time", "ahead"}),
        ("2024-5", {"month", "day", "chinese", "time", "ahead"}),
        ("2024年5月", {"month", "day", "chinese", "time", "ahead"}),
        ("2024年", set(DATES) - {"year", "words"}),
        ("2024-05-03", {"day", "chinese", "time"}),
        (date(2024, 5, 3), {"day", "chinese", "time"}),
        ("2024-05-03T10:30", {"time"}),
        ("2024-05-03T12:30:00+02:00", {"time"}),
        ("2024-04-30T17:00:00.000Z", {"ahead"}),
        (datetime(2024, 5, 3, 10, 30, tzinfo=UTC), {"time"}),
        (["2023", "2024-12"], {"year", "blank"}),
        ({"gte": "2024-05-03"}, {"day", "slashes", "chinese", "time", "blank"}),
        ({"gt": "2024-05"}, {"slashes", "blank"}),
        ({"lte": "2024-05"}, {"year", "month", "day", "chinese", "time", "ahead"}),
        ({"lt": "2024-05"}, {"year"}),
        ({"lt": 2024}, {"year"}),
        ({"gte": "2024-05", "lte": "2024-05"}, {"month", "day", "chinese", "time", "ahead"}),
        ({"gt": "2024-05-03T05:29-05:00", "lt": "2024-05-03T11:00Z"}, {"time"}),
        ({"ne": "2024"}, {"year", "words"}),
        ("in spring", {"words"}),
        ({"contains": "12-31"}, {"blank"}),
        ("2024-13", set()),
    ],
)
async def test_a_date_given_in_part_is_the_whole_period(matching, wanted, found):
    matches = await matching({name: {"date": value} for name, value in DATES.items()})
    assert matches({"date": wanted}) == found


async def test_fields_of_other_names_have_periods_as_ranges_only(matching):
    matches = await matching({"a": {"title": "2024", "due": "2024-05-03"}, "b": {"title": "2024-05-03"}})
    assert matches({"title": "2024"}) == {"a"}
    assert matches({"due": "2024"}) == set()
    assert matches({"due": {"gte": "2024-05", "lte": "2024-05"}}) == {"a"}


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("2024", 366 * 86_400),
        ("2023", 365 * 86_400),
        ("9999-12", 31 * 86_400),
        ("2024-02", 29 * 86_400),
        ("2024-05-03", 86_400),
        ("2024-05-03T10:30", 60),
        ("2024-05-03 10:30:15z", 1),
        ("2024-05-03T10:30:15.25+0800", 0.01),
    ],
)
def test_a_date_lasts_as_long_as_it_is_exact(text: str, length: float):
    period = FieldValue.of(text).period
    assert period is not None
    assert period.length == length
    assert period.is_clock_time == (length < 86_400)


@pytest.mark.parametrize(
    "text", ["0000", "2024-13", "2024-02-30", "2024-05-03T25:00", "20240503", "1.5", "二〇二四年"]
)
def test_what_only_looks_like_a_date_is_none(text: str):
    assert FieldValue.of(text).period is None


@given(
    st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)),
    st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
def test_any_time_that_python_writes_is_read_as_the_same_instant(when: datetime, zone: timezone):
    when = when.replace(tzinfo=zone)
    period = FieldValue.of(when).period
    assert period is not None
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert period.instant == pytest.approx((when - epoch).total_seconds(), abs=1e-4)
    assert isinstance(period, Period)


# -- addresses --------------------------------------------------------------------------------------

FILE = "file:///home/li/%E6%96%87%E6%A1%A3/%E8%AF%B4%E6%98%8E%20v2.md"
DECOMPOSED = "file:///home/li/Re%CC%81sume%CC%81.md"
WINDOWS = "file:///C:/Users/Li/%E6%96%87%E6%A1%A3/a.md"
NOTE = "note:计划"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("文档/说明", {FILE}),
        ("文", {FILE, WINDOWS}),
        ("/home/li/文档", {FILE}),
        ("home/li/", {FILE, DECOMPOSED}),
        ("说明 v2.md", {FILE}),
        ("档/说明", set()),
        (FILE, {FILE}),
        ("file:///home/li/文档/", {FILE}),
        ("%E6%96%87", {FILE, WINDOWS}),
        ("Résumé.md", {DECOMPOSED}),
        ("Users\\Li\\文档", {WINDOWS}),
        ("C:/Users", {WINDOWS}),
        ("note:计", {NOTE}),
        (["note:", "C:"], {NOTE, WINDOWS}),
        ({"ne": "/home/li"}, {WINDOWS, NOTE}),
        ({"contains": "明 v"}, {FILE}),
        ({"contains": "li/", "ne": "文档"}, {DECOMPOSED}),
        ("/", {FILE, DECOMPOSED, WINDOWS, NOTE}),
        ("\ud83d", set()),
    ],
)
async def test_a_path_is_the_beginning_of_the_address_or_of_a_part_of_it(matching, wanted, found):
    matches = await matching({FILE: {}, DECOMPOSED: {}, WINDOWS: {}, NOTE: {}})
    assert matches({"path": wanted}) == found


@pytest.mark.parametrize("name", ["source", "document"])
@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (FILE, {FILE}),
        ("file:///home/li/文档/说明 v2.md", {FILE}),
        ("/home/li/文档/说明 v2.md", {FILE}),
        ("C:\\Users\\Li\\文档\\a.md", {WINDOWS}),
        (FILE + "#10-90", {FILE}),
        (NOTE, {NOTE}),
        ("note", set()),
        ("文档/说明 v2.md", set()),
        ([NOTE, WINDOWS], {NOTE, WINDOWS}),
        ({"ne": [NOTE, FILE]}, {WINDOWS}),
        ({"contains": "说明"}, {FILE}),
    ],
)
async def test_a_source_is_a_whole_address_as_it_is_or_as_people_read_it(matching, name, wanted, found):
    matches = await matching({FILE: {}, WINDOWS: {}, NOTE: {}})
    assert matches({name: wanted}) == found


async def test_a_source_may_be_the_documents_id_or_what_its_metadata_calls_so(matching):
    matches = await matching({FILE: {}, NOTE: {"source": "wiki", "path": "a/b"}})
    assert matches({"source": document_id(FILE)}) == {FILE}
    assert matches({"document": document_id(NOTE)}) == {NOTE}
    assert matches({"source": "wiki"}) == {NOTE}
    assert matches({"source": {"ne": "wiki"}}) == {FILE}
    assert matches({"path": "a/b"}) == {NOTE}


# -- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("filters", "message", "advice"),
    [
        (
            {"colour": "red"},
            "There is no filter 'colour'.",
            "Use: source, path, language, type, title, date,",
        ),
        ({"Tag": "red"}, "There is no filter 'Tag'.", "Did you mean 'tags'? Use: source,"),
        ({"x" * 200: 1}, "There is no filter 'xxxxx", "Use: "),
        (["tags"], "The filters are list.", "such as {'tags': 'plan'}"),
        ("tags=plan", "The filters are 'tags=plan'.", "an object of fields"),
        ({5: 1}, "There is no filter 5.", "Use: "),
        ({"tags": []}, "allows no value", "leave the filter out"),
        ({"tags": {}}, "empty object", "`gte`"),
        ({"tags": {"like": "a"}}, "no operator 'like'", "`contains`"),
        ({"tags": {"eq": "a"}}, "no operator 'eq'", "a list of these"),
        ({"tags": {5: "a"}}, "no operator 5", "`contains`"),
        ({"tags": None}, "has no value", "Give 'tags' text"),
        ({"tags": ["a", None]}, "has no value", "Give 'tags' text"),
        ({"tags": ""}, "empty value", "leave the filter out"),
        ({"tags": " \u3000"}, "empty value", "leave the filter out"),
        ({"tags": ["a", ["b"]]}, "cannot compare with list", "a list of these"),
        ({"tags": [{"gte": 1}]}, "cannot compare with dict", "a list of these"),
        ({"tags": b"x"}, "cannot compare with b'x'", "a list of these"),
        ({"tags": {"ne": {"ne": 1}}}, "cannot compare with dict", "a list of these"),
        ({"tags": "x" * 2001}, "2,001 characters", "1 to 2,000"),
        ({"tags": ["x"] * 101}, "has 101 values", "at most 100"),
        ({f"f{i}": 1 for i in range(21)}, "filters for 21 fields", "at most 20"),
        ({"rank": {"gte": [1, 2]}}, "compares with a list", "'gte' a single value"),
        ({"rank": {"gte": True}}, "true, which has no order", "a number, a date or text"),
        ({"rank": math.nan}, "has nan as a value", "finite"),
        ({"rank": {"lt": -math.inf}}, "has -inf as a value", "finite"),
        ({"rank": 10**400}, "over 18 digits", "as text"),
        ({"path": {"gte": "a"}}, "has no order", "`contains`"),
    ],
)
def test_what_cannot_be_used_is_refused_with_advice(filters, message: str, advice: str):
    with pytest.raises(InvalidInputError) as refused:
        parse_filters(filters, KNOWN)
    assert message in refused.value.message
    assert advice in refused.value.advice
    assert len(str(refused.value)) < 600


def test_a_long_list_of_names_is_cut():
    with pytest.raises(InvalidInputError, match="and 975 more"):
        parse_filters({"colour": 1}, filter_names(f"field_{i:04}" for i in range(1000)))


def test_no_filters_are_false_and_the_same_filters_are_equal():
    assert not parse_filters(None, KNOWN)
    assert not parse_filters({}, KNOWN)
    assert parse_filters({}, KNOWN) == Filters()
    one = parse_filters({"tags": ["a", "b", "a"], "rank": {"lt": 3, "gte": 1}}, KNOWN)
    assert one
    assert hash(one) == hash(parse_filters({"rank": {"gte": 1, "lt": 3}, "tags": ("A", "b")}, KNOWN))


def test_the_filters_that_every_document_has_come_first_and_none_comes_twice():
    assert filter_names(["z", "path", "a", "type"]) == [
        "source",
        "path",
        "language",
        "type",
        "title",
        "a",
        "z",
    ]


# -- anything ---------------------------------------------------------------------------------------

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(st.characters(exclude_categories=())),
    st.sampled_from([*DATES.values(), "1", "-0.5", "%", "a\0b", "/", "\\\\"]),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["gte", "gt", "lte", "lt", "ne", "contains", "x"]), inner, max_size=3
        ),
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def bare() -> Iterator[KnowledgeStore]:
    """A record for `fill`, which empties it first."""
    store = KnowledgeStore(None)
    yield store
    store.close()


def fill(store: KnowledgeStore, documents: Sequence[dict[str, object]]) -> None:
    """Writes documents of one chunk each with these fields; their keys, and their chunks', are 0, 1, …"""
    with store.database.write() as db:
        for table in ("fields", "chunks", "documents"):
            db.execute(f"DELETE FROM {table}")
        for key, metadata in enumerate(documents):
            draft = DocumentDraft(f"text:{key}", "words", metadata=metadata)
            db.execute(
                "INSERT INTO documents VALUES (?, ?, ?, '', '', '', '', x'', 0, x'', '{}', 0, 0, NULL)",
                (key, f"d{key}", draft.uri),
            )
            db.execute(
                "INSERT INTO chunks VALUES (?, ?, ?, 0, 0, 1, NULL, '', '', '[]', '', '[]', x'', x'', '')",
                (key, f"c{key}", key),
            )
            db.executemany(
                "INSERT OR IGNORE INTO fields VALUES (?, ?, ?, ?, ?, ?)",
                [(key, *row) for row in field_rows(draft, language="en")],
            )


@pytest.mark.slow
@settings(max_examples=200)
@given(
    fields=st.dictionaries(st.text(max_size=4), ANYTHING, max_size=4),
    filters=st.dictionaries(
        st.sampled_from([*KNOWN, "document"]) | st.text(max_size=4), ANYTHING, max_size=3
    ),
)
def test_any_filters_over_any_fields_are_answered_or_refused(bare, fields, filters):
    fill(bare, [fields])
    try:
        parsed = parse_filters(filters, filter_names(bare.documents.field_names()))
    except InvalidInputError as error:
        told = error
    else:
        told = None
        assert bare.documents.chunk_keys_where(parsed) <= {0}
    assert told is None or told.advice


def test_filters_of_the_largest_size_are_answered(bare):
    fields = {f"f{i:02}": f"值{i}" for i in range(17)}
    fill(bare, [{**fields, "date": "2024-05-03"}, {}])
    filters: dict[str, object] = {
        name: [*(f"v{i}" for i in range(99)), value] for name, value in fields.items()
    }
    filters["date"] = [*(f"{year}" for year in range(1926, 2024)), "2024-05", 2030]
    filters["path"] = {"contains": [*(f"e\u0301文:{i}\\" for i in range(99)), "text:"]}
    filters["source"] = {"ne": [f"file:///文档:é/{i}" for i in range(100)]}
    parsed = parse_filters(filters, filter_names(bare.documents.field_names()))
    assert bare.documents.chunk_keys_where(parsed) == {0}


@settings(max_examples=60)
@given(
    numbers=st.lists(st.integers(-50, 50) | st.floats(-50, 50), min_size=1, max_size=8),
    low=st.integers(-50, 50),
    high=st.floats(-50, 50),
)
def test_ranges_of_numbers_are_those_of_arithmetic(bare, numbers, low, high):
    fill(bare, [{"rank": number} for number in numbers])
    filters = parse_filters({"rank": {"gte": low, "lt": high}}, KNOWN)
    assert bare.documents.chunk_keys_where(filters) == {
        key for key, number in enumerate(numbers) if low <= number < high
    }


@settings(max_examples=60)
@given(
    values=st.lists(st.none() | st.sampled_from("abc") | st.integers(0, 2), min_size=1, max_size=8),
    wanted=st.lists(st.sampled_from("abc") | st.integers(0, 2), min_size=1, max_size=3),
)
def test_a_document_fulfils_a_filter_or_its_ne(bare, values, wanted):
    fill(bare, [{"rank": value} for value in values])
    found = [
        bare.documents.chunk_keys_where(parse_filters({"rank": form}, KNOWN))
        for form in (wanted, {"ne": wanted})
    ]
    assert found[0] == {key for key, value in enumerate(values) if value in wanted}
    assert found[1] == set(range(len(values))) - found[0]
