"""Pictures that are drawn as SVG without Graphviz: the overview of README, a row's way, folding, a
consumer's set, and a schema change in time. ``scripts/diagrams.py`` writes them to docs/pictures.

A picture is narrow, so that it can be read on a telephone, and has a light ground, so that it can
be read on a dark page. Fonts are those of the reader: a picture asks no other host for anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Final

WIDTH: Final = 420
SHOWN: Final = 560
"""The width of a picture on a wide page, in pixels; on a narrow one it shrinks."""

INK, SOFT, LINE = "#212b30", "#4f5f67", "#78909c"
PLAIN, GREEN, AMBER, RED, TEAL = "#ffffff", "#c8e6c9", "#ffe0a3", "#ffcdd2", "#b2dfdb"


class Drawing:
    """The elements of one picture."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: int = 13,
        ink: str = INK,
        bold: bool = False,
        anchor: str = "start",
        mono: bool = False,
    ) -> None:
        """Write words whose base line begins at this place."""
        family = "ui-monospace, Menlo, Consolas, monospace" if mono else "sans-serif"
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-family="{family}"{weight} '
            f'fill="{ink}" text-anchor="{anchor}" xml:space="preserve">{escape(words)}</text>'
        )

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str = PLAIN,
        *,
        dashed: bool = False,
    ) -> None:
        """Draw a box with round corners."""
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" '
            f'fill="{fill}" stroke="{LINE}"{dash}/>'
        )

    def arrow(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """Draw an arrow."""
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{SOFT}" '
            'stroke-width="1.5" marker-end="url(#tip)"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, ink: str = LINE) -> None:
        """Draw a line."""
        self.parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{ink}" '
            'stroke-width="1.5"/>'
        )

    def svg(self, height: int) -> str:
        """Return the picture."""
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
                f'width="{SHOWN}" height="{SHOWN * height // WIDTH}" role="img">',
                f"<title>{escape(self.title)}</title>",
                '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
                f'markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{SOFT}"/>'
                "</marker></defs>",
                f'<rect x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="8" '
                f'fill="#f7f9fa" stroke="#cfd8dc"/>',
                *self.parts,
                "</svg>\n",
            ]
        )


def overview() -> str:
    """Return the way of a change from a table to the receiver, and back to its row."""
    draw = Drawing("From a table to the receiver, and from a backlog to files")
    boxes = (
        (96, 16, 228, 36, PLAIN, "your tables", ""),
        (16, 88, 388, 50, AMBER, "event log", "a table in the same database"),
        (16, 186, 206, 36, TEAL, "publisher", ""),
        (240, 186, 164, 36, TEAL, "Spark", ""),
        (16, 270, 206, 50, PLAIN, "your receiver", "HTTP, queues, files, Python"),
        (240, 270, 164, 50, PLAIN, "files", "the same documents"),
    )
    for x, y, width, height, fill, name, more in boxes:
        draw.box(x, y, width, height, fill)
        draw.text(x + width / 2, y + (21 if more else 23), name, anchor="middle", bold=True)
        draw.text(x + width / 2, y + 40, more, anchor="middle", ink=SOFT)
    arrows = (
        (210, 52, 86, "triggers write each change"),
        (50, 138, 184, "waiting rows"),
        (162, 186, 140, "marks"),
        (280, 138, 184, "a backlog"),
        (50, 222, 268, "documents"),
        (162, 270, 224, "answers"),
        (280, 222, 268, "conversion"),
    )
    for x, y1, y2, words in arrows:
        draw.arrow(x, y1, x, y2)
        draw.text(x + 9, (y1 + y2) / 2 + 5, words, ink=SOFT)
    return draw.svg(336)


def row_travels() -> str:
    """Return how a row travels from a statement to its mark."""
    draw = Drawing("How a row travels: captured, read and folded, sent, marked")
    steps = (
        ("1", "Capture", "The application changes a row of its table.", None),
        (None, None, None, ("UPDATE usr SET fname = 'John' ...", PLAIN)),
        (None, None, "A trigger writes the log, in the same transaction.", None),
        (None, None, None, ("3 | N | usr | idu=1 | fname | Jack | John", AMBER)),
        ("2", "Read and fold", "The publisher reads rows of status N.", None),
        (None, None, None, ("modify of usr idu=1, event-id 3", TEAL)),
        ("3", "Send", "It records the event, then sends its document.", None),
        (None, None, None, ("receiver: success", PLAIN)),
        ("4", "Mark", "It marks the row by the answer.", None),
        (None, None, None, ("3 | S | usr | idu=1 | fname | Jack | John", GREEN)),
    )
    y = 16.0
    for number, name, words, boxed in steps:
        if boxed is not None:
            content, fill = boxed
            draw.box(52, y, 352, 32, fill)
            draw.text(62, y + 21, content, mono=True, size=13)
            y += 32
            continue
        if number is not None:
            y += 0 if number == "1" else 14
            draw.parts.append(f'<circle cx="28" cy="{y + 17:g}" r="13" fill="#00695c"/>')
            draw.text(28, y + 22, number, ink="#ffffff", bold=True, anchor="middle", size=14)
            draw.text(52, y + 15, name or "", bold=True, size=14)
            draw.text(52, y + 33, words or "", ink=SOFT)
            y += 44
        else:  # words between two boxes
            draw.arrow(70, y + 2, 70, y + 26)
            draw.text(84, y + 18, words or "", ink=SOFT)
            y += 29
    return draw.svg(int(y) + 16)


