"""Interleaving, rollback, savepoints, update pairs, restart, spilling (formats/gbase-cdc.md 4)."""

from __future__ import annotations

import random
import struct
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shared import examples, refused

from eventlog.gbase import records
from eventlog.gbase.layout import parse_columns, tabschem
from eventlog.gbase.options import ReadOptions
from eventlog.gbase.reader import StreamReader
from eventlog.gbase.records import DELETE, INSERT, UPDAFT, UPDBEF
from eventlog.gbase.session import SessionDead
from eventlog.model import Change, ChangeOp

SCHEM = b"".join(tabschem(label, parse_columns("c integer")) for label in (1, 2))
BASE = 0x0000000B00000018


def begin(seq: int, tx: int) -> bytes:
    return records.control(records.BEGINTX, BASE + seq, tx, 1_700_000_000, 7)


def commit(seq: int, tx: int) -> bytes:
    return records.control(records.COMMTX, BASE + seq, tx, 1_700_000_001)


def row(number: int, seq: int, tx: int = 1, label: int = 1, value: int | None = None) -> bytes:
    return records.row(
        number,
        BASE + seq,
        tx,
        label,
        (),
        struct.pack(">i", seq if value is None else value),
        "little",
    )


def discard(seq: int, tx: int = 1) -> bytes:
    return records.control(records.DISCARD, BASE + seq, tx)


def read(data: bytes, **options: Any) -> tuple[list[Change], StreamReader]:
    reader = StreamReader(ReadOptions(**options))
    return list(reader.feed(SCHEM + data)), reader


def in_short(changes: list[Change]) -> list[tuple[str, Any, Any]]:
    return [
        (change.op.value, (change.before or {}).get("c"), (change.after or {}).get("c"))
        for change in changes
    ]  # fmt: skip


# --- pairs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "expected", "counters"),
    [
        pytest.param(
            row(UPDBEF, 2) + row(INSERT, 3, label=2) + row(UPDAFT, 4),
            [("INSERT", None, 3), ("UPDATE", 2, 4)],
            {},
            id="another label may stand between",
        ),
        pytest.param(
            row(UPDBEF, 2) + row(UPDBEF, 3) + row(UPDAFT, 4) + row(UPDAFT, 5),
            [("UPDATE", 3, 4), ("UPDATE", 2, 5)],
            {},
            id="the nearest before image",
        ),
        pytest.param(
            row(UPDAFT, 2), [("UPDATE", None, 2)], {"unpaired_updaft": 1}, id="after image alone"
        ),
        pytest.param(
            row(UPDBEF, 2), [("DELETE", 2, None)], {"unpaired_updbef": 1}, id="before image alone"
        ),
        pytest.param(
            row(INSERT, 2) + row(UPDBEF, 3),
            [("UPDATE", 3, 2)],
            {"unpaired_updbef": 1},
            id="the insert before it",
        ),
        pytest.param(
            row(UPDBEF, 2) + row(INSERT, 3),
            [("UPDATE", 2, 3)],
            {"unpaired_updbef": 1},
            id="the insert after it",
        ),
        pytest.param(
            row(INSERT, 2) + row(UPDBEF, 3) + row(INSERT, 4),
            [("UPDATE", 3, 2), ("INSERT", None, 4)],
            {"unpaired_updbef": 1},
            id="the insert before it first",
        ),
        pytest.param(
            row(UPDBEF, 2) + row(INSERT, 3) + row(UPDBEF, 4),
            [("UPDATE", 2, 3), ("DELETE", 4, None)],
            {"unpaired_updbef": 2},
            id="an insert belongs to one pair only",
        ),
        pytest.param(
            row(UPDBEF, 2) + row(INSERT, 3, label=2),
            [("DELETE", 2, None), ("INSERT", None, 3)],
            {"unpaired_updbef": 1},
            id="not the insert of another table",
        ),
        pytest.param(
            row(INSERT, 2) + row(DELETE, 3) + row(UPDBEF, 4),
            [("INSERT", None, 2), ("DELETE", 3, None), ("DELETE", 4, None)],
            {"unpaired_updbef": 1},
            id="directly before it",
        ),
        pytest.param(
            row(UPDBEF, 2) + row(UPDAFT, 3) + discard(3) + row(UPDAFT, 4),
            [("UPDATE", None, 4)],
            {"unpaired_updaft": 1},
            id="pairs are made before a discard",
        ),
        pytest.param(
            row(UPDBEF, 2) + discard(2) + row(UPDAFT, 3),
            [("UPDATE", None, 3)],
            {"unpaired_updaft": 1},
            id="a discarded before image pairs no more",
        ),
    ],
)
def test_updates_are_paired(work: bytes, expected: list[Any], counters: dict[str, int]) -> None:
    changes, reader = read(begin(1, 1) + work + commit(90, 1))
    assert in_short(changes) == expected
    assert dict(reader.counters) == counters
    assert [change.event_number for change in changes] == list(range(1, len(changes) + 1))
    assert [change.last_in_transaction for change in changes] == [False] * (len(changes) - 1) + [
        True
    ]


