"""The log's ten columns are found by map, name or position, or refused by name (spec/event-log.md
1.2 to 1.4).
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.core.catalog import Column
from eventlog.core.ranges import to_ranges
from eventlog.core.values import parse_type
from eventlog.errors import ConfigError, LogTableError
from eventlog.model import LOG_COLUMNS
from eventlog.sql.connect.locate import find_columns
from eventlog.sql.log_table import LAYOUTS, LogTable, cut_name, split_name

STANDARD = LOG_COLUMNS
TYPES = {
    "record_id": "bigint",
    "event_type": "smallint",
    "event_time": "timestamp",
    "status": "char(1)",
}
OLD_NAMES = ["rid", "tkey", "st", "et", "at", "who", "tab", "col", "ov", "nv"]


def column(name: str, sql: str = "text") -> Column:
    return Column(name, parse_type(sql))


def columns(names: list[str], layout: str = "2.x", **types: str) -> list[Column]:
    """Columns with these names, of the types that the layout wants at their positions unless
    ``types`` says so.
    """
    wanted = TYPES | types
    return [
        column(name, wanted.get(standard, "text"))
        for name, standard in zip(names, LAYOUTS[layout], strict=True)
    ]


MAP = dict(zip(LAYOUTS["3.5"], OLD_NAMES, strict=True))
BY_OLD_NAMES = tuple(MAP[standard] for standard in STANDARD)


def test_both_layouts_hold_the_ten_standard_names() -> None:
    assert all(sorted(names) == sorted(STANDARD) for names in LAYOUTS.values())


def test_standard_names_are_found_in_any_order_and_case_whatever_the_layout() -> None:
    table = [column(name.upper(), TYPES.get(name, "text")) for name in reversed(STANDARD)]
    found = find_columns([column("extra"), *table], layout="3.5")
    assert found == tuple(name.upper() for name in STANDARD)


def test_of_two_spellings_the_exact_one_is_found() -> None:
    table = [column(name, TYPES.get(name, "text")) for name in STANDARD]
    assert find_columns([column("STATUS", "integer"), *table]) == STANDARD


@pytest.mark.parametrize("layout", ["2.x", "3.5"])
def test_other_names_are_found_by_position(layout: str) -> None:
    names = [f"c{position}" for position in range(10)]
    found = find_columns([*columns(names, layout), column("eleventh", "integer")], layout=layout)
    assert found == tuple(names[LAYOUTS[layout].index(standard)] for standard in STANDARD)


def test_a_column_map_wins_over_standard_names_and_ignores_case() -> None:
    table = [*columns(OLD_NAMES, "3.5"), *(column(name, "integer") for name in STANDARD)]
    given_map = {standard.upper(): real.upper() for standard, real in MAP.items()}
    assert find_columns(table, column_map=given_map) == BY_OLD_NAMES


def test_unnumbered_columns_have_the_positions_of_their_sorted_names() -> None:
    names = ["A", "Z", "_c", "a", "b", "c", "d", "e", "z", "é"]  # order of the UTF-8 bytes
    table = columns(names)
    shuffled = table[5:] + table[:5]
    assert find_columns(shuffled, numbered=False) == tuple(names)
    # collation: the database's own order, which is how they are given
    assert find_columns(table, numbered=False, column_sort="collation") == tuple(names)


@pytest.mark.parametrize("sql", ["smallint", "integer", "bigint", "decimal(5,0)"])
def test_integers_may_be_exact_numerics_of_scale_0(sql: str) -> None:
    assert (
        find_columns(columns(OLD_NAMES, "3.5", event_type=sql, record_id=sql), column_map=MAP)
        == BY_OLD_NAMES
    )


@pytest.mark.parametrize("sql", ["date", "timestamp", "timestamptz"])
def test_event_time_is_a_date_or_a_timestamp(sql: str) -> None:
    assert find_columns(columns(list(STANDARD), event_time=sql)) == STANDARD


@pytest.mark.parametrize("sql", ["text", "clob", "varchar(3)", "char(8)"])
def test_the_others_are_characters(sql: str) -> None:
    assert find_columns(columns(list(STANDARD), table_key=sql, status=sql)) == STANDARD


def test_the_wrong_layout_is_refused_as_the_specification_requires() -> None:
    with pytest.raises(LogTableError) as refused:
        find_columns(columns(OLD_NAMES, "3.5"), layout="2.x")
    assert str(refused.value) == (
        'column "st" at position 3 cannot be event_type: character, expected integer (layout 2.x)'
    )


REFUSED = [
    (
        {"record_id": "decimal(9,2)"},
        'column "record_id" cannot be record_id: numeric that is not of scale 0, expected integer',
    ),
    ({"record_id": "text"}, 'column "record_id" cannot be record_id: character, expected integer'),
    (
        {"event_type": "double"},
        'column "event_type" cannot be event_type: approximate numeric, expected integer',
    ),
    (
        {"event_type": "boolean"},
        'column "event_type" cannot be event_type: boolean, expected integer',
    ),
    (
        {"event_time": "time"},
        'column "event_time" cannot be event_time: time, expected date or timestamp',
    ),
    (
        {"event_time": "text"},
        'column "event_time" cannot be event_time: character, expected date or timestamp',
    ),
    (
        {"table_key": "integer"},
        'column "table_key" cannot be table_key: integer, expected character',
    ),
    ({"old_value": "blob"}, 'column "old_value" cannot be old_value: binary, expected character'),
    ({"new_value": "date"}, 'column "new_value" cannot be new_value: date, expected character'),
]


@pytest.mark.parametrize(
    ("types", "message"), REFUSED, ids=[next(iter(types)) for types, _ in REFUSED]
)
def test_a_column_of_the_wrong_type_is_named(types: dict[str, str], message: str) -> None:
    with pytest.raises(LogTableError) as refused:
        find_columns(columns(list(STANDARD), **types))
    assert str(refused.value).startswith(message)
    assert "layout" not in str(refused.value)


@pytest.mark.parametrize("standard", STANDARD)
def test_any_column_that_is_missing_is_named(standard: str) -> None:
    short = {name: real for name, real in MAP.items() if name != standard}
    with pytest.raises(LogTableError, match=f"no column for {standard}"):
        find_columns(columns(OLD_NAMES, "3.5"), column_map=short)
    with pytest.raises(
        LogTableError, match=f'no column "{MAP[standard]}", which column_map names as {standard}'
    ):
        find_columns(
            [c for c in columns(OLD_NAMES, "3.5") if c.name != MAP[standard]], column_map=MAP
        )


def test_a_table_with_nine_columns_is_refused() -> None:
    with pytest.raises(
        LogTableError,
        match=r"has 9 columns, but .* new_value should be at position 10 \(layout 2.x\)",
    ):
        find_columns(columns(OLD_NAMES)[:9])


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"layout": "4"}, "layout '4' is unknown"),
        ({"column_sort": "natural"}, "column_sort 'natural' is unknown"),
        (
            {"column_map": {"recordid": "rid"}},
            "column_map names 'recordid', which is not a column of the log",
        ),
    ],
)
def test_unknown_option_values_are_refused(options: dict[str, object], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        find_columns(columns(OLD_NAMES), **options)  # type: ignore[arg-type]


def test_a_column_mapped_twice_is_refused() -> None:
    with pytest.raises(LogTableError, match='column "ov" twice'):
        find_columns(columns(OLD_NAMES, "3.5"), column_map=MAP | {"new_value": "OV"})


# Names


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("eventlog", (None, "eventlog")),
        ("indirect.eventlog", ("indirect", "eventlog")),
        ('"a.b"', (None, "a.b")),
        ('"My Schema"."Log ""x"""', ("My Schema", 'Log "x"')),
        ('hr."Log"', ("hr", "Log")),
        ("Ünï.тест", ("Ünï", "тест")),
    ],
)
def test_a_name_splits_into_schema_and_table(text: str, parts: tuple[str | None, str]) -> None:
    assert split_name(text) == parts