def folding() -> str:
    """Return how rows of one object become an event."""
    draw = Drawing("Folding: rows of one object that are near each other become one event")
    draw.text(14, 28, "Rows of the log, in order", bold=True)
    draw.text(268, 28, "Events", bold=True)
    rows = (
        ("101", "insert", "customer 7", "name", TEAL),
        ("102", "insert", "customer 7", "city", TEAL),
        ("103", "update", "customer 3", "name", AMBER),
        ("104", "update", "customer 3", "city", AMBER),
        ("105", "update", "customer 7", "city", TEAL),
        ("106", "delete", "customer 3", "", AMBER),
    )
    tops: dict[str, float] = {}
    for place, (number, what, whose, column, fill) in enumerate(rows):
        y = tops[number] = 40.0 + 40 * place
        draw.box(14, y, 222, 32, fill)
        draw.text(21, y + 21, number, bold=True)
        draw.text(53, y + 21, what)
        draw.text(104, y + 21, whose)
        draw.text(190, y + 21, column, ink=SOFT)
    events = (
        (("101", "102"), "add customer 7", "event-id 101", TEAL),
        (("103", "104"), "modify customer 3", "event-id 103", AMBER),
        (("105",), "modify customer 7", "event-id 105", TEAL),
        (("106",), "delete customer 3", "event-id 106", AMBER),
    )
    for members, what, event_id, fill in events:
        middle = sum(tops[one] + 16 for one in members) / len(members)
        height = 44 if len(members) > 1 else 34
        draw.box(268, middle - height / 2, 138, height, fill)
        draw.text(337, middle - 2, what, anchor="middle", bold=True, size=12)
        draw.text(337, middle + 13, event_id, anchor="middle", ink=SOFT, size=12)
        for one in members:
            draw.arrow(237, tops[one] + 16, 266, middle)
    draw.text(16, 300, "Each object keeps the order of its changes.", ink=SOFT)
    return draw.svg(314)


def consumer_set() -> str:
    """Return the set of done rows of a consumer while a transaction commits late."""
    draw = Drawing("The set of a consumer while a transaction with a lower number commits late")
    moments = (
        (
            "Transaction A has row 50 and is still open.",
            "ddoww.",
            "done: 1 to 49. Row 50 is not visible yet",
        ),
        ("The consumer sends what it can see.", "ddodd.", "done: 1 to 49, 51 to 52"),
        (
            "A commits: row 50 is not in the set, so it is next.",
            "ddwdd.",
            "done: 1 to 49, 51 to 52",
        ),
        ("The set becomes one range again.", "ddddd.", "done: 1 to 52"),
    )
    fills = {"d": (GREEN, False), "o": (PLAIN, True), "w": (AMBER, False)}
    y = 18
    for place, (words, cells, done) in enumerate(moments):
        draw.text(16, y + 12, f"{place + 1}", bold=True, ink="#00695c", size=14)
        draw.text(34, y + 12, words, bold=True, size=13)
        for offset, kind in enumerate(cells.rstrip(".")):
            fill, dashed = fills[kind]
            x = 34 + 62 * offset
            draw.box(x, y + 22, 56, 30, fill, dashed=dashed)
            draw.text(x + 28, y + 42, str(48 + offset), anchor="middle", bold=kind == "w")
        draw.text(34, y + 70, done, ink=SOFT)
        y += 88
    legend = ((GREEN, False, "done"), (AMBER, False, "to be sent"), (PLAIN, True, "not visible"))
    x = 34
    for fill, dashed, words in legend:
        draw.box(x, y, 18, 18, fill, dashed=dashed)
        draw.text(x + 26, y + 14, words, ink=SOFT)
        x += 118
    return draw.svg(y + 34)


def schema_change() -> str:
    """Return what the triggers log and the publisher sends around a change of a table."""
    draw = Drawing("A new column in time: before ALTER TABLE, until triggers apply, and after it")
    draw.text(16, 28, "time", ink=SOFT)
    draw.text(102, 28, "the triggers log", bold=True)
    draw.text(272, 28, "the publisher", bold=True)
    draw.line(84, 40, 84, 372)
    draw.arrow(84, 368, 84, 384)
    stages = (
        (44, ("values of name", "and city"), ("sends both", ""), GREEN),
        (
            154,
            ("the same, without", "the new column"),
            ("reads the new", "column back"),
            AMBER,
        ),
        (284, ("values of name,", "city and email"), ("sends all three", ""), GREEN),
    )
    for y, logged, sent, fill in stages:
        for x, width, words in ((102, 158, logged), (272, 134, sent)):
            draw.box(x, y, width, 48, fill)
            single = not words[1]
            draw.text(x + 10, y + (29 if single else 20), words[0])
            draw.text(x + 10, y + 38, words[1])
    for y, words, more in (
        (108, "ALTER TABLE ... ADD COLUMN email", "No statement of the application fails."),
        (222, "eventlog triggers apply", "It prints the resync that is needed, if any:"),
    ):
        draw.parts.append(f'<circle cx="84" cy="{y + 10:g}" r="6" fill="#00695c"/>')
        draw.text(102, y + 14, words, mono=True, bold=True, size=12)
        draw.text(102, y + 31, more, ink=SOFT)
    draw.text(102, 268, "eventlog resync CLASS", mono=True, bold=True, size=12)
    draw.text(16, 72, "before", ink=SOFT)
    draw.text(16, 182, "between", ink=SOFT)
    draw.text(16, 312, "after", ink=SOFT)
    draw.text(102, 362, "Shown for a new column on PostgreSQL.", ink=SOFT)
    return draw.svg(396)


DRAWINGS: Final[Mapping[str, Callable[[], str]]] = {
    "overview": overview,
    "row-travels": row_travels,
    "folding": folding,
    "consumer-set": consumer_set,
    "schema-change": schema_change,
}
"""The pictures by the names of their files."""
