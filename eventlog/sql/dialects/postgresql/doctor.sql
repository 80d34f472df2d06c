-- The questions of doctor on PostgreSQL. Nothing here changes anything. In braces: names of the log
-- and of its columns, quoted. :log is the log's quoted name as a text, :record_id_column the name
-- of one of its columns, :marker the end of the comments of its triggers, :now the time now in the
-- zone of event_time; to run a statement by hand, replace them. "Newest" rows are those of the
-- highest record_ids.

-- name: clock
SELECT extract(epoch FROM clock_timestamp())::float8 AS seconds;

-- name: statuses
-- The newest rows by status.
SELECT status, count(*) AS rows, min(record_id) AS first, max(record_id) AS last
FROM (SELECT {status}::text AS status, {record_id}::numeric AS record_id
      FROM {log} ORDER BY {record_id} DESC LIMIT :sample) AS newest
GROUP BY status ORDER BY status COLLATE "C";

-- name: without_record_id
-- Rows N without a usable record_id.
SELECT count(*) AS rows, min(record_id) AS first, count(*) AS rows_checked
FROM (SELECT {record_id}::numeric AS record_id FROM {log}
      WHERE {status} = 'N' AND ({record_id} IS NULL OR {record_id} <= 0) LIMIT :limit) AS rows_n;

-- name: made_by
-- Which of the first rows N were made by one user.
SELECT count(*) FILTER (WHERE perpetrator = CAST(:perpetrator AS text)) AS rows,
       min(record_id) FILTER (WHERE perpetrator = CAST(:perpetrator AS text)) AS first, count(*) AS rows_checked
FROM (SELECT {record_id} AS record_id, rtrim({perpetrator}::text, ' ') COLLATE "C" AS perpetrator FROM {log}
      WHERE {status} = 'N' AND {record_id} > 0 ORDER BY {record_id} LIMIT :limit) AS rows_n;

-- name: ahead
-- The latest event_time of the newest rows.
SELECT record_id, event_time::text AS event_time, extract(epoch FROM event_time - CAST(:now AS timestamp))::float8 AS seconds
FROM (SELECT {record_id} AS record_id, {event_time}::timestamp AS event_time
      FROM {log} ORDER BY {record_id} DESC LIMIT :sample) AS newest
WHERE isfinite(event_time) AND record_id IS NOT NULL
ORDER BY event_time DESC LIMIT 1;

-- name: spelled_keys
-- Each spelling of a key among the newest rows.
SELECT table_name, table_key, count(*) AS rows, min(record_id) AS first
FROM (SELECT {table_name}::text AS table_name, {table_key}::text AS table_key, {record_id} AS record_id
      FROM {log} ORDER BY {record_id} DESC LIMIT :sample) AS newest
WHERE record_id > 0
GROUP BY table_name, table_key ORDER BY min(record_id);

-- name: indexes
-- The indexes of the log. An invalid index (of a failed CREATE INDEX CONCURRENTLY) is not used.
SELECT x.relname::text AS index, i.indisvalid AND i.indisready AND m.amname = 'btree' AS is_valid,
       a.attname::text AS "column", pg_catalog.pg_get_expr(i.indpred, i.indrelid) AS predicate
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
JOIN pg_catalog.pg_am m ON m.oid = x.relam
CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum AND k.attnum > 0
WHERE i.indrelid = to_regclass(:log) AND k.place <= i.indnkeyatts
ORDER BY x.relname COLLATE "C", k.place;

-- name: reading_index
-- Shown, not run: makes the index that the publisher reads by (spec/triggers.md 7).
CREATE INDEX CONCURRENTLY {reading_index} ON {log} ({record_id}) WHERE {status} = 'N';

-- name: row_index
-- Shown, not run: makes the index by which single rows are found.
CREATE UNIQUE INDEX CONCURRENTLY ON {log} ({record_id});

-- name: numberings
-- The sequences that number the rows: of an identity or serial column, named by its default, or by record_id_sequence.
SELECT format('%I.%I', n.nspname, c.relname) AS name, s.seqcache AS cache, s.seqincrement AS increment,
       s.seqcycle AS cycles
