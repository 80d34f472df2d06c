-- A log that is partitioned by record_id (spec/event-log.md 14). In braces: quoted names of the log, of a leaf and of
-- their columns, and bounds as numbers. :log is the log's quoted name as a text.

-- name: leaves
-- The leaves with their bounds, if they are ours: they have the CHECK by our function.
SELECT c.relname::text AS name, pg_catalog.pg_get_expr(c.relpartbound, c.oid) AS bound
FROM pg_catalog.pg_inherits i
JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass(:log) AND to_regprocedure(:function) IS NOT NULL

-- name: detached
-- The tables that have the comment of a leaf and are not attached.
SELECT c.oid::bigint AS oid, c.relname::text AS name, pg_catalog.has_table_privilege(c.oid, 'SELECT') AS is_readable
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_description d ON d.classoid = 'pg_catalog.pg_class'::regclass AND d.objoid = c.oid AND d.objsubid = 0
WHERE c.relnamespace = (SELECT l.relnamespace FROM pg_catalog.pg_class l WHERE l.oid = to_regclass(:log))
  AND c.relkind = 'r' AND NOT c.relispartition AND d.description = :comment
ORDER BY c.relname COLLATE "C"

-- name: has_relation
SELECT to_regclass(:name) IS NOT NULL

-- name: has_column
SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute
               WHERE attrelid = to_regclass(:log) AND attname = :column AND NOT attisdropped)

-- name: columns
-- The columns of a table in their order; a generated one is computed again.
SELECT attname::text FROM pg_catalog.pg_attribute
WHERE attrelid = to_regclass(:name) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
ORDER BY attnum

-- name: owns
SELECT pg_has_role(c.relowner, 'USAGE') AND has_schema_privilege(c.relnamespace, 'CREATE')
FROM pg_catalog.pg_class c
WHERE c.oid = to_regclass(:log)

-- name: holders
-- Sessions and prepared transactions with a lock on the log or a leaf, the oldest transaction first.
SELECT a.pid, p.gid, a.usename::text AS "user", a.application_name AS application,
       coalesce(a.xact_start, p.prepared) AS since
FROM (SELECT DISTINCT l.pid, l.virtualtransaction
      FROM pg_catalog.pg_locks l
      WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
        AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
        AND (l.relation = to_regclass(:log)
             OR l.relation IN (SELECT relid FROM pg_catalog.pg_partition_tree(to_regclass(:log))))) AS held
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = held.pid
LEFT JOIN pg_catalog.pg_prepared_xacts p ON held.virtualtransaction = '-1/' || p.transaction
ORDER BY since, a.pid LIMIT 3

-- name: readers
-- Sessions whose database snapshot may still read the leaf. Not those that wait for the log with a statement that takes its
-- snapshot when it gets the log, or that is a transaction by itself: it sees the log as if it had begun a moment later.
SELECT a.pid, NULL AS gid, a.usename::text AS "user", a.application_name AS application, a.xact_start AS since
FROM pg_catalog.pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.backend_xmin IS NOT NULL
  AND coalesce(a.backend_type, 'client backend') = 'client backend'
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_progress_vacuum v WHERE v.pid = a.pid)
  AND NOT EXISTS (SELECT FROM pg_catalog.pg_locks l
                  WHERE l.pid = a.pid AND NOT l.granted AND l.relation = to_regclass(:log)
                    AND (l.mode = 'RowExclusiveLock' OR a.query_start = a.xact_start))
ORDER BY since, a.pid LIMIT 3

-- name: dependents
-- What is attached to the table and would stay with the leaf.
SELECT 'view or rule ' || r.ev_class::regclass::text
FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_rewrite r ON r.oid = d.objid
WHERE d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass
  AND d.refobjid = to_regclass(:log)
UNION
SELECT 'policy ' || polname FROM pg_catalog.pg_policy WHERE polrelid = to_regclass(:log)
UNION
SELECT 'row security' FROM pg_catalog.pg_class WHERE oid = to_regclass(:log) AND (relrowsecurity OR relforcerowsecurity)
UNION
SELECT 'trigger ' || tgname FROM pg_catalog.pg_trigger
WHERE tgrelid = to_regclass(:log) AND NOT tgisinternal AND tgname <> :trigger
UNION
SELECT 'foreign key ' || conname FROM pg_catalog.pg_constraint
WHERE contype = 'f' AND to_regclass(:log) IN (conrelid, confrelid)
UNION
SELECT 'inheritance with ' || (CASE inhrelid WHEN to_regclass(:log) THEN inhparent ELSE inhrelid END)::regclass::text
FROM pg_catalog.pg_inherits WHERE NOT :is_partitioned AND to_regclass(:log) IN (inhrelid, inhparent)
UNION
SELECT 'statistics ' || stxname FROM pg_catalog.pg_statistic_ext WHERE stxrelid = to_regclass(:log)
ORDER BY 1

