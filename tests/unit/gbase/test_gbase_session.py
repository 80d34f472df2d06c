"""The session client on the emulated server (formats/gbase-cdc.md 1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from eventlog.errors import DatabaseError
from eventlog.gbase.options import ReadOptions
from eventlog.gbase.reader import StreamReader
from eventlog.gbase.session import Capture, CdcError, capture_session
from eventlog.model import Change
from eventlog.testing.gbase_emulator import CdcServer, EmulatorConnection, EmulatorCursor
from eventlog.testing.gbase_workload import ALL, T1, new_server

CAPTURE = Capture(T1, ("c1", "c2"), 111)


class Recording(EmulatorConnection):
    """A connection that notes the calls; those in ``failing`` lose the connection."""

    def __init__(self, server: CdcServer, failing: Sequence[str] = ()) -> None:
        super().__init__(server)
        self.calls: list[str] = []
        self.failing = failing

    def cursor(self) -> EmulatorCursor:
        cursor = super().cursor()
        execute = cursor.execute

        def noted(operation: str, parameters: Sequence[Any] = (), /) -> None:
            name = operation.removeprefix("EXECUTE FUNCTION ").partition("(")[0]
            self.calls.append(
                f"{name} {parameters[-1]}" if name == "cdc_set_fullrowlogging" else name
            )
            if name in self.failing:
                raise ConnectionError(name)
            execute(operation, parameters)

        cursor.execute = noted  # type: ignore[method-assign]
        return cursor


def server_with(logging: bool) -> CdcServer:
    server = new_server()
    server.cdc_set_fullrowlogging(T1, int(logging))
    return server


def insert(server: CdcServer, *numbers: int) -> None:
    work = server.begin(2005)
    for number in numbers:
        work.insert(T1, {"c1": number, "c2": "x"})
    work.commit()


def test_changes_are_read_by_the_documented_calls() -> None:
    server = server_with(logging=False)
    connection = Recording(server)
    reader, changes = StreamReader(ReadOptions(labels={111: T1})), list[Change]()
    with capture_session(connection, connection.read, [CAPTURE], server="gbase01") as session:
        insert(server, 1, 2)
        for _ in range(2):
            changes += reader.feed(session.read())
    assert [change.after for change in changes] == [{"c1": 1, "c2": "x"}, {"c1": 2, "c2": "x"}]
    assert connection.calls == [
        "cdc_opensess",
        "cdc_startcapture",
        "cdc_set_fullrowlogging 1",
        "cdc_startcapture",
        "cdc_activatesess",
        "cdc_endcapture",
        "cdc_set_fullrowlogging 0",
        "cdc_closesess",
    ]
    assert T1 not in server.full_row_logging


def test_full_row_logging_that_was_on_stays_on() -> None:
    server = server_with(logging=True)
    connection = Recording(server)
    with capture_session(connection, connection.read, [CAPTURE], server="s"):
        pass
    assert not any("fullrowlogging" in call for call in connection.calls)
    assert T1 in server.full_row_logging


def test_full_row_logging_stays_on_for_another_session() -> None:
    server = server_with(logging=False)
    connection = EmulatorConnection(server)
    with capture_session(connection, connection.read, [CAPTURE], server="s"):
        other = server.cdc_opensess("s", 0, 0, 1, 1, 1)
        assert server.cdc_startcapture(other, 0, T1, "c1", 5) == 0
    assert T1 in server.full_row_logging


def test_a_failure_in_between_closes_all_the_same() -> None:
    server = server_with(logging=False)
    connection = Recording(server, failing=["cdc_endcapture"])
    with (
        pytest.raises(ZeroDivisionError),
        capture_session(connection, connection.read, [CAPTURE], server="s"),
    ):
        raise ZeroDivisionError
    assert connection.calls[-1] == "cdc_closesess"
    with (
        pytest.raises(ConnectionError),
        capture_session(connection, connection.read, [CAPTURE], server="s"),
    ):
        pass
    assert connection.calls[-1] == "cdc_closesess"


def test_a_table_that_cannot_be_captured_is_named_and_left_as_it_was() -> None:
    server = server_with(logging=False)
    server.create_table("shop:app.odd", "t text")
    connection = Recording(server)
    captures = [CAPTURE, Capture("shop:app.odd", ("t",), 112)]
    with (
        pytest.raises(CdcError, match=r"shop:app\.odd.*TABPROPERTIES") as caught,
        capture_session(connection, connection.read, captures, server="s"),
    ):
        pass
    assert caught.value.name == "TABPROPERTIES"
    assert connection.calls[-3:] == ["cdc_endcapture", "cdc_set_fullrowlogging 0", "cdc_closesess"]
    assert T1 not in server.full_row_logging
    assert "shop:app.odd" not in server.full_row_logging


@pytest.mark.parametrize(
    ("captures", "position", "name"),
    [
        ([Capture("store:app.t1", ("c1",), 1)], 0, "NODB"),
        ([Capture("shop:app.t9", ("c1",), 1)], 0, "NOTAB"),
        ([Capture(T1, ("c9",), 1)], 0, "NOCOL"),
        ([CAPTURE, CAPTURE], 0, "TABCAPTURED"),
        ([CAPTURE], 1, "LSN"),
    ],
)
def test_errors_have_their_names(captures: list[Capture], position: int, name: str) -> None:
    connection = EmulatorConnection(server_with(logging=True))
    with (
        pytest.raises(CdcError, match=name) as caught,
        capture_session(connection, connection.read, captures, server="s", position=position),
    ):
        pass
    assert caught.value.name == name


def test_a_read_that_fails_is_an_error_and_no_end() -> None:
    connection = EmulatorConnection(server_with(logging=True))
    with capture_session(connection, lambda session, size: 0, [CAPTURE], server="s") as session:
        with pytest.raises(CdcError, match="read returned 0"):
            session.read()
        with pytest.raises(CdcError, match="NOSESS"):
            _ = session._replace(read=lambda: _raise(connection, session.id + 1)).read()


def _raise(connection: EmulatorConnection, session: int) -> bytes:
    answer = connection.read(session, 10)
    assert isinstance(answer, int)
    raise CdcError("read", answer)


def test_reading_goes_on_from_a_token_after_the_session_was_lost() -> None:
    server = server_with(logging=True)
    connection = EmulatorConnection(server)
    options = ReadOptions(labels={111: T1})
    reader = StreamReader(options)
    open_work = server.begin(1)
    with capture_session(connection, connection.read, [CAPTURE], server="s") as session:
        pass
    start = open_work.begin_seq
    with capture_session(
        connection, connection.read, [CAPTURE], server="s", position=start
    ) as session:
        open_work.insert(T1, {"c1": 7, "c2": None})
        insert(server, 8)
        first = [change for _ in range(2) for change in reader.feed(session.read())]
    open_work.commit()
    again = StreamReader(ReadOptions(labels={111: T1}, restart=reader.token.to_json()))
    position = reader.token.restart or 0
    with capture_session(
        connection, connection.read, [CAPTURE], server="s", position=position
    ) as session:
        rest = list(again.feed(session.read()))
    assert [change.after for change in first + rest] == [
        {"c1": 8, "c2": "x"},
        {"c1": 7, "c2": None},
    ]


def test_the_emulator_answers_no_other_statement() -> None:
    connection = EmulatorConnection(new_server())
    for statement in (
        "SELECT 1",
        "EXECUTE FUNCTION cdc_closesess(1)",
        "EXECUTE FUNCTION cdc_read(?)",
    ):
        with pytest.raises(DatabaseError):
            connection.cursor().execute(statement, ())
    assert ALL in new_server().tables
