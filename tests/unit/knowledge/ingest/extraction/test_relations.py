"""Relations that sentences and the layout of passages state."""

from __future__ import annotations

from time import process_time

import pytest

from loom_core.knowledge.ingest.extraction.relations import layout_relations, sentence_relations
from loom_core.knowledge.model import Mention

Triple = tuple[str, str, str]


def read(marked: str) -> tuple[str, list[Mention]]:
    """Read a text whose entities are written as `[PostgreSQL|product]`."""
    text = ""
    mentions: list[Mention] = []
    for part in marked.split("["):
        name, bar, rest = part.partition("|")
        if bar and "]" in rest:
            type_, _, after = rest.partition("]")
            mentions.append(Mention(name, len(text), len(text) + len(name), type_))
            text += name + after
        else:
            text += ("[" if text else "") + part
    return text, mentions


def stated(marked: str) -> set[Triple]:
    text, mentions = read(marked)
    found = sentence_relations(text, 0, len(text), mentions)
    assert all(relation.subject in text[relation.start : relation.end] for relation in found)
    return {(relation.subject, relation.predicate, relation.object) for relation in found}


def laid_out(marked: str, *, title: str = "", heading: str = "") -> set[Triple]:
    text, mentions = read(marked)
    found = layout_relations(text, mentions, title=title, heading=heading)
    return {(relation.subject, relation.predicate, relation.object) for relation in found}


# -- sentences --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sentence", "triples"),
    [
        (
            "[PostgreSQL|product] supports [SSL|term], [GSSAPI|term] and [LDAP|term].",
            {("PostgreSQL", "supports", name) for name in ("SSL", "GSSAPI", "LDAP")},
        ),
        (
            "Both [mutt|product] and [elm|product] require [procmail|product].",
            {("mutt", "requires", "procmail"), ("elm", "requires", "procmail")},
        ),
        (
            "[Git|product] was created by [Linus Torvalds|person] and is licensed under the [GPL|law].",
            {("Git", "created by", "Linus Torvalds"), ("Git", "governed by", "GPL")},
        ),
        (
            "The [mailcap|product] package provides the [update-mime|command] program.",
            {("update-mime", "provided by", "mailcap")},
        ),
        (
            "The [openat2|api]() system call is an extension of [openat|api](2).",
            {("openat2", "is a", "system call"), ("openat2", "extends", "openat")},
        ),
        (
            "Use a [file format|term] such as [PNG|term], [GIF|term] or [TIFF|term].",
            {(name, "is a", "file format") for name in ("PNG", "GIF", "TIFF")},
        ),
        (
            "If [sqlite3_step|api]() succeeds, then it returns [SQLITE_DONE|error].",
            {("sqlite3_step", "returns", "SQLITE_DONE")},
        ),
        (
            "[DebConf15|event] was held in [Heidelberg|place], [Germany|place].",
            {("DebConf15", "located in", "Heidelberg"), ("Heidelberg", "located in", "Germany")},
        ),
        ("In [1998|date], [Debian 2.0|version] was released.", {("Debian 2.0", "dated", "1998")}),
        (
            'This is between you and [Apple Inc.|organisation] ("[Apple|organisation]").',
            {("Apple", "alias of", "Apple Inc.")},
        ),
        ("[Grml|product] is a live system for administrators.", {("Grml", "is a", "live system")}),
        (
            "It may be overridden by the [GIT_TRACE2|env] environment variable.",
            {("GIT_TRACE2", "is a", "environment variable")},
        ),
        (
            "Run [tar|command] [-x|option] [-f|option] archive.tar.",
            {("tar", "has option", "-x"), ("tar", "has option", "-f")},
        ),
        ("[Linux|product]内核由[林纳斯|person]于1991年开发。", {("Linux", "created by", "林纳斯")}),
        ("[Solaris|product]是[SUN|organisation]开发的操作系统。", {("Solaris", "created by", "SUN")}),
        (
            "[清华大学|organisation]于[1911年|date]成立，位于[北京|place]。",
            {("清华大学", "dated", "1911年"), ("清华大学", "located in", "北京")},
        ),
        (
            "[apt|command]支持[HTTP|term]、[FTP|term]和[SSH|term]。",
            {("apt", "supports", name) for name in ("HTTP", "FTP", "SSH")},
        ),
        ("[vim|command](1) 是一个屏幕编辑器。", {("vim", "is a", "屏幕编辑器")}),
    ],
)
def test_a_sentence_states_relations(sentence: str, triples: set[Triple]):
    assert stated(sentence) == triples