-- name: publications
-- Also those of all tables and of the tables of a schema. The view may show the leaves alone, without the log.
SELECT DISTINCT p.pubname::text
FROM pg_catalog.pg_publication_tables p
JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename
WHERE c.oid = to_regclass(:log) OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(to_regclass(:log)))
ORDER BY 1

-- name: rights
-- The rights that others have on a relation and its columns, as GRANT takes them.
SELECT concat(a.privilege_type, CASE WHEN a."column" IS NOT NULL THEN format(' (%I)', a."column") END) AS right,
       CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS grantee, a.is_grantable
FROM (
    SELECT x.privilege_type, x.grantee, x.is_grantable, NULL AS "column", c.relowner
    FROM pg_catalog.pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) AS x WHERE c.oid = to_regclass(:name)
    UNION ALL
    SELECT x.privilege_type, x.grantee, x.is_grantable, t.attname, c.relowner
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute t ON t.attrelid = c.oid
    CROSS JOIN LATERAL aclexplode(t.attacl) AS x WHERE c.oid = to_regclass(:name)) AS a
WHERE a.grantee <> a.relowner

-- name: owner
-- As whom new tables are made: the owner of the log, if this session is another role of its rights.
SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_catalog.pg_class WHERE oid = to_regclass(:log)

-- name: check
-- Whether every row was tried by the CHECK of the leaves; no row if there is none.
SELECT convalidated FROM pg_catalog.pg_constraint WHERE conrelid = to_regclass(:log) AND conname = :name

-- name: index_names
-- The indexes of a table by their names, with the constraints that they serve.
SELECT x.oid::bigint AS index, x.relname::text AS name, r.conname::text AS "constraint"
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
LEFT JOIN pg_catalog.pg_constraint r ON r.conindid = x.oid AND r.conrelid = i.indrelid AND r.contype IN ('p', 'u')
WHERE i.indrelid = to_regclass(:name)

-- name: index_parents
-- Which index of the log an index of a leaf belongs to.
SELECT i.inhrelid::bigint AS index, p.relname::text AS name, r.conname::text AS "constraint"
FROM pg_catalog.pg_inherits i
JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
JOIN pg_catalog.pg_index x ON x.indexrelid = i.inhrelid
LEFT JOIN pg_catalog.pg_constraint r ON r.conindid = p.oid AND r.contype IN ('p', 'u') AND r.conrelid = to_regclass(:log)
WHERE x.indrelid = to_regclass(:name)

-- name: numbering
-- The sequence of the identity column, how it is generated, and the number it gives next.
SELECT format('%I.%I', n.nspname, c.relname) AS name, c.relname::text AS sequence,
       CASE a.attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END AS generated,
       s.seqincrement AS increment, s.seqcache AS cache, s.seqmin AS lowest, s.seqmax AS highest, s.seqcycle AS cycles,
       s.seqstart AS start
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_depend d ON d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = a.attrelid
    AND d.refobjsubid = a.attnum AND d.classid = 'pg_catalog.pg_class'::regclass AND d.deptype = 'i'
JOIN pg_catalog.pg_sequence s ON s.seqrelid = d.objid
JOIN pg_catalog.pg_class c ON c.oid = s.seqrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE a.attrelid = to_regclass(:log) AND a.attname = :record_id_column AND a.attidentity <> ''

-- name: sizes
-- The leaves by their size, the largest first.
SELECT c.relname::text AS name, pg_catalog.pg_total_relation_size(c.oid) AS bytes
FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = to_regclass(:log) ORDER BY pg_catalog.pg_table_size(c.oid) DESC, c.relname COLLATE "C"

-- name: function
-- What the CHECK of each leaf calls. For all other sessions it is true at all times, so that no row can violate it: it
-- is another one only inside of a transaction that has the log for itself, has read by the key's index that a leaf has no
-- row outside of its new range, and attaches the leaf. PostgreSQL then does not read the whole leaf to see the same. Every
-- role that writes the log needs the right to call it, and default privileges may take that from PUBLIC.
CREATE OR REPLACE FUNCTION {function}(pg_catalog.int8) RETURNS pg_catalog.bool
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS 'SELECT {condition}'
