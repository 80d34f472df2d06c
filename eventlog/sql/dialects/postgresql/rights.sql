-- The rights of others on new tables, sequences and functions of a log (spec/event-log.md 11.1). In braces: arrays of the OIDs
-- of relations and functions, and of the names of roles.

-- name: deny_others
-- A new object has the rights of the default privileges, and a leaf that was the log has the rights on the log. The session
-- may belong to a superuser, so each operator is named with its schema. psql shows the notices; eventlog reads the setting.
DECLARE
    relations pg_catalog.oid[];
    one record;
BEGIN
    relations := ARRAY(
        SELECT c.oid FROM pg_catalog.pg_class c
        WHERE c.oid OPERATOR(pg_catalog.=) ANY ({relations})
           OR c.relkind OPERATOR(pg_catalog.=) 'S'::pg_catalog."char" AND EXISTS (
               SELECT FROM pg_catalog.pg_depend d
               WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass::pg_catalog.oid
                 AND d.refclassid OPERATOR(pg_catalog.=) d.classid AND d.objid OPERATOR(pg_catalog.=) c.oid
                 AND d.deptype OPERATOR(pg_catalog.=) 'i'::pg_catalog."char"
                 AND d.refobjid OPERATOR(pg_catalog.=) ANY ({relations})));
    FOR one IN
        SELECT h.grantee,
               pg_catalog.format('%s ON %s %s', h.rights, h.kind, pg_catalog.string_agg(h.name, ', ' ORDER BY h.name)) AS rights
        FROM (
            SELECT o.kind, o.name, pg_catalog.string_agg(DISTINCT pg_catalog.concat(a.privilege_type, o.columns), ', ') AS rights,
                   CASE WHEN a.grantee OPERATOR(pg_catalog.=) 0::pg_catalog.oid THEN 'PUBLIC'
                        ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)::pg_catalog.text) END AS grantee
            FROM (
                SELECT CASE WHEN c.relkind OPERATOR(pg_catalog.=) 'S'::pg_catalog."char" THEN 'SEQUENCE' ELSE 'TABLE' END AS kind,
                       pg_catalog.format('%I.%I', n.nspname, c.relname) AS name, c.relowner AS owner, l.acl, l.columns
                FROM pg_catalog.pg_class c
                JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
                CROSS JOIN LATERAL (
                    SELECT c.relacl, NULL
                    UNION ALL
                    SELECT t.attacl, pg_catalog.format(' (%I)', t.attname) FROM pg_catalog.pg_attribute t
                    WHERE t.attrelid OPERATOR(pg_catalog.=) c.oid) AS l (acl, columns)
                WHERE c.oid OPERATOR(pg_catalog.=) ANY (relations)
                UNION ALL
                SELECT 'FUNCTION', p.oid::pg_catalog.regprocedure::pg_catalog.text, p.proowner, p.proacl, NULL
                FROM pg_catalog.pg_proc p
                WHERE p.oid OPERATOR(pg_catalog.=) ANY ({functions})) AS o
            CROSS JOIN LATERAL pg_catalog.aclexplode(o.acl) AS a
            WHERE a.grantee OPERATOR(pg_catalog.<>) o.owner
              AND NOT (a.privilege_type OPERATOR(pg_catalog.=) 'SELECT'
                       AND pg_catalog.pg_get_userbyid(a.grantee)::pg_catalog.text OPERATOR(pg_catalog.=) ANY ({readers}))
            GROUP BY o.kind, o.name, a.grantee) AS h
        GROUP BY h.grantee, h.kind, h.rights ORDER BY h.grantee, h.kind DESC, h.rights
    LOOP
        EXECUTE pg_catalog.format('REVOKE %s FROM %s CASCADE', one.rights, one.grantee);
        RAISE NOTICE '% has no longer the rights that it got by default. To give them back: GRANT % TO %',
            one.grantee, one.rights, one.grantee;
        PERFORM pg_catalog.set_config('eventlog.denied', pg_catalog.concat(
            pg_catalog.current_setting('eventlog.denied', true),
            pg_catalog.format('GRANT %s TO %s', one.rights, one.grantee), pg_catalog.chr(31)), true);
    END LOOP;
    FOR one IN
        SELECT pg_catalog.format(
                   'GRANT SELECT ON %s %s TO %I',
                   CASE WHEN c.relkind OPERATOR(pg_catalog.=) 'S'::pg_catalog."char" THEN 'SEQUENCE' ELSE 'TABLE' END,
                   c.oid::pg_catalog.regclass, r.rolname) AS statement
        FROM pg_catalog.pg_class c CROSS JOIN pg_catalog.pg_roles r
        WHERE c.oid OPERATOR(pg_catalog.=) ANY (relations)
          AND r.rolname::pg_catalog.text OPERATOR(pg_catalog.=) ANY ({readers})
    LOOP
        EXECUTE one.statement;
    END LOOP;
END

-- name: denied
-- The GRANTs that give back what this transaction has taken, each with a character after it.
SELECT pg_catalog.current_setting('eventlog.denied', true), pg_catalog.set_config('eventlog.denied', '', true)
