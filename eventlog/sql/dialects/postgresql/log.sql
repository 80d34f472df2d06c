-- The statements of the event log on PostgreSQL, in addition to dialects/log.sql. In braces: names of the log and of its columns,
-- quoted; %(name)s: bound values. Every statement finds rows of status N by the literal 'N', so
-- that it can use the partial index (record_id) WHERE status = 'N'.

-- name: not_of_user
({perpetrator} IS NULL OR rtrim({perpetrator}::text, ' ') COLLATE "C" <> %(perpetrator)s::text)

-- name: in_ranges
-- A sub-select generates the ids: in a join with the ranges, the planner might read the log once per range, or the ranges once per row.
-- {within} is for a partitioned log: the first and the last of the record_ids, by which the leaves are chosen.
{record_id} = ANY (ARRAY (
        SELECT generate_series(r.lo, r.hi) FROM unnest(%(lo)s::bigint[], %(hi)s::bigint[]) AS r (lo, hi))){within}

-- name: read_window
-- The rows from one record_id to another, in order. Walks the partial index and stops at the limit.
-- The bounds are hidden from the planner: it would otherwise look up the ends of the log's numbers at each poll.
SELECT {fields}
FROM {log}
WHERE {statuses} AND {record_id} BETWEEN (SELECT %(first)s::bigint) AND (SELECT %(last)s::bigint)
ORDER BY {record_id}
LIMIT %(limit)s::bigint

-- name: poll
-- First a row whose first field is 0 if there is no request to send rows again or to pause, otherwise -1; then the rows of a
-- window. One statement, hence one database snapshot.
SELECT (CASE WHEN EXISTS (SELECT {unasked}) THEN 0 ELSE -1 END)::bigint{others}
UNION ALL
(
{window}
)

-- name: unasked
-- The publisher has no request, and is not paused.
WHERE NOT EXISTS (SELECT FROM {state_table} WHERE kind IN ('request', 'paused') AND owner IS NULL)

-- name: unasked_of
-- A consumer has no request, is not paused, and is still registered. Its row is the lock of its requests.
FROM {consumer_table} WHERE name = %(owner)s::text AND requeued IS NULL AND paused IS NULL{lock}

-- name: read_gaps
-- Rows in ranges of record_ids, in order: each gap by a range of the key, then the rows in the last one. Each part stops at the limit, so that no more rows are sorted. One statement, hence one database snapshot.
SELECT *
FROM (
    (SELECT {fields}
     FROM (
         SELECT r.*
         FROM unnest(%(lo)s::bigint[], %(hi)s::bigint[]) AS g (lo, hi)
         CROSS JOIN LATERAL (
             SELECT *
             FROM {log}
             WHERE {record_id} BETWEEN g.lo AND g.hi AND {statuses}
             ORDER BY {record_id}
             LIMIT %(limit)s::bigint
         ) AS r
     ) AS filled
     ORDER BY {record_id}
     LIMIT %(limit)s::bigint)
    UNION ALL
    (SELECT {fields}
     FROM {log}
     WHERE {record_id} BETWEEN (SELECT %(first)s::bigint) AND (SELECT %(last)s::bigint) AND {statuses}
     ORDER BY {record_id}
     LIMIT %(limit)s::bigint)
) AS undone
ORDER BY 1
LIMIT %(limit)s::bigint

-- name: open_writers
-- Transactions of other sessions that have written the log and have not ended, including prepared ones: they hold the lock that every INSERT takes before it draws a number. NULL on a standby, which has no access to the locks of its primary.
SELECT DISTINCT virtualtransaction
FROM pg_catalog.pg_locks
WHERE locktype = 'relation' AND relation = %(table)s::regclass AND mode = 'RowExclusiveLock' AND granted
  AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND pid IS DISTINCT FROM pg_backend_pid()
UNION ALL
SELECT NULL
WHERE pg_catalog.pg_is_in_recovery()

-- name: are_open
-- The transactions whose changes this statement cannot see, so no earlier statement could. By their numbers, of which pg_locks has the lower half, and not by their locks: these are released shortly after the changes are visible. A transaction without a number has written nothing yet, or has ended.
SELECT l.virtualtransaction
FROM pg_catalog.pg_locks AS l
CROSS JOIN (SELECT txid_current_snapshot() AS now) AS s
WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
  AND l.virtualtransaction = ANY (%(writers)s::text[])
  AND (l.transactionid::text::bigint IN (SELECT x & 4294967295 FROM txid_snapshot_xip(s.now) AS x)
       OR (l.transactionid::text::bigint - (txid_snapshot_xmax(s.now) & 4294967295) + 4294967296) %% 4294967296 < 2147483648)

-- name: read_rows
-- Rows by their record_ids, whatever their status.
SELECT {fields}
FROM {log}
WHERE {in_ranges}
ORDER BY {record_id}

