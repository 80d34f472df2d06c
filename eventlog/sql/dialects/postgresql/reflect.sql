-- The tables and views of one schema for objects.py; one statement each, in the order of their use.

-- name: schema
SELECT oid, nspname
FROM pg_catalog.pg_namespace
WHERE nspname = coalesce(CAST(:schema AS pg_catalog.text), current_schema());

-- name: monetary
-- lc_monetary of the database, otherwise what the session began with.
SELECT coalesce(
    (SELECT pg_catalog.substr(one.setting, 13)
     FROM pg_catalog.pg_db_role_setting s
     JOIN pg_catalog.pg_database d ON d.oid = s.setdatabase AND d.datname = current_database()
     CROSS JOIN LATERAL unnest(s.setconfig) AS one (setting)
     WHERE s.setrole = 0 AND one.setting LIKE 'lc\_monetary=%'),
    (SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'lc_monetary'));

-- name: columns
-- Ordinary tables, partitioned roots (partitions are their roots' storage), views and materialized views, with their
-- columns in order. Domains are followed to their base type, whose length is the innermost domain's. Virtual generated
-- columns are left out: they are not stored, and a row trigger does not see them.
-- Every step is an index look-up for one row at a time (OFFSET 0 prevents a join): after a large migration the server has no statistics yet, and a badly planned join might read all columns once per table.
SELECT c.oid AS relation, c.relname AS table_name, c.relkind AS kind, a.attnum AS position, a.attname AS column_name,
       CASE WHEN a.typnamespace = 'pg_catalog'::pg_catalog.regnamespace THEN a.typname END AS type_name,
       a.typmod, pg_catalog.format_type(a.type, a.typmod) AS sql,
       coalesce(a.collisdeterministic, true) AND a.typname <> 'citext' AS is_deterministic
FROM pg_catalog.pg_class c
LEFT JOIN LATERAL (
    SELECT a.attnum, a.attname, b.type, b.typmod, b.typname, b.typnamespace,
           (SELECT l.collisdeterministic FROM pg_catalog.pg_collation l WHERE l.oid = a.attcollation)
    FROM pg_catalog.pg_attribute a
    CROSS JOIN LATERAL (
        WITH RECURSIVE base AS (
            SELECT a.atttypid AS type, a.atttypmod AS typmod
            UNION ALL
            SELECT d.typbasetype, d.typtypmod
            FROM base
            CROSS JOIN LATERAL (
                SELECT t.typbasetype, t.typtypmod FROM pg_catalog.pg_type t
                WHERE t.oid = base.type AND t.typtype = 'd' OFFSET 0) AS d
        )
        SELECT base.type, base.typmod, t.typname, t.typnamespace
        FROM base
        CROSS JOIN LATERAL (
            SELECT t.typname, t.typnamespace FROM pg_catalog.pg_type t
            WHERE t.oid = base.type AND t.typtype <> 'd' OFFSET 0) AS t
    ) AS b
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> 'v' OFFSET 0
) AS a ON true
WHERE c.relnamespace = CAST(:schema AS pg_catalog.oid)
  AND c.relkind IN ('r', 'p', 'v', 'm')
  AND NOT c.relispartition
ORDER BY c.relname COLLATE "C", a.attnum;

-- name: columns_of
-- All columns of one table, with their base types. pg_relation_size needs no right, and waits for a lock on the table: a
-- publisher that starts while its log is locked waits here, before it has begun anything.
SELECT a.attname AS name, b.typmod, pg_catalog.format_type(b.type, b.typmod) AS sql,
       CASE WHEN b.typnamespace = 'pg_catalog'::pg_catalog.regnamespace THEN b.typname END AS type_name,
       b.typcategory = 'S' OR b.type = 'pg_catalog."char"'::pg_catalog.regtype AS is_text
FROM (
    SELECT c.oid, pg_catalog.pg_relation_size(c.oid) AS size
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = :name AND c.relkind IN ('r', 'p', 'f', 'v', 'm')
      AND CASE WHEN CAST(:schema AS text) IS NULL THEN pg_catalog.pg_table_is_visible(c.oid) ELSE n.nspname = :schema END
) AS c
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
CROSS JOIN LATERAL (
    WITH RECURSIVE base AS (
        SELECT t.oid AS type, a.atttypmod AS typmod, t.typname, t.typnamespace, t.typcategory, t.typtype, t.typbasetype,
               t.typtypmod
        FROM pg_catalog.pg_type t WHERE t.oid = a.atttypid
        UNION ALL
        SELECT t.oid, base.typtypmod, t.typname, t.typnamespace, t.typcategory, t.typtype, t.typbasetype, t.typtypmod
        FROM base JOIN pg_catalog.pg_type t ON base.typtype = 'd' AND t.oid = base.typbasetype
    )
    SELECT * FROM base WHERE base.typtype <> 'd') AS b
ORDER BY a.attnum;

-- name: unique_keys
-- Indexes that guarantee uniqueness at any time for every row: unique, valid, not deferrable, neither partial nor over expressions. INCLUDEd columns are not part of the key. A key WITHOUT OVERLAPS is unique as a whole.
SELECT i.indrelid AS relation, i.indisprimary AS is_primary, i.indimmediate AS is_immediate,
       ARRAY(SELECT k.attnum::integer FROM unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
             WHERE k.place <= i.indnkeyatts ORDER BY k.place) AS positions
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
WHERE c.relnamespace = CAST(:schema AS pg_catalog.oid)
  AND c.relkind IN ('r', 'p')
  AND NOT c.relispartition
  AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
ORDER BY i.indisprimary DESC, x.relname COLLATE "C";

-- name: foreign_keys
-- Without those that PostgreSQL creates for each partition of a partitioned table, and those that compare periods (PostgreSQL 18).
SELECT f.conrelid AS relation, f.conkey::integer[] AS positions, n.oid AS ref_schema, n.nspname AS ref_schema_name,
       r.relname AS ref_table, f.condeferrable AS deferrable,
       ARRAY(SELECT a.attname::text FROM unnest(f.confkey) WITH ORDINALITY AS k (attnum, place)
             JOIN pg_catalog.pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = k.attnum
             ORDER BY k.place) AS ref_columns
FROM pg_catalog.pg_constraint f
JOIN pg_catalog.pg_class c ON c.oid = f.conrelid
JOIN pg_catalog.pg_class r ON r.oid = f.confrelid
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
WHERE c.relnamespace = CAST(:schema AS pg_catalog.oid)
  AND NOT c.relispartition
  AND f.contype = 'f' AND f.conparentid = 0
  AND coalesce(pg_catalog.to_jsonb(f) ->> 'conperiod', 'false') = 'false'
ORDER BY f.conname COLLATE "C";

-- name: partitions
-- Partitions, which are not tables of the catalogue, with the root of their tree.
SELECT c.relname AS partition, r.relname AS root, r.relnamespace AS root_schema, n.nspname AS root_schema_name
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_class r ON r.oid = pg_catalog.pg_partition_root(c.oid)
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
WHERE c.relnamespace = CAST(:schema AS pg_catalog.oid) AND c.relispartition AND c.relkind IN ('r', 'p', 'f')
ORDER BY c.relname COLLATE "C";

-- name: collations
-- The collations of a relation's columns. What older servers do not have is read as JSON. A collation may have no version, as in the C library of some systems: it sorts alike as long as the server runs.
SELECT a.attname AS column_name,
       CASE l.collprovider WHEN 'd' THEN coalesce(d.facts ->> 'datlocprovider', 'c')
                           ELSE l.collprovider::text END AS provider,
       CASE l.collprovider WHEN 'd' THEN coalesce(d.facts ->> 'datlocale', d.facts ->> 'daticulocale', d.datcollate)
                           ELSE coalesce(l.facts ->> 'colllocale', l.facts ->> 'colliculocale', l.collcollate) END AS locale,
       CASE l.collprovider WHEN 'd' THEN d.facts ->> 'daticurules' ELSE l.facts ->> 'collicurules' END AS rules,
       coalesce(CASE l.collprovider WHEN 'd' THEN {version_of_database}
                                    ELSE pg_catalog.pg_collation_actual_version(l.oid) END,
                'of the server of ' || extract(epoch FROM pg_catalog.pg_postmaster_start_time())) AS version,
       pg_catalog.current_setting('server_encoding') AS encoding
FROM pg_catalog.pg_attribute a
JOIN (SELECT l.oid, l.collprovider, l.collcollate, pg_catalog.to_jsonb(l) AS facts
      FROM pg_catalog.pg_collation l) AS l ON l.oid = a.attcollation
JOIN (SELECT d.oid, d.datcollate, pg_catalog.to_jsonb(d) AS facts
      FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()) AS d ON true
WHERE a.attrelid = pg_catalog.to_regclass(:relation) AND a.attnum > 0;

-- name: fingerprint
-- Whether tables are still as in a catalogue: column by column for its tables and for those that refer to them, which may become child tables; by name for all other tables of the schema.
WITH named AS (
    SELECT c.oid
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relname = ANY(CAST(:tables AS text[])) AND c.relkind IN ('r', 'p', 'v', 'm')
), referring AS (
    SELECT f.conrelid AS oid, string_agg(concat_ws(' ', f.conkey, f.confrelid), ',' ORDER BY f.oid) AS keys
    FROM pg_catalog.pg_constraint f
    WHERE f.contype = 'f' AND f.confrelid IN (SELECT named.oid FROM named)
    GROUP BY f.conrelid
)
SELECT md5(coalesce(string_agg(
    concat_ws(' ', a.attrelid, i.indkey, r.keys, a.attnum, a.attname, a.atttypid, a.atttypmod), ','
    ORDER BY a.attrelid, a.attnum), ''))
    || (SELECT md5(coalesce(string_agg(t.relname, ',' ORDER BY t.oid), ''))
        FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace s ON s.oid = t.relnamespace
        WHERE s.nspname = :schema AND t.relkind IN ('r', 'p', 'v', 'm') AND NOT t.relispartition)
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
LEFT JOIN referring r ON r.oid = a.attrelid
WHERE a.attrelid IN (SELECT named.oid FROM named UNION SELECT referring.oid FROM referring)
AND a.attnum > 0 AND NOT a.attisdropped;

-- name: foreign_tables
-- The foreign tables whose rows tables and views show: read by views, and as partitions.
WITH RECURSIVE used AS (
    SELECT c.relname AS name, c.oid, c.relkind
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = :schema AND c.relname = ANY(CAST(:tables AS text[]))
    UNION
    SELECT u.name, c.oid, c.relkind
    FROM used u
    CROSS JOIN LATERAL (
        SELECT d.refobjid AS oid
        FROM pg_catalog.pg_rewrite w
        JOIN pg_catalog.pg_depend d ON d.objid = w.oid AND d.classid = 'pg_catalog.pg_rewrite'::pg_catalog.regclass
        WHERE u.relkind = 'v' AND w.ev_class = u.oid AND d.refclassid = 'pg_catalog.pg_class'::pg_catalog.regclass
        UNION ALL
        SELECT h.inhrelid FROM pg_catalog.pg_inherits h WHERE u.relkind = 'p' AND h.inhparent = u.oid
    ) AS next
    JOIN pg_catalog.pg_class c ON c.oid = next.oid
)
SELECT u.name, n.nspname AS foreign_schema, c.relname AS foreign_name
FROM used u
JOIN pg_catalog.pg_class c ON c.oid = u.oid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE u.relkind = 'f'
ORDER BY 1, 2, 3
