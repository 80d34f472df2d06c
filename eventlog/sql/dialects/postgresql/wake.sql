-- What wakes a publisher that sleeps (spec/triggers.md 8). In braces: quoted names of one log, the channel as a literal
-- and the first half of the lock's key; the second half is the log's OID, which a restored log has another one of.

-- name: function
-- Every statement that writes the log shares the lock until its transaction ends. It gets none only while the publisher
-- has the lock for itself, which is while it sleeps. With prepared transactions allowed nobody notifies: PREPARE
-- TRANSACTION fails after a NOTIFY, and a statement of the application must never fail because of the log.
-- No search_path is set: that costs each statement more than all the rest of it, and nothing here is looked up by one.
CREATE OR REPLACE FUNCTION {function}() RETURNS pg_catalog.trigger
LANGUAGE plpgsql
SECURITY DEFINER
AS $eventlog$
BEGIN
    IF NOT pg_catalog.pg_try_advisory_xact_lock_shared({lock_class}, TG_RELID::pg_catalog.int4)
       AND pg_catalog.current_setting('max_prepared_transactions') OPERATOR(pg_catalog.=) '0'
    THEN
        PERFORM pg_catalog.pg_notify({channel}, '');
    END IF;
    RETURN NULL;
END
$eventlog$

-- name: revoke
-- Whoever could call it could take the lock and keep the publisher asleep; firing needs no right.
REVOKE ALL ON FUNCTION {function}() FROM PUBLIC

-- name: drop_trigger
DROP TRIGGER IF EXISTS {trigger} ON {log}

-- name: trigger
-- Before the statement: there it costs half, and who shares the lock before his rows are there shares it in time.
CREATE TRIGGER {trigger} BEFORE INSERT ON {log} FOR EACH STATEMENT EXECUTE FUNCTION {function}()

-- name: always
-- Triggers that capture what a replication applies write the log in its role, where others do not fire.
ALTER TABLE {log} ENABLE ALWAYS TRIGGER {trigger}

-- name: drop_function
DROP FUNCTION IF EXISTS {function}()

-- name: owns
-- Whether this session may do all of the above.
SELECT pg_has_role(c.relowner, 'USAGE') AND has_schema_privilege(c.relnamespace, 'CREATE')
FROM pg_catalog.pg_class c
WHERE c.oid = to_regclass(%(log)s)

-- name: missing
-- Why nobody would notify; NULL if somebody would.
SELECT CASE
    WHEN current_setting('max_prepared_transactions') <> '0'
    THEN 'the server allows prepared transactions (max_prepared_transactions), which cannot notify'
    WHEN NOT EXISTS (
        SELECT FROM pg_catalog.pg_trigger t
        WHERE t.tgrelid = to_regclass(%(log)s) AND t.tgname = %(trigger)s AND t.tgenabled IN ('O', 'A')
          AND t.tgfoid = to_regprocedure(%(function)s))
    THEN 'the log has no trigger that notifies, or it is disabled; its owner makes it with `eventlog db upgrade`'
END
