"""What the triggers for Oracle log (spec/triggers.md 2), by an interpreter of the PL/SQL that they
are written in.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle_catalogue import BASE, DATABASE, LOG, OWN_LOG, USR, USR_PHONE, column, triggers_on
from oracle_plsql import Charset, Locator, Logged, National, PlsqlError, Raw, Row, fire, function

from eventlog.core import table_key
from eventlog.core.catalog.builder import build_catalog
from eventlog.sql.dialects.oracle.triggers import OracleTriggers, create_functions
from eventlog.sql.triggers.declared import declared_triggers
from eventlog.sql.triggers.watch import WatchedTable

QUOTE, BASE64 = map(function, create_functions(LOG))
UTF8 = Charset("UTF8")
QUOTE_UTF8 = function(create_functions(LOG)[0], UTF8)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@given(ANY_TEXT)
@pytest.mark.parametrize("_", [None])
def test_keys_are_quoted_as_everywhere(_: None, text: str) -> None:
    assert QUOTE(text) == table_key.quote(text)
    assert UTF8.shown(QUOTE_UTF8(UTF8.stored(text))) == table_key.quote(text)


@pytest.mark.parametrize("text", ["\U0001f600", "a\U00020000+b", "\U0001f600 ", "\u65e5\u672c"])
def test_an_emoji_in_a_key_fails_no_write(text: str) -> None:
    # ASCII of the interpreter is Oracle's: the four bytes of an emoji are more than PLS_INTEGER
    # holds.
    with pytest.raises(PlsqlError, match="ORA-01426"):
        Charset().ascii("\U0001f600")
    assert QUOTE(text) == table_key.quote(text)


@pytest.mark.parametrize(
    ("charset", "text"), [("WE8MSWIN1252", "M\u00fcller & \u20ac"), ("JA16SJIS", "\u8868+\u30bd")]
)
def test_a_key_is_quoted_in_every_database_character_set(charset: str, text: str) -> None:
    # The second byte of both Japanese characters is that of a backslash.
    quote = function(create_functions(LOG)[0], Charset(charset))
    assert quote(text) == table_key.quote(text)


def test_no_text_is_the_empty_text_in_a_key() -> None:
    assert QUOTE(None) == '""'


@given(st.binary(min_size=1, max_size=5000))
def test_binary_values_are_base64_without_line_breaks(value: bytes) -> None:
    assert BASE64(Raw(value)) == b64encode(value).decode()


# --- texts and bytes as Oracle compares them ------------------------------------------------------


def every(id_: int, **values: Any) -> Row:
    return {"ID": id_, **values}


def test_a_national_text_is_compared_whole_and_logged_in_the_database_character_set() -> None:
    (_, update, _) = triggers_on(OWN_LOG, WatchedTable("EVERY_TYPE", columns=("NV",)))
    latin = Charset("WE8MSWIN1252")
    change = (every(1, NV=National("\u65e5")), every(1, NV=National("\u672c")))
    assert fire(update, [change], charset=latin) == [(2, "ID=1", "NV", "?", "?")]
    assert fire(update, [change]) == [(2, "ID=1", "NV", "\u65e5", "\u672c")]
    assert fire(update, [(change[0], change[0])]) == []


def test_a_national_large_object_is_logged_in_the_database_character_set() -> None:
    (insert, *_) = triggers_on(
        OWN_LOG, WatchedTable("EVERY_TYPE", columns=("NCL",), lob_values=True)
    )
    assert 'TO_CLOB(:NEW."NCL")' in insert
    assert fire(insert, [(None, every(1, NCL=National("\u65e5")))]) == [
        (1, "ID=1", "NCL", None, "\u65e5")
    ]


@pytest.mark.parametrize("size", [10, 16_384, 32_767])
@pytest.mark.parametrize("tail", ["b", "\0"])
def test_long_texts_are_compared_without_their_hexadecimal_digits(size: int, tail: str) -> None:
    (_, update, _) = triggers_on(OWN_LOG, WatchedTable("LONG_VALUES", columns=("V",)))
    text = "a" * (size - 1)
    old, new = every(1, V=text), every(1, V=text + tail)
    assert [row[0] for row in fire(update, [(old, new)])] == [2]
    assert fire(update, [(new, dict(new))]) == []


def test_long_binary_values_are_compared_without_their_hexadecimal_digits() -> None:
    (_, update, _) = triggers_on(
        OWN_LOG, WatchedTable("LONG_VALUES", "field_query_back", columns=("R",))
    )
    old, new = every(1, R=Raw(b"a" * 20_000)), every(1, R=Raw(b"a" * 20_000 + b"\0"))
    assert fire(update, [(old, new)]) == [(8, "ID=1", "R", None, None)]
    assert fire(update, [(old, dict(old))]) == []


def test_a_child_value_too_long_to_be_found_again_is_read_back() -> None:
    long = replace(USR_PHONE, columns=(USR_PHONE.columns[0], column("PHONENO", "VARCHAR2", 32767)))
    database = replace(DATABASE, tables=(USR, long))
    declared, _, _ = declared_triggers(
        database, build_catalog(database), [WatchedTable("USR", exclude=("PHOTO",))]
    )
    compiled = OracleTriggers().compile_declared("APP", OWN_LOG, declared)
    update = next(
        one for table in compiled if table.declared.table is long for one in table.triggers[1:2]
    ).statement
    value = "x" * 32_000
    assert fire(update, [(phone(1, value), phone(1, value + "y"))]) == [
        (8, "IDU=1", PHONE, None, None)
    ]


def usr(idu: int, fname: str | None = None, lname: str | None = None, photo: Any = None) -> Row:
    return {"IDU": idu, "FNAME": fname, "LNAME": lname, "PHOTO": photo}


def log_of(
    row_style: str,
    trigger_level: str,
    table: int,
    *changes: tuple[Row | None, Row | None],
    named: Any = (),
) -> list[Logged]:
    """What one statement logs; ``table``: 0 the class, 1 its notes, 2 its phones."""
    triggers = triggers_on(OWN_LOG, WatchedTable("USR", row_style, trigger_level))  # type: ignore[arg-type]
    old, new = changes[0]
    place = 3 * table + (0 if old is None else 2 if new is None else 1)
    return fire(triggers[place], changes, named)


@pytest.mark.parametrize("trigger_level", ["row", "statement"])
@pytest.mark.parametrize(
    ("row_style", "change", "expected"),
    [
        ("field", (None, usr(1, "Jack")), [(1, "IDU=1", "FNAME", None, "Jack"), (7, "IDU=1",
        "PHOTO", None, None)]), ("field", (None, usr(2)), [(7, "IDU=2", "PHOTO", None, None)]),
        (
            "field_query_back",
            (None, usr(1, "Jack")),
            [(7, "IDU=1", "FNAME", None, None), (7, "IDU=1", "PHOTO", None, None)],
        ),
        ("row_query_back", (None, usr(1, "Jack")), [(5, "IDU=1", None, None, None)]),
        ("field", (usr(1, "Jack"), usr(1, "John")), [(2, "IDU=1", "FNAME", "Jack", "John")]),
        ("field", (usr(1, "jack"), usr(1, "JACK")), [(2, "IDU=1", "FNAME", "jack", "JACK")]),
        ("field", (usr(1, "x"), usr(1, "x ")), [(2, "IDU=1", "FNAME", "x", "x ")]),
        ("field", (usr(1, "Jack"), usr(1)), [(2, "IDU=1", "FNAME", "Jack", None)]),
        ("remove_all", (usr(1, None, "a"), usr(1, "b", "c")), [
            (3, "IDU=1", "FNAME", None, "b"), (3, "IDU=1", "LNAME", "a", "c")]),
        ("field_query_back", (usr(1, "a"), usr(1, "b")), [(8, "IDU=1", "FNAME", None, None)]),
        ("row_query_back", (usr(1, "a", "b"), usr(1, "c", "d")), [(6, "IDU=1", None, None, None)]),
        ("field", (usr(1, "a"), usr(1, "a")), []),
        ("row_query_back", (usr(1, "a"), usr(1, "a")), []),
        ("field", (usr(1, "a"), usr(5, "a")), [
            (4, "IDU=1", None, None, None), (1, "IDU=5", "FNAME", None, "a"), (7, "IDU=5", "PHOTO",
        None, None)]), ("row_query_back", (usr(1), usr(5)), [(4, "IDU=1", None, None, None), (5,
        "IDU=5", None, None, None)]), ("field", (usr(5, "a"), None), [(4, "IDU=5", None, None,
        None)]),
    ],
)  # fmt: skip
def test_an_operation_logs_what_the_specification_requires(
    trigger_level: str,
    row_style: str,
    change: tuple[Row | None, Row | None],
    expected: list[Logged],
) -> None:
    assert log_of(row_style, trigger_level, 0, change) == expected


def test_a_column_that_no_trigger_reads_is_logged_if_the_update_names_it() -> None:
    assert log_of("field", "row", 0, (usr(1), usr(1)), named=["PHOTO"]) == [
        (8, "IDU=1", "PHOTO", None, None)
    ]


@pytest.mark.parametrize("trigger_level", ["row", "statement"])
def test_keys_that_move_from_row_to_row_leave_every_object_in_place(trigger_level: str) -> None:
    shift = [(usr(n, f"was {n}"), usr(n + 1, f"was {n}")) for n in (1, 2, 3)]
    assert log_of("field", trigger_level, 0, *shift) == [
        (4, "IDU=1", None, None, None),
        (6, "IDU=2", None, None, None),
        (6, "IDU=3", None, None, None),
        (1, "IDU=4", "FNAME", None, "was 3"),
        (7, "IDU=4", "PHOTO", None, None),
    ]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 1, 3)])
def test_the_order_of_the_rows_of_a_shift_does_not_count(order: tuple[int, ...]) -> None:
    shift = [(usr(n), usr(n + 1)) for n in order]
    gone, *others = log_of("row_query_back", "row", 0, *shift)
    assert gone == (4, "IDU=1", None, None, None)
    assert sorted(others) == [
        (5, "IDU=4", None, None, None),
        (6, "IDU=2", None, None, None),
        (6, "IDU=3", None, None, None),
    ]


def test_two_rows_that_exchange_their_keys_are_both_there() -> None:
    assert log_of("field", "row", 0, (usr(1, "a"), usr(2, "a")), (usr(2, "b"), usr(1, "b"))) == [
        (6, "IDU=2", None, None, None),
        (6, "IDU=1", None, None, None),
    ]


def test_rows_that_keep_their_key_are_logged_as_ever_in_a_statement_that_moves_others() -> None:
    found = log_of("field", "row", 0, (usr(1, "a"), usr(9, "a")), (usr(3, "a"), usr(3, "b")))
    assert (2, "IDU=3", "FNAME", "a", "b") in found
    assert (4, "IDU=1", None, None, None) in found


@pytest.mark.parametrize("trigger_level", ["row", "statement"])
def test_many_rows_of_a_statement_are_all_logged_in_order(trigger_level: str) -> None:
    rows = [(None, usr(n, f"f{n}", f"l{n}")) for n in range(700)]
    found = log_of("field", trigger_level, 0, *rows)
    assert len(found) == 2100
    assert [key for _, key, column, _, _ in found if column == "FNAME"] == [
        f"IDU={n}" for n in range(700)
    ]


PHONE = "USR_PHONE.PHONENO"


def phone(idu: int | None, number: str | None) -> Row:
    return {"IDU": idu, "PHONENO": number}


@pytest.mark.parametrize("trigger_level", ["row", "statement"])
@pytest.mark.parametrize(
    ("row_style", "change", "expected"),
    [
        ("field", (None, phone(2, "555")), [(2, "IDU=2", PHONE, None, "555")]),
        ("field", (phone(2, "555"), None), [(2, "IDU=2", PHONE, "555", None)]),
        ("field", (phone(2, "555"), phone(2, "777")), [(2, "IDU=2", PHONE, "555", "777")]),
        ("field", (phone(2, "555"), phone(2, "555")), []),
        (
            "field",
            (phone(2, "5"), phone(3, "5")),
            [(2, "IDU=2", PHONE, "5", None), (2, "IDU=3", PHONE, None, "5")],
        ),
        ("field", (phone(None, "5"), phone(3, "5")), [(2, "IDU=3", PHONE, None, "5")]),
        ("field", (None, phone(None, "5")), []),
        ("field", (None, phone(2, None)), []),
        ("field_query_back", (None, phone(2, "555")), [(8, "IDU=2", PHONE, None, None)]),
        (
            "field_query_back",
            (phone(2, "5"), phone(3, "5")),
            [(8, "IDU=2", PHONE, None, None), (8, "IDU=3", PHONE, None, None)],
        ),
    ],
)
def test_a_child_row_logs_a_value_of_its_owner(
    trigger_level: str,
    row_style: str,
    change: tuple[Row | None, Row | None],
    expected: list[Logged],
) -> None:
    assert log_of(row_style, trigger_level, 2, change) == expected


def test_values_that_move_from_row_to_row_are_read_back() -> None:
    shift = [
        (phone(1, "5"), phone(1, "6")),
        (phone(1, "6"), phone(1, "7")),
        (phone(2, "8"), phone(2, "9")),
    ]
    assert log_of("field", "row", 2, *shift) == [
        (8, "IDU=1", PHONE, None, None),
        (2, "IDU=2", PHONE, "8", "9"),
    ]


def test_a_child_table_of_large_objects_is_read_back() -> None:
    note: Row = {"IDU": 1, "NOTE": "long"}
    assert log_of("field", "row", 1, (None, note)) == [(8, "IDU=1", "USR_NOTE.NOTE", None, None)]


def test_large_objects_by_value_and_always() -> None:
    row: Row = {"ID": 1, "V": "a", "CL": "x", "NCL": None, "B": None}
    by_value = triggers_on(
        OWN_LOG, WatchedTable("EVERY_TYPE", columns=("V", "CL"), lob_values=True)
    )
    assert fire(by_value[1], [(row, {**row, "CL": "y"})]) == [(2, "ID=1", "CL", "x", "y")]
    always = triggers_on(
        OWN_LOG, WatchedTable("EVERY_TYPE", columns=("V", "CL", "B"), lob_capture_always=True)
    )
    assert fire(always[1], [(row, {**row, "V": "b"})]) == [
        (2, "ID=1", "V", "a", "b"),
        (8, "ID=1", "CL", None, None),
        (8, "ID=1", "B", None, None),
    ]
    assert fire(always[1], [(row, dict(row))]) == []


def of_large_objects(
    *changes: tuple[Row | None, Row | None],
) -> Iterator[tuple[Row | None, Row | None]]:
    """The changes of a statement, whose large objects come as locators that end with their row."""
    for change in changes:
        rows = [{**row, "CL": Locator(row["CL"])} if row and row["CL"] else row for row in change]
        yield rows[0], rows[1]
        for row in rows:
            if row and row["CL"]:
                row["CL"].row_is_over = True


def large(id_: int, v: str | None, cl: str | None) -> Row:
    return {"ID": id_, "V": v, "CL": cl}


@pytest.mark.parametrize("trigger_level", ["row", "statement"])
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            [(None, large(1, "a", "x")), (None, large(2, None, "y"))],
            [(1, "ID=1", "V", None, "a"), (1, "ID=1", "CL", None, "x"), (1, "ID=2", "CL", None,
              "y")],
        ),
        (
            [(large(1, "a", "x"), large(1, "a", "y")), (large(2, "a", None), large(2, "b", "z"))],
            [(2, "ID=1", "CL", "x", "y"), (2, "ID=2", "V", "a", "b"), (2, "ID=2", "CL", None, "z")],
        ),
        # What waits for the end of the statement is read back.
        (
            [(large(1, "a", "x"), large(5, "a", "y"))],
            [(4, "ID=1", None, None, None), (1, "ID=5", "V", None, "a"), (7, "ID=5", "CL", None,
              None)],
        ),
        ([(large(1, "a", "x"), large(2, "a", "x")), (large(2, "b", "y"), large(1, "b", "y"))],
         [(6, "ID=2", None, None, None), (6, "ID=1", None, None, None)]),
    ],
)  # fmt: skip
def test_no_locator_of_a_large_object_is_kept_beyond_its_row(
    trigger_level: str, changes: list[tuple[Row | None, Row | None]], expected: list[Logged]
) -> None:
    watch = WatchedTable(
        "EVERY_TYPE", trigger_level=trigger_level, columns=("V", "CL"), lob_values=True
    )  # type: ignore[arg-type]
    insert, update, _ = triggers_on(OWN_LOG, watch)
    assert fire(insert if changes[0][0] is None else update, of_large_objects(*changes)) == expected


def test_an_insert_of_nothing_but_nulls_is_not_lost() -> None:
    triggers = triggers_on(OWN_LOG, WatchedTable("EMP"))
    empty: Row = {"EMPNO": 7, "FNAME": None, "MANAGER": None}
    assert fire(triggers[0], [(None, empty)]) == [(1, "EMPNO=7", "FNAME", None, None)]
    query_back = triggers_on(OWN_LOG, WatchedTable("EMP", "field_query_back"))
    assert fire(query_back[0], [(None, empty)]) == [(7, "EMPNO=7", "FNAME", None, None)]


def test_a_class_of_key_columns_alone_logs_rows() -> None:
    insert, update, _ = triggers_on(OWN_LOG, WatchedTable("LINK"))
    assert fire(insert, [(None, {"A": 1, "B": 2})]) == [(5, "A=1+B=2", None, None, None)]
    assert fire(update, [({"A": 1, "B": 2}, {"A": 1, "B": 3})]) == [
        (4, "A=1+B=2", None, None, None),
        (5, "A=1+B=3", None, None, None),
    ]


def test_the_base_tables_of_a_view_log_the_view() -> None:
    triggers = triggers_on(OWN_LOG, WatchedTable("VIEW_EMP", base=BASE))
    emp: Row = {"EMPNO": 1, "FNAME": "Jack", "MANAGER": None}
    assert fire(triggers[1], [(emp, {**emp, "FNAME": "John"})]) == [
        (2, "PK_EMPNO=1", "SV_FNAME", "Jack", "John")
    ]
    assert fire(triggers[3], [(None, {"EMPNO": 1, "NO": "5"})]) == [
        (2, "PK_EMPNO=1", "MV_PHONENO", None, "5")
    ]
    active: Row = {"EMPNO": 1, "SINCE": "2024"}
    assert fire(triggers[6], [(None, active)]) == [(5, "PK_EMPNO=1", None, None, None)]
    assert fire(triggers[7], [(active, {**active, "SINCE": "2025"})]) == [
        (6, "PK_EMPNO=1", None, None, None)
    ]
    assert fire(triggers[8], [(active, None)]) == [(4, "PK_EMPNO=1", None, None, None)]


def test_a_composite_key_is_written_in_canonical_text() -> None:
    insert = triggers_on(OWN_LOG, WatchedTable("ACC", "row_query_back"))[0]
    row: Row = {
        "BRANCH": "O'Brien",
        "CODE": "AB  ",
        "HASH": Raw(b"\xaa\xaa"),
        "AMOUNT": "-.5",
        "DAY": "2024-01-02 00:00:00",
        "MOMENT": "2024-01-02 03:04:05.000000000Z",
        "RATE": "1E+20",
        "OWNER": None,
    }
    ((_, key, *_rest),) = fire(insert, [(None, row)])
    expected = (
        'DAY=2024-01-02 00:00:00+BRANCH="O\'Brien"+CODE=AB+HASH="qqo="+AMOUNT=-0.5'
        '+MOMENT=2024-01-02 03:04:05.000000000Z+RATE="1E+20"'
    )
    assert key == expected
    assert [part.value for part in table_key.parse(key)][1] == "O'Brien"


KEYED = triggers_on(OWN_LOG, WatchedTable("EMP"))[1]


@settings(deadline=None)  # a busy machine
@given(
    st.permutations(range(6)),
    st.dictionaries(st.integers(0, 5), st.sampled_from(["a", "b", None]), max_size=6),
    st.lists(st.integers(0, 5), unique=True, max_size=6),
)
def test_a_receiver_ends_with_what_is_in_the_table_whatever_an_update_does_to_keys(
    new_keys: list[int], new_names: dict[int, str | None], there: list[int]
) -> None:
    before: dict[int, Row] = {
        key: {"EMPNO": key, "FNAME": f"was {key}", "MANAGER": None} for key in there
    }
    changes: list[tuple[Row | None, Row | None]] = []
    for key, old in before.items():
        new = {**old, "EMPNO": new_keys[key], "FNAME": new_names.get(key, old["FNAME"])}
        changes.append((old, new))
    after = {new["EMPNO"]: new for _, new in changes if new is not None}
    receiver = {key: row["FNAME"] for key, row in before.items()}
    for event_type, table_key_text, attribute, _, value in fire(KEYED, changes):
        key = int(table_key_text.removeprefix("EMPNO="))
        if event_type == 4:
            del receiver[key]
        elif event_type == 6:  # read back
            receiver[key] = after[key]["FNAME"]
        elif attribute == "FNAME":
            assert (key in receiver) == (event_type == 2)
            receiver[key] = value
    assert receiver == {key: row["FNAME"] for key, row in after.items()}