class Kept(NamedTuple):
    place: int
    number: int
    seq: int
    label: int


def expected_of(script: list[tuple[Any, ...]]) -> list[tuple[str, int | None, int | None]]:
    """The rules of formats/gbase-cdc.md 4, followed word for word: what a transaction of these
    records gives.
    """
    kept: list[Kept] = []
    pairs: dict[int, int] = {}  # UPDAFT -> UPDBEF, by places
    for place, (number, seq, label) in enumerate(script):
        if number == "discard":
            dropped = {record.place for record in kept if record.seq >= seq}
            dropped |= {pairs[after] for after in dropped if after in pairs}
            kept = [record for record in kept if record.place not in dropped]
            continue
        if number == UPDAFT:
            free = [
                record.place
                for record in kept
                if record.number == UPDBEF
                and record.label == label
                and record.place not in pairs.values()
            ]
            if free:
                pairs[place] = free[-1]
        kept.append(Kept(place, number, seq, label))
    inserted_by: dict[int, Kept] = {}  # INSERT -> UPDBEF
    lone = {}
    for index, record in enumerate(kept):
        if record.number != UPDBEF or record.place in pairs.values():
            continue
        for beside in (index - 1, index + 1):
            other = kept[beside] if 0 <= beside < len(kept) else None
            if (
                other
                and other.number == INSERT
                and other.label == record.label
                and other.place not in inserted_by
            ):
                inserted_by[other.place] = record
                break
        else:
            lone[record.place] = record
    found: list[tuple[str, int | None, int | None]] = []
    for record in kept:
        if record.place in inserted_by:
            found.append(("UPDATE", inserted_by[record.place].seq, record.seq))
        elif record.number == INSERT:
            found.append(("INSERT", None, record.seq))
        elif record.number == DELETE or record.place in lone:
            found.append(("DELETE", record.seq, None))
        elif record.number == UPDAFT:
            before = script[pairs[record.place]][1] if record.place in pairs else None
            found.append(("UPDATE", before, record.seq))
    return found


STEPS = st.lists(
    st.tuples(
        st.sampled_from([INSERT, INSERT, DELETE, UPDBEF, UPDBEF, UPDAFT, UPDAFT, "discard"]),
        st.integers(1, 8),
        st.integers(1, 2),
    ),
    max_size=25,
)


@settings(max_examples=examples(300), deadline=None)
@given(STEPS, st.sampled_from([1, 700, 1 << 20]), st.booleans())
def test_any_transaction_gives_what_the_rules_say_in_memory_and_spilled(
    steps: list[tuple[Any, int, int]], max_open_bytes: int, in_order: bool
) -> None:
    script, seq = [], 0
    data = [SCHEM, begin(0, 1)]
    for number, step, label in steps:
        if number == "discard":
            target = max(1, seq - step)
            script.append((number, target, label))
            data.append(discard(target))
            continue
        seq += 1
        own = seq if in_order or step < 6 else max(1, seq - step)  # now and then one out of order
        script.append((number, own, label))
        data.append(row(number, own, label=label))
    reader = StreamReader(ReadOptions(max_open_bytes=max_open_bytes))
    changes = [change for fragment in (*data, commit(99, 1)) for change in reader.feed(fragment)]
    assert in_short(changes) == expected_of(script)


