"""What a publisher does beside the queue: heartbeats (spec/xds.md 7), post-poll statements (spec/event-log.md 8.5)."""

from __future__ import annotations

import logging

from sqlalchemy.exc import DBAPIError

from eventlog.errors import FatalAnswer, ReceiverAway
from eventlog.model import Level
from eventlog.publisher.context import Context
from eventlog.publisher.sinks import Document, Sink
from eventlog.sql.companions import next_flight

_log = logging.getLogger("eventlog.publisher")


def send_heartbeat(context: Context, sink: Sink) -> None:
    """Send the heartbeat document. Raises FatalAnswer; any other answer, and none at all, does not count.

    It has a flight number of its own and no in-flight line: it is never sent again.
    """
    number = next_flight(context.connection, context.log)
    context.connection.commit()
    try:
        answer = sink.send(Document(number, 1, (), context.output.heartbeat))
        sink.flush()
    except ReceiverAway as away:
        _log.warning("heartbeat: %s", away)
        return
    context.counters.heartbeats_sent += 1
    if answer.general is not None and answer.general.level is Level.FATAL:
        raise FatalAnswer(f"the receiver answered fatal to a heartbeat: {answer.general.message or 'no message'}")


def run_post_poll(context: Context) -> None:
    """Run ``post_poll_statements`` in a transaction of their own. One that fails undoes them all and is logged; the
    rows of the cycle are marked already, and the queue goes on. A lost connection is raised.
    """
    connection = context.connection
    try:
        for statement in context.options.post_poll_statements:
            connection.exec_driver_sql(statement, execution_options={"no_parameters": True})
        connection.commit()
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        connection.rollback()
        _log.error("post_poll_statements failed and were undone: %s", str(error.orig).partition("\n")[0])
