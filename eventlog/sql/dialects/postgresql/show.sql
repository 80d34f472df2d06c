-- The triggers of one log that are installed, with their texts. Ours are found by their comments, which end in the log's name.
SELECT n.nspname || '.' || c.relname AS "table", t.tgname AS trigger, f.proname AS function, t.tgenabled <> 'D' AS enabled,
       pg_get_triggerdef(t.oid, true) AS trigger_sql, pg_get_functiondef(f.oid) AS function_sql
FROM pg_catalog.pg_trigger t
JOIN pg_catalog.pg_class c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_proc f ON f.oid = t.tgfoid
JOIN pg_catalog.pg_description d ON d.classoid = 'pg_catalog.pg_trigger'::regclass AND d.objoid = t.oid AND d.objsubid = 0
WHERE NOT t.tgisinternal AND t.tgparentid = 0
  AND d.description LIKE 'eventlog sha256:%' AND right(d.description, length(:suffix)) = :suffix
ORDER BY n.nspname COLLATE "C", c.relname COLLATE "C", t.tgname COLLATE "C"