# --- order, ends, ids -----------------------------------------------------------------------------


def test_transactions_come_in_the_order_of_their_commits() -> None:
    data = (
        begin(1, 1)
        + begin(2, 2)
        + row(INSERT, 3, 1)
        + row(INSERT, 4, 2)
        + commit(5, 2)
        + commit(6, 1)
    )
    changes, _ = read(data)
    assert [change.after for change in changes] == [{"c": 4}, {"c": 3}]


def test_rolled_back_and_unfinished_work_gives_nothing() -> None:
    data = (
        begin(1, 1)
        + row(INSERT, 2)
        + records.control(records.RBTX, BASE + 3, 1)
        + begin(4, 1)
        + row(INSERT, 5)
    )
    changes, reader = read(data)
    assert changes == []
    for _ in range(2):
        assert reader.token.to_json() == {"restart": f"{BASE + 4:016x}", "commit": None}
        # the end takes nothing from the token: who reads on begins with what was open
        reader.finish()


@pytest.mark.promise("option gbase.reader.labels")
def test_truncate_is_undone_by_a_rollback_and_needs_no_description() -> None:
    undone = (
        begin(1, 1)
        + records.control(records.TRUNCATE, BASE + 2, 1, 9)
        + records.control(records.RBTX, BASE + 3, 1)
    )
    data = undone + begin(4, 1) + records.control(records.TRUNCATE, BASE + 5, 1, 9) + commit(6, 1)
    (change,), _ = read(data, labels={"9": "shop:app.item"})
    assert (change.op, change.schema, change.table) == (ChangeOp.TRUNCATE, "app", "item")


def test_an_id_is_used_again_and_a_begin_may_be_replayed() -> None:
    first = begin(1, 1) + begin(1, 1) + row(INSERT, 2) + commit(3, 1)
    changes, _ = read(first + begin(4, 1) + row(DELETE, 5) + commit(6, 1))
    assert [change.transaction_id for change in changes] == [f"{BASE + 1:032X}", f"{BASE + 4:032X}"]


@pytest.mark.promise("option gbase.reader.duplicate_begin", "code error-duplicate_begin")
def test_another_begin_of_an_open_id_is_refused_or_replaces() -> None:
    data = begin(1, 1) + row(INSERT, 2) + begin(3, 1) + row(INSERT, 4) + commit(5, 1)
    with refused("duplicate_begin", match="000b00000019"):
        read(data)
    changes, _ = read(data, duplicate_begin="replace")
    assert [change.after for change in changes] == [{"c": 4}]


@pytest.mark.promise("option gbase.reader.orphans", "code error-orphan_record")
@pytest.mark.parametrize(
    "orphan",
    [row(INSERT, 1), discard(1), records.control(records.TRUNCATE, BASE, 1, 1)],
    ids=["row", "discard", "truncate"],
)
def test_orphans_are_counted_or_refused_and_after_a_restart_always_skipped(orphan: bytes) -> None:
    changes, reader = read(orphan)
    assert changes == []
    assert reader.counters == {"orphan_records": 1}
    assert reader.token == (None, None)
    with refused("orphan_record"):
        read(orphan, orphans="error")
    _, reader = read(
        orphan, orphans="error", restart={"restart": "0000000b00000018", "commit": None}
    )
    assert reader.counters == {"orphan_records": 1}


@pytest.mark.parametrize(
    "end", [commit(1, 1), records.control(records.RBTX, BASE, 1)], ids=["commit", "rollback"]
)
@pytest.mark.parametrize("orphans", ["skip", "error"])
def test_the_end_of_a_transaction_that_never_began_is_skipped_and_counted(
    end: bytes, orphans: str
) -> None:
    changes, reader = read(end, orphans=orphans)
    assert changes == []
    assert reader.counters == {"orphan_records": 1}
    assert reader.token == (None, None)


