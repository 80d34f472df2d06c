"""Rows with a text that the server cannot convert to UTF-8 (spec/event-log.md 5, 5.6).

A byte may have no character in the database's encoding (0x81 in WIN1252), and a database of
SQL_ASCII may have any bytes. If a statement reads such a text, the whole statement fails. So
``fetch_readable`` reads the rows again as bytes to find the rows that Python cannot decode either,
and then reads the other rows in the usual way: a text never depends on its neighbours. If Python
has no codec for the encoding, or a codec that differs from the server's, the rows are read in
halves: a half that fails is divided again, until the unreadable rows are found.

``set_config`` within the statement itself lets the server send bytes: when ``set_config`` runs, the
server has already converted the names and bound values. An unreadable text has a lone surrogate for
each byte that is no character, as ``surrogateescape`` makes it, so that no format can write the
text.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any, Final

from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, Executable
from sqlalchemy.exc import DBAPIError

from eventlog.core.values import is_unicode
from eventlog.sql.dialects.postgresql.log_session import driver_of, forget_plans, is_log_session
from eventlog.sql.port.sql_files import (
    ALONE,
    AS_ANY,
    NEUTRAL,
    Binds,
    Options,
    PlainRow,
    PlainRows,
    fetch,
)

_UNREADABLE: Final = frozenset({"22021", "22P05"})
"""The SQLSTATEs for bytes that the encoding does not have, and for a character that UTF-8 lacks."""
_CODECS: Final = {
    "SQL_ASCII": "utf-8",  # whoever reads such a database has to name an encoding; ours is UTF-8
    "EUC_CN": "gb2312",
    "KOI8R": "koi8_r",
    "KOI8U": "koi8_u",
}
"""The names of Python's codecs that differ from PostgreSQL's names of encodings."""
_IS_EXPECTED: Final = "eventlog_unreadable"
"""A key of ``Connection.info``: the next statement that reads texts is known to fail."""


def is_unreadable(error: DBAPIError) -> bool:
    """Return True for the error of a statement that has read a text which cannot be converted."""
    return getattr(error.orig, "sqlstate", None) in _UNREADABLE


def may_be_unreadable(conn: Connection) -> bool:
    """Return True if the database may have a text that cannot be converted to UTF-8."""
    return _encoding(conn) != "UTF8"


def expect_unreadable(conn: Connection) -> None:
    """Let the next call of ``fetch_readable`` begin with bytes: its rows have just failed."""
    conn.info[_IS_EXPECTED] = True


def fetch_readable(
    conn: Connection,
    statement: str,
    parameters: Binds,
    options: Options = AS_ANY,
    width: int = 1,
    unsure: Collection[int] = (),
) -> PlainRows:
    """Return the rows of a SELECT as ``fetch`` does, even if some rows have texts that cannot be
    converted.

    The first ``width`` columns identify a row. ``unsure`` are the places of columns in which U+FFFD
    stands for what is unreadable. The transaction continues after an unreadable text. Raises
    DBAPIError as ``fetch`` does for any other reason.
    """
    if not may_be_unreadable(conn):
        return fetch(conn, statement, parameters, options)
    if not conn.info.pop(_IS_EXPECTED, False):
        try:
            return fetch_within(conn, statement, parameters, options)
        except DBAPIError as error:
            if not is_unreadable(error):
                raise
    return _Rows(conn, statement, parameters, width, unsure).read()


def all_texts(conn: Connection, statement: Executable, binds: Binds) -> PlainRows:
    """Return the rows of a statement that has no columns which identify a row. If a row has an
    unreadable text, Python decodes all rows.
    """
    compiled = statement.compile(  # type: ignore[attr-defined]
        dialect=conn.dialect, compile_kwargs={"render_postcompile": True}
    )
    text, parameters = str(compiled), compiled.construct_params(dict(binds))
    try:
        return fetch_within(conn, text, parameters)
    except DBAPIError as error:
        if not is_unreadable(error):
            raise
    return _Rows(conn, text, parameters, 0, ()).decoded()


def storable_in(conn: Connection, text: str) -> str:
    """Return a text in which the characters that the database's encoding lacks are escaped as in
    JSON. The transaction continues.
    """
    encoding = _encoding(conn)
    if text.isascii() or encoding in ("UTF8", "SQL_ASCII"):
        return text
    codec = codec_of(encoding) or "ascii"
    for form in (text, text.encode(codec, "eventlog_json").decode(codec)):
        try:
            fetch_within(conn, "SELECT %(text)s::pg_catalog.text", {"text": form})
        except DBAPIError as error:
            if not is_unreadable(error):
                raise
        else:
            return form
    return text.encode("ascii", "eventlog_json").decode()


def _escape_as_json(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error("eventlog_json", _escape_as_json)


def is_readable(value: object) -> bool:
    """Return True for a value of ``fetch_readable`` that is not an unreadable text."""
    return not isinstance(value, str) or is_unicode(value)


def enough_readable(read: Callable[[int], PlainRows], limit: int, width: int) -> PlainRows:
    """Return the first rows that ``read`` returns, until ``limit`` of them have readable keys; all
    rows if fewer rows have readable keys. The argument of ``read`` is the number of rows, and
    ``width`` is the number of key columns.
    """
    wanted = limit
    while True:
        rows = read(wanted)
        places = [place for place, row in enumerate(rows) if all(map(is_readable, row[:width]))]
        if len(places) >= limit:
            return rows[: places[limit - 1] + 1]
        if len(rows) < wanted:
            return rows
        wanted *= 2


def fetch_within(
    conn: Connection,
    statement: str,
    parameters: Binds,
    options: Options = AS_ANY,
) -> PlainRows:
    """Return the rows of a statement as ``fetch`` does; the transaction continues after a text that
    cannot be converted.
    """
    if not may_be_unreadable(conn):
        return fetch(conn, statement, parameters, options)
    if ALONE in options and is_log_session(conn) and _is_idle(conn):
        return fetch(conn, statement, parameters, options)
    _run(conn, "SAVEPOINT eventlog_texts")
    try:
        rows = fetch(conn, statement, parameters, options)
    except DBAPIError as error:
        if not error.connection_invalidated:
            _undo(conn)
        raise
    _run(conn, "RELEASE SAVEPOINT eventlog_texts")
    return rows


def _undo(conn: Connection) -> None:
    _run(conn, "ROLLBACK TO SAVEPOINT eventlog_texts")
    _run(conn, "RELEASE SAVEPOINT eventlog_texts")
    forget_plans(conn)


def _run(conn: Connection, command: str) -> None:
    conn.exec_driver_sql(command, execution_options=NEUTRAL)


class _Rows:
    """The rows of a statement that has failed because some rows have unreadable texts."""

    def __init__(
        self,
        conn: Connection,
        statement: str,
        parameters: Binds,
        width: int,
        unsure: Collection[int],
    ) -> None:
        self._conn, self._statement, self._parameters = conn, statement, parameters
        self._unsure = unsure
        self._names = [f"eventlog_{i}" for i in range(width)]
        self._codec = codec_of(_encoding(conn))
        self._refused: set[PlainRow] = set()

    def read(self) -> PlainRows:
        """Return all rows in the order of the statement."""
        raw = {row[: len(self._names)]: row for row in self._as_bytes()}
        self._refused = {
            one for one, row in raw.items() if self._codec and not self._is_text(row, self._codec)
        }
        readable = self._again([one for one in raw if one not in self._refused])
        # A row that is missing now without being refused was deleted or marked meanwhile.
        return [
            readable[one] if one in readable else self._escaped(row)
            for one, row in raw.items()
            if one in readable or one in self._refused
        ]

    def decoded(self) -> PlainRows:
        """Return all rows as Python decodes them."""
        codec = self._codec or "ascii"
        return [
            tuple(_decoded(value, codec, "surrogateescape") for value in row)
            for row in self._as_bytes()
        ]

    def _as_bytes(self) -> PlainRows:
        """Return the rows with texts as bytes in the database's encoding."""
        statement = (
            "WITH eventlog_bytes AS MATERIALIZED ("  # noqa: S608 - ours
            "SELECT pg_catalog.set_config('client_encoding', 'SQL_ASCII', true) AS encoding) "
            f"SELECT eventlog_rows.* FROM eventlog_bytes, ({self._statement}) AS eventlog_rows "
            "WHERE eventlog_bytes.encoding IS NOT NULL"
        )
        _run(self._conn, "SAVEPOINT eventlog_texts")
        try:
            return fetch(self._conn, statement, self._parameters)
        finally:
            if not self._conn.invalidated:
                _undo(self._conn)

    def _again(self, wanted: Sequence[PlainRow]) -> dict[PlainRow, PlainRow]:
        """Return the rows with these identities that can be read, and add the other rows to
        ``_refused``.
        """
        if not wanted:
            return {}
        try:
            return self._only(wanted)
        except DBAPIError as error:
            if not is_unreadable(error):
                raise
        if len(wanted) == 1:
            self._refused.update(wanted)
            return {}
        half = len(wanted) // 2
        return self._again(wanted[:half]) | self._again(wanted[half:])

    def _only(self, wanted: Sequence[PlainRow]) -> dict[PlainRow, PlainRow]:
        """Return the rows of the statement with these identities, by identity."""
        refs, raw, binds = [], [], dict(self._parameters)
        for name, values in zip(self._names, zip(*wanted, strict=True), strict=True):
            binds[name] = list(values)
            # The bytes of a text identify it, whatever its characters are.
            is_bytes = isinstance(values[0], bytes)
            ref = f"eventlog_rows.{name}"
            refs.append(
                f"pg_catalog.convert_to({ref}::pg_catalog.text, pg_catalog.getdatabaseencoding())"
                if is_bytes
                else ref
            )
            raw.append(refs[-1])
        given = ", ".join(f"%({name})s" for name in self._names)
        condition = (
            f"{refs[0]} = ANY ({given})"
            if len(refs) == 1
            else f"({', '.join(refs)}) IN (SELECT * FROM unnest({given}))"  # noqa: S608 - binds
        )
        rows = fetch_within(
            self._conn,
            f"SELECT {', '.join(raw)}, eventlog_rows.* FROM ({self._statement}) "  # noqa: S608 - ours
            f"AS eventlog_rows ({', '.join(self._names)}) WHERE {condition}",
            binds,
        )
        width = len(self._names)
        return {row[:width]: row[width:] for row in rows}

    @staticmethod
    def _is_text(row: PlainRow, codec: str) -> bool:
        try:
            for value in row:
                _decoded(value, codec, "strict")
        except UnicodeDecodeError:
            return False
        return True

    def _escaped(self, row: PlainRow) -> PlainRow:
        """Return an unreadable row with its texts. A text that the server refuses gets at least one
        lone surrogate, even if Python's codec accepts the text.
        """
        is_found = self._codec is not None and not self._is_text(row, self._codec)
        codec = self._codec if self._codec is not None and is_found else "ascii"
        return tuple(
            _decoded(value, codec, "replace" if place in self._unsure else "surrogateescape")
            for place, value in enumerate(row)
        )


def _decoded(value: Any, codec: str, errors: str) -> Any:
    if isinstance(value, bytes):
        return value.decode(codec, errors)
    return [_decoded(one, codec, errors) for one in value] if isinstance(value, list) else value


def _encoding(conn: Connection) -> str:
    return driver_of(conn).info.parameter_status("server_encoding") or "UTF8"


@cache
def codec_of(encoding: str) -> str | None:
    """Return the name of Python's codec for an encoding of PostgreSQL, None if there is none."""
    name = _CODECS.get(encoding) or encoding.replace("WIN", "cp")
    try:
        return codecs.lookup(name).name
    except LookupError:
        return None


def _is_idle(conn: Connection) -> bool:
    return driver_of(conn).pgconn.transaction_status == TransactionStatus.IDLE
