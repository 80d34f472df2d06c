"""A receiver of signed XDS documents that applies every event once, to a SQLite file, and answers
for each event.

Run: python receiver.py objects.sqlite 8080, with [sink] type = "http" and url =
"http://localhost:8080/xds", and the same EVENTLOG_SINK_SIGNING_SECRET as the publisher.
"""

import hmac
import json
import os
import sqlite3
import sys
from base64 import b64decode, b64encode
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic, time
from xml.etree import ElementTree
from xml.sax.saxutils import escape, quoteattr

TABLES = """CREATE TABLE IF NOT EXISTS applied (event_id TEXT PRIMARY KEY);
CREATE TABLE IF NOT EXISTS object (key TEXT PRIMARY KEY, class TEXT, attributes TEXT)"""
SECONDS = 20
"""The time for a document: less than sink.timeout, after which the publisher sends it again."""
LIMIT = 16 * 2**20
"""The most bytes of a document; the publisher divides one that is refused for its size."""


def is_signed(secret, headers, body):
    """Whether the publisher signed this body in the last five minutes (Standard Webhooks)."""
    moment = headers.get("webhook-timestamp", "")
    if not moment.isdecimal() or abs(time() - int(moment)) > 300:
        return False
    content = f"{headers.get('webhook-id')}.{moment}.".encode() + body
    expected = b"v1," + b64encode(
        hmac.digest(b64decode(secret.removeprefix("whsec_") + "=="), content, "sha256")
    )
    given = headers.get("webhook-signature", "").encode().split()
    return any(hmac.compare_digest(expected, one) for one in given)


def apply(db, event):
    """Merge one event into its object. A modify of an unknown object makes it: so do query-back
    inserts.
    """
    key = event.findtext("association")
    db.execute("DELETE FROM object WHERE key = ? AND ? <> 'modify'", (key, event.tag))
    if event.tag == "delete":
        return
    known = db.execute("SELECT attributes FROM object WHERE key = ?", (key,)).fetchone()
    attributes = json.loads(known[0]) if known else {}
    for attribute in event.iterfind("*[@attr-name]"):
        values = attributes.setdefault(attribute.get("attr-name"), [])
        for step in [attribute] if event.tag == "add" else attribute:
            texts = [value.text or "" for value in step.iter("value")]
            if step.tag == "remove-all-values":
                values.clear()
            elif step.tag == "remove-value":
                values[:] = [text for text in values if text not in texts]
            else:
                values += [text for text in texts if text not in values]
    db.execute(
        "INSERT OR REPLACE INTO object VALUES (?, ?, ?)",
        (key, event.get("class-name"), json.dumps(attributes)),
    )


def receive(db, body):
    """Apply the events of a document in their order and return the answer."""
    statuses, until = [], monotonic() + SECONDS
    document = ElementTree.fromstring(body)  # noqa: S314 - the publisher signed it
    for event in document.iterfind("input/*[@event-id]"):  # a heartbeat holds none
        event_id, level, why = event.get("event-id"), "success", ""
        if monotonic() >= until:  # the publisher may send newer events of the object soon
            statuses.append(f'<status level="retry" event-id={quoteattr(event_id)}/>')
            continue
        try:
            with (
                db
            ):  # one transaction: the event-id is remembered if, and only if, the event is applied
                if db.execute("INSERT OR IGNORE INTO applied VALUES (?)", (event_id,)).rowcount:
                    apply(db, event)
        except sqlite3.OperationalError as error:  # busy, disk full: the same event may do later
            level, why = "retry", str(error)
        except (sqlite3.Error, ValueError) as error:  # it will never do
            level, why = "error", str(error)
        statuses.append(
            f'<status level="{level}" event-id={quoteattr(event_id)}>{escape(why)}</status>'
        )
    return f'<nds dtdversion="2.0"><output>{"".join(statuses)}</output></nds>'.encode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # the publisher keeps its connections

    def do_POST(self):
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > LIMIT:
            return self.send_error(413)
        body = self.rfile.read(int(length))
        if not is_signed(self.server.secret, self.headers, body):
            return self.send_error(401)
        with closing(sqlite3.connect(self.server.file)) as db:
            answer = receive(db, body)
        self.send_response(200)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        return self.wfile.write(answer)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler)
    server.file, server.secret = sys.argv[1], os.environ["EVENTLOG_SINK_SIGNING_SECRET"]
    with closing(sqlite3.connect(server.file)) as db:
        db.executescript(TABLES)
    print(f"listening on port {server.server_port}", flush=True)
    server.serve_forever()
