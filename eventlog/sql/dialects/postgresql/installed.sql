-- Our triggers in a database, and facts about it that they depend on, for installed.py.

-- name: log
-- By its name, not by to_regclass, which fails without USAGE on the schema.
SELECT n.nspname AS schema, c.relname AS name, current_user AS owner,
       (SELECT r.rolsuper FROM pg_catalog.pg_roles r WHERE r.rolname = current_user) AS is_superuser,
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'INSERT') AS is_writable
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = :name
  AND CASE WHEN CAST(:schema AS text) IS NULL THEN pg_table_is_visible(c.oid) ELSE n.nspname = :schema END;

-- name: logs
-- Which of these names, as SQL, belong to tables. Not by to_regclass, as above.
SELECT named.name
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN unnest(CAST(:names AS text[])) AS named (name)
    ON named.name = '"' || replace(n.nspname, '"', '""') || '"."' || replace(c.relname, '"', '""') || '"'
WHERE c.relkind IN ('r', 'p', 'v', 'f');

-- name: functions
-- The functions of every log, found by their comments. The shape is what is compared: a change by hand shows in it. The
-- server's own functions, most of which have comments, have lower numbers.
SELECT p.oid, n.nspname AS schema, p.proname AS name, pg_get_function_identity_arguments(p.oid) AS arguments,
       p.prorettype = 'pg_catalog.trigger'::regtype AS is_trigger, d.description AS marker, p.prosrc AS body,
       -- The superuser that owns it, if another superuser or the same one may give it to the owner of its table.
       (SELECT f.rolname FROM pg_catalog.pg_roles f, pg_catalog.pg_roles me
        WHERE f.oid = p.proowner AND f.rolsuper AND me.rolname = current_user AND me.rolsuper AND EXISTS (
            SELECT FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
            JOIN pg_catalog.pg_roles o ON o.oid = c.relowner
            WHERE t.tgfoid = p.oid AND t.tgparentid = 0 AND NOT o.rolsuper)) AS superuser,
       concat_ws(E'\n', l.lanname, CASE WHEN p.prosecdef THEN 'SECURITY DEFINER' END,
                 (SELECT string_agg(s.setting, E'\n' ORDER BY s.setting COLLATE "C") FROM unnest(p.proconfig) AS s (setting)),
                 p.prosrc) AS shape
FROM pg_catalog.pg_description d
JOIN pg_catalog.pg_proc p ON p.oid = d.objoid
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_language l ON l.oid = p.prolang
WHERE d.classoid = 'pg_catalog.pg_proc'::regclass AND d.objsubid = 0 AND d.description LIKE 'eventlog sha256:%'
  AND d.objoid >= 16384
ORDER BY n.nspname COLLATE "C", p.proname COLLATE "C";

-- name: triggers
-- Every user-defined trigger except the copies on partitions. Ours are found by their comments, or by our functions.
-- The shape is what is compared; it has the condition as the server shows it, whose operator it writes in two ways.
SELECT n.nspname AS schema, c.relname AS table_name, t.tgname AS name, d.description AS marker, t.tgfoid AS function,
       t.tgtype AS type, t.tgenabled AS enabled, t.tginitdeferred AS is_deferred, c.relispartition AS is_partition,
       -- Only the TRUNCATE trigger is created on a partition itself, and it stays after DETACH.
       NOT c.relispartition AND t.tgtype <> 34 AS is_in_hash,
       concat_ws(' ', t.tgtype, t.tgenabled, t.tgoldtable, t.tgnewtable,
                 replace(substring(CASE WHEN t.tgqual IS NOT NULL THEN pg_get_triggerdef(t.oid) END
                                   FROM ' WHEN [(](.*)[)] EXECUTE FUNCTION '), 'OPERATOR(pg_catalog.*<>)', '*<>'),
                 CASE WHEN t.tgconstraint <> 0 OR t.tgattr::text <> '' OR t.tgnargs <> 0 THEN 'otherwise' END) AS shape
FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_description d ON d.classoid = 'pg_catalog.pg_trigger'::regclass AND d.objoid = t.oid
WHERE NOT t.tgisinternal AND t.tgparentid = 0
ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C", t.tgname COLLATE "C";

-- name: logged_first
-- The owners of these functions that cannot write an internal table, and the tables of their triggers.
SELECT quote_ident(r.rolname) AS owner, d.oid IS NOT NULL AS is_there,
       (SELECT string_agg(DISTINCT c.relname, ', ') FROM pg_catalog.pg_trigger t
        JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
        JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
        WHERE p.oid = ANY(CAST(:functions AS oid[])) AND p.proowner = r.oid AND t.tgparentid = 0) AS tables
FROM pg_catalog.pg_roles r
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = :schema
LEFT JOIN pg_catalog.pg_class d ON d.relnamespace = n.oid AND d.relname = :name
WHERE EXISTS (SELECT FROM pg_catalog.pg_proc p WHERE p.oid = ANY(CAST(:functions AS oid[])) AND p.proowner = r.oid)
  AND has_table_privilege(r.oid, d.oid, 'INSERT') IS NOT TRUE
ORDER BY r.rolname;

-- name: names
-- Names of functions without parameters, which CREATE OR REPLACE would replace even if they are not ours.
SELECT p.oid, n.nspname AS schema, p.proname AS name
FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname = ANY(CAST(:schemas AS text[])) AND p.pronargs = 0 AND p.proname LIKE 'proc\_%';

-- name: foreign_keys
-- The operators by which foreign keys compare, pair by pair; the type of a key may have a different =. Names are looked up
-- one by one: it takes the planner longer to find an order for joins of so many tables than the statement runs.
SELECT n.nspname AS schema, c.relname AS table_name,
       (SELECT a.attname FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = f.conrelid AND a.attnum = k.attnum) AS column_name,
       (SELECT rn.nspname FROM pg_catalog.pg_namespace rn WHERE rn.oid = r.relnamespace) AS ref_schema,
       r.relname AS ref_table,
       (SELECT ra.attname FROM pg_catalog.pg_attribute ra
        WHERE ra.attrelid = f.confrelid AND ra.attnum = k.ref_attnum) AS ref_column,
       (SELECT format('OPERATOR(%I.%s)', pn.nspname, o.oprname) FROM pg_catalog.pg_operator o
        JOIN pg_catalog.pg_namespace pn ON pn.oid = o.oprnamespace WHERE o.oid = k.operator) AS operator
FROM pg_catalog.pg_constraint f
JOIN pg_catalog.pg_class c ON c.oid = f.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_class r ON r.oid = f.confrelid
CROSS JOIN LATERAL unnest(f.conkey, f.confkey, f.conpfeqop) AS k (attnum, ref_attnum, operator)
WHERE n.nspname = ANY(CAST(:schemas AS text[])) AND f.contype = 'f' AND f.conparentid = 0;

-- name: equality
-- The operators by which unique keys compare values, column by column: with them a look-up uses the key's index. The
-- look-up of an operator is planned by itself (OFFSET 0), as above.
SELECT n.nspname AS schema, c.relname AS table_name, a.attname AS column_name, e.operator
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL unnest(i.indkey::smallint[], i.indclass::oid[]) AS k (attnum, opclass)
JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
CROSS JOIN LATERAL (
    SELECT format('OPERATOR(%I.%s)',
                  (SELECT pn.nspname FROM pg_catalog.pg_namespace pn WHERE pn.oid = o.oprnamespace), o.oprname) AS operator
    FROM pg_catalog.pg_opclass p
    JOIN pg_catalog.pg_amop e ON e.amopfamily = p.opcfamily AND e.amopstrategy = 3
        AND e.amoplefttype = p.opcintype AND e.amoprighttype = p.opcintype
    JOIN pg_catalog.pg_operator o ON o.oid = e.amopopr
    WHERE p.oid = k.opclass
      AND p.opcmethod = (SELECT m.oid FROM pg_catalog.pg_am m WHERE m.amname = 'btree') OFFSET 0) AS e