-- name: mark
-- Rows by their record_ids, if they are still N. If another session changes a row meanwhile, its status is checked again.
UPDATE {log}
SET {status} = %(status)s
WHERE {is_new}
  AND {in_ranges}

-- name: delete
DELETE FROM {log}
WHERE {is_new}
  AND {in_ranges}

-- name: mark_ending
-- Mark the rows of a delivery, and delete its entry.
WITH ended AS (DELETE FROM {inflight_table} WHERE entry_no = %(ended)s::bigint)
UPDATE {log}
SET {status} = %(status)s
WHERE {is_new}
  AND {in_ranges}
  AND {is_committed}

-- name: delete_ending
WITH ended AS (DELETE FROM {inflight_table} WHERE entry_no = %(ended)s::bigint)
DELETE FROM {log}
WHERE {is_new}
  AND {in_ranges}
  AND {is_committed}

-- name: end_set
-- Turn the entry of a consumer's delivery into the entry of its done rows, and delete the former entries.
WITH former AS (DELETE FROM {inflight_table} WHERE entry_no = ANY (%(former)s::bigint[]))
INSERT INTO {inflight_table} AS entry (entry_no, owner, kind, content)
SELECT %(ended)s::bigint, %(owner)s::text, 'done', %(content)s::text
WHERE {is_committed}
ON CONFLICT (entry_no) DO UPDATE
SET kind = excluded.kind, content = excluded.content, started = {utc_now}

-- name: durably
-- The commit waits for the disk, as usual.
TRUE

-- name: soon
-- The commit of this transaction does not wait for the disk. The setting is read by a condition, so that it is made
-- before the first row is changed.
(SELECT pg_catalog.set_config('synchronous_commit', 'off', true)) = 'off'

-- name: record_delivery
-- The entry of a new delivery, unless an earlier number is greater, or there is a request to send rows again or to pause.
-- {unasked} is empty if a request does not matter; a consumer gets no request until the transaction ends.
WITH unasked AS (SELECT {unasked}),
     drawn AS (SELECT {number} AS number FROM unasked)
INSERT INTO {inflight_table} (entry_no, owner, kind, content)
SELECT number, %(owner)s::text, 'delivery', %(content)s::text
FROM drawn
WHERE number > %(above)s::bigint
RETURNING entry_no

-- name: lock_requeuing
-- Keeps publishers from recording a delivery until the transaction ends. The lock needs no right. Its key is "Ereq" and
-- the log's OID.
SELECT pg_catalog.pg_advisory_xact_lock(1165124977, %(table)s::regclass::oid::integer)

-- name: lock_recording
-- Shared by those who record a delivery. It runs before the statement that looks for requests, whose database snapshot must not be
-- older than the lock.
SELECT pg_catalog.pg_advisory_xact_lock_shared(1165124977, %(table)s::regclass::oid::integer)

-- name: next_delivery
nextval(CAST(CAST(%(sequence)s AS text) AS regclass))

-- name: given_delivery
%(number)s::bigint

-- name: queue
-- Rows N and the age of the oldest in seconds.
SELECT count(*), extract(epoch FROM {now} - min({time}) FILTER (WHERE isfinite({event_time})))::float8
FROM {log}
WHERE {is_new}

-- name: due_until
-- The clock that event_time is compared with.
SELECT {now}::text

-- name: read_due
-- The rows N whose time has come, after a place in their order. A row without time is due, and first.
SELECT {fields}
FROM {log}
WHERE {is_new} AND {record_id} > 0
  AND {is_due}
  AND ({due_order}, {record_id})
      > (coalesce(%(after_time)s::timestamp, '-infinity'), %(after_id)s::bigint)
  AND (%(perpetrator)s::text IS NULL OR {not_of_user})
ORDER BY {due_order}, {record_id}
LIMIT %(limit)s::bigint

-- name: not_due
-- How many of the first rows N wait for their time, the first of these times, how long it is until then, and how many were
-- looked at.
SELECT count(*) FILTER (WHERE NOT is_due),
       (min(time) FILTER (WHERE NOT is_due))::text,
       extract(epoch FROM min(time) FILTER (WHERE NOT is_due AND isfinite(time)) - %(until)s::timestamp)::float8,
       count(*)
FROM (SELECT {time} AS time, {is_due} AS is_due
      FROM {log} WHERE {is_new} AND {record_id} > 0 ORDER BY {record_id} LIMIT %(limit)s::bigint) AS first

-- name: write_keys
-- Objects as query-back rows of a resync, in the order of their keys.
INSERT INTO {log} ({number_column}{status}, {event_type}, {event_time}, {perpetrator}, {table_name}, {table_key}{transaction_column})
SELECT {number}'N', %(event_type)s::smallint, {new_time}, NULL, %(class_name)s::text, k.table_key{no_transaction}
FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS k (table_key, n)
ORDER BY k.n