FROM pg_catalog.pg_sequence s
JOIN pg_catalog.pg_class c ON c.oid = s.seqrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE s.seqrelid IN (
    SELECT d.objid
    FROM pg_catalog.pg_depend d
    JOIN pg_catalog.pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
    WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
      AND d.refobjid = to_regclass(:log) AND a.attname = :record_id_column AND d.deptype IN ('a', 'i')
    UNION ALL
    SELECT d.refobjid
    FROM pg_catalog.pg_attrdef f
    JOIN pg_catalog.pg_attribute a ON a.attrelid = f.adrelid AND a.attnum = f.adnum
    JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid = f.oid
    WHERE f.adrelid = to_regclass(:log) AND a.attname = :record_id_column
      AND d.refclassid = 'pg_catalog.pg_class'::regclass
    UNION ALL
    SELECT to_regclass(CAST(:numbers AS text)))
ORDER BY 1;

-- name: inflight
-- The age of an entry in flight; started is UTC.
SELECT extract(epoch FROM (clock_timestamp() AT TIME ZONE 'UTC') - started)::float8 AS seconds FROM {inflight}
WHERE entry_no = :delivery;

-- name: transactions
-- Open transactions of other sessions. Rows that they wrote to the log become visible when they commit.
WITH wrote_log AS (
    SELECT DISTINCT l.pid FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'relation' AND l.relation = to_regclass(:log) AND l.mode = 'RowExclusiveLock' AND l.granted
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()))
SELECT a.pid, a.usename::text AS "user", a.application_name AS application, a.state,
       extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds,
       a.backend_xid IS NOT NULL OR w.pid IS NOT NULL AS writes, w.pid IS NOT NULL AS wrote_log, NULL AS prepared
FROM pg_catalog.pg_stat_activity a
LEFT JOIN wrote_log w ON w.pid = a.pid
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND (w.pid IS NOT NULL OR a.xact_start IS NOT NULL AND a.backend_type = 'client backend')
UNION ALL
SELECT NULL, p.owner::text, NULL, 'prepared', extract(epoch FROM clock_timestamp() - p.prepared)::float8,
       true, EXISTS (
           SELECT FROM pg_catalog.pg_locks l
           WHERE l.virtualtransaction = '-1/' || p.transaction AND l.locktype = 'relation'
             AND l.relation = to_regclass(:log) AND l.mode = 'RowExclusiveLock'), p.gid
FROM pg_catalog.pg_prepared_xacts p
WHERE p.database = current_database()
ORDER BY seconds DESC NULLS LAST LIMIT :limit;

-- name: snapshots
-- What prevents the removal of dead rows of this database, the oldest first: a session's database snapshot or transaction, a prepared transaction, the feedback of a standby, by a replication slot or without one. A slot's catalog_xmin affects only the catalogue. The sessions of VACUUM and logical decoding do not prevent it. Without pg_read_all_stats the start and the address of another user's session are NULL, but its snapshot is visible.
SELECT h.kind, h.name, h.pid, h."user", h.application, h.address, h.state, h.seconds::float8 AS seconds,
       h.transactions, h.xmin, h.fix
