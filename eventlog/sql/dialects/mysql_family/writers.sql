-- The statements that show the open writers of a log on MariaDB and MySQL (spec/event-log.md 13.6).
-- In braces: the quoted log, and names that differ between the two servers.

-- name: locks
-- The metadata locks on the log. The second part reads no row, but opens the log before the first part reads the locks. So a lock of this session is among them, unless the server hides locks.
SELECT owner_thread_id, owner_event_id, object_instance_begin, lock_type, source
FROM performance_schema.metadata_locks
WHERE object_type = 'TABLE' AND lock_status = 'GRANTED'
  AND object_schema IN (%(schema)s, LOWER(%(schema)s)) AND object_name IN (%(table)s, LOWER(%(table)s))
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL
FROM {log}
WHERE 1 = 0

-- name: state
-- What may hide a lock: the instrument, the consumer of all instruments, locks and threads that did not fit into performance_schema, and the threads of a replica.
SELECT
    (SELECT COUNT(*) FROM performance_schema.setup_instruments
     WHERE name = 'wait/lock/metadata/sql/mdl' AND enabled = 'YES'),
    (SELECT COUNT(*) FROM performance_schema.setup_consumers
     WHERE name = 'global_instrumentation' AND enabled = 'YES'),
    (SELECT SUM(variable_value) FROM {global_status}
     WHERE variable_name IN ('Performance_schema_metadata_lock_lost', 'Performance_schema_thread_instances_lost')),
    (SELECT COUNT(*) FROM performance_schema.threads
     WHERE name IN ('thread/sql/slave_io', 'thread/sql/slave_sql', 'thread/sql/replica_io', 'thread/sql/replica_sql'))

-- name: settings
SHOW GLOBAL VARIABLES WHERE variable_name IN ('performance_schema', 'wsrep_on', 'group_replication_group_name', 'read_only')

-- name: thread
SELECT thread_id FROM performance_schema.threads WHERE processlist_id = CONNECTION_ID()

-- name: sleeping
-- The idle ones of some threads: they run no statement, not even COMMIT.
SELECT thread_id FROM performance_schema.threads WHERE processlist_command = 'Sleep' AND thread_id IN ({threads})

-- name: locks_of
SELECT owner_thread_id, owner_event_id, object_instance_begin, source
FROM performance_schema.metadata_locks
WHERE object_type = 'TABLE' AND lock_status = 'GRANTED' AND owner_thread_id IN ({threads})

-- name: touch
SELECT 1 FROM {log} LIMIT 1

-- name: transactions
-- {mark}: this text is in the list if the server has made the list for this statement.
SELECT /* {mark} */ trx_id, trx_mysql_thread_id, trx_query, trx_rows_modified + trx_tables_in_use
FROM
    information_schema.innodb_trx

-- name: without_lock
-- The sessions, among some, that have no metadata lock on a table.
SELECT t.processlist_id
FROM performance_schema.threads AS t
WHERE t.processlist_id IN ({sessions})
  AND NOT EXISTS (
    SELECT 1 FROM performance_schema.metadata_locks AS m
    WHERE m.owner_thread_id = t.thread_id AND m.object_type = 'TABLE' AND m.lock_status = 'GRANTED'
  )

-- name: sessions
-- The sessions of some threads, without this one, and when their transactions began.
SELECT t.processlist_id, t.processlist_user, LOWER(t.processlist_command),
       COALESCE(TIMESTAMPDIFF(SECOND, x.trx_started, NOW()), t.processlist_time)
FROM performance_schema.threads AS t
LEFT JOIN
    information_schema.innodb_trx AS x ON x.trx_mysql_thread_id = t.processlist_id
WHERE t.thread_id IN ({threads}) AND t.processlist_id <> CONNECTION_ID()
ORDER BY 4 DESC

-- name: sessions_alone
-- The same where the server cannot show when transactions began: the seconds of the session's state, which are fewer.
SELECT t.processlist_id, t.processlist_user, LOWER(t.processlist_command), t.processlist_time
FROM performance_schema.threads AS t
WHERE t.thread_id IN ({threads}) AND t.processlist_id <> CONNECTION_ID()
ORDER BY 4 DESC
