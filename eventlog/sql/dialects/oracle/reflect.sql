-- The tables and views of one schema for objects.py; one statement each.

-- name: schema
SELECT username
FROM all_users
WHERE username = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA'))

-- name: columns
-- Tables and views with their columns in order. Virtual columns are left out, since they are not stored; of the hidden columns, only those declared INVISIBLE are included. The length is in bytes; for national texts in bytes of UTF-16, whatever their character set. Left out: the recycle bin, temporary tables, whose rows only their session sees, and tables that are part of another one.
SELECT c.table_name, CASE WHEN v.view_name IS NULL THEN 'table' ELSE 'view' END AS kind, c.column_name,
       CASE WHEN c.data_type_owner IS NULL OR c.data_type = 'XMLTYPE' THEN c.data_type ELSE 'OBJECT' END AS data_type,
       CASE WHEN c.data_type IN ('NCHAR', 'NVARCHAR2') THEN c.char_length * 2 ELSE c.data_length END AS data_length,
       c.data_precision, c.data_scale, NVL(t.partitioned, 'NO') AS partitioned
FROM all_tab_cols c
LEFT JOIN all_tables t ON t.owner = c.owner AND t.table_name = c.table_name
LEFT JOIN all_views v ON v.owner = c.owner AND v.view_name = c.table_name
WHERE c.owner = :owner
  AND (v.view_name IS NOT NULL
       OR (t.table_name IS NOT NULL AND t.temporary = 'N' AND t.nested = 'NO' AND t.secondary = 'N'
           AND t.dropped = 'NO'))
  AND (c.virtual_column = 'NO' OR c.data_type = 'XMLTYPE')
  AND (c.hidden_column = 'NO' OR c.user_generated = 'YES')
ORDER BY c.table_name, c.internal_column_id

-- name: keys
-- Primary and unique keys that hold for every row.
SELECT k.table_name, k.constraint_name, k.constraint_type, k.deferrable, c.column_name
FROM all_constraints k
JOIN all_cons_columns c ON c.owner = k.owner AND c.constraint_name = k.constraint_name
WHERE k.owner = :owner AND k.constraint_type IN ('P', 'U') AND k.status = 'ENABLED' AND k.validated = 'VALIDATED'
ORDER BY k.table_name, k.constraint_type, k.constraint_name, c.position

-- name: unique_indexes
-- Unique indexes over plain columns that belong to no constraint.
SELECT i.table_name, i.index_name, c.column_name
FROM all_indexes i
JOIN all_ind_columns c ON c.index_owner = i.owner AND c.index_name = i.index_name
WHERE i.table_owner = :owner AND i.uniqueness = 'UNIQUE' AND i.index_type IN ('NORMAL', 'NORMAL/REV') AND i.status <> 'UNUSABLE'
  AND NOT EXISTS (
    SELECT 1 FROM all_constraints k
    WHERE k.owner = i.table_owner AND k.table_name = i.table_name AND k.index_name = i.index_name)
ORDER BY i.table_name, i.index_name, c.column_position

-- name: foreign_keys
SELECT k.table_name, k.constraint_name, r.owner AS ref_owner, r.table_name AS ref_table, c.column_name,
       d.column_name AS ref_column, k.deferrable
FROM all_constraints k
JOIN all_constraints r ON r.owner = k.r_owner AND r.constraint_name = k.r_constraint_name
JOIN all_cons_columns c ON c.owner = k.owner AND c.constraint_name = k.constraint_name
JOIN all_cons_columns d ON d.owner = r.owner AND d.constraint_name = r.constraint_name AND d.position = c.position
WHERE k.owner = :owner AND k.constraint_type = 'R' AND k.status = 'ENABLED'
ORDER BY k.table_name, k.constraint_name, c.position

-- name: fingerprint
-- Whether tables are still those of a catalogue. In braces: the binds of an IN list.
-- A sum of hashes does not depend on the order of the rows, and has no limit of length as LISTAGG has.
SELECT COUNT(*) || '-' || SUM(ORA_HASH(fact, 4294967295, 0)) || '-' || SUM(ORA_HASH(fact, 4294967295, 1)) AS fingerprint
FROM (
    SELECT 'C/' || c.table_name || '/' || c.column_name || '/' || c.internal_column_id || '/' || c.data_type || '/'
           || c.data_length || '/' || c.char_length || '/' || c.data_precision || '/' || c.data_scale || '/'
           || c.virtual_column || '/' || c.hidden_column AS fact
    FROM all_tab_cols c
    WHERE c.owner = :owner AND c.table_name IN ({tables})
    UNION ALL
    SELECT 'K/' || k.table_name || '/' || d.column_name || '/' || d.position || '/' || k.status || '/' || k.validated
    FROM all_constraints k
    JOIN all_cons_columns d ON d.owner = k.owner AND d.constraint_name = k.constraint_name
    WHERE k.owner = :owner AND k.constraint_type = 'P' AND k.table_name IN ({tables})
)
