-- The questions of doctor that are the same on MariaDB and MySQL; each has a file with the rest.
-- Nothing here changes anything. In braces: names of the log and of its columns, quoted; :now the
-- time now in the zone of event_time.

-- name: clock
SELECT UNIX_TIMESTAMP(NOW(6));

-- name: statuses
SELECT status, COUNT(*), MIN(record_id), MAX(record_id)
FROM (SELECT {status} AS status, {record_id} AS record_id FROM {log} ORDER BY {record_id} DESC LIMIT :sample) AS newest
GROUP BY status ORDER BY status;

-- name: without_record_id
SELECT COUNT(*), MIN(record_id), COUNT(*)
FROM (SELECT {record_id} AS record_id FROM {log}
      WHERE {status} = 'N' AND ({record_id} IS NULL OR {record_id} <= 0) LIMIT :limit) AS found;

-- name: made_by
SELECT COUNT(CASE WHEN is_made THEN 1 END), MIN(CASE WHEN is_made THEN record_id END), COUNT(*)
FROM (SELECT {record_id} AS record_id, BINARY RTRIM({perpetrator}) <=> BINARY CONVERT(:perpetrator USING utf8mb4) AS is_made
      FROM {log} WHERE {status} = 'N' AND {record_id} > 0 ORDER BY {record_id} LIMIT :limit) AS first;

-- name: ahead
-- The latest event_time of the newest rows.
SELECT record_id, CAST(t AS CHAR), TIMESTAMPDIFF(MICROSECOND, CAST(:now AS DATETIME(6)), t) / 1000000
FROM (SELECT {record_id} AS record_id, {event_time} AS t FROM {log} ORDER BY {record_id} DESC LIMIT :sample) AS newest
WHERE t IS NOT NULL
ORDER BY t DESC LIMIT 1;

-- name: spelled_keys
SELECT table_name, table_key, COUNT(*), MIN(record_id)
FROM (SELECT {table_name} AS table_name, CONVERT({table_key} USING utf8mb4) COLLATE {byte_collation} AS table_key,
             {record_id} AS record_id
      FROM {log} ORDER BY {record_id} DESC LIMIT :sample) AS newest
GROUP BY table_name, table_key ORDER BY MIN(record_id);

-- name: indexes
SELECT s.index_name, s.column_name
FROM information_schema.statistics AS s
WHERE s.table_schema = DATABASE() AND BINARY s.table_name = BINARY :log_name
ORDER BY s.index_name, s.seq_in_index;

-- name: reading_index
-- Shown, not run: makes the index that the publisher reads by (spec/triggers.md 7).
CREATE INDEX {reading_index} ON {log} ({status}, {record_id});

-- name: row_index
-- Shown, not run: makes the index by which single rows are found.
CREATE UNIQUE INDEX {row_index} ON {log} ({record_id});

-- name: read_grants
-- Shown, not run: lets a user read a table of the classes back.
GRANT SELECT ON {tables} TO {user};

-- name: inflight
SELECT TIMESTAMPDIFF(MICROSECOND, started, UTC_TIMESTAMP(6)) / 1000000 FROM {inflight} WHERE entry_no = :delivery;

-- name: tables
SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE();

-- name: definers
-- The users with whose rights triggers of eventlog run, their tables, whether they exist, and their rights on all
-- databases that let a user change users. A session that sees only one user learns nothing of others.
SELECT d.definer, d.tables,
       COUNT(u.grantee) > 0 OR (SELECT COUNT(DISTINCT a.grantee) FROM information_schema.user_privileges AS a) < 2,
       GROUP_CONCAT(CASE WHEN u.privilege_type IN ('SUPER', 'CREATE USER', 'INSERT', 'UPDATE') THEN u.privilege_type END
                    ORDER BY u.privilege_type SEPARATOR ', ')
FROM (SELECT t.definer, GROUP_CONCAT(DISTINCT t.event_object_table ORDER BY t.event_object_table SEPARATOR ', ') AS tables
      FROM information_schema.triggers AS t
      WHERE t.trigger_schema = DATABASE() AND LEFT(t.trigger_name, 4) = 'tgr_' GROUP BY t.definer) AS d
