-- The objects that wake a sleeping publisher (spec/triggers.md 8). In braces: quoted names of one
-- log, the channel as a literal and the first half of the lock's key; the second half is the log's
-- OID, which changes when the log is restored.

-- name: function
-- Every statement that writes the log takes the lock in shared mode until its transaction ends. It cannot get it only while the publisher holds the lock exclusively, which is while it sleeps. If prepared transactions are allowed, no notification is sent: PREPARE TRANSACTION fails after a NOTIFY, and a statement of the application must never fail because of the log. No search_path is set: setting it would cost each statement more than all the rest, and nothing here is looked up by it.
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
-- A user who could call it could take the lock and keep the publisher asleep; firing the trigger needs no right.
REVOKE ALL ON FUNCTION {function}() FROM PUBLIC

-- name: drop_trigger
DROP TRIGGER IF EXISTS {trigger} ON {log}

-- name: trigger
-- Before the statement: there it costs half, and the lock is taken in time, before the rows exist.
CREATE TRIGGER {trigger} BEFORE INSERT ON {log} FOR EACH STATEMENT EXECUTE FUNCTION {function}()

-- name: always
-- Triggers that capture replicated changes write the log in the replica role, in which ordinary triggers do not fire.
ALTER TABLE {log} ENABLE ALWAYS TRIGGER {trigger}

-- name: drop_function
DROP FUNCTION IF EXISTS {function}()

-- name: owns
-- Whether this session may do all of the above.
SELECT pg_has_role(c.relowner, 'USAGE') AND has_schema_privilege(c.relnamespace, 'CREATE')
FROM pg_catalog.pg_class c
WHERE c.oid = to_regclass(%(log)s)

-- name: missing
-- Why writers would send no notification; NULL if they would send one.
SELECT CASE
    WHEN current_setting('max_prepared_transactions') <> '0'
    THEN 'the server allows prepared transactions (max_prepared_transactions), which cannot notify'
    WHEN NOT EXISTS (
        SELECT FROM pg_catalog.pg_trigger t
        WHERE t.tgrelid = to_regclass(%(log)s) AND t.tgname = %(trigger)s AND t.tgenabled IN ('O', 'A')
          AND t.tgfoid = to_regprocedure(%(function)s))
    THEN 'the log has no trigger that notifies, or it is disabled; its owner makes it with `eventlog db upgrade`'
END
