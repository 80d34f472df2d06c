-- The statements of the event log on SQLite. In braces: names of the log and of its columns,
-- quoted; :name: bound values. Every statement finds rows of status N by the literal 'N', so that
-- it can use the partial index (record_id) WHERE status = 'N'.

-- name: read_window
-- The rows N from one record_id to another, in order.
SELECT {fields}
FROM {log}
WHERE {status} = 'N' AND {record_id} BETWEEN :first AND :last
ORDER BY {record_id}
LIMIT :limit

-- name: read_window_left
-- The same without the rows that one user made (loopback_action = keep): they do not fill the window.
SELECT {fields}
FROM {log}
WHERE {status} = 'N' AND {record_id} BETWEEN :first AND :last
  AND ({perpetrator} IS NULL OR rtrim({perpetrator}, ' ') COLLATE BINARY <> :perpetrator)
ORDER BY {record_id}
LIMIT :limit

-- name: read_gaps
-- Rows in ranges of record_ids, in order: the gaps range by range, then the rows in the last one.
SELECT {fields}
FROM json_each(:gaps) AS r
CROSS JOIN {log}
WHERE {record_id} BETWEEN r.value ->> 0 AND r.value ->> 1 AND {statuses}
UNION ALL
SELECT {fields}
FROM {log}
WHERE {record_id} BETWEEN :first AND :last AND {statuses}
ORDER BY 1
LIMIT :limit

-- name: of_any_status
-- The rows of gaps, {statuses}: those of every status that is not reserved.
{status} IN ('N', 'S', 'W', 'E', 'F')

-- name: of_new
{status} = 'N'

-- name: of_new_left
{status} = 'N' AND ({perpetrator} IS NULL OR rtrim({perpetrator}, ' ') COLLATE BINARY <> :perpetrator)

-- name: read_rows
-- Rows by ranges of record_ids, whatever their status. Range by range, by the key.
SELECT {fields}
FROM json_each(:ranges) AS r
CROSS JOIN {log}
WHERE {record_id} BETWEEN r.value ->> 0 AND r.value ->> 1
ORDER BY {record_id}

-- name: queue
-- Rows N and the age of the oldest in seconds.
SELECT count(*), (julianday({now}) - min(julianday({event_time}))) * 86400.0
FROM {log}
WHERE {status} = 'N'

-- name: due_until
-- The clock that event_time is compared with.
SELECT {now}

-- name: read_due
-- The rows N whose time has come, after a place in their order. A row without time is due, and first.
SELECT {fields}
FROM {log}
WHERE {status} = 'N' AND {record_id} > 0
  AND {is_due}
  AND ({due_order}, {record_id}) > ({after}, :after_id)
  AND (:perpetrator IS NULL OR {perpetrator} IS NULL OR rtrim({perpetrator}, ' ') COLLATE BINARY <> :perpetrator)
ORDER BY {due_order}, {record_id}
LIMIT :limit

-- name: due_ids
-- Which rows from one record_id to another are due, in the order of read_due.
SELECT {record_id}
FROM {log}
WHERE {record_id} BETWEEN :first AND :last AND {is_due}
ORDER BY {due_order}, {record_id}

-- name: next_row
--- The first row from one record_id to another, and whether its time is known and not after :until.
SELECT {record_id}, CASE WHEN {time} > '' AND {is_due} THEN 1 ELSE 0 END
FROM {log}
WHERE {record_id} BETWEEN :first AND :last
ORDER BY {record_id}
LIMIT 1

-- name: next_not_before
--- The first row from one record_id to another whose time is unknown, or after :until.
SELECT {record_id}
FROM {log}
WHERE {record_id} BETWEEN :first AND :last AND NOT ({time} > '' AND {is_due})
ORDER BY {record_id}
LIMIT 1

-- name: not_due
-- How many of the first rows N wait for their time, the first of these times, how long it is until then, and how many were
-- looked at.
SELECT count(*) FILTER (WHERE NOT is_due), min(time) FILTER (WHERE NOT is_due),
       (julianday(min(time) FILTER (WHERE NOT is_due)) - julianday(:until)) * 86400.0, count(*)
FROM (SELECT {time} AS time, {is_due} AS is_due
      FROM {log} WHERE {status} = 'N' AND {record_id} > 0 ORDER BY {record_id} LIMIT :limit)

-- name: cut_part
-- The first record_id of each part of equal size.
SELECT record_id
FROM (
    SELECT {record_id} AS record_id, row_number() OVER (ORDER BY {record_id}) AS n
    FROM {log}
    WHERE {has_status} AND {record_id} BETWEEN :first AND :last
)
WHERE (n - 1) % :part_size = 0
ORDER BY 1
