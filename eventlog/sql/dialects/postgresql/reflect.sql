-- The tables and views of one schema for objects.py; one statement each, in the order of their use.

-- name: schema
SELECT oid, nspname
FROM pg_catalog.pg_namespace
WHERE nspname = coalesce(CAST(:schema AS pg_catalog.text), current_schema());

-- name: columns
-- Ordinary tables, partitioned roots (partitions are their roots' storage), views and materialized views, with their
-- columns in order. Domains are followed to their base type, whose length is the innermost domain's. Virtual generated
-- columns are left out: they are not stored, and a row trigger does not see them.
WITH RECURSIVE relation AS (
    SELECT c.oid, c.relname, c.relkind
    FROM pg_catalog.pg_class c
    WHERE c.relnamespace = CAST(:schema AS pg_catalog.oid)
      AND c.relkind IN ('r', 'p', 'v', 'm')
      AND NOT c.relispartition
), base AS (
    SELECT r.oid AS relation, a.attnum, a.atttypid AS type, a.atttypmod AS typmod
    FROM relation r
    JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT b.relation, b.attnum, t.typbasetype, t.typtypmod
    FROM base b
    JOIN pg_catalog.pg_type t ON t.oid = b.type AND t.typtype = 'd'
)
SELECT r.oid AS relation, r.relname AS table_name, r.relkind AS kind, a.attnum AS position, a.attname AS column_name,
       CASE WHEN t.typnamespace = 'pg_catalog'::pg_catalog.regnamespace THEN t.typname END AS type_name,
       b.typmod, pg_catalog.format_type(b.type, b.typmod) AS sql,
       coalesce(l.collisdeterministic, true) AND t.typname <> 'citext' AS is_deterministic
FROM relation r
LEFT JOIN (base b
    JOIN pg_catalog.pg_type t ON t.oid = b.type AND t.typtype <> 'd'
    JOIN pg_catalog.pg_attribute a ON a.attrelid = b.relation AND a.attnum = b.attnum
        AND a.attgenerated <> 'v') ON b.relation = r.oid
LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
ORDER BY r.relname COLLATE "C", a.attnum;

-- name: unique_keys
-- Indexes that hold at every moment for every row: unique, valid, neither partial nor over expressions. Columns that
-- are only INCLUDEd are no part of the key. A key WITHOUT OVERLAPS is unique as a whole.
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
-- Without those that a partitioned table's key makes for each partition, and those that compare periods (PostgreSQL 18).
SELECT f.conrelid AS relation, f.conkey::integer[] AS positions, n.oid AS ref_schema, n.nspname AS ref_schema_name,
       r.relname AS ref_table,
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
-- Partitions, which are no tables of the catalogue, with the root of their tree.
SELECT c.relname AS partition, r.relname AS root, r.relnamespace AS root_schema, n.nspname AS root_schema_name
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_class r ON r.oid = pg_catalog.pg_partition_root(c.oid)
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
WHERE c.relnamespace = CAST(:schema AS pg_catalog.oid) AND c.relispartition AND c.relkind IN ('r', 'p', 'f')
ORDER BY c.relname COLLATE "C";

-- name: fingerprint
-- Whether tables are still those of a catalogue.
SELECT md5(coalesce(string_agg(
    concat_ws(' ', c.oid, i.indkey, a.attnum, a.attname, a.atttypid, a.atttypmod), ',' ORDER BY c.oid, a.attnum), ''))
    || (SELECT concat(count(*), ' ', max(t.oid))
        FROM pg_catalog.pg_class t JOIN pg_catalog.pg_namespace s ON s.oid = t.relnamespace
        WHERE s.nspname = :schema AND t.relkind IN ('r', 'p', 'v', 'm') AND NOT t.relispartition)
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary
WHERE n.nspname = :schema AND c.relname = ANY(CAST(:tables AS text[])) AND c.relkind IN ('r', 'p', 'v', 'm');