WHERE n.nspname = ANY(CAST(:schemas AS text[])) AND i.indisunique AND NOT c.relispartition;

-- name: enums
SELECT format_type(t.oid, -1) AS name FROM pg_catalog.pg_type t WHERE t.typtype = 'e';

-- name: tables
-- Whether the triggers' owner may read the tables, all of their rows, and lock them; and who inherits from whom. The
-- owner, if it is no superuser, but a superuser owns functions of the table's triggers or asks this.
SELECT n.nspname AS schema, c.relname AS name, has_table_privilege(c.oid, 'SELECT') AS is_readable,
       has_any_column_privilege(c.oid, 'UPDATE') AS is_lockable, row_security_active(c.oid) AS is_filtered,
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid) AS has_heirs,
       c.relkind = 'r' AND EXISTS (SELECT FROM pg_catalog.pg_inherits i WHERE i.inhrelid = c.oid) AS is_heir,
       CASE WHEN NOT o.rolsuper AND EXISTS (
           SELECT FROM pg_catalog.pg_roles r
           WHERE r.rolsuper AND (r.rolname = current_user OR r.oid IN (
               SELECT p.proowner FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
               WHERE t.tgrelid = c.oid))) THEN o.rolname END AS owner
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_roles o ON o.oid = c.relowner
WHERE n.nspname = ANY(CAST(:schemas AS text[])) AND c.relkind IN ('r', 'p') AND NOT c.relispartition;