@pytest.mark.parametrize(
    "sentence",
    [
        "[PostgreSQL|product] does not support [GSSAPI|term].",
        "Does [Git|product] support [LDAP|term]?",
        "If [libpq|product] uses [SSL|term], the connection is encrypted.",
        "Check whether [libpq|product] uses [SSL|term].",
        "No [server|product] supports [SSLv2|term].",
        "The size of [TOAST|term] requires [VACUUM|command].",
        "[mutt|product] uses [Git|product] repositories.",
        "[git last|command] is equivalent to [git cat-file|command] commit HEAD.",
        "Packages that use a [console|term], an [X terminal|term] or a shell.",
        "We met in [Paris|place], [London|place] and [Rome|place].",
        "Files such as [HEAD|file] are in [$GIT_DIR|env].",
        "This is a good choice for [Debian|product].",
        "[pg_dump|command] is a good choice.",
        "[libpq|product]不支持[GSSAPI|term]。",
        "如果[libpq|product]使用[SSL|term]，连接就会加密。",
        "[libpq|product]支持[GSSAPI|term]吗？",
        "从[巨蟹座|term]由[金龟子|term]代表。",
    ],
)
def test_what_is_asked_denied_or_supposed_is_not_stated(sentence: str):
    assert stated(sentence) == set()


# -- layout -----------------------------------------------------------------------------------------


def test_the_lines_of_a_manual_page_are_options_of_its_command():
    text = (
        "OPTIONS\n\n[-v|option], [--verbose|option]\n    Be verbose. See [git-log|command](1).\n\n"
        "[--format|option]=<fmt>\n    Valid values are [short|config] and [full|config].\n\n"
        "GIT\n\nPart of the [git|product](1) suite"
    )
    assert laid_out(text, title="git-remote(1)") == {
        ("git-remote", "has option", "-v"),
        ("git-remote", "has option", "--verbose"),
        ("git-remote", "has option", "--format"),
        ("-v", "alias of", "--verbose"),
        ("--verbose", "documented in", "git-log"),
        ("--format", "has value", "short"),
        ("--format", "has value", "full"),
        ("git-remote", "part of", "git"),
    }


def test_a_word_that_is_an_option_is_not_the_command_of_a_passage_without_a_title():
    text = "[-c|option], [--changes|option]\n    like [verbose|command]\n\n[--verbose|option]\n    list all"
    assert laid_out(text) == {("-c", "alias of", "--changes")}


def test_a_signature_has_parameters_and_sentences_below_it_are_about_it():
    text = (
        "[tempfile.mkstemp|api]([suffix|api]=None, [text|api]=False)\n\nReturns a [file descriptor|term].\n"
        "Raises [OSError|error] if it fails.\nDeprecated since version 3.2: Use [mkdtemp|api] instead."
    )
    assert laid_out(text) == {
        ("tempfile.mkstemp", "has parameter", "suffix"),
        ("tempfile.mkstemp", "has parameter", "text"),
        ("tempfile.mkstemp", "returns", "file descriptor"),
        ("tempfile.mkstemp", "raises", "OSError"),
        ("tempfile.mkstemp", "deprecated by", "mkdtemp"),
    }


def test_types_and_arguments_of_a_call_are_no_parameters():
    text = "PGresult *[PQexec|api]([PGconn|api] *[conn|api], const char *[command|api]);"
    assert laid_out(text) == {("PQexec", "has parameter", "conn"), ("PQexec", "has parameter", "command")}
    assert laid_out("result = [PQexec|api]([conn|api], [sql|api]);") == set()
    assert laid_out("senti = [Sentiment|api]([merge|api]=True)") == {("Sentiment", "has parameter", "merge")}


def test_a_list_below_its_label_holds_parameters_and_errors():
    text = (
        "Parameters\n\n[new_name|api]\n    The new name.\n\n[cascade|config]\n    Drop what depends on it.\n"
    )
    assert laid_out(text, title="ALTER VIEW") == {
        ("ALTER VIEW", "has parameter", "new_name"),
        ("ALTER VIEW", "has parameter", "cascade"),
    }
    assert laid_out("[read|api](fd)\n\nERRORS\n[EINTR|error]\n    A signal came.\n") == {
        ("read", "raises", "EINTR")
    }


def test_an_article_of_a_law_refers_to_those_it_cites():
    text = "[第六十三条|clause] 违反[第二十一条|clause]规定的，依照《[刑法|law]》[第二百条|clause]处罚。"
    assert laid_out(text) == {
        ("第六十三条", "refers to", "第二十一条"),
        ("第六十三条", "refers to", "第二百条"),
    }


def test_an_option_in_a_sentence_is_one_of_the_command_before_it():
    text = "Use [pg_basebackup|command]. With the [-X|option] option it includes the log."
    assert laid_out(text, title="Backup") == {("pg_basebackup", "has option", "-X")}
    assert laid_out("Pass the [-u|option] flag to [git mailinfo|command].", title="Mail") == set()


@pytest.mark.parametrize("piece", ["* ", "*** ", "(", "a, ", "、", "[a|api](", "`", "- ", "A\n", "如果"])
def test_hostile_text_is_read_in_linear_time(piece: str):
    text, mentions = read(piece * 2000 + "[PostgreSQL|product] supports [SSL|term]")
    began = process_time()
    sentence_relations(text, 0, len(text), mentions)
    layout_relations(text, mentions, title="", heading="")
    assert process_time() - began < 2
