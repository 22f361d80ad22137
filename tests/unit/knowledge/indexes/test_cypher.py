import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.errors import InvalidInputError
from loom_core.knowledge.indexes.cypher import check_read_only


@pytest.mark.parametrize(
    "statement",
    [
        "MATCH (n:Entity) RETURN n.name LIMIT 5",
        "match (n) where n.name contains 'DELETE; DROP' return n",
        "OPTIONAL MATCH (n:Entity {name: '知识图谱'}) RETURN n;",
        "// which ones? CREATE\nMATCH (n) /* SET\n x */ RETURN count(*) ;  // end",
        "UNWIND [1, 2] AS x WITH x WHERE x > 1e3 OR x < 1.5E2 RETURN x",
        "MATCH p = (a)-[:REL* SHORTEST 1..3]-(b) RETURN p",
        "MATCH (n) WHERE n.id = $set RETURN n.`create`",
        "RETURN 'it\\'s' + \"a \\\" b\" + '//' + '/*'",
        "MATCH (设置) RETURN 设置.name AS createdBy, 设置.id AS a1",
        "RETURN 7",
    ],
)
def test_reading_statements_are_let_through(statement: str) -> None:
    check_read_only(statement, parameters=["set"])


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("", "empty"),
        (" \n// nothing\n;", "empty"),
        ("CREATE (n:Entity {id: 1})", "begin with CREATE"),
        ("EXPLAIN MATCH (n) RETURN n", "begin with EXPLAIN"),
        ("LOAD FROM '/etc/passwd' RETURN *", "begin with LOAD"),
        ("COPY Entity TO 'x.csv'", "begin with COPY"),
        ("MATCH (n) DETACH DELETE n", "DELETE, DETACH"),
        ("MATCH (n) SET n.name = 'x'", "SET"),
        ("MATCH (n) sEt n.name = 'x'", "SET"),
        ("MATCH (n)/**/SET/**/n.name = 'x'", "SET"),
        ("MATCH (n) WITH n MERGE (m:Entity {id: 3})", "MERGE"),
        ("MATCH (n) REMOVE n.name", "REMOVE"),
        ("MATCH (n) CALL show_tables() RETURN *", "CALL"),
        ("RETURN 1 UNION LOAD FROM 'x.csv' RETURN *", "LOAD"),
        ("RETURN 1; RETURN 2", "more than one"),
        ("RETURN 1; CREATE (n)", "more than one"),
        ("RETURN 1;;", "more than one"),
        ("RETURN 1CREATE (n:Entity)", "neither a number"),
        ("RETURN 1e5SET", "neither a number"),
        ("MATCH (n) WHERE n.id = 0xCALL RETURN n", "neither a number"),
        ("RETURN 'open", "not closed"),
        ('RETURN "open', "not closed"),
        ("RETURN `open", "not closed"),
        ("RETURN 1 /* open", "not closed"),
        ("RETURN 'a\\' CREATE (n)", "not closed"),
        ("RETURN 1 -- CREATE", "CREATE"),
        ("RETURN 1\u00a0CREATE\u3000(n)", "CREATE"),
        ("(n) RETURN n", "begin with N"),
        ("RETURN $x", r"\$x is not given"),
        ("RETURN 1; $set", "more than one"),
        ("RETURN " + "1 + " * 10_000 + "1", "characters"),
    ],
)
def test_anything_else_is_refused_with_the_reason(statement: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        check_read_only(statement, parameters=["set"])


@given(st.text(st.sampled_from("'\"`\\/* \n;1eRETURNset$a知"), max_size=60))
def test_a_bare_keyword_is_never_let_through(text: str) -> None:
    """A keyword outside literals and comments stands between white space here, whatever comes before."""
    try:
        check_read_only(f"RETURN {text}\n")
    except InvalidInputError:
        return
    with pytest.raises(InvalidInputError):
        check_read_only(f"RETURN {text}\n SET x\n")