FROM (
    SELECT CASE WHEN w.pid IS NULL THEN 'session' ELSE 'standby' END AS kind, NULL AS name, a.pid,
           a.usename::text AS "user", a.application_name AS application, host(a.client_addr) AS address, a.state,
           extract(epoch FROM clock_timestamp() - a.xact_start) AS seconds,
           greatest(age(a.backend_xid), age(a.backend_xmin)) AS transactions,
           concat_ws(' ', a.backend_xid, a.backend_xmin) AS xmin,
           CASE WHEN w.pid IS NULL THEN format('SELECT pg_terminate_backend(%s)', a.pid)
                ELSE 'end the oldest query on the standby, or set hot_standby_feedback = off there' END AS fix
    FROM pg_catalog.pg_stat_activity a
    LEFT JOIN pg_catalog.pg_stat_get_wal_senders() AS w ON w.pid = a.pid
    WHERE a.pid <> pg_backend_pid() AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
      AND (a.datname = current_database() OR coalesce(a.datid, 0) = 0)
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_vacuum v WHERE v.pid = a.pid)
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_replication_slots s WHERE s.active_pid = a.pid AND s.slot_type = 'logical')
    UNION ALL
    SELECT 'prepared', p.gid, NULL, p.owner::text, NULL, NULL, 'prepared', extract(epoch FROM clock_timestamp() - p.prepared),
           age(p.transaction), p.transaction::text, format('ROLLBACK PREPARED %L', p.gid)
    FROM pg_catalog.pg_prepared_xacts p
    WHERE p.database = current_database()
    UNION ALL
    SELECT 'slot', s.slot_name::text, s.active_pid, a.usename::text, a.application_name, host(a.client_addr), NULL, NULL,
           age(s.xmin), s.xmin::text,
           CASE WHEN s.active THEN 'end the oldest query on the standby, or set hot_standby_feedback = off there'
                ELSE format('SELECT pg_drop_replication_slot(%L), if its reader does not come back', s.slot_name) END
    FROM pg_catalog.pg_replication_slots s
    LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = s.active_pid
    WHERE s.xmin IS NOT NULL) AS h
ORDER BY h.transactions DESC, h.seconds DESC NULLS LAST LIMIT :limit;

-- name: storage
-- The log and its internal tables, each with its partitions: rows by the statistics, bytes with indexes and large values.
SELECT t.part, t.name, sum(s.n_live_tup) AS live, sum(s.n_dead_tup) AS dead,
       to_char(max(greatest(s.last_vacuum, s.last_autovacuum)), 'YYYY-MM-DD HH24:MI') AS vacuumed,
       current_setting('autovacuum')::boolean AND NOT coalesce(
           bool_or(c.reloptions::text[] && ARRAY['autovacuum_enabled=false', 'autovacuum_enabled=off']), false) AS autovacuum,
       sum(pg_catalog.pg_total_relation_size(c.oid)) AS bytes
FROM (VALUES (1, 'log', :log), (2, 'error', :error), (3, 'inflight', :inflight), (4, 'state', :state), (5, 'consumer', :consumer),
             (6, 'epoch', :epoch), (7, 'captured', :captured), (8, 'resync', :resync)) AS t (place, part, name)
CROSS JOIN LATERAL (SELECT to_regclass(t.name) UNION SELECT p.relid FROM pg_catalog.pg_partition_tree(to_regclass(t.name)) p)
    AS parts (relid)
JOIN pg_catalog.pg_class c ON c.oid = parts.relid
LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = c.oid
GROUP BY t.place, t.part, t.name ORDER BY t.place;

-- name: installed_triggers
-- The triggers of one log, by their comments, which end in its name.
SELECT format('%s.%s', n.nspname, c.relname) AS "table", t.tgname::text AS trigger,
       t.tgenabled IN ('O', 'A')
       -- A trigger only for replicated changes: correct if another trigger of ours logs all other
       -- changes by statement.
       OR t.tgenabled = 'R' AND EXISTS (
           SELECT FROM pg_catalog.pg_trigger s
           JOIN pg_catalog.pg_description sd ON sd.classoid = d.classoid AND sd.objoid = s.oid
           WHERE s.tgrelid = t.tgrelid AND s.tgtype = t.tgtype - 1 AND s.tgenabled = 'O'
             AND sd.description LIKE 'eventlog sha256:%' AND right(sd.description, length(:marker)) = :marker)
           AS enabled,
       format('ALTER TABLE %I.%I ENABLE TRIGGER %I', n.nspname, c.relname, t.tgname) AS fix
FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_description d ON d.classoid = 'pg_catalog.pg_trigger'::regclass AND d.objoid = t.oid
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE NOT t.tgisinternal AND t.tgparentid = 0
  AND d.description LIKE 'eventlog sha256:%' AND right(d.description, length(:marker)) = :marker