@pytest.mark.promise("option gbase.reader.empty_transactions")
def test_empty_transactions_are_seen_as_transactions_only() -> None:
    data = SCHEM + begin(1, 1) + commit(2, 1)
    assert list(StreamReader(ReadOptions()).transactions(data)) == []
    (empty,) = StreamReader(ReadOptions(empty_transactions=True)).transactions(data)
    assert (empty.begin_seq, empty.commit_seq, empty.os_user) == (BASE + 1, BASE + 2, 7)
    assert list(empty.operations) == []
    assert read(begin(1, 1) + commit(2, 1), empty_transactions=True)[0] == []


@pytest.mark.promise("code error-schema_missing")
def test_a_row_that_nothing_describes_is_refused() -> None:
    with refused("schema_missing", match="label 3"):
        read(begin(1, 1) + row(INSERT, 2, label=3))


def test_an_idle_mark_is_offered_and_an_error_record_ends_the_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    marks: list[int] = []
    reader = StreamReader(on_idle=marks.append)
    list(
        reader.feed(
            records.control(records.TIMEOUT, 0)
            + records.control(records.TIMEOUT, 5)
            + records.control(records.ERROR, 0, -83713)
        )
    )
    assert marks == [0, 5]
    assert "LSN" in caplog.text
    with pytest.raises(SessionDead) as caught:
        list(reader.feed(records.control(records.ERROR, 1, -83713)))
    assert caught.value.error == -83713
    with pytest.raises(SessionDead):
        list(reader.feed(SCHEM))


# --- restart and memory ---------------------------------------------------------------------------


def test_a_token_from_anywhere_in_the_stream_loses_nothing_and_skips_what_was_delivered() -> None:
    rnd = random.Random(3)
    data, open_ids = [], set[int]()
    for seq in range(1, 121):
        tx = rnd.randrange(1, 5)
        if tx not in open_ids:
            data.append((BASE + seq, begin(seq, tx)))
            open_ids.add(tx)
        elif rnd.random() < 0.4:
            data.append(
                (
                    BASE + seq,
                    rnd.choice([commit(seq, tx), records.control(records.RBTX, BASE + seq, tx)]),
                )
            )
            open_ids.remove(tx)
        else:
            data.append((BASE + seq, row(INSERT, seq, tx)))
    whole, _ = read(b"".join(record for _, record in data))
    for stop in range(len(data)):
        first, reader = read(b"".join(record for _, record in data[:stop]))
        token = reader.token
        rest, _ = read(
            b"".join(record for sequence, record in data if sequence >= (token.restart or 0)),
            restart=token.to_json(),
        )
        assert first + rest == whole


def test_the_token_moves_when_the_last_change_of_a_transaction_was_taken() -> None:
    reader = StreamReader()
    changes = reader.feed(SCHEM + begin(1, 1) + row(INSERT, 2) + row(INSERT, 3) + commit(4, 1))
    for _ in range(2):
        next(changes)
        assert reader.token == (BASE + 1, None)  # whoever reads again from here gets it whole
    assert next(changes, None) is None
    assert reader.token == (BASE + 4, BASE + 4)


def test_a_transaction_that_was_left_in_the_middle_is_read_again() -> None:
    reader = StreamReader()
    changes = reader.feed(SCHEM + begin(1, 1) + row(INSERT, 2) + row(INSERT, 3) + commit(4, 1))
    next(changes)
    changes.close()
    assert reader.token == (BASE + 1, None)


def test_an_empty_transaction_moves_the_token() -> None:
    _, reader = read(begin(1, 1) + row(INSERT, 2) + discard(2) + commit(3, 1))
    assert reader.token == (BASE + 3, BASE + 3)


def test_a_transaction_beyond_the_limit_is_held_in_a_file() -> None:
    rows = b"".join(row(UPDBEF, seq) + row(UPDAFT, seq + 1) for seq in range(2, 6002, 2))
    short = begin(7000, 2) + row(INSERT, 7001, 2) + commit(7002, 2)
    in_memory, _ = read(begin(1, 1) + rows + short + discard(5000) + commit(8000, 1))
    spilled, reader = read(
        begin(1, 1) + rows + short + discard(5000) + commit(8000, 1), max_open_bytes=10_000
    )
    assert spilled == in_memory
    assert len(spilled) == 1 + 2499
    reader.finish()
