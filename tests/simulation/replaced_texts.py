"""Faults that are put into the product as replaced texts, to test the tester. They were written by
somebody who did not know the plans, and no plan or check was fitted to one of them.

``patches.py --texts all`` tries them. Nine were found by at most 25 schedules each, of the seeds 1 to
60. The others were judged by the stories: ``equivalent`` harms nobody, ``unseen`` changes a story that
no check fails, and ``unreached`` changes no story.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class ReplacedText(NamedTuple):
    """A text of the product that stands once in a file of ``eventlog``, and the one in its place.

    ``unseen`` is why no schedule has shown the fault: it is equivalent, nobody looks at what it
    changes, or no schedule comes to it; empty = it is found.
    """

    file: str
    text: str
    by: str
    unseen: str = ""


TEXTS: Mapping[str, ReplacedText] = {
    "freed objects are not forgotten when a scan begins": ReplacedText(
        "publisher/cycle.py",
        "        state.freed.clear()\n",
        "",
        unseen="equivalent: a scan begins more often than it has to",
    ),
    "the last claimed row is taken": ReplacedText(
        "publisher/cycle.py",
        "range(first)), Either(waiting, state.claimed)",
        "range(first - 1)), Either(waiting, state.claimed)",
        unseen="equivalent: the object of the last claimed row is claimed too, so that the row waits all the same",
    ),
    "objects that a suspected document has freed begin no scan": ReplacedText(
        "publisher/cycle.py",
        "        state.freed.update(one for one in ended.freed if one not in state.parking)\n",
        "        pass\n",
        unseen="unreached: no scan of several windows goes on after a suspected document was answered",
    ),
    "a used delivery number is not remembered": ReplacedText(
        "publisher/cycle.py",
        "    if delivery is not None:\n        context.used.delivery_no = delivery.number\n    return Prepared",
        "    return Prepared",
        unseen="equivalent on SQLite, where the file shows that a database was put back; test_round_trips shows it on PostgreSQL",
    ),
    "rows that precedence dropped get the letter of the answer": ReplacedText(
        "publisher/marks.py",
        "contributed = [event.contributed for event in events] if special else map(_ids_of, events)",
        "contributed = map(_ids_of, events)",
        unseen="unreached: no event with rows that precedence dropped is refused",
    ),
    "what follows a retry is recorded late": ReplacedText(
        "publisher/marks.py",
        " or monotonic() - self._marked_at",
        " and False or monotonic() - self._marked_at",
        unseen="unreached: no event follows a retry while the interval of the marks has not passed",
    ),
    "an event that is given up keeps its number": ReplacedText(
        "publisher/marks.py",
        "self._unmarked.append((result, [event._replace(attempts=event.attempts + 1)]))",
        "self._unmarked.append((result, [event]))",
        unseen="unseen: one schedule gives an event up, and its rows do not go again",
    ),
    "only the document that was cut gets a new number": ReplacedText(
        "publisher/delivery.py",
        " or number < before:",
        ":",
        unseen="unseen: no object has events in the document that was cut and in a later one",
    ),
    "places of later events are not counted when a line is read": ReplacedText(
        "publisher/delivery.py",
        'what.get("attempts", 1), place)\n        )\n        place += "place" in document\n',
        'what.get("attempts", 1), place)\n        )\n',
    ),
    "the newest number of a delivery is forgotten": ReplacedText(
        "publisher/session.py",
        "    state.newest = context.output.first(number, state.newest, raised_at(context.epoch))\n    return number, state.newest\n",
        "    return number, context.output.first(number, state.newest, raised_at(context.epoch))\n",
        unseen="unreached: the clock does not go back between two deliveries of a format with numbers",
    ),
    "one document more than concurrency is in the air": ReplacedText(
        "publisher/sending.py",
        "len(in_progress) >= most",
        "len(in_progress) > most",
    ),
    "an event keeps its id when it is cut from an earlier one of its object": ReplacedText(
        "publisher/delivery.py",
        "halves(_renumbered(events))",
        "halves(events)",
        unseen="unseen: no receiver applies a later event of an object of a document and not the earlier one, and then fails for or refuses the document",
    ),
    "objects of a suspected document are not put back": ReplacedText(
        "publisher/suspects.py",
        "            self._put_back(suspected)\n            # Other documents",
        "            # Other documents",
        unseen="unseen: a suspected document is tried again too early, and nobody checks its pause",
    ),
    "a chunk passes over keys beyond a delivery": ReplacedText(
        "publisher/snapshot.py",
        "return keys[: len(built.groups)], delivery",
        "return keys, delivery",
        unseen="unreached: no chunk of a snapshot is larger than a delivery",
    ),
    "the two parts of a full delivery change places": ReplacedText(
        "publisher/read_back.py",
        "(groups[cut:], groups[:cut])",
        "(groups[:cut], groups[cut:])",
    ),
    "the next window begins a row too late": ReplacedText(
        "publisher/queue.py",
        "first_id(deferred) if deferred else end + 1",
        "first_id(deferred) if deferred else end + 2",
    ),
    "a request replaces the one before": ReplacedText(
        "sql/consumers.py",
        "    asked = RecordSet(0, before.rows)\n    asked.add(ranges)\n",
        "    asked = RecordSet(0, ranges)\n",
        unseen="unreached: no consumer is asked twice before it takes the first request up",
    ),
    "a gap is read again without its first number": ReplacedText(
        "sql/followed_set.py",
        "self.done.gaps(end, first - 1)",
        "self.done.gaps(end, first)",
        unseen="unreached: no late row has the first number of a range that is read again",
    ),
    "a gap is closed beyond the rows that were read": ReplacedText(
        "sql/followed_set.py",
        "        closed = min(closed, last)\n",
        "",
    ),
    "rows that are set back stay in the set": ReplacedText(
        "publisher/ledger.py",
        "        followed.discard(requested)\n",
        "",
        unseen="equivalent on SQLite, where each scan searches for such rows; interleaved schedules find it on PostgreSQL",
    ),
    "deleted rows are not noted as removed": ReplacedText(
        "publisher/ledger.py",
        "            note_removed(self.log, removed)\n",
        "",
    ),
    "invalid rows are judged by an old catalogue": ReplacedText(
        "publisher/catalog_watcher.py",
        'the catalogue is old."""\n        if self.refresh():\n            raise CatalogDrifted\n',
        'the catalogue is old."""\n        self.refresh()\n',
        unseen="unreached: no invalid row meets a catalogue that is out of date",
    ),
    "a second refused statement ends the publisher although cycles were good in between": ReplacedText(
        "publisher/catalog_watcher.py",
        'without an error of the database."""\n        self._has_failed = False\n',
        'without an error of the database."""\n        return\n',
        unseen="unreached: no publisher has a second refused statement",
    ),
    "parts of an insert are set back as an insert": ReplacedText(
        "sql/rows.py",
        "_set_back(log, again.back, again.in_parts)",
        "_set_back(log, again.back, ())",
        unseen="unreached: no part of an insert is set back",
    ),
    "rows that wait outdate no copy": ReplacedText(
        "core/requeue.py",
        "RowState.WAITS: (Way.COPY,)",
        "RowState.WAITS: ()",
        unseen="unseen: a copy has a greater number than the row that outdates it; only the values at the end may show it",
    ),
    "a resync of deletes waits for no transaction": ReplacedText(
        "sql/resync.py",
        "        wait_for(log, writers, _MAY_INSERT)\n",
        "",
        unseen="unreached: no transaction is open while deletes are written",
    ),
    "a purge notes rows that stay as removed": ReplacedText(
        "sql/purge.py",
        "stayed = sorted({int(row[0]) for row in read}.difference(old))",
        "stayed: list[int] = []",
    ),
    "a delete outdates a delete": ReplacedText(
        "core/requeue.py",
        "                elif row.event_type == DELETE_ROW:\n                    others -= deletes[row.way]\n",
        "",
        unseen="unreached: no refused delete stands before another delete of its object",
    ),
    "a file is renamed before it is on the disk": ReplacedText(
        "publisher/sinks/files.py",
        "                file.write(document.body)\n                sync_file(file)\n",
        "                file.write(document.body)\n",
    ),
    "a torn file gets its name": ReplacedText(
        "publisher/sinks/files.py",
        "            except OSError as error:\n                self._torn = error.strerror or str(error)\n                raise\n",
        "            except OSError as error:\n                raise\n",
        unseen="unreached: no write to a file of lines fails in the middle",
    ),
    "loopback rows are kept or deleted the other way round": ReplacedText(
        "publisher/cycle.py",
        "if context.options.delete_from_log and not context.options.delete_loopback:",
        "if context.options.delete_from_log and context.options.delete_loopback:",
        unseen="unreached: no publisher that deletes rows meets rows that its user has changed",
    ),
    "the line of a delivery without marks stays": ReplacedText(
        "publisher/marks.py",
        "is_over = not rest.documents and bool(self.recorded.documents)",
        "is_over = not rest.documents and bool(self.recorded.documents) and bool(marks.statuses)",
    ),
}