ORDER BY 1, 2;

-- name: rights_of_others
-- The rights on the objects of the log that roles other than the owner have; the role is NULL for PUBLIC. Left out are superusers, members of the owner, what pg_read_all_data and pg_write_all_data give anyway, INSERT of the triggers' owners, and INSERT on a log of another program, whose triggers may have the rights of each writer.
WITH triggers AS (
    SELECT t.tgfoid AS function FROM pg_catalog.pg_trigger t
    JOIN pg_catalog.pg_description d ON d.objoid OPERATOR(pg_catalog.=) t.oid
        AND d.classoid OPERATOR(pg_catalog.=) 'pg_catalog.pg_trigger'::pg_catalog.regclass::pg_catalog.oid
    WHERE d.description OPERATOR(pg_catalog.~~) 'eventlog sha256:%'
      AND pg_catalog.right(d.description, pg_catalog.length(CAST(:marker AS text))) OPERATOR(pg_catalog.=) CAST(:marker AS text)),
functions (part, oid) AS (
    SELECT 'trigger', function FROM triggers
    UNION
    SELECT 'trigger', t.tgfoid FROM pg_catalog.pg_trigger t
    WHERE t.tgrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(CAST(:deferred AS text))::pg_catalog.oid AND NOT t.tgisinternal
    UNION
    SELECT 'wake', t.tgfoid FROM pg_catalog.pg_trigger t
    WHERE t.tgrelid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(CAST(:log AS text))::pg_catalog.oid
      AND t.tgname::pg_catalog.text OPERATOR(pg_catalog.=) CAST(:wake_trigger AS text)),
relations (part, oid) AS (
    SELECT part, pg_catalog.to_regclass(name)::pg_catalog.oid
    FROM (VALUES
        ('log', CAST(:log AS text)), ('error', :error), ('inflight', :inflight), ('state', :state), ('epoch', :epoch),
        ('consumer', :consumer), ('captured', :captured), ('resync', :resync), ('deferred', :deferred), ('version', :version), ('numbers', :deliveries),
        ('record_ids', coalesce(CAST(:numbers AS text), pg_catalog.pg_get_serial_sequence(:log, :record_id_column)))
    ) AS named (part, name)
    UNION ALL
    SELECT 'leaf', t.relid::pg_catalog.oid FROM pg_catalog.pg_partition_tree(pg_catalog.to_regclass(CAST(:log AS text))) t
    WHERE t.level OPERATOR(pg_catalog.>) 0),
objects AS (
    SELECT p.part, CASE WHEN c.relkind OPERATOR(pg_catalog.=) 'S'::pg_catalog."char" THEN 'SEQUENCE' ELSE 'TABLE' END AS kind,
           pg_catalog.format('%I.%I', n.nspname, c.relname) AS name, c.relowner AS owner, l.acl, l."column"
    FROM relations p
    JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) p.oid
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
    CROSS JOIN LATERAL (
        SELECT c.relacl, NULL
        UNION ALL
        SELECT t.attacl, t.attname::pg_catalog.text FROM pg_catalog.pg_attribute t
        WHERE t.attrelid OPERATOR(pg_catalog.=) c.oid) AS l (acl, "column")
    UNION ALL
    SELECT f.part, 'FUNCTION',
           pg_catalog.format('%I.%I(%s)', n.nspname, p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid)),
           p.proowner, coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)), NULL
    FROM functions f
    JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) f.oid
    JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace)
