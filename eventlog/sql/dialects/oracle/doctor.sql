-- The questions of doctor on Oracle. Nothing here changes anything. In braces: names of the log and
-- of its columns, quoted; :now the time now in the zone of event_time.

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
FROM (
    SELECT {record_id}, {perpetrator} FROM {log}
    WHERE CASE {status} WHEN 'N' THEN {record_id} END IS NOT NULL ORDER BY CASE {status} WHEN 'N' THEN {record_id} END
)
WHERE ROWNUM <= :limit

-- name: ahead
-- The latest event_time of the newest rows.
SELECT record_id, LTRIM(TO_CHAR(event_time, 'SYYYY-MM-DD HH24:MI:SS.FF9')),
       (CAST(event_time AS DATE) - CAST(TO_TIMESTAMP(:now, 'SYYYY-MM-DD HH24:MI:SS.FF9') AS DATE)) * 86400
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
-- Their columns in order, and the expressions of those that have one, a LONG.
SELECT i.index_name, CASE WHEN i.status = 'UNUSABLE' THEN 0 ELSE 1 END, c.column_name, e.column_expression
FROM all_indexes i
JOIN all_ind_columns c ON c.index_owner = i.owner AND c.index_name = i.index_name
LEFT JOIN all_ind_expressions e
  ON e.index_owner = i.owner AND e.index_name = i.index_name AND e.column_position = c.column_position
WHERE i.table_owner = :log_schema AND i.table_name = :log_name
ORDER BY i.index_name, c.column_position

-- name: reading_index
-- Shown, not run: makes the index that the publisher reads by (spec/triggers.md 7).
CREATE INDEX {schema}.{queue_index} ON {log} (CASE {status} WHEN 'N' THEN {record_id} END) ONLINE

-- name: row_index
-- Shown, not run: makes the index by which single rows are found.
CREATE UNIQUE INDEX {schema}.{row_index} ON {log} ({record_id}) ONLINE

-- name: read_grants
-- Shown, not run: lets a user read a table of the classes back.
GRANT SELECT ON {tables} TO {user}

-- name: numberings
-- No statement can search the default of record_id for its sequence, since the default is a LONG: find ours by its name.
SELECT sequence_owner, sequence_name, cache_size, increment_by, cycle_flag, order_flag, session_flag
FROM all_sequences
WHERE sequence_owner = :owner AND sequence_name = :name

-- name: scaled
-- Sequences that include instance and session in their numbers. This column exists only after 12.2.
SELECT sequence_owner, sequence_name
FROM all_sequences
WHERE sequence_owner = :owner AND sequence_name = :name AND scale_flag = 'Y'

-- name: inflight
SELECT (CAST(SYS_EXTRACT_UTC(SYSTIMESTAMP) AS DATE) - CAST(started AS DATE)) * 86400
FROM {inflight}
WHERE entry_no = :delivery

-- name: rights
SELECT privilege
FROM session_privs
WHERE privilege IN ('CREATE TRIGGER', 'CREATE ANY TRIGGER')

-- name: sees_rights
-- Whether the rights of other users are shown: to the owner.
SELECT CASE WHEN SYS_CONTEXT('USERENV', 'SESSION_USER') = :log_schema THEN 1 ELSE 0 END FROM DUAL

-- name: rights_of_others
-- The rights of users and roles on the log, on its internal tables and on its sequence.
SELECT p.part, '', p.name, NULLIF(g.grantee, 'PUBLIC'), g.privilege, g.column_name
FROM (
    SELECT 'log' AS part, :log AS name FROM DUAL UNION ALL SELECT 'error', :error FROM DUAL
    UNION ALL SELECT 'inflight', :inflight FROM DUAL UNION ALL SELECT 'state', :state FROM DUAL
    UNION ALL SELECT 'epoch', :epoch FROM DUAL UNION ALL SELECT 'consumer', :consumer FROM DUAL
    UNION ALL SELECT 'captured', :captured FROM DUAL UNION ALL SELECT 'resync', :resync FROM DUAL
    UNION ALL SELECT 'version', :version FROM DUAL UNION ALL SELECT 'numbers', :deliveries FROM DUAL) p
JOIN (
    SELECT table_schema, table_name, grantee, privilege, NULL AS column_name FROM all_tab_privs
    UNION ALL
    SELECT table_schema, table_name, grantee, privilege, column_name FROM all_col_privs) g
  ON '"' || g.table_schema || '"."' || g.table_name || '"' = p.name
WHERE g.grantee <> g.table_schema
ORDER BY p.name, g.privilege
