-- The contents of the session's database, in one statement each. Sequences, temporary tables and
-- virtual columns, which are not stored, are left out. Names are compared by bytes: the catalogue's
-- collation ignores case. Each column that is read by name has an alias: MySQL shows the
-- catalogue's names in upper case.

-- name: columns
-- The columns of all tables and views, in order; validity marks the declared columns of system versioning, ROW START and ROW END.
SELECT t.table_name AS relation, CASE t.table_type WHEN 'VIEW' THEN 'view' ELSE 'table' END AS kind,
       c.column_name AS name, c.data_type AS word, c.column_type AS type, c.collation_name AS coll,
       CASE WHEN t.table_type = 'SYSTEM VERSIONED' AND c.generation_expression IN ('ROW START', 'ROW END') THEN c.generation_expression END AS validity
FROM information_schema.tables AS t
JOIN information_schema.columns AS c
  ON c.table_schema = t.table_schema AND BINARY c.table_name = BINARY t.table_name
WHERE t.table_schema = DATABASE() AND t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED', 'VIEW')
  AND c.extra NOT LIKE '%VIRTUAL GENERATED%'
ORDER BY BINARY t.table_name, c.ordinal_position;

-- name: unique_keys
-- The columns of unique indexes in order; sub_part is the length of a prefix, which several rows may share.
SELECT s.table_name AS relation, s.index_name AS index_name, s.column_name AS name, s.sub_part AS sub_part
FROM information_schema.statistics AS s
WHERE s.table_schema = DATABASE() AND s.non_unique = 0
ORDER BY BINARY s.table_name, s.index_name, s.seq_in_index;

-- name: foreign_keys
SELECT k.table_name AS relation, k.constraint_name AS constraint_name, k.column_name AS column_name,
       k.referenced_table_schema AS ref_schema, k.referenced_table_name AS ref_table, k.referenced_column_name AS ref_column, DATABASE() AS home
FROM information_schema.key_column_usage AS k
WHERE k.table_schema = DATABASE() AND k.referenced_table_name IS NOT NULL
ORDER BY BINARY k.table_name, k.constraint_name, k.ordinal_position;

-- name: cascades
-- The foreign keys by which the server writes rows of their tables without firing the triggers of these.
SELECT r.table_name AS child, r.constraint_name, r.unique_constraint_schema AS parent_schema,
       r.referenced_table_name AS parent, r.delete_rule, r.update_rule, k.column_name,
       k.referenced_column_name AS ref_column, DATABASE() AS home
FROM information_schema.referential_constraints AS r
JOIN information_schema.key_column_usage AS k
  ON k.constraint_schema = r.constraint_schema AND k.constraint_name = r.constraint_name
  AND BINARY k.table_name = BINARY r.table_name
WHERE r.constraint_schema = DATABASE()
  AND (r.delete_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT') OR r.update_rule IN ('CASCADE', 'SET NULL', 'SET DEFAULT'))
ORDER BY BINARY r.table_name, r.constraint_name, k.ordinal_position;

-- name: refusing_columns
-- The columns by which the server may refuse a row: those of unique indexes, also of prefixes and of virtual columns, of foreign keys, and those that foreign keys refer to.
SELECT s.table_name AS relation, s.column_name AS name
FROM information_schema.statistics AS s
WHERE s.table_schema = DATABASE() AND s.non_unique = 0
UNION
SELECT k.table_name, k.column_name
FROM information_schema.key_column_usage AS k
WHERE k.table_schema = DATABASE() AND k.referenced_table_name IS NOT NULL
UNION
SELECT k.referenced_table_name, k.referenced_column_name
FROM information_schema.key_column_usage AS k
WHERE k.referenced_table_schema = DATABASE()
ORDER BY relation, name;

-- name: validity_columns
-- The declared columns of system versioning, whose values the server sets with every change.
SELECT c.table_name AS relation, c.column_name AS name
FROM information_schema.columns AS c
WHERE c.table_schema = DATABASE() AND c.generation_expression IN ('ROW START', 'ROW END');

-- name: fingerprint
-- A text that changes with the columns of the tables, whatever their number.
SELECT CONCAT(COUNT(*), '-', COALESCE(SUM(CRC32(CONCAT_WS('/', c.table_name, c.column_name, c.ordinal_position,
       c.column_type, c.column_key, c.collation_name, c.extra))), 0)) AS fingerprint
FROM information_schema.columns AS c
WHERE c.table_schema = DATABASE();