SELECT o.part, o.kind, o.name, r.rolname::pg_catalog.text AS grantee, a.privilege_type AS right, o."column"
FROM objects o
CROSS JOIN LATERAL pg_catalog.aclexplode(o.acl) AS a
LEFT JOIN pg_catalog.pg_roles r ON r.oid OPERATOR(pg_catalog.=) a.grantee
WHERE a.grantee OPERATOR(pg_catalog.<>) o.owner
  AND (r.oid IS NULL OR NOT r.rolsuper AND NOT pg_catalog.pg_has_role(r.oid, o.owner, 'MEMBER'))
  AND NOT EXISTS (
      SELECT FROM pg_catalog.pg_roles d
      WHERE (d.rolname OPERATOR(pg_catalog.=) 'pg_read_all_data'::pg_catalog.name
             AND a.privilege_type OPERATOR(pg_catalog.=) 'SELECT'
             OR d.rolname OPERATOR(pg_catalog.=) 'pg_write_all_data'::pg_catalog.name
                AND a.privilege_type OPERATOR(pg_catalog.=) ANY (ARRAY['INSERT', 'UPDATE', 'DELETE']))
        AND pg_catalog.pg_has_role(r.oid, d.oid, 'USAGE'))
  AND NOT (o.part OPERATOR(pg_catalog.=) ANY (ARRAY['log', 'deferred']) AND a.privilege_type OPERATOR(pg_catalog.=) 'INSERT' AND (
      coalesce(pg_catalog.obj_description(pg_catalog.to_regclass(CAST(:log AS text))::pg_catalog.oid, 'pg_class'), '')
          OPERATOR(pg_catalog.!~~) 'Event log: triggers write it,%'
      OR EXISTS (
          SELECT FROM triggers t JOIN pg_catalog.pg_proc p ON p.oid OPERATOR(pg_catalog.=) t.function
          WHERE p.proowner OPERATOR(pg_catalog.=) a.grantee)))
ORDER BY o.kind DESC, o.name, a.privilege_type;
-- name: superuser_functions
-- Functions of the log and of its triggers that a superuser owns, although no superuser owns the table that they belong
-- to. The function that checks the table for a trigger function has the same comment as the triggers.
WITH ours AS (
    SELECT t.tgfoid AS function, d.description, c.relowner, format('%s.%s', n.nspname, c.relname) AS "table"
    FROM pg_catalog.pg_trigger t
    JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_description d ON d.classoid = 'pg_catalog.pg_trigger'::regclass AND d.objoid = t.oid
    WHERE NOT t.tgisinternal AND t.tgparentid = 0 AND CASE
        WHEN t.tgrelid IN (to_regclass(:log), to_regclass(:deferred)) THEN EXISTS (
            SELECT FROM pg_catalog.pg_proc w
            WHERE w.oid = t.tgfoid AND w.pronamespace = c.relnamespace AND w.proname ~ '^proc_.*_(wake|deferred)$')
        -- The trigger of a partition calls a function of the partitioned table.
        ELSE d.description LIKE 'eventlog sha256:%' AND right(d.description, length(:marker)) = :marker
            AND NOT c.relispartition END
), functions AS (
    SELECT ours.function, ours.relowner, ours."table" FROM ours
    UNION
    SELECT d.objoid, ours.relowner, ours."table"
    FROM ours
    JOIN pg_catalog.pg_description d ON d.classoid = 'pg_catalog.pg_proc'::regclass AND d.description = ours.description
)
SELECT functions."table", f.rolname AS superuser,
       format('ALTER FUNCTION %I.%I(%s) OWNER TO %I', n.nspname, p.proname, pg_get_function_identity_arguments(p.oid), o.rolname) AS fix
FROM functions
JOIN pg_catalog.pg_proc p ON p.oid = functions.function
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_roles f ON f.oid = p.proowner AND f.rolsuper
JOIN pg_catalog.pg_roles o ON o.oid = functions.relowner AND NOT o.rolsuper
ORDER BY 1, 3;

-- name: superuser_log
-- The superuser who owns the log, if another role owns its schema, or the database of schema public; and what changes this.
SELECT r.rolname AS superuser, o.rolname AS owner, format('ALTER TABLE %I.%I OWNER TO %I', n.nspname, c.relname, o.rolname) AS fix
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_roles r ON r.oid = c.relowner AND r.rolsuper
JOIN pg_catalog.pg_database d ON d.datname = current_database()
JOIN pg_catalog.pg_roles h ON h.oid = n.nspowner
JOIN pg_catalog.pg_roles o ON o.oid = CASE WHEN h.rolname = 'pg_database_owner' THEN d.datdba ELSE h.oid END AND NOT o.rolsuper
WHERE c.oid = to_regclass(:log);

