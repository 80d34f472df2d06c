-- The statements of the event log on SQLite, in addition to dialects/log.sql. In braces: names of the log and of its columns,
-- quoted; :name: bound values. Every statement finds rows of status N by the literal 'N', so that
-- it can use the partial index (record_id) WHERE status = 'N'.

-- name: not_of_user
({perpetrator} IS NULL OR rtrim({perpetrator}, ' ') COLLATE BINARY <> :perpetrator)

-- name: has_time
{time} > ''

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
WHERE {is_new}

-- name: due_until
-- The clock that event_time is compared with.
SELECT {now}

-- name: read_due
-- The rows N whose time has come, after a place in their order. A row without time is due, and first.
SELECT {fields}
FROM {log}
WHERE {is_new} AND {record_id} > 0
  AND {is_due}
  AND ({due_order}, {record_id}) > ({after}, :after_id)
  AND (:perpetrator IS NULL OR {not_of_user})
ORDER BY {due_order}, {record_id}
LIMIT :limit

-- name: not_due
-- How many of the first rows N wait for their time, the first of these times, how long it is until then, and how many were
-- looked at.
SELECT count(*) FILTER (WHERE NOT is_due), min(time) FILTER (WHERE NOT is_due),
       (julianday(min(time) FILTER (WHERE NOT is_due)) - julianday(:until)) * 86400.0, count(*)
FROM (SELECT {time} AS time, {is_due} AS is_due
      FROM {log} WHERE {is_new} AND {record_id} > 0 ORDER BY {record_id} LIMIT :limit)
