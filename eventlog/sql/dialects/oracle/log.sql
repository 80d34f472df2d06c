-- The statements of the event log on Oracle. In braces: names of the log and of its columns,
-- quoted; :name: bound values. Every statement finds rows of status N by the expression of the
-- queue's index, which contains only these rows.

-- name: read_window
-- The rows N from one record_id to another, in order. Walks the index and stops at the limit.
SELECT {fields}
FROM (
    SELECT *
    FROM {log}
    WHERE CASE {status} WHEN 'N' THEN {record_id} END BETWEEN :first AND :last
    ORDER BY CASE {status} WHEN 'N' THEN {record_id} END
)
WHERE ROWNUM <= :limit

-- name: read_window_left
-- The same without the rows that one user made (loopback_action = keep): they do not fill the window. RTRIM of blanks is NULL.
SELECT {fields}
FROM (
    SELECT *
    FROM {log}
    WHERE CASE {status} WHEN 'N' THEN {record_id} END BETWEEN :first AND :last
      AND (RTRIM({perpetrator}, ' ') IS NULL OR RTRIM({perpetrator}, ' ') <> :perpetrator)
    ORDER BY CASE {status} WHEN 'N' THEN {record_id} END
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
WHERE CASE {status} WHEN 'N' THEN {record_id} END IS NOT NULL

-- name: due_until
-- The clock that event_time is compared with.
SELECT LTRIM(TO_CHAR({now}, 'SYYYY-MM-DD HH24:MI:SS.FF9')) FROM DUAL

-- name: read_due
-- The rows N whose time has come, after a place in their order. A row without time is due, and first.
SELECT {fields}
FROM (
    SELECT *
    FROM {log}
    WHERE CASE {status} WHEN 'N' THEN {record_id} END > 0
      AND {is_due}
      AND (
        {time} > TO_TIMESTAMP(:after_time, 'SYYYY-MM-DD HH24:MI:SS.FF9')
        OR (:after_time IS NULL AND {time} IS NOT NULL)
        OR ({record_id} > :after_id
            AND ({time} = TO_TIMESTAMP(:after_time, 'SYYYY-MM-DD HH24:MI:SS.FF9')
                OR (:after_time IS NULL AND {time} IS NULL)))
      )
      AND (:perpetrator IS NULL OR RTRIM({perpetrator}, ' ') IS NULL OR RTRIM({perpetrator}, ' ') <> :perpetrator)
    ORDER BY {due_order}, {record_id}
)
WHERE ROWNUM <= :limit

-- name: due_ids
-- Which rows from one record_id to another are due, in the order of read_due.
SELECT {record_id}
FROM {log}
WHERE {record_id} BETWEEN :first AND :last AND {is_due}
ORDER BY {due_order}, {record_id}

-- name: not_due
-- How many of the first rows N wait for their time, the first of these times, how long it is until then, and how many were
-- looked at.
SELECT COUNT(waits_until), LTRIM(TO_CHAR(MIN(waits_until), 'SYYYY-MM-DD HH24:MI:SS.FF9')),
       (CAST(MIN(waits_until) AS DATE) - CAST(TO_TIMESTAMP(:until, 'SYYYY-MM-DD HH24:MI:SS.FF9') AS DATE)) * 86400,
       COUNT(*)
FROM (
    SELECT CASE WHEN NOT {is_due} THEN {time} END AS waits_until
    FROM {log} WHERE CASE {status} WHEN 'N' THEN {record_id} END > 0 ORDER BY CASE {status} WHEN 'N' THEN {record_id} END
)
WHERE ROWNUM <= :limit

-- name: cut_part
-- The first record_id of each part of equal size.
SELECT record_id
FROM (
    SELECT {record_id} AS record_id, ROW_NUMBER() OVER (ORDER BY {record_id}) AS n
    FROM {log}
    WHERE {has_status} AND {record_id} BETWEEN :first AND :last
)
WHERE MOD(n - 1, :part_size) = 0
ORDER BY 1

-- name: mark
-- The rows of a range of record_ids that are still N; run by one array bind for all ranges.
UPDATE {log}
SET {status} = :status
WHERE CASE {status} WHEN 'N' THEN {record_id} END BETWEEN :first AND :last

-- name: delete
DELETE FROM {log}
WHERE CASE {status} WHEN 'N' THEN {record_id} END BETWEEN :first AND :last