-- name: orphans
-- Our triggers, by their comments, which name their log, if the log does not exist.
SELECT format('%s.%s', n.nspname, c.relname) AS "table", t.tgname::text AS trigger, d.log,
       format('DROP TRIGGER %I ON %I.%I', t.tgname, n.nspname, c.relname) AS fix
FROM (SELECT objoid, substring(description FROM '^eventlog sha256:[0-9a-f]{{64}} log (.*)$') AS log
      FROM pg_catalog.pg_description
      WHERE classoid = 'pg_catalog.pg_trigger'::regclass AND description LIKE 'eventlog sha256:%') AS d
JOIN pg_catalog.pg_trigger t ON t.oid = d.objoid AND NOT t.tgisinternal AND t.tgparentid = 0
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE d.log IS NOT NULL
  AND d.log NOT IN (SELECT '"' || replace(ln.nspname, '"', '""') || '"."' || replace(l.relname, '"', '""') || '"'
                    FROM pg_catalog.pg_class l
                    JOIN pg_catalog.pg_namespace ln ON ln.oid = l.relnamespace
                    WHERE l.relkind IN ('r', 'p', 'v', 'f'))
ORDER BY 1, 2;

-- name: partition_triggers
-- Our row triggers on partitioned tables, and partitions on which the copy is missing or disabled.
SELECT format('%s.%s', n.nspname, c.relname) AS "table", format('%s.%s', pn.nspname, pc.relname) AS partition,
       t.tgname::text AS trigger, CASE WHEN copy.oid IS NULL THEN 'missing' ELSE 'disabled' END AS state,
       CASE WHEN copy.oid IS NULL
            THEN format('ALTER TABLE %I.%I DETACH PARTITION %I.%I, then ATTACH it again',
                        n.nspname, c.relname, pn.nspname, pc.relname)
            ELSE format('ALTER TABLE %I.%I ENABLE TRIGGER %I', pn.nspname, pc.relname, t.tgname) END AS fix
FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_description d ON d.classoid = 'pg_catalog.pg_trigger'::regclass AND d.objoid = t.oid
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid AND c.relkind = 'p'
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL pg_catalog.pg_partition_tree(c.oid) AS p
JOIN pg_catalog.pg_class pc ON pc.oid = p.relid
JOIN pg_catalog.pg_namespace pn ON pn.oid = pc.relnamespace
LEFT JOIN pg_catalog.pg_trigger copy ON copy.tgrelid = p.relid AND copy.tgname = t.tgname AND copy.tgparentid <> 0
WHERE d.description LIKE 'eventlog sha256:%' AND right(d.description, length(:marker)) = :marker
  AND t.tgparentid = 0 AND t.tgtype & 1 = 1 AND t.tgenabled <> 'D' AND p.isleaf AND p.level > 0
  AND (copy.oid IS NULL OR copy.tgenabled = 'D')
ORDER BY 1, 2, 3;

-- name: without_triggers
-- Tables that have no trigger of any kind.
SELECT c.relname::text AS name
FROM pg_catalog.pg_class c
WHERE c.relnamespace = to_regnamespace(quote_ident(:schema)) AND c.relkind IN ('r', 'p') AND c.relname = ANY (CAST(:tables AS text[]))
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t
                  WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgenabled <> 'D')
ORDER BY c.relname COLLATE "C";

-- name: owned
-- Tables that this role owns itself, not through membership in another role.
SELECT c.relname::text AS name
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_roles r ON r.oid = c.relowner
WHERE c.relnamespace = to_regnamespace(quote_ident(:schema)) AND c.relkind IN ('r', 'p') AND c.relname = ANY (CAST(:tables AS text[]))
  AND r.rolname = :user
ORDER BY c.relname COLLATE "C";