-- name: partitions
-- The partitions of partitioned tables, at any depth; and whether this role may comment on triggers there, and read all
-- of their rows.
SELECT n.nspname AS schema, r.relname AS table_name, pn.nspname AS own_schema, c.relname AS name,
       pg_has_role(c.relowner, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') AND NOT row_security_active(c.oid)
           AS may_have_triggers
FROM pg_catalog.pg_class r
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
CROSS JOIN LATERAL pg_catalog.pg_partition_tree(r.oid) AS p
JOIN pg_catalog.pg_class c ON c.oid = p.relid
JOIN pg_catalog.pg_namespace pn ON pn.oid = c.relnamespace
WHERE n.nspname = ANY(CAST(:schemas AS text[])) AND r.relkind = 'p' AND NOT r.relispartition
  AND p.level > 0 AND c.relkind IN ('r', 'p')
ORDER BY 1, 2, pn.nspname COLLATE "C", c.relname COLLATE "C";

-- name: identities
-- The numbers of tables, of their columns and of their partitions, and the labels of enumerations, of domains over them
-- and of arrays of them. CREATE TABLE ... PARTITION OF writes the columns of the partition and its place in the tree by
-- two commands of one transaction that follow each other; a table that is attached has its columns from an earlier one.
SELECT n.nspname AS schema, c.relname AS name, c.oid,
       (SELECT json_object_agg(a.attname, a.attnum) FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
       (SELECT json_object_agg(a.attname, e.labels) FROM pg_catalog.pg_attribute a
        CROSS JOIN LATERAL (
            WITH RECURSIVE parts (oid) AS (
                SELECT a.atttypid
                UNION
                SELECT CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END
                FROM parts JOIN pg_catalog.pg_type t ON t.oid = parts.oid
                WHERE t.typtype = 'd' OR t.typcategory = 'A')
            SELECT json_agg(l.enumlabel ORDER BY l.enumsortorder) AS labels
            FROM parts JOIN pg_catalog.pg_enum l ON l.enumtypid = parts.oid) AS e
        -- The types of the server itself have lower numbers.
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384
          AND e.labels IS NOT NULL) AS labels,
       (SELECT json_agg(json_build_array(p.relid::oid::bigint, pc.relname,
                   format('tableoid OPERATOR(pg_catalog.=) ANY (SELECT relid FROM pg_catalog.pg_partition_tree(%L))',
                          format('%I.%I', pn.nspname, pc.relname)),
                   i.xmin::text <> s.xmin::text OR i.cmin::text::bigint - s.cmin::text::bigint > 2))
        FROM pg_catalog.pg_partition_tree(c.oid) AS p
        JOIN pg_catalog.pg_class pc ON pc.oid = p.relid
        JOIN pg_catalog.pg_namespace pn ON pn.oid = pc.relnamespace
        JOIN pg_catalog.pg_inherits i ON i.inhrelid = p.relid
        JOIN pg_catalog.pg_attribute s ON s.attrelid = p.relid AND s.attname = 'tableoid'
        WHERE p.level > 0) AS partitions
FROM unnest(CAST(:schemas AS text[]), CAST(:tables AS text[])) AS wanted (schema, name)
JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.schema
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name AND c.relkind IN ('r', 'p')
ORDER BY c.oid;

-- name: to_lock
-- Tables, by their names in actions, that this role may lock.
SELECT n.nspname AS schema, c.relname AS name, c.relkind AS kind
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname || '.' || c.relname = ANY(CAST(:tables AS text[])) AND c.relkind IN ('r', 'p')
  AND has_table_privilege(c.oid, 'UPDATE, DELETE, TRUNCATE')
ORDER BY c.oid;

-- name: deadlock_timeout
-- Seconds after which a waiting session checks for a deadlock.
SELECT CAST(setting AS float8) / 1000 FROM pg_catalog.pg_settings WHERE name = 'deadlock_timeout';

-- name: holders
-- Sessions whose locks block the creation of the triggers, the oldest transaction first.
SELECT DISTINCT a.pid, a.usename AS "user", a.application_name AS application, a.state, a.xact_start AS since
FROM pg_catalog.pg_locks l
JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.granted AND l.pid <> pg_backend_pid()
  AND l.mode IN ('RowExclusiveLock', 'ShareUpdateExclusiveLock', 'ShareLock', 'ShareRowExclusiveLock',
                 'ExclusiveLock', 'AccessExclusiveLock')
  AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND l.relation IN (SELECT coalesce(p.relid, c.oid) FROM pg_catalog.pg_class c
                     JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                     LEFT JOIN LATERAL pg_catalog.pg_partition_tree(c.oid) AS p ON true
                     WHERE n.nspname || '.' || c.relname = ANY(CAST(:tables AS text[])))
ORDER BY a.xact_start, a.pid
LIMIT 3;

-- name: show
-- The triggers of one log, with their texts, for people. Ours are found by their comments, which end in the log's name.
SELECT n.nspname || '.' || c.relname AS "table", t.tgname AS trigger, f.proname AS function, t.tgenabled <> 'D' AS enabled,
       pg_get_triggerdef(t.oid, true) AS trigger_sql,
       coalesce(pg_get_functiondef(h.oid) || E';\n\n', '') || pg_get_functiondef(f.oid) AS function_sql
FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid
JOIN pg_catalog.pg_description d ON d.classoid = 'pg_catalog.pg_trigger'::regclass AND d.objoid = t.oid AND d.objsubid = 0
-- The function that checks the table for it has the same comment as the trigger.
LEFT JOIN (pg_catalog.pg_description hd JOIN pg_catalog.pg_proc h ON h.oid = hd.objoid AND h.prorettype <> 'trigger'::regtype)
    ON hd.classoid = 'pg_catalog.pg_proc'::regclass AND hd.objsubid = 0 AND hd.description = d.description
WHERE NOT t.tgisinternal AND t.tgparentid = 0
  AND d.description LIKE 'eventlog sha256:%' AND right(d.description, length(:suffix)) = :suffix
ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C", t.tgname COLLATE "C";
