SELECT username
FROM all_users
WHERE username = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA'));
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
ORDER BY c.table_name, c.internal_column_id;
SELECT k.table_name, k.constraint_name, k.constraint_type, k.deferrable, c.column_name
FROM all_constraints k
JOIN all_cons_columns c ON c.owner = k.owner AND c.constraint_name = k.constraint_name
WHERE k.owner = :owner AND k.constraint_type IN ('P', 'U') AND k.status = 'ENABLED' AND k.validated = 'VALIDATED'
ORDER BY k.table_name, k.constraint_type, k.constraint_name, c.position;
SELECT i.table_name, i.index_name, c.column_name
FROM all_indexes i
JOIN all_ind_columns c ON c.index_owner = i.owner AND c.index_name = i.index_name
WHERE i.table_owner = :owner AND i.uniqueness = 'UNIQUE' AND i.index_type IN ('NORMAL', 'NORMAL/REV') AND i.status <> 'UNUSABLE'
  AND NOT EXISTS (
    SELECT 1 FROM all_constraints k
    WHERE k.owner = i.table_owner AND k.table_name = i.table_name AND k.index_name = i.index_name)
ORDER BY i.table_name, i.index_name, c.column_position;
SELECT k.table_name, k.constraint_name, r.owner AS ref_owner, r.table_name AS ref_table, c.column_name,
       d.column_name AS ref_column, k.deferrable
FROM all_constraints k
JOIN all_constraints r ON r.owner = k.r_owner AND r.constraint_name = k.r_constraint_name
JOIN all_cons_columns c ON c.owner = k.owner AND c.constraint_name = k.constraint_name
JOIN all_cons_columns d ON d.owner = r.owner AND d.constraint_name = r.constraint_name AND d.position = c.position
WHERE k.owner = :owner AND k.constraint_type = 'R' AND k.status = 'ENABLED'
ORDER BY k.table_name, k.constraint_name, c.position;
SELECT COUNT(*) || '-' || SUM(ORA_HASH(fact, 4294967295, 0)) || '-' || SUM(ORA_HASH(fact, 4294967295, 1)) AS fingerprint
FROM (
    SELECT 'C/' || c.table_name || '/' || c.column_name || '/' || c.internal_column_id || '/' || c.data_type || '/'
           || c.data_length || '/' || c.char_length || '/' || c.data_precision || '/' || c.data_scale || '/'
           || c.virtual_column || '/' || c.hidden_column AS fact
    FROM all_tab_cols c
    WHERE c.owner = :owner AND c.table_name IN (:t0, :t1)
    UNION ALL
    SELECT 'K/' || k.table_name || '/' || d.column_name || '/' || d.position || '/' || k.status || '/' || k.validated
    FROM all_constraints k
    JOIN all_cons_columns d ON d.owner = k.owner AND d.constraint_name = k.constraint_name
    WHERE k.owner = :owner AND k.constraint_type = 'P' AND k.table_name IN (:t0, :t1)
);
SELECT t.owner, t.table_name
FROM all_tables t
WHERE t.owner = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND t.table_name = :name;
SELECT DISTINCT t.table_owner, t.table_name
FROM all_triggers t
WHERE t.base_object_type = 'TABLE'
  AND (t.trigger_name LIKE 'TGR\_%' ESCAPE '\' OR t.trigger_name LIKE 'tgr\_%' ESCAPE '\');
SELECT t.owner, t.trigger_name, t.table_owner, t.table_name, t.trigger_type, t.triggering_event, t.status, o.status AS validity
FROM all_triggers t
JOIN all_objects o ON o.owner = t.owner AND o.object_name = t.trigger_name AND o.object_type = 'TRIGGER'
WHERE t.base_object_type = 'TABLE' AND t.table_owner = :owner AND t.table_name IN (:n0, :n1)
ORDER BY t.table_owner, t.table_name, t.trigger_name;
SELECT s.owner, s.name, s.text
FROM all_source s
WHERE s.type = 'TRIGGER' AND s.owner = :owner AND s.name IN (:n0, :n1)
ORDER BY s.owner, s.name, s.line;
SELECT 1
FROM all_triggers
WHERE owner = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND trigger_name = :name;
SELECT object_name
FROM all_objects
WHERE owner = :owner AND object_type = 'FUNCTION' AND object_name IN (:quote, :base64);
SELECT 1
FROM all_sequences
WHERE sequence_owner = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND sequence_name = :name;
SELECT line, position, text
FROM all_errors
WHERE owner = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND name = :name AND type = :object_type AND attribute = 'ERROR'
ORDER BY sequence;
SELECT 1 FROM DUAL
WHERE :owner = SYS_CONTEXT('USERENV', 'SESSION_USER')
   OR EXISTS (SELECT 1 FROM session_privs WHERE privilege = 'CREATE ANY TRIGGER')
   OR EXISTS (SELECT 1 FROM all_triggers WHERE table_owner = :owner);
SELECT trigger_owner, trigger_name, referenced_trigger_owner, referenced_trigger_name
FROM all_trigger_ordering
WHERE ordering_type = 'FOLLOWS' AND trigger_owner = :owner AND trigger_name IN (:n0, :n1)
ORDER BY trigger_owner, trigger_name, referenced_trigger_owner, referenced_trigger_name;
SELECT sequence_owner, sequence_name, cache_size, increment_by, cycle_flag, order_flag, session_flag
FROM all_sequences
WHERE sequence_owner = :owner AND sequence_name = :name;
SELECT sequence_owner, sequence_name
FROM all_sequences
WHERE sequence_owner = :owner AND sequence_name = :name AND scale_flag = 'Y';