-- name: unreadable
-- Columns of watched tables that this role may not read.
SELECT asked.table_name AS name, array_agg(asked.column_name ORDER BY asked.place) AS columns
FROM unnest(CAST(:tables AS text[]), CAST(:columns AS text[])) WITH ORDINALITY AS asked (table_name, column_name, place)
JOIN pg_catalog.pg_class c ON c.relnamespace = to_regnamespace(quote_ident(:schema)) AND c.relname = asked.table_name
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attname = asked.column_name
WHERE NOT has_column_privilege(c.oid, a.attnum, 'SELECT')
GROUP BY asked.table_name ORDER BY asked.table_name COLLATE "C";

-- name: written_rows
-- What was written to the tables of a schema since the statistics were reset, and how full their columns are.
SELECT c.relname, s.n_tup_ins, s.n_tup_upd,
       json_object_agg(a.attname, 1 - a.null_frac) FILTER (WHERE a.attname IS NOT NULL) AS filled
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_stat_user_tables s ON s.relid = c.oid
LEFT JOIN pg_catalog.pg_stats a ON a.schemaname = s.schemaname AND a.tablename = s.relname
WHERE c.relnamespace = to_regnamespace(quote_ident(:schema))
GROUP BY c.relname, s.n_tup_ins, s.n_tup_upd;

-- name: closed_to
-- Tables that roles may not read.
SELECT asked.role_name, array_agg(c.relname ORDER BY c.relname COLLATE "C")
FROM unnest(CAST(:roles AS text[])) AS asked (role_name)
JOIN pg_catalog.pg_class c ON c.relnamespace = to_regnamespace(quote_ident(:schema)) AND c.relname = ANY (CAST(:tables AS text[]))
WHERE NOT has_any_column_privilege(asked.role_name, c.oid, 'SELECT')
GROUP BY asked.role_name ORDER BY asked.role_name COLLATE "C";

-- name: read_grants
-- Shown, not run: lets a user read tables of the classes back.
GRANT USAGE ON SCHEMA {classes} TO {user};
GRANT SELECT ON {tables} TO {user};

-- name: rights_to_apply
-- What this role lacks to apply triggers to tables. COMMENT ON TRIGGER needs the table's ownership.
SELECT missing
FROM (
    SELECT 1 AS place, 'CREATE on schema ' || :schema AS missing
    WHERE NOT has_schema_privilege(to_regnamespace(quote_ident(:schema)), 'CREATE')
    UNION ALL
    SELECT 2, 'INSERT on the log ' || concat_ws('.', CAST(:log_schema AS text), CAST(:log_name AS text))
    WHERE NOT has_table_privilege(to_regclass(:log), 'INSERT')
    UNION ALL
    SELECT 3, format('ownership of table %s.%s', CAST(:schema AS text), c.relname)
    FROM pg_catalog.pg_class c
    WHERE c.relnamespace = to_regnamespace(quote_ident(:schema)) AND c.relname = ANY (CAST(:tables AS text[]))
      AND NOT pg_has_role(c.relowner, 'USAGE')) AS lacks
ORDER BY place, missing COLLATE "C";

-- name: generated_columns
-- Each generated column with the columns that its expression uses. Since PostgreSQL 15 the expression depends on them, before the column itself.
SELECT DISTINCT c.relname AS relation, a.attname AS name, s.attname AS source
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_attrdef e ON e.adrelid = a.attrelid AND e.adnum = a.attnum
JOIN pg_catalog.pg_depend d
  ON d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.refobjid = a.attrelid
 AND ((d.classid = 'pg_catalog.pg_attrdef'::pg_catalog.regclass AND d.objid = e.oid)
      OR (d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND d.objid = a.attrelid AND d.objsubid = a.attnum))
JOIN pg_catalog.pg_attribute s ON s.attrelid = a.attrelid AND s.attnum = d.refobjsubid
WHERE n.nspname = CAST(:schema AS text) AND c.relkind IN ('r', 'p') AND a.attgenerated <> '' AND s.attnum <> a.attnum
ORDER BY 1, 2, 3;
