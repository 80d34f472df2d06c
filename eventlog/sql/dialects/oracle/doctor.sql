-- Facts for doctor.py. In braces: names of the log and of its columns, quoted; :name: bound values.

-- name: clock
SELECT (CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS DATE) - DATE '1970-01-01') * 86400
       + MOD(EXTRACT(SECOND FROM SYSTIMESTAMP), 1)
FROM DUAL

-- name: statuses
SELECT {status}, COUNT(*), MIN({record_id}), MAX({record_id})
FROM (SELECT {status}, {record_id} FROM {log} ORDER BY {record_id} DESC)
WHERE ROWNUM <= :sample
GROUP BY {status}

-- name: without_record_id
SELECT COUNT(CASE WHEN {record_id} IS NULL OR {record_id} <= 0 THEN 1 END), MIN(CASE WHEN {record_id} <= 0 THEN {record_id} END),
       COUNT(*)
FROM (SELECT {record_id} FROM {log} WHERE {status} = 'N' ORDER BY {record_id} NULLS FIRST)
WHERE ROWNUM <= :limit

-- name: made_by
SELECT COUNT(CASE WHEN RTRIM({perpetrator}, ' ') = :perpetrator THEN 1 END),
       MIN(CASE WHEN RTRIM({perpetrator}, ' ') = :perpetrator THEN {record_id} END), COUNT(*)
FROM (SELECT {record_id}, {perpetrator} FROM {log} WHERE {status} = 'N' ORDER BY {record_id})
WHERE ROWNUM <= :limit

-- name: not_due
SELECT COUNT(CASE WHEN {event_time} > {now} THEN 1 END),
       LTRIM(TO_CHAR(MIN(CASE WHEN {event_time} > {now} THEN {event_time} END), 'SYYYY-MM-DD HH24:MI:SS.FF9')),
       (CAST(MIN(CASE WHEN {event_time} > {now} THEN {event_time} END) AS DATE) - CAST({now} AS DATE)) * 86400, COUNT(*)
FROM (SELECT {event_time} FROM {log} WHERE {status} = 'N' ORDER BY {record_id})
WHERE ROWNUM <= :limit

-- name: ahead
SELECT record_id, LTRIM(TO_CHAR(event_time, 'SYYYY-MM-DD HH24:MI:SS.FF9')),
       (CAST(event_time AS DATE) - CAST({now} AS DATE)) * 86400
FROM (
    SELECT record_id, event_time
    FROM (SELECT {record_id} AS record_id, {event_time} AS event_time FROM {log} ORDER BY {record_id} DESC)
    WHERE ROWNUM <= :sample AND event_time IS NOT NULL
    ORDER BY event_time DESC
)
WHERE ROWNUM <= 1

-- name: spelled_keys
SELECT {table_name}, {table_key}, COUNT(*), MIN({record_id})
FROM (SELECT {table_name}, {table_key}, {record_id} FROM {log} ORDER BY {record_id} DESC)
WHERE ROWNUM <= :sample
GROUP BY {table_name}, {table_key}

-- name: indexes
SELECT i.index_name, i.status, c.column_name
FROM all_indexes i
JOIN all_ind_columns c ON c.index_owner = i.owner AND c.index_name = i.index_name
WHERE i.table_owner = :owner AND i.table_name = :name
ORDER BY i.index_name, c.column_position

-- name: numberings
-- The sequences that stand in the default of record_id cannot be asked for, since the default is a LONG: ours by its name.
SELECT sequence_owner, sequence_name, cache_size, increment_by, cycle_flag, order_flag, session_flag
FROM all_sequences
WHERE sequence_owner = :owner AND sequence_name = :name

-- name: scaled
-- Sequences that put instance and session into their numbers; the column came with them, after 12.2.
SELECT sequence_owner, sequence_name
FROM all_sequences
WHERE sequence_owner = :owner AND sequence_name = :name AND scale_flag = 'Y'

-- name: inflight
SELECT (CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS DATE) - CAST(MIN(started) AS DATE)) * 86400
FROM {inflight}

-- name: storage
SELECT num_rows, TO_CHAR(last_analyzed, 'YYYY-MM-DD HH24:MI:SS')
FROM all_tables
WHERE owner = :owner AND table_name = :name

-- name: rights
SELECT privilege
FROM session_privs
WHERE privilege IN ('CREATE TRIGGER', 'CREATE ANY TRIGGER')
