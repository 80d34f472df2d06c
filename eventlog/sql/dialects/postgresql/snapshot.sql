-- Whether a database snapshot shows relations as they were when it was taken (spec/event-log.md 12.3).

-- name: proof
-- The relations that this transaction has locked, so has read, and that its database snapshot does not show truly: schema, name,
-- why. It runs last in a transaction of level REPEATABLE READ. pg_class and the other tables of the catalogue show their
-- rows of the snapshot here; pg_identify_object_as_address and pg_relation_filenode read the present catalogue.
-- OIDs below 16384 are the server's own catalogue. Indexes, sequences and TOAST tables belong to a table, which is
-- compared; no other session sees temporary tables.
-- xmax: a row of the catalogue that the snapshot shows was changed or removed by this transaction, unless it was rolled
-- back. A 32-bit number is completed with the upper half that brings it next to the snapshot's number.
WITH locked AS MATERIALIZED (
    SELECT DISTINCT l.relation AS oid
    FROM pg_catalog.pg_locks l
    WHERE l.locktype = 'relation' AND l.pid = pg_catalog.pg_backend_pid() AND l.relation >= 16384
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database())
),
relations AS MATERIALIZED (
    SELECT l.oid, i.type, i.object_names[1] AS schema, i.object_names[2] AS name,
           c.oid AS known, n.nspname AS former_schema, c.relname AS former_name, c.relfilenode
    FROM locked l
    CROSS JOIN LATERAL pg_catalog.pg_identify_object_as_address('pg_catalog.pg_class'::pg_catalog.regclass, l.oid, 0) AS i
    LEFT JOIN pg_catalog.pg_class c ON c.oid = l.oid
    LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE i.type IN ('table', 'view', 'materialized view', 'foreign table') AND i.object_names[1] <> 'pg_temp'
),
touched AS MATERIALIZED (
    -- ALTER TABLE of a column; also INHERIT and ATTACH PARTITION, which change the columns of the child.
    SELECT a.attrelid AS oid, 'columns' AS why, a.xmax::text::bigint AS xmax
    FROM relations r
    JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid
    WHERE a.attnum > 0 AND a.xmax <> '0'::pg_catalog.xid
    UNION ALL
    SELECT h.inhparent, 'children', h.xmax::text::bigint
    FROM relations r
    JOIN pg_catalog.pg_inherits h ON h.inhparent = r.oid
    WHERE h.xmax <> '0'::pg_catalog.xid
    UNION ALL
    SELECT w.ev_class, 'definition', w.xmax::text::bigint
    FROM relations r
    JOIN pg_catalog.pg_rewrite w ON w.ev_class = r.oid
    WHERE w.ev_type = '1' AND w.xmax <> '0'::pg_catalog.xid
),
changed AS MATERIALIZED (
    SELECT t.oid, min(t.why) AS why
    FROM touched t
    CROSS JOIN (
        SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint AS number) AS s
    CROSS JOIN LATERAL (SELECT (t.xmax - s.number) & 4294967295 AS ahead) AS a
    WHERE pg_catalog.pg_xact_status(
        (s.number + a.ahead - CASE WHEN a.ahead < 2147483648 THEN 0 ELSE 4294967296 END)::text::pg_catalog.xid8
    ) = 'committed'
    GROUP BY t.oid
),
judged AS (
    SELECT r.schema, r.name,
           CASE WHEN r.known IS NULL THEN 'created'
                WHEN r.former_schema <> r.schema OR r.former_name <> r.name THEN 'renamed'
                WHEN r.relfilenode <> pg_catalog.pg_relation_filenode(r.oid) THEN 'rewritten'
                WHEN c.why IS NOT NULL THEN c.why
                WHEN r.type = 'foreign table' THEN 'foreign' END AS why
    FROM relations r
    LEFT JOIN changed c ON c.oid = r.oid
)
SELECT j.schema, j.name, j.why
FROM judged j
WHERE j.why IS NOT NULL
ORDER BY j.schema, j.name
