-- The statements of the event log on Oracle, in addition to dialects/log.sql. In braces: names of the log and of its columns,
-- quoted; :name: bound values. Every statement finds rows of status N by the expression of the
-- queue's index, {new_id}, which contains only these rows.

-- name: new_id
CASE {status} WHEN 'N' THEN {record_id} END

-- name: is_new
{new_id} IS NOT NULL

-- name: not_of_user
-- RTRIM of blanks is NULL.
(RTRIM({perpetrator}, ' ') IS NULL OR RTRIM({perpetrator}, ' ') <> :perpetrator)

-- name: first_row
-- Nothing: its words for it came with version 12, and only consumers need them, which a log on Oracle does not have.

-- name: begins_part
MOD(n - 1, :part_size) = 0

-- name: newest_rows
SELECT *
FROM (
    SELECT {fields}
    FROM {log}
    WHERE {record_id} < :before
    ORDER BY {record_id} DESC)
WHERE ROWNUM <= :limit

-- name: refused_ids
SELECT *
FROM (
    SELECT DISTINCT record_id
    FROM {error_table}
    WHERE consumer IS NULL AND record_id > 0 AND record_id < :before
    ORDER BY record_id DESC)
WHERE ROWNUM <= :limit

-- name: refused_ids_of
SELECT *
FROM (
    SELECT DISTINCT record_id
    FROM {error_table}
    WHERE consumer = :consumer AND record_id > 0 AND record_id < :before
      AND error_time >= (SELECT begun FROM {consumer_table} WHERE name = :consumer)
    ORDER BY record_id DESC)
WHERE ROWNUM <= :limit

-- name: read_window
-- The rows from one record_id to another, in order. Walks the index and stops at the limit.
SELECT {fields}
FROM (
    SELECT *
    FROM {log}
    WHERE {statuses} AND {new_id} BETWEEN :first AND :last
    ORDER BY {new_id}
)
WHERE ROWNUM <= :limit

-- name: read_rows
-- Rows by a range of record_ids, whatever their status.
SELECT {fields}
FROM {log}
WHERE {record_id} BETWEEN :first AND :last
ORDER BY {record_id}

-- name: read_ids
-- Rows by single record_ids, whatever their status.
SELECT {fields}
FROM {log}
WHERE {record_id} IN ({ids})
ORDER BY {record_id}

-- name: queue
-- Rows N and the oldest event_time among them, as seconds before the clock.
SELECT COUNT(*), (CAST({now} AS DATE) - CAST(MIN({time}) AS DATE)) * 86400
FROM {log}
WHERE {is_new}

-- name: due_until
-- The clock that event_time is compared with.
SELECT LTRIM(TO_CHAR({now}, 'SYYYY-MM-DD HH24:MI:SS.FF9')) FROM DUAL

-- name: read_due
-- The rows N whose time has come, after a place in their order. A row without time is due, and first.
SELECT {fields}
FROM (
    SELECT *
    FROM {log}
    WHERE {new_id} > 0
      AND {is_due}
      AND (
        {time} > TO_TIMESTAMP(:after_time, 'SYYYY-MM-DD HH24:MI:SS.FF9')
        OR (:after_time IS NULL AND {time} IS NOT NULL)
        OR ({record_id} > :after_id
            AND ({time} = TO_TIMESTAMP(:after_time, 'SYYYY-MM-DD HH24:MI:SS.FF9')
                OR (:after_time IS NULL AND {time} IS NULL)))
      )
      AND (:perpetrator IS NULL OR {not_of_user})
    ORDER BY {due_order}, {record_id}
)
WHERE ROWNUM <= :limit

-- name: not_due
-- How many of the first rows N wait for their time, the first of these times, how long it is until then, and how many were
-- looked at.
SELECT COUNT(waits_until), LTRIM(TO_CHAR(MIN(waits_until), 'SYYYY-MM-DD HH24:MI:SS.FF9')),
       (CAST(MIN(waits_until) AS DATE) - CAST(TO_TIMESTAMP(:until, 'SYYYY-MM-DD HH24:MI:SS.FF9') AS DATE)) * 86400,
       COUNT(*)
FROM (
    SELECT CASE WHEN NOT {is_due} THEN {time} END AS waits_until
    FROM {log} WHERE {new_id} > 0 ORDER BY {new_id}
)
WHERE ROWNUM <= :limit
