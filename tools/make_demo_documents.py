"""Writes the demo documents that are no text files: a PDF and a Word document, from the text below.

    uv run --no-project --with python-docx --with reportlab python tools/make_demo_documents.py

The results are committed; run it again when the text changes.
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from docx import Document
from reportlab.lib.enums import TA_LEFT
from reportlab.lib.pagesizes import A4
from reportlab.lib.styles import ParagraphStyle
from reportlab.platypus import Flowable, Paragraph, SimpleDocTemplate

FOLDER = Path(__file__).parents[1] / "servers" / "kb" / "loom_kb" / "demo_documents"

WRITTEN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

# A title, and sections: a heading (empty for the introduction) and its paragraphs.
Text = tuple[str, list[tuple[str, list[str]]]]

CANUTS: Text = (
    "The canuts of Lyon",
    [
        (
            "",
            [
                "The canuts were the silk weavers of Lyon in the nineteenth century. They wove on their own"
                " looms, most of them fitted with a Jacquard machine, for merchants who supplied the silk and"
                " paid by the piece.",
            ],
        ),
        (
            "The houses of Croix-Rousse",
            [
                "A loom with a Jacquard machine on top is nearly four metres high and did not fit under the"
                " ceilings of the old town. From the 1810s on new houses were built for it on the hill of"
                " Croix-Rousse, with high windows and a gallery for the family to sleep on: workshop and home"
                " in one room. Covered passages through the houses, the traboules, let the weavers carry silk"
                " down to the merchants out of the rain.",
                "Croix-Rousse came to be called the hill that works, facing Fourvière, the hill that prays."
                " Both belong to the historic site of Lyon, a UNESCO World Heritage site since 1998.",
            ],
        ),
        (
            "The revolts",
            [
                "In October 1831 weavers and merchants agreed, before the prefect Louis Bouvier-Dumolart, on"
                " a tariff: lowest prices for a piece of work. Many merchants refused to pay it. On 21"
                " November 1831 the canuts came down from Croix-Rousse under a black flag with the words"
                " “Vivre en travaillant ou mourir en combattant”: live working or die fighting. After two"
                " days of battle the city was theirs. At the beginning of December Marshal Soult entered it"
                " with 20,000 soldiers, without bloodshed. The tariff was annulled.",
                "The second revolt, in April 1834, was put down by artillery in less than a week; a third"
                " came in the revolutionary year 1848. The revolt of 1831 is counted among the first risings"
                " of workers of the industrial age.",
            ],
        ),
    ],
)

CORE_ROPE: Text = (
    "Core rope memory",
    [
        (
            "",
            [
                "Core rope memory is a read-only memory made by threading wires through and around magnetic"
                " cores. The programs of the Apollo Guidance Computer, which took people to the Moon, were"
                " woven into it by hand.",
            ],
        ),
        (
            "A program made of wire",
            [
                "Where a wire goes through a core, reading that core yields a one; where it passes by"
                " outside, a zero. As many wires share one core, a great deal fits into a small space: the"
                " fixed memory of the Apollo Guidance Computer held 36,864 words of 15 bits and a parity bit."
                " Its erasable memory, of ordinary magnetic cores, held 2,048 words.",
                "The rule is that of the Jacquard machine, where a hole lifts a thread and no hole leaves it"
                " down. But cards can be exchanged within minutes, while a rope is made once: a change of the"
                " program meant weeks of new weaving, so programs had to be finished months before launch.",
            ],
        ),
        (
            "The weavers of Waltham",
            [
                "The ropes were made in the factory of Raytheon at Waltham, Massachusetts, by women many of"
                " whom had worked in the textile mills and watch factories of the region. Two of them sat"
                " facing each other with a frame of cores between them and passed a needle with the wire to"
                " and fro; a machine that read a punched tape moved the frame so that the right hole was in"
                " front of them. Engineers called the product LOL memory, for little old lady.",
            ],
        ),
        (
            "The software",
            [
                "The programs were written at the MIT Instrumentation Laboratory in Cambridge,"
                " Massachusetts. Margaret Hamilton became the head of its flight software. During the landing"
                " of Apollo 11 on 20 July 1969 the computer was given more work than it had time for, and"
                " reported it with the alarms 1202 and 1201. It dropped the less important jobs, as it was"
                " programmed to do, and the landing went on.",
            ],
        ),
    ],
)


def write_word(text: Text, path: Path) -> None:
    """Write a Word document with real heading styles."""
    title, sections = text
    document = Document()
    document.core_properties.title = title
    document.core_properties.author = "Loom"
    document.core_properties.comments = ""
    document.core_properties.created = document.core_properties.modified = WRITTEN.replace(tzinfo=None)
    document.add_heading(title, level=0)
    for heading, paragraphs in sections:
        if heading:
            document.add_heading(heading, level=1)
        for paragraph in paragraphs:
            document.add_paragraph(paragraph)
    document.save(str(path))


def write_pdf(text: Text, path: Path) -> None:
    """Write a PDF whose headings are told by their size, as they are in most PDFs."""
    title, sections = text
    body = ParagraphStyle(
        "body", fontName="Times-Roman", fontSize=11, leading=15, spaceAfter=8, alignment=TA_LEFT
    )
    heading_style = ParagraphStyle(
        "heading", parent=body, fontName="Helvetica-Bold", fontSize=14, leading=20, spaceBefore=8
    )
    title_style = ParagraphStyle("title", parent=heading_style, fontSize=22, leading=30, spaceAfter=14)
    story: list[Flowable] = [Paragraph(title, title_style)]
    for heading, paragraphs in sections:
        if heading:
            story.append(Paragraph(heading, heading_style))
        story += [Paragraph(paragraph, body) for paragraph in paragraphs]
    os.environ["SOURCE_DATE_EPOCH"] = str(int(WRITTEN.timestamp()))  # the date of the PDF
    document = SimpleDocTemplate(
        str(path),
        pagesize=A4,
        title=title,
        author="Loom",
        subject="Weaving and computing",
        leftMargin=72,
        rightMargin=72,
    )
    document.build(story)


if __name__ == "__main__":
    write_word(CANUTS, FOLDER / "canuts-of-lyon.docx")
    write_pdf(CORE_ROPE, FOLDER / "core-rope-memory.pdf")
