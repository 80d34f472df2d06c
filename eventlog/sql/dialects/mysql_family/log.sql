-- The statements of the event log on MariaDB and MySQL, in addition to dialects/log.sql. In braces: names of the log and of its
-- columns, quoted; %(name)s: bound values. The statements that read rows N use the index (status,
-- record_id). A log of another program may have a collation in which n equals N, so the status is
-- also compared by its byte.

-- name: is_new
{status} = 'N' AND BINARY {status} = 'N'

-- name: of_any_status
-- Only the key serves as index for them.
BINARY {status} IN ('N', 'S', 'W', 'E', 'F')

-- name: not_of_user
({perpetrator} IS NULL OR NOT (BINARY RTRIM({perpetrator}) <=> BINARY CONVERT(%(perpetrator)s USING utf8mb4)))

-- name: read_gaps
-- Rows in ranges of record_ids, in order: the gaps range by range, then what is in the last one. One statement, hence
-- one database snapshot. {wide}: the gaps that may have more rows than wanted, each read up to the limit. A gap is read by the key: the statuses are compared in a CASE, since the planner might otherwise read all rows of a status for each gap.
{wide}
(SELECT {fields}
FROM JSON_TABLE(%(gaps)s, '$[*]' COLUMNS (lo BIGINT PATH '$[0]', hi BIGINT PATH '$[1]')) AS r
STRAIGHT_JOIN {log} ON {record_id} BETWEEN r.lo AND r.hi
WHERE CASE WHEN {statuses} THEN 1 ELSE 0 END = 1
ORDER BY {record_id}
LIMIT %(limit)s)
UNION ALL
(SELECT {fields}
FROM {log}
WHERE {record_id} BETWEEN %(first)s AND %(last)s AND {statuses}
ORDER BY {record_id}
LIMIT %(limit)s)
ORDER BY 1
LIMIT %(limit)s

-- name: wide_gap
(SELECT {fields}
FROM {log}
WHERE {record_id} BETWEEN {first} AND {last} AND {statuses}
ORDER BY {record_id}
LIMIT %(limit)s)
UNION ALL

-- name: lock_registering
-- Shared by sessions that register consumers.
SELECT 1 FROM {epoch} {shared}

-- name: lock_removing
SELECT 1 FROM {epoch} FOR UPDATE

-- name: read_rows
-- Rows by ranges of record_ids, whatever their status.
SELECT {fields}
FROM {log}
WHERE {ranges}
ORDER BY {record_id}

-- name: key_of_numbers
SELECT index_name FROM information_schema.statistics
WHERE table_schema = DATABASE() AND BINARY table_name = BINARY %(log)s AND column_name = %(record_id)s
  AND seq_in_index = 1 AND non_unique = 0
ORDER BY index_name <> 'PRIMARY', index_name
LIMIT 1

-- name: mark
-- Those of some rows that are still N. {rows} names each record_id, or has as many rows as its LIMIT, and {key} is
-- the key by which they are found: so the statement does not lock the row after the last one, for which it would wait
-- until the transaction that has written the row ends.
UPDATE {log} {key}
SET {status} = %(status)s
WHERE {is_new} AND {rows}

-- name: delete
-- As mark. A DELETE of one table has no index hint.
DELETE deleted FROM {log} AS deleted {key}
WHERE {is_new} AND {rows}

-- name: queue
-- Rows N and the age of the oldest in seconds.
SELECT COUNT(*), TIMESTAMPDIFF(MICROSECOND, MIN({event_time}), {now}) / 1000000
FROM {log}
WHERE {is_new}

-- name: due_until
-- The clock that event_time is compared with.
SELECT CAST({now} AS CHAR)

-- name: read_due
-- The rows N whose time has come, after a place in their order. A row without time is due, and first.
SELECT {fields}
FROM {log}
WHERE {is_new} AND {record_id} > 0
  AND {is_due}
  AND (
    {time} > CAST(%(after_time)s AS DATETIME(6))
    OR (%(after_time)s IS NULL AND {time} IS NOT NULL)
    OR ({record_id} > %(after_id)s AND {time} <=> CAST(%(after_time)s AS DATETIME(6)))
  )
  AND (%(perpetrator)s IS NULL OR {not_of_user})
ORDER BY {due_order}, {record_id}
LIMIT %(limit)s

-- name: not_due
-- How many of the first rows N wait for their time, the first of these times, how long it is until then, and how many were
-- looked at.
SELECT COUNT(CASE WHEN NOT is_due THEN 1 END), CAST(MIN(CASE WHEN NOT is_due THEN t END) AS CHAR),
       TIMESTAMPDIFF(MICROSECOND, CAST(%(until)s AS DATETIME(6)), MIN(CASE WHEN NOT is_due THEN t END)) / 1000000,
       COUNT(*)
FROM (SELECT {time} AS t, {is_due} AS is_due
      FROM {log} WHERE {is_new} AND {record_id} > 0
      ORDER BY {record_id} LIMIT %(limit)s) AS first

-- name: runs_of_part
-- The rows of a range as runs of record_ids without a gap.
SELECT MIN(record_id), MAX(record_id)
FROM (
    SELECT {record_id} AS record_id, CAST({record_id} AS SIGNED) - ROW_NUMBER() OVER (ORDER BY {record_id}) AS run
    FROM {log}
    WHERE {has_status} AND {record_id} BETWEEN %(first)s AND %(last)s
) AS numbered
GROUP BY run
ORDER BY 1
