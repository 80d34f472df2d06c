"""The codes of the findings of ``doctor``, with what each means and what to do.

This is the only place of these texts: ``eventlog explain CODE``, the site and
docs/reference/codes.md show them. A finding itself has the names, the numbers and the commands of
its case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class FindingText(NamedTuple):
    """What a finding with this code means, and what to do."""

    severity: str
    """``error``, ``warning`` or ``info``; several of these if the severity varies."""
    happened: str
    fix: str


class FindingGroup(NamedTuple):
    """Findings about one subject."""

    title: str
    page: str
    """The page of the documentation to read next, by its path in the tree."""
    codes: Mapping[str, FindingText]


_GRANTS: Final = "Have the owner run the GRANTs that the finding shows."
_WRONG_ORDER: Final = "so the changes of one row by two sessions may be sent in the wrong order."

FINDINGS: Final[tuple[FindingGroup, ...]] = (
    FindingGroup(
        title="Rows and the queue",
        page="docs/operate/troubleshoot.md",
        codes={
            "queue": FindingText(
                "info", "Rows wait, and a publisher runs.", "Nothing has to be done."
            ),
            "no_publisher": FindingText(
                "warning", "Rows wait, and no publisher runs.", "Start `eventlog publish`."
            ),
            "publisher_disabled": FindingText(
                "warning",
                "`publisher_disabled` is set, so nothing is published.",
                "Set `publisher_disabled = false` in [publisher].",
            ),
            "in_flight": FindingText(
                "info or warning",
                "Events were sent and await an answer. It is a warning if some have waited for "
                "ten minutes: the receiver answers *retry* for them, or is unavailable.",
                "Run `eventlog status`, and check the logs of the receiver and of the publisher.",
            ),
            "in_flight_left": FindingText(
                "warning",
                "A publisher ended before its events were answered, and no publisher runs.",
                "Start `eventlog publish`; it sends these events first, as they were recorded.",
            ),
            "rows_failed": FindingText(
                "warning",
                "Rows have status E or F. The publisher does not send them again by itself.",
                "Run `eventlog errors`: it shows the reasons and the commands that put the rows "
                "back, such as `eventlog requeue`.",
            ),
            "invalid_rows": FindingText(
                "warning",
                "Waiting rows fail a check, and the next cycle will mark them E. The "
                "finding has the code of the check.",
                "Run `eventlog explain RECORD_ID`, and correct the trigger or program that wrote "
                "the rows.",
            ),
            "not_due": FindingText(
                "info",
                "Rows wait for their event_time, because `handle_future_events` is true.",
                "Set `handle_future_events = false` in [publisher] to publish them now.",
            ),
            "loopback": FindingText(
                "warning or info",
                "Rows were made by the publisher's own user, or this user owns watched tables. "
                'Such rows are not published: they stay N (`loopback_action = "keep"`) or are '
                "marked S.",
                "Give the publisher its own user, or set `allow_loopback = true` in "
                "[publisher]. `eventlog requeue --loopback` puts such rows back.",
            ),
            "backlog_waits": FindingText(
                "warning",
                "The publisher passes over unmarked rows of a finished directory of `eventlog "
                "backlog run`.",
                "Mark them with `eventlog backlog mark`, or give the rows back to the publisher "
                "with `eventlog backlog release`.",
            ),
            "record_id": FindingText(
                "error",
                "record_id of rows that wait is NULL or not positive. They are never published.",
                "Number the rows by the UPDATE that the finding shows.",
            ),
            "status_reserved": FindingText(
                "warning",
                "Rows have a status other than N, S, W, E and F, often the small letter n. The "
                "publisher ignores them.",
                "Correct the program that writes the status, and set the rows to N by the UPDATE "
                "that the finding shows.",
            ),
            "false_delete": FindingText(
                "warning",
                "Objects exist although their last row in the log is a delete, as after DELETE "
                "IGNORE on MariaDB.",
                "Run `eventlog resync CLASS`, which sends them again.",
            ),
            "missed_delete": FindingText(
                "warning",
                "Objects were deleted, but the log has no record of it, as after TRUNCATE on "
                "MariaDB, MySQL, Oracle and SQLite.",
                "Run `eventlog resync CLASS --deletes`, which deletes them at the receiver.",
            ),
            "key_not_canonical": FindingText(
                "warning",
                "table_key of rows is not spelled canonically. The rows are published "
                "nevertheless.",
                "Run `eventlog triggers apply`, or correct the trigger that writes table_key.",
            ),
        },
    ),
    FindingGroup(
        title="Consumers",
        page="docs/guides/consumers.md",
        codes={
            "consumer_new": FindingText(
                "info",
                "The configured consumer is not registered yet.",
                "Nothing has to be done: its first start registers it.",
            ),
            "consumers_unsupported": FindingText(
                "error",
                "This log cannot have consumers; the finding gives the reason.",
                "Remove the reason, or publish without a consumer.",
            ),
            "consumer_before_epoch": FindingText(
                "info",
                "A consumer began before the newest epoch of the log. If a failover or restore "
                "has lost the registration or a reset of this consumer, its receiver lacks data.",
                "If so, empty the receiver and run `eventlog consumers reset NAME --start-from "
                "snapshot`.",
            ),
            "consumer_beyond": FindingText(
                "error",
                "A consumer counts future record_ids of the log as done, so it will skip new rows. "
                "It began at a wrong number, or the sequence of the log was set back.",
                "Run `eventlog consumers reset NAME --start-from ...`.",
            ),
            "paused": FindingText(
                "warning",
                "The publisher, or a consumer, was paused by `eventlog pause`: it sends nothing, "
                "and its rows wait.",
                "Run `eventlog resume` when the reason is over.",
            ),
            "consumer_waits": FindingText(
                "warning",
                "A consumer has rows to do and has made no progress for ten minutes: it does not "
                "run, or its receiver is unavailable. Purge keeps these rows for it.",
                "Start it, or repair its receiver. If nobody needs the consumer, run `eventlog "
                "consumers drop NAME`.",
            ),
        },
    ),
    FindingGroup(
        title="Classes and triggers",
        page="docs/guides/choose-tables.md",
        codes={
            "class_missing": FindingText(
                "error",
                "A configured table or view does not exist. Its rows wait; other tables are "
                "published.",
                "Correct `tables` or the `[[watch]]`. If the table was renamed, add "
                "`renamed_from`.",
            ),
            "class_unavailable": FindingText(
                "error",
                "A class cannot be published as its `[[watch]]` declares it, for example because "
                "an excluded column no longer exists. Its rows wait.",
                "Correct its `[[watch]]` in eventlog.toml.",
            ),
            "mask_bypassed": FindingText(
                "error",
                "A generated column is computed from a masked column, so the receiver sees what "
                "the mask hides. The reader used the mask before this was checked, or before the "
                "column was added.",
                "Mask the generated column too, exclude it in the `[[watch]]`, or name it in "
                "`plain` of the `[[mask]]`.",
            ),
            "watch_refused": FindingText(
                "error",
                "`triggers apply` cannot make the triggers of a `[[watch]]`; the present triggers "
                "stay.",
                "Run `eventlog triggers plan`, and correct what it names.",
            ),
            "class_without_key": FindingText(
                "error or info",
                "A table has no primary key, or a view has no column that begins with pk_. Its "
                "changes are not published.",
                "Add a primary key, or name the table in `exclude_tables`.",
            ),
            "class_unwritable": FindingText(
                "error",
                "The format cannot write a class, whatever its values are: a trial with an "
                "inserted row of NULLs fails.",
                "Exclude the column that fails (`exclude` in the `[[watch]]`), choose another "
                "format, or change an option of the format.",
            ),
            "child_values": FindingText(
                "error",
                "The format has one table per event, but a class has a child table: events with "
                "values of the child table get status E.",
                "Give the child table its own `[[watch]]`, or exclude it.",
            ),
            "deferrable_key": FindingText(
                "warning",
                "If the check of a key is deferred, two sessions' changes of one primary key, and "
                "on Oracle a child row and its owner, may be sent in the wrong order.",
                "Make the key NOT DEFERRABLE.",
            ),
            "trigger_missing": FindingText(
                "error, warning or info",
                "A table has no trigger that writes to the log, so its changes are not captured. "
                "It is an error if the table is watched.",
                "Add a `[[watch]]` if there is none, then run `eventlog triggers apply`.",
            ),
            "capture_ended": FindingText(
                "error",
                "A table was captured and is not captured any more, although no `[[watch]]` was "
                "removed: it is no longer a child table, or has no primary key any more.",
                "Add a `[[watch]]` for it and run `eventlog triggers apply`, or accept it by "
                "`eventlog triggers accept`.",
            ),
            "trigger_drifted": FindingText(
                "error or warning",
                "Triggers differ from what `[[watch]]` declares, or the table has changed since "
                "they were applied.",
                "Run `eventlog triggers plan`, then `eventlog triggers apply`.",
            ),
            "trigger_disabled": FindingText(
                "error",
                "A trigger is disabled: the changes that it should log are not captured.",
                "Enable it by the SQL that the finding shows, then run `eventlog resync` for what "
                "was missed.",
            ),
            "trigger_broken": FindingText(
                "error",
                "Triggers refer to a table that does not exist (SQLite): every write to their "
                "table fails.",
                "Create the table again, or remove it from eventlog.toml and run `eventlog "
                "triggers apply`.",
            ),
            "trigger_orphaned": FindingText(
                "error or warning",
                "Triggers are on a table that no `[[watch]]` names. It is an error if their log "
                "does not exist: then every write to the table fails.",
                "Run `eventlog triggers apply`, which drops them. If the log is missing, run "
                "`eventlog db upgrade` or the SQL of the finding.",
            ),
            "partition_trigger": FindingText(
                "error",
                "A trigger is missing or disabled in one partition: changes in that partition are "
                "not captured.",
                "Run the SQL that the finding shows.",
            ),
            "superuser_function": FindingText(
                "warning",
                "A superuser owns trigger functions of another role's table, or functions of "
                "another role's log (PostgreSQL). A trigger on the log runs with their rights, so "
                "the owner of the log can get the rights of a superuser.",
                "Run the transaction of the finding as a superuser.",
            ),
            "definer_rights": FindingText(
                "warning",
                "Triggers run with the rights of a user that may change all databases of the "
                "server (MariaDB, MySQL).",
                "Let a user with rights on the watched tables and the log alone apply the "
                "triggers.",
            ),
            "definer_missing": FindingText(
                "error",
                "Triggers run with the rights of a user that does not exist (MariaDB, MySQL): "
                "every write to their tables fails.",
                "Create the user again, or let another user drop and apply the triggers.",
            ),
            "resync_due": FindingText(
                "warning",
                "`triggers apply` found changes that no trigger had logged, so receivers may have "
                "stale data.",
                "Run the `eventlog resync` that the finding shows.",
            ),
            "view_deletes": FindingText(
                "warning",
                "A class is a view, and columns of its main table are not logged. An object that "
                "leaves the view by an UPDATE of such a column is not deleted at the receiver.",
                "Name the columns of its WHERE in `membership`, or run the command of the "
                "finding every day; `doctor --ignore view_deletes` then leaves the finding out.",
            ),
            "trigger_warning": FindingText(
                "warning",
                "`triggers plan` warns about a watched table; the finding repeats the warning.",
                "Run `eventlog triggers plan`, and decide whether to change the `[[watch]]`. "
                "`doctor --ignore trigger_warning` leaves the finding out.",
            ),
            "not_captured": FindingText(
                "info",
                "Some changes of a watched table cannot be captured; the finding names them.",
                "Nothing has to be done if the application makes no such changes. Otherwise run "
                "`eventlog resync` after them.",
            ),
            "triggers_not_compared": FindingText(
                "info",
                "The connected user cannot compare the triggers with the declared ones. Missing "
                "and disabled triggers are reported nevertheless.",
                "Run `eventlog doctor` as the owner of the watched tables.",
            ),
        },
    ),
    FindingGroup(
        title="The log",
        page="docs/operate/troubleshoot.md",
        codes={
            "log_table": FindingText(
                "error",
                "The log or an internal table is missing, or has a column of the wrong type.",
                "Run `eventlog db upgrade`, or correct `log_table` and `schema_name`.",
            ),
            "migration": FindingText(
                "warning",
                "The log is at an old revision, or at one that this version of eventlog "
                "does not support.",
                "Run `eventlog db upgrade`; for an unsupported revision, use the version of "
                "eventlog that made it.",
            ),
            "index_missing": FindingText(
                "warning",
                "The log lacks an index, so that each poll or each mark reads the whole log.",
                "Create the index by the SQL that the finding shows.",
            ),
            "log_size": FindingText(
                "info",
                "The size of a log that is partitioned or has a limit, its growth per day, and "
                "when it reaches `keep_bytes`.",
                "Nothing has to be done.",
            ),
            "log_too_large": FindingText(
                "warning",
                "The log has more than `keep_bytes`.",
                "Run `eventlog purge` as the owner of the log; it names what keeps the oldest "
                "rows.",
            ),
            "purge_overdue": FindingText(
                "warning",
                "A purge is late by half of `keep_days`; the finding names what holds it back.",
                "End what holds it back, then run `eventlog purge` as the owner of the log.",
            ),
            "detached_leaf": FindingText(
                "warning",
                "A detached table has the comment of a leaf (a partition of the log), but no purge "
                "has recorded its removal. Somebody has detached the table or restored it from a "
                "dump, or an earlier version has removed it. The finding counts its rows whose "
                "status is not S or W.",
                "Drop it by `eventlog purge --finish`, which puts these rows back into the log, or "
                "give it another comment.",
            ),
            "published_leaves": FindingText(
                "warning",
                "A publication, for example FOR ALL TABLES, has the leaves (partitions) of the "
                "log. A purge creates new leaves, and a subscriber without them stops.",
                "Publish only the tables that the subscriber needs, without the log.",
            ),
            "sequence_cache": FindingText(
                "error",
                f"The sequence of record_id caches numbers in each session, {_WRONG_ORDER}",
                "Run the ALTER SEQUENCE that the finding shows.",
            ),
            "sequence_order": FindingText(
                "error or warning",
                f"The numbers of the sequence of record_id do not ascend, {_WRONG_ORDER}",
                "Run the ALTER SEQUENCE that the finding shows.",
            ),
            "sequence_unknown": FindingText(
                "warning",
                "The triggers of another program number the rows, from a sequence that eventlog "
                "cannot determine. Consumers, streams, `resync` and `requeue` cannot work.",
                "Name the sequence by `record_id_sequence` in [database].",
            ),
            "record_id_range": FindingText(
                "error",
                "A record_id is above 2^63 - 1, and `publish` refuses to start.",
                "Correct the program that numbers the rows, and renumber them.",
            ),
            "post_poll": FindingText(
                "error",
                "A statement of `post_poll_statements` changes the log, and `publish` refuses to "
                "start.",
                "Remove the statement. `eventlog purge` removes old rows.",
            ),
            "lock_of_another": FindingText(
                "warning",
                "A program other than eventlog has the lock of the log, so no publisher can start.",
                "End the session that the finding names.",
            ),
            "wake_missing": FindingText(
                "warning",
                "Changes do not wake a sleeping publisher, so it polls the log.",
                "Run `eventlog db upgrade`, or set `notify = false` if polling is enough.",
            ),
            "dead_rows": FindingText(
                "warning",
                "Dead rows of the log or of an internal table make reading slow.",
                "End what keeps them, then run the VACUUM that the finding shows.",
            ),
            "autovacuum_off": FindingText(
                "warning",
                "Autovacuum is off for the log, so dead rows make reading ever slower.",
                "Enable it by the ALTER TABLE that the finding shows.",
            ),
            "old_snapshot": FindingText(
                "warning",
                "A session, a prepared transaction, a standby or a replication slot keeps dead "
                "rows from being removed, so the log grows.",
                "End it as the finding shows.",
            ),
            "open_transaction": FindingText(
                "warning or info",
                "An open transaction has written rows that no other session can see yet.",
                "Have its owner commit it or roll it back.",
            ),
        },
    ),
    FindingGroup(
        title="Rights, server and settings",
        page="docs/guides/install.md",
        codes={
            "rights_publish": FindingText(
                "error", "The connected user lacks rights to publish the log.", _GRANTS
            ),
            "rights_read": FindingText(
                "error",
                "The connected user may not read tables whose values are read back. Their classes "
                "wait.",
                _GRANTS,
            ),
            "rights_read_later": FindingText(
                "warning",
                "The connected user may not read some tables. The publisher reads them only after "
                "an ALTER TABLE, or for a value above `max_binary_bytes` (PostgreSQL).",
                _GRANTS,
            ),
            "rights_triggers": FindingText(
                "info",
                "The connected user cannot apply triggers. A publisher does not need this right.",
                "Let the owner of the tables run the output of `eventlog triggers apply --sql`.",
            ),
            "rights_resync": FindingText(
                "info",
                "The connected user may not read which resyncs are due, so health does not show "
                "them. Publishing does not need this right.",
                _GRANTS,
            ),
            "rights_reset": FindingText(
                "info",
                "The connected user cannot run `consumers reset` and `consumers drop`. Publishing "
                "as a consumer does not need these rights.",
                _GRANTS,
            ),
            "unexpected_rights": FindingText(
                "warning or info",
                "A role can read or forge rows by rights that no purpose of `eventlog grants` has; "
                "as info, such rights are not visible.",
                "Let the owner run the REVOKE that the finding shows, or name the role in "
                "`database.readers`.",
            ),
            "standby": FindingText(
                "error",
                "The server is a standby, or the session is read-only: rows cannot be marked, nor "
                "triggers applied.",
                "Connect to the primary.",
            ),
            "pooling": FindingText(
                "error",
                "The connection has a pool in transaction mode. The publisher's lock belongs to "
                "one session, so the publisher refuses to start.",
                "Set `url` in [database] to the server itself, or to a pool in session mode.",
            ),
            "search_path": FindingText(
                "warning",
                "Other roles may create objects in the search path (PostgreSQL). eventlog does not "
                "call them, but your own SQL may: conditions, `post_poll_statements`, functions of "
                "views and triggers.",
                "Run the statement that the finding shows.",
            ),
            "plain_credentials": FindingText(
                "warning or info",
                "Credentials go to another machine without TLS; as info, to the database, or its "
                "TLS verifies no name.",
                "Ask for TLS, or set `allow_plain = true` of the sink or source.",
            ),
            "clock": FindingText(
                "warning",
                "The database's clock differs from this machine's, so the ages of rows are wrong "
                "by that much.",
                "Correct the wrong clock.",
            ),
            "event_time": FindingText(
                "warning",
                "event_time of a row is ahead of the database's clock; it is probably in another "
                "time zone. Or `event_time_zone` is local although eventlog writes UTC.",
                "Set or remove `event_time_zone` in [publisher], or correct the trigger that "
                "writes event_time.",
            ),
            "config": FindingText(
                "error",
                "The classes cannot be built from the configuration.",
                "Correct the named setting; `eventlog config` shows all.",
            ),
            "check_failed": FindingText(
                "warning",
                "The connected user may not make a check, or the check took too long.",
                "Grant what `eventlog grants ROLE --purpose monitor` prints, or run `doctor` as "
                "another user.",
            ),
        },
    ),
)
"""All codes of findings."""