LEFT JOIN information_schema.user_privileges AS u ON BINARY REPLACE(u.grantee, '''', '') = BINARY d.definer
GROUP BY d.definer, d.tables
ORDER BY d.definer;

-- name: readers
-- The open transactions of other sessions that may have a read view, the oldest first.
SELECT t.trx_mysql_thread_id, p.user, NULL, p.host, LOWER(p.command),
       TIMESTAMPDIFF(SECOND, t.trx_started, NOW()), CAST(t.trx_started AS CHAR)
FROM information_schema.innodb_trx AS t
LEFT JOIN {processlist} AS p ON p.id = t.trx_mysql_thread_id
WHERE t.trx_mysql_thread_id NOT IN (0, CONNECTION_ID())
  AND (t.trx_isolation_level IN ('REPEATABLE READ', 'SERIALIZABLE') OR t.trx_query IS NOT NULL)
ORDER BY t.trx_started LIMIT :limit;

-- name: size
SELECT t.data_length + t.index_length FROM information_schema.tables AS t
WHERE t.table_schema = DATABASE() AND t.table_name = :table;

-- name: sees_rights
-- Whether the rights of other users are shown: only to a user who may read the tables of the database mysql.
SELECT COUNT(*) FROM (
    SELECT grantee, privilege_type, 'mysql' AS place FROM information_schema.user_privileges
    UNION ALL
    SELECT grantee, privilege_type, table_schema FROM information_schema.schema_privileges) AS held
WHERE privilege_type = 'SELECT' AND 'mysql' LIKE place AND grantee = CONCAT('\'', REPLACE(CURRENT_USER(), '@', '\'@\''), '\'');

-- name: rights_of_others
-- The rights of users on the database of the log, on the log and on its internal tables. Left out are users who may grant rights, and the definers of the triggers.
SELECT r.part, r.kind, r.name, TRIM(TRAILING '@' FROM REPLACE(r.grantee, '\'', '')), r.privilege_type, r.column_name
FROM (
    SELECT 'database' AS part, 'DATABASE' AS kind, DATABASE() AS name, grantee, privilege_type, NULL AS column_name
    FROM information_schema.schema_privileges
    WHERE DATABASE() LIKE table_schema
      AND privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'ALTER', 'DROP', 'TRIGGER')
    UNION ALL
    SELECT p.part, 'TABLE', p.name, g.grantee, g.privilege_type, g.column_name
    FROM (
        SELECT 'log' AS part, :log AS name UNION ALL SELECT 'error', :error UNION ALL SELECT 'inflight', :inflight
        UNION ALL SELECT 'state', :state UNION ALL SELECT 'epoch', :epoch UNION ALL SELECT 'consumer', :consumer
        UNION ALL SELECT 'captured', :captured UNION ALL SELECT 'resync', :resync UNION ALL SELECT 'version', :version
        UNION ALL SELECT 'numbers', :deliveries) AS p
    JOIN (
        SELECT table_schema, table_name, grantee, privilege_type, NULL AS column_name FROM information_schema.table_privileges
        UNION ALL
        SELECT table_schema, table_name, grantee, privilege_type, column_name FROM information_schema.column_privileges
    ) AS g ON BINARY CONCAT('`', REPLACE(g.table_name, '`', '``'), '`') = BINARY p.name
    WHERE g.table_schema = DATABASE() AND g.privilege_type <> 'USAGE') AS r
WHERE NOT EXISTS (
    SELECT 1 FROM information_schema.user_privileges AS u
    WHERE u.grantee = r.grantee AND (u.privilege_type IN ('SUPER', 'CREATE USER') OR u.is_grantable = 'YES'))
  AND NOT EXISTS (
    SELECT 1 FROM information_schema.schema_privileges AS s
    WHERE s.grantee = r.grantee AND DATABASE() LIKE s.table_schema AND s.is_grantable = 'YES')
  AND NOT EXISTS (
    SELECT 1 FROM information_schema.triggers AS t
    WHERE t.trigger_schema = DATABASE() AND LOCATE(:log, t.action_statement) > 0
      AND CONCAT('\'', REPLACE(t.definer, '@', '\'@\''), '\'') = r.grantee)
ORDER BY r.name, r.privilege_type;

-- name: generated_columns
-- Each generated column with the columns that its expression names. The server writes names in an expression in backquotes or, by sql_mode, in double quotes. A text that looks like a name counts as a name.
SELECT g.table_name AS relation, g.column_name AS name, c.column_name AS source
FROM information_schema.columns AS g
JOIN information_schema.columns AS c
  ON c.table_schema = g.table_schema AND BINARY c.table_name = BINARY g.table_name AND c.column_name <> g.column_name
WHERE g.table_schema = DATABASE() AND g.generation_expression NOT IN ('ROW START', 'ROW END')
  AND LOCATE(CONCAT('`', REPLACE(REPLACE(c.column_name, '"', '`'), '`', '``'), '`'), REPLACE(g.generation_expression, '"', '`')) > 0
ORDER BY BINARY g.table_name, g.ordinal_position, c.ordinal_position;
