-- Whether tables are still those of a catalogue, for reflect.py. In braces: the binds of an IN list.

-- name: fingerprint
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
