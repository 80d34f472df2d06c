"""The emulated server, and a reader on its streams: what is read is what was committed
(formats/gbase-cdc.md 6).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from documents import ROOT
from shared import met

from eventlog.gbase import records
from eventlog.gbase.options import ReadOptions
from eventlog.gbase.reader import StreamReader
from eventlog.gbase.records import RECORD_NAMES, Framer
from eventlog.gbase.session import ERROR_NUMBERS, SessionDead
from eventlog.model import Change, ChangeOp
from eventlog.testing.gbase_emulator import CdcServer, Done, Switches, Work
from eventlog.testing.gbase_workload import (
    ALL,
    LABELS,
    SCENARIOS,
    T1,
    Workload,
    drain,
    new_server,
    open_session,
    play,
    stream,
)

SWITCHES = [
    Switches(),
    Switches(size_order="big", varchar_prefix=1, max_recs=1),
    Switches(read_bytes=7, stale_tail=True, timeout_every=3),
    Switches(extra_header=8, log_size=1 << 16, keep_logs=1000, max_recs=1000, read_bytes=100),
]


def read(fragments: Iterator[bytes], **options: Any) -> list[Change]:
    reader = StreamReader(ReadOptions(labels=LABELS, **options))
    changes = [change for fragment in fragments for change in reader.feed(fragment)]
    reader.finish()
    return changes


def as_done(change: Change) -> Done:
    table = f"shop:{change.schema}.{change.table}"
    return change.op, table, change.before, change.after


@pytest.mark.parametrize(("switches", "seed"), met(SWITCHES, range(3)))
def test_what_is_read_is_what_was_committed_in_commit_order(seed: int, switches: Switches) -> None:
    committed: list[tuple[int, Work]] = []
    server = CdcServer(
        switches, on_commit=lambda work, sequence: committed.append((sequence, work))
    )
    for table, columns in new_server().tables.items():
        server.create_table(
            table, ", ".join(f"{name} {spelled}" for name, spelled in columns.items())
        )
        server.cdc_set_fullrowlogging(table, 1)
    session = open_session(server)
    workload = Workload(server, seed)
    for _ in range(400):
        workload.step()
    workload.finish()
    changes = read(drain(server, session, 300), max_open_bytes=20_000)
    assert [as_done(change) for change in changes] == [
        done for _, work in committed for _, done in work.done
    ]
    assert [change.user for change in changes] == [
        str(work.os_user) for _, work in committed for _ in work.done
    ]


def test_a_seed_gives_the_same_stream_again() -> None:
    assert list(stream(5, 30_000)) == list(stream(5, 30_000)) != list(stream(6, 30_000))


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_read_alike_under_all_switches(name: str) -> None:
    seen = []
    for switches in SWITCHES:
        reader = StreamReader(ReadOptions(labels=LABELS))
        changes = []
        try:
            for change in reader.feed(play(name, switches)):
                changes.append(change._replace(position=None, transaction_id=None))
        except SessionDead:
            assert name == "error"
        seen.append(changes)
    assert all(changes == seen[0] for changes in seen)
    assert (seen[0] == []) is (name == "rollback")


def test_tabschem_comes_first_in_the_documented_spelling() -> None:
    framer = Framer()
    records = list(framer.feed(play("interleaving")))
    assert [RECORD_NAMES[number] for _, number, _, _ in records][:2] == ["TABSCHEM", "TABSCHEM"]
    assert records[0][3].endswith(b"c1 integer, c2 varchar(20,0)\0")


def test_sequences_rise_through_pages_and_logs() -> None:
    server = new_server(Switches(log_size=1 << 13, keep_logs=100))
    sequences = []
    for _ in range(100):
        sequences.append(server.next_sequence)
        work = server.begin()
        work.insert(ALL, dict.fromkeys(server.tables[ALL]))
        work.commit()
    assert sequences == sorted(set(sequences))
    assert sequences[0] == 0x0000000B00000018
    assert {sequence >> 32 for sequence in sequences} >= {11, 12, 13}
    assert all(
        sequence & 0xFFF >= 0x18 and sequence & 0xFFFFFFFF < 1 << 13 for sequence in sequences
    )


@pytest.mark.promise("option gbase.reader.restart")
def test_a_long_transaction_is_read_whole_after_a_restart() -> None:
    server = new_server()
    first_session = open_session(server)
    SCENARIOS["long_transaction"](server)
    whole = list(drain(server, first_session, 100))
    expected = read(iter(whole))
    for stop in range(len(whole)):
        reader = StreamReader(ReadOptions(labels=LABELS))
        first = [change for fragment in whole[:stop] for change in reader.feed(fragment)]
        token = reader.token
        if token.restart is None:
            continue
        again = open_session(server, token.restart)
        rest = read(drain(server, again), restart=token)
        assert first + rest == expected
        server.cdc_closesess(again)


def test_activation_delivers_from_the_position_on() -> None:
    server = new_server()
    work = server.begin()
    position = server.next_sequence
    work.insert(T1, {"c1": 1, "c2": None})
    work.commit()
    records = Framer().feed(b"".join(drain(server, open_session(server, position))))
    assert [RECORD_NAMES[number] for _, number, _, _ in records] == [
        "TABSCHEM",
        "TABSCHEM",
        "INSERT",
        "COMMTX",
    ]


def test_a_session_that_is_activated_again_begins_with_its_tables() -> None:
    server = new_server()
    session = open_session(server)
    position = server.next_sequence
    SCENARIOS["interleaving"](server)
    server.cdc_read(session, bytearray(50))
    assert server.cdc_deactivatesess(session) == 0
    assert server.cdc_read(session, bytearray(50)) == number("NOSESS")
    assert server.cdc_activatesess(session, position) == 0
    assert [change.after for change in read(drain(server, session))] == [
        {"c1": 2, "c2": "b"},
        {"c1": 1, "c2": "a"},
    ]


def number(name: str) -> int:
    return ERROR_NUMBERS[name]


def opened(server: CdcServer) -> int:
    return server.cdc_opensess("s", 0, 0, 1, 1, 1)


@pytest.mark.parametrize(
    ("misuse", "answer"),
    [
        (lambda s: s.cdc_opensess("s", 0, 0, 1, 2, 0), number("APIVERS")),
        (lambda s: s.cdc_opensess("s", 0, 0, 1, 1, 2), number("APIVERS")),
        (lambda s: s.cdc_opensess(None, 0, 0, 1, 1, 1), number("ARGNULL")),
        (lambda s: s.cdc_startcapture(99, 0, T1, "c1", 1), number("NOSESS")),
        (lambda s: s.cdc_activatesess(99, 0), number("NOSESS")),
        (lambda s: s.cdc_recboundary(99), number("NOSESS")),
        (lambda s: s.cdc_deactivatesess(99), number("NOSESS")),
        (lambda s: s.cdc_endcapture(99, 0, T1), number("NOSESS")),
        (lambda s: s.cdc_closesess(99), number("NOSESS")),
        (lambda s: s.cdc_read(99, bytearray(9)), number("NOSESS")),
        (lambda s: s.cdc_read(opened(s), bytearray(9)), number("NOSESS")),
        (lambda s: s.cdc_closesess(None), number("ARGNULL")),
        (lambda s: s.cdc_startcapture(opened(s), 0, None, "c1", 1), number("ARGNULL")),
        (lambda s: s.cdc_startcapture(opened(s), 0, "store:app.t1", "c1", 1), number("NODB")),
        (lambda s: s.cdc_startcapture(opened(s), 0, "shop:app.t9", "c1", 1), number("NOTAB")),
        (lambda s: s.cdc_startcapture(opened(s), 0, T1, "c1, c9", 1), number("NOCOL")),
        (
            lambda s: s.cdc_startcapture(opened(s), 0, "shop:app.off", "c", 1),
            number("TABPROPERTIES"),
        ),
        (
            lambda s: s.cdc_startcapture(opened(s), 0, "shop:app.view", "c", 1),
            number("TABPROPERTIES"),
        ),
        (
            lambda s: s.cdc_startcapture(opened(s), 0, "shop:app.odd", "t", 1),
            number("TABPROPERTIES"),
        ),
        (lambda s: s.cdc_startcapture(1, 0, T1, "c1", 1), number("TABCAPTURED")),
        (lambda s: s.cdc_endcapture(1, 0, "shop:app.odd"), number("TABNOTCAPTURED")),
        (lambda s: s.cdc_activatesess(1, 0), number("NOREOPEN")),
        (lambda s: s.cdc_activatesess(opened(s), 1), number("LSN")),
        (lambda s: s.cdc_activatesess(opened(s), s.next_sequence + 1), number("LSN")),
        (lambda s: s.cdc_set_fullrowlogging(T1, 0), -19816),
        (lambda s: s.cdc_set_fullrowlogging("shop:app.t9", 1), number("NOTAB")),
    ],
)
def test_misuse_is_answered_by_its_error(misuse: Any, answer: int) -> None:
    server = new_server()
    open_session(server)
    server.create_table("shop:app.off", "c integer")
    server.create_table("shop:app.view", "c integer", kind="view")
    server.create_table("shop:app.odd", "t text, c integer")
    server.cdc_set_fullrowlogging("shop:app.odd", 1)
    assert misuse(server) == answer


def test_logs_that_are_kept_no_more_cannot_be_read() -> None:
    server = new_server(Switches(log_size=1 << 12, keep_logs=2))
    first = server.next_sequence
    behind = open_session(server)
    for _ in range(200):
        server.begin().commit()
    session = server.cdc_opensess("s", 0, 0, 1, 1, 1)
    assert server.cdc_activatesess(session, first) == number("LSN")
    assert server.cdc_activatesess(session, server.oldest_sequence) == 0
    with pytest.raises(SessionDead) as caught:
        read(drain(server, behind))
    assert caught.value.error == number("LSN")


def test_record_boundary_returns_a_cut_record_from_its_start() -> None:
    server = new_server()
    session = open_session(server)
    buffer = bytearray(50)
    assert server.cdc_read(session, buffer) == 50
    assert server.cdc_recboundary(session) == 0
    assert server.cdc_read(session, again := bytearray(50)) == 50
    assert again == buffer


def test_the_tail_of_a_stale_buffer_is_left_alone_and_else_zero() -> None:
    for stale, tail in ((True, b"\xaa"), (False, b"\0")):
        server = new_server(replace(Switches(), stale_tail=stale, max_recs=1))
        session = open_session(server)
        buffer = bytearray(b"\xaa" * 4000)
        size = server.cdc_read(session, buffer)
        assert buffer[size:] == tail * (4000 - size)


def test_a_read_without_data_returns_a_timeout_and_waits_if_requested() -> None:
    server = new_server()
    session = open_session(server)
    list(drain(server, session))
    buffer = bytearray(100)
    assert server.cdc_read(session, buffer) == 24
    assert buffer[12:16] == records.TIMEOUT.to_bytes(4, "big")
    waiting = server.cdc_opensess("s", 0, -1, 1, 1, 1)
    server.cdc_activatesess(waiting, 0)
    worker = threading.Timer(0.05, lambda: server.begin().commit())
    worker.start()
    assert server.cdc_read(waiting, buffer) == 40
    worker.join()


def test_transaction_ids_are_used_again() -> None:
    server = new_server()
    first, second = server.begin(), server.begin()
    first.commit()
    assert (first.tx, second.tx, server.begin().tx) == (1, 2, 1)


@pytest.mark.promise("option gbase.reader.keys")
def test_updates_that_change_nothing_are_written() -> None:
    changes = read(iter([play("update_pair")]), keys={"t1": ["c1"]})
    assert [change.changed for change in changes] == [frozenset({"c2"}), frozenset(), None]
    assert changes[0].key == (("c1", 1),)
    assert changes[0].op is ChangeOp.UPDATE


def test_the_example_of_the_documentation_runs() -> None:
    page = (ROOT / "docs" / "formats" / "gbase-cdc.md").read_text(encoding="utf-8")
    (example,) = re.findall(
        r"^```python\n(from eventlog\.testing\.gbase_emulator .*?)^```$", page, re.M | re.S
    )
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["server"].tables
