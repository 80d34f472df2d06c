"""What ``doctor`` reports about the way to the database (spec/event-log.md 8.4, *TLS*)."""

from __future__ import annotations

import json
from pathlib import Path

import mysql_servers
import sqlalchemy as sa
from shared import Run
from wires import network_to

from eventlog.sql.connect.connection import connect, dialect_of
from eventlog.sql.doctor import judge_wire


def unverified(url: sa.URL) -> tuple[str, str, str] | None:
    with connect(url).connect() as conn:
        return dialect_of(url).open(conn).unverified()


def socket_of(url: sa.URL) -> str:
    return f"{url.query.get('host', url.host)}/.s.PGSQL.{url.query.get('port', url.port or 5432)}"


def test_doctor_reports_what_a_session_of_postgresql_has(
    database: sa.Engine, empty_home: Path, run: Run
) -> None:
    with network_to(socket_of(database.url)) as port:
        query = {"host": "db.example.org", "hostaddr": "127.0.0.1", "port": str(port)}
        url = database.url.set(host=None, port=None, query=query)
        Path("eventlog.toml").write_text(
            f'[database]\nurl = "{url.render_as_string(hide_password=False)}"\n'
        )
        findings = json.loads(run("doctor", "--json")[1])["findings"]
    (found,) = (one for one in findings if one["code"] == "plain_credentials")
    assert (found["severity"], found["text"], found["fix"]) == (
        "info",
        "the session with the database on db.example.org has no TLS (sslmode=prefer)",
        ["add to database.url: sslmode=verify-full&sslrootcert=FILE"],
    )


def test_a_session_of_mysqls_family_has_tls_if_both_sides_offer_it(
    family_server: mysql_servers.Server,
) -> None:
    has = {"no TLS", "TLS, whose server is not verified"}
    with family_server.database() as url, network_to(str(family_server.socket)) as port:
        assert unverified(url) is None, "a Unix socket"
        far = url.set(host="127.0.0.1", port=port, query={"charset": "utf8mb4"})
        by_default, without = unverified(far), unverified(far.set(query={"ssl_disabled": "1"}))
    assert by_default is not None
    assert by_default[1] in has
    assert without == ("127.0.0.1", "no TLS", "ssl_ca=FILE&ssl_check_hostname=true")


def test_sessions_on_this_machine_are_not_reported(database: sa.Engine) -> None:
    assert unverified(database.url) is None, "a Unix socket"
    assert list(judge_wire(("127.0.0.1", "no TLS", ""))) == []
    assert list(judge_wire(("localhost", "no TLS", ""))) == []
    assert [one.severity for one in judge_wire(("db", "no TLS", ""))] == ["info"]