@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a.b.c", '"a', '""', '"a"b', '"a"."b"."c"', "a\0"]
)
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a table name"):
        split_name(text)


@given(
    st.tuples(st.text(min_size=1), st.text(min_size=1)).filter(
        lambda parts: "\0" not in "".join(parts)
    )
)
def test_quoted_names_split_back(parts: tuple[str, str]) -> None:
    text = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
    assert split_name(text) == parts


@given(
    st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=100), st.integers(30, 63)
)
def test_cut_names_fit_and_differ(name: str, limit: int) -> None:
    cut = cut_name(name, limit)
    assert len(cut.encode()) <= limit
    assert (cut == name) == (len(name.encode()) <= limit)
    assert (
        len(
            {
                cut_name(name + suffix, limit)
                for suffix in ("_error", "_inflight", "_delivery", "_version")
            }
        )
        == 4
    )


def test_internal_tables_are_named_after_the_log() -> None:
    log = LogTable("s", "l" * 60, STANDARD)
    names = [log.error_table, log.inflight_table, log.number_sequence, log.version_table]
    assert len({*names}) == 4
    assert all(name.startswith("l" * 50) and len(name) <= 63 for name in names)
    assert LogTable("s", "eventlog", STANDARD).error_table == "eventlog_error"


# Ranges


@given(st.sets(st.integers(1, 200)))
def test_ranges_hold_exactly_the_ids(ids: set[int]) -> None:
    ranges = to_ranges(sorted(ids))
    assert {record_id for first, last in ranges for record_id in range(first, last + 1)} == ids
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))
