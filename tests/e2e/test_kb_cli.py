"""The command line of `loom-kb` as a person or a script uses it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading

import pytest
from loom_kb.command_line.demo import QUESTIONS

LOOM_KB = [sys.executable, "-m", "loom_kb"]
HANDBOOK = "# Harbour handbook\n\nSmall boats moor for free. Large ships pay by length."
ESCAPE = "\033["


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "handbook.md").write_text(HANDBOOK, encoding="utf-8")
    (folder / "手册.md").write_text("# 港口手册\n\n小船免费，大船按长度收费。", encoding="utf-8")
    return folder


def failure(done, code=1):
    """The line of cause and the line of remedy that a failed command ends with."""
    assert done.returncode == code, done
    assert done.stdout == b""
    cause, remedy = done.stderr.decode().splitlines()
    assert cause.startswith("loom-kb: ")
    assert remedy.startswith("  ")
    return cause.removeprefix("loom-kb: "), remedy.strip()


def answer(done, code=0):
    assert done.returncode == code, done.stderr.decode()
    return json.loads(done.stdout)


def test_a_knowledge_base_from_its_first_folder_to_its_removal(loom_kb_process, folder):
    added = loom_kb_process("add", folder, "--description", "Rules of the harbour")
    assert added.returncode == 0
    assert re.fullmatch(
        r"job-\w+ in default: done, 2 of 2 documents \(2 added\), 2 passages, read in [\d.]+ s\n"
        r"All of it took [\d.]+ s, vectors included\.\n",
        added.stdout.decode(),
    )
    assert "reading   [████████████████████████] 2/2 documents" in added.stderr.decode()
    assert "embedding [████████████████████████] 2/2 passages" in added.stderr.decode()
    assert answer(loom_kb_process("add", folder, "--json"))["job"]["counts"] == {"unchanged": 2}

    asked = loom_kb_process("query", "Who", "moors", "for", "free?", "--limit", "1")
    assert asked.stdout.decode().startswith(f"[1] Harbour handbook ({(folder / 'handbook.md').as_uri()}#2-")
    assert "    Small boats moor for free." in asked.stdout.decode()
    assert asked.stderr == b""
    found = answer(loom_kb_process("query", "哪些船免费？", "--json", "--filter", "language=zh"))["passages"]
    assert [passage["title"] for passage in found] == ["港口手册"]

    listed = loom_kb_process("list")
    assert listed.stdout.decode() == "default  2 documents, 2 passages\n    Rules of the harbour\n"
    documents = answer(loom_kb_process("list", "--kb", "default", "--json"))["documents"]
    assert {document["title"] for document in documents} == {"Harbour handbook", "港口手册"}
    numbers = answer(loom_kb_process("stats", "--json"))
    assert (numbers["documents"], numbers["vectors"], numbers["strategy"]) == (2, 2, "hybrid")
    assert numbers["index_lag"] == {"words": 0, "graph": 0, "vectors": 0}
    assert "documents    2" in loom_kb_process("stats").stdout.decode()

    removed = loom_kb_process("remove", folder / "手册.md", "nothing")
    assert removed.returncode == 1
    assert removed.stdout.decode().startswith("removed ")
    assert removed.stderr.decode() == "unknown: nothing\n"
    assert answer(loom_kb_process("remove", "--all", "--json")) == {"removed": "default"}
    assert answer(loom_kb_process("list", "--json")) == {"sources": [], "unusable": []}
    assert folder.exists()


def test_an_overview_shows_topics_with_documents_and_sentences(loom_kb, folder):
    loom_kb("add", folder)
    shown = loom_kb("overview", "--sentences", "1")
    assert shown.returncode == 0, shown.stderr.decode()
    first, *rest = shown.stdout.decode().splitlines()
    assert first == "default: 2 passages of 2 documents. Topics:"
    assert any(line.startswith("- ") and "passages" in line for line in rest)
    assert any(line.startswith("    documents: ") for line in rest)
    assert any(line.startswith("    “") and line.endswith("]") for line in rest)
    assert "not from 1 to 100" in loom_kb("overview", "--topics", "0").stderr.decode()
    told = answer(loom_kb("overview", "--json", "--filter", "language=zh"))
    assert (told["documents"], [topic["titles"] for topic in told["topics"]]) == (1, [["港口手册"]])


def test_text_from_standard_input_is_added_in_whatever_encoding_it_comes(loom_kb):
    text = "青岛港的港长是李明。港口位于山东省，每年有很多船只停靠。"
    done = loom_kb("add", "-", "--title", "港长", "--tag", "a", "--kb", "笔记", stdin=text.encode("gb18030"))
    assert done.returncode == 0, done.stderr.decode()
    (passage,) = answer(loom_kb("query", "港长是谁？", "--filter", "tags=a", "--json"))["passages"]
    assert (passage["title"], passage["text"], passage["source"]) == ("港长", text, "笔记")


def test_documents_that_fail_are_told_and_make_the_exit_code_3(loom_kb, folder):
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7")
    done = loom_kb("add", folder)
    assert done.returncode == 3
    assert re.search(r"\n  failed: .*broken\.pdf cannot be read as a PDF", done.stdout.decode())


def test_what_goes_wrong_is_one_line_of_cause_and_one_of_remedy(loom_kb):
    assert failure(loom_kb("query", "anything")) == (
        "There is no knowledge base yet.",
        "Add a document first; that makes one.",
    )
    assert failure(loom_kb("add", "-", stdin=b" \n"))[0] == "There is no text to add."
    done = loom_kb("query", "anything", "--debug")
    assert done.returncode == 1
    assert b"Traceback" in done.stderr


def test_an_encoding_that_lacks_a_character_spoils_no_answer(loom_kb, loom_kb_process, folder):
    loom_kb("add", folder)
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    done = loom_kb_process("query", "免费", "--json", env=ascii_only)
    assert done.stdout.isascii()
    assert "港口手册" in {passage["title"] for passage in answer(done)["passages"]}
    done = loom_kb_process("query", "免费", env=ascii_only)
    assert done.returncode == 0
    assert rb"\u6e2f\u53e3\u624b\u518c" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pipes that break")
def test_a_reader_that_stops_reading_is_no_accident(home, loom_kb, write_lighthouses):
    loom_kb("add", write_lighthouses(40))
    command = [*LOOM_KB, "query", "--home", home, "--limit", "40", "lighthouse"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()  # as `head` does, only sooner
    assert process.stderr is not None
    with process.stderr:
        assert process.stderr.read() == b""
    assert process.wait(30) == 141


@pytest.fixture
def in_terminal(home):
    """Runs a command with a terminal as its output; gives the exit code and all that was shown."""
    pty = pytest.importorskip("pty", reason="terminals are POSIX here")

    def heed_interrupts():
        # Tests that a shell began in the background inherit from it that interrupts are ignored.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    def run(command, *arguments, interrupt_at=None, **env):
        leader, follower = pty.openpty()
        process = subprocess.Popen(
            [*LOOM_KB, command, "--home", home, "--embedder", "hashing", *arguments],
            stdin=follower, stdout=follower, stderr=follower, env={**os.environ, "COLUMNS": "80", **env},
            preexec_fn=heed_interrupts,
        )  # fmt: skip
        os.close(follower)
        killer = threading.Timer(60, process.kill)
        killer.start()
        shown = b""
        try:
            while data := os.read(leader, 4096):
                shown += data
                if interrupt_at and interrupt_at in shown:
                    process.send_signal(signal.SIGINT)
                    interrupt_at = None
        except OSError:
            pass  # that is how Linux says that no one writes any more
        finally:
            killer.cancel()
            os.close(leader)
        return process.wait(30), shown.decode().replace("\r\n", "\n")

    return run


def test_titles_are_bold_on_a_terminal_and_no_color_forbids_it(in_terminal, loom_kb, folder):
    loom_kb("add", folder)
    code, shown = in_terminal("list", NO_COLOR="")
    assert code == 0
    assert f"{ESCAPE}1mdefault{ESCAPE}0m" in shown
    code, shown = in_terminal("list", NO_COLOR="1")
    assert code == 0
    assert ESCAPE not in shown


def test_progress_is_drawn_over_and_stopping_keeps_what_is_done(in_terminal, loom_kb, write_lighthouses):
    notes = write_lighthouses(600)  # enough that the interrupt comes in the middle
    code, shown = in_terminal("add", notes, "--kb", "notes", interrupt_at=b"/600 documents  ")
    assert code == 130
    assert re.search(r"\rreading   \[█*·*\] \d+/600 documents", shown)
    assert "Traceback" not in shown
    said = re.search(r"\nStopped\. .*`loom-kb add --kb notes` goes on with (job-\w+)\.", shown)
    assert said
    assert 0 < answer(loom_kb("stats", "--kb", "notes", "--json"))["documents"] < 600

    job = answer(loom_kb("add", "--kb", "notes", "--json"))["job"]
    assert (job["id"], job["state"], job["counts"]) == (said[1], "done", {"added": 600})
    again = loom_kb("add", "--kb", "notes")
    assert again.returncode == 0
    assert again.stderr.decode().endswith("There is no unfinished job.\n")


def test_a_command_adds_while_a_server_works_on_the_same_home(start_kb, loom_kb, folder):
    server = start_kb()
    server.call("add", text="# Pier\n\nThe pier is of granite.")
    assert answer(loom_kb("add", folder, "--json"))["job"]["counts"] == {"added": 2}
    found = server.call("query", query="Who moors for free?")["structuredContent"]["passages"]
    assert found[0]["title"] == "Harbour handbook"
    cause, remedy = failure(loom_kb("remove", "--all"))
    assert re.fullmatch(r"The knowledge base 'default' is in use by loom-kb \(process \d+\)\.", cause)
    assert remedy == "Close the programs that use it and try again."


@pytest.mark.slow
def test_the_demo_answers_its_questions_from_the_right_documents(loom_kb, home):
    done = loom_kb("demo")
    assert done.returncode == 0, done.stderr.decode()
    shown = done.stdout.decode()
    assert ESCAPE not in shown
    for question in QUESTIONS:
        assert question in shown
    config = json.loads(re.search(r"\n(\{\n.*?\n\})\n", shown, re.DOTALL)[1])
    assert config["mcpServers"]["loom-kb"]["env"] == {"LOOM_HOME": str(home)}
    found = answer(loom_kb("demo", "--json"))
    assert list(found) == list(QUESTIONS)
    assert "24,000" in found[QUESTIONS[0]][0]["text"]
    assert "天工开物" in found[QUESTIONS[2]][0]["title"]


CURIE = {
    "Marie Curie": "Marie Curie was a physicist and chemist. In 1891 she moved to the "
    "University of Paris, where later she was the first woman to teach.",
    "Scholars and the king": "King Philip II gave the scholars of the University of Paris "
    "their first privileges in 1200, and Pope Innocent III approved their statutes in 1215.",
    "May 1968": "In May 1968 students occupied the University of Paris, and the police came.",
    "Chapel": "The chapel of the University of Paris was built from 1635 and holds the tomb of Richelieu.",
    "Lectures": "Lectures at the University of Paris were in Latin until the revolution.",
    "Library": "The library of the University of Paris has about two million volumes.",
    "Printing": "The first press in France was set up in the University of Paris in 1470.",
    "Reform": "In 1970 the University of Paris was split into thirteen universities.",
    "Courtyard": "The statue of Pasteur stands in the great courtyard of the University of Paris.",
    "Observatory": "On the roof of the University of Paris there is a small observatory.",
    "Statutes": "Statutes of a town are approved by its council, and those of a club by its members.",
    "Popes": "The pope is the bishop of Rome. Which place a pope taught in is known of a few.",
    "Schools": "The first woman to teach in a place is often found in its register.",
    "Warsaw": "Warsaw is the capital of Poland and lies on the Vistula.",
    "Polonium": "Polonium is an element that was found in pitchblende in 1898.",
}


def test_a_passage_that_answers_a_sub_question_says_what_led_to_it(loom_kb_process, tmp_path):
    folder = tmp_path / "history"
    folder.mkdir()
    for number, (title, text) in enumerate(CURIE.items()):
        (folder / f"{number}.md").write_text(f"# {title}\n\n{text}\n", encoding="utf-8")
    assert loom_kb_process("add", folder).returncode == 0
    question = "Which pope approved the statutes of the place where Marie Curie was the first woman to teach?"
    shown = loom_kb_process("query", question, "--thorough", "--detailed", "--limit", "3").stdout.decode()
    assert (
        "“Marie Curie” mentions “University of Paris”, about which this passage answers the rest of" in shown
    )
    assert "Pope Innocent III" in shown
