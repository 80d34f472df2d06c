-- The objects that log child rows at the commit which were inserted before their owners (spec/triggers.md 7.1). In braces: quoted
-- names of one log, its columns, and the time of a row.

-- name: table
-- Its rows live until the commit at most. It is unlogged, since a publication FOR ALL TABLES would refuse the DELETE. It has no index, which serializable transactions would share.
CREATE UNLOGGED TABLE {table} (table_name text, table_key text, column_name text, perpetrator text)

-- name: comment
COMMENT ON TABLE {table} IS {comment}

-- name: function
-- enable_seqscan: a scan of the whole table would be slow, and would meet other serializable transactions.
CREATE OR REPLACE FUNCTION {function}() RETURNS pg_catalog.trigger
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $eventlog$
BEGIN
    INSERT INTO {log} ({columns})
    SELECT 'N', 8, {now}, NEW.perpetrator, NEW.table_name, NEW.table_key, NEW.column_name, NULL, NULL;
    DELETE FROM {table} WHERE ctid OPERATOR(pg_catalog.=) NEW.ctid;
    RETURN NULL;
END
$eventlog$

-- name: revoke
-- A user who could call it could put it on another table, and write anything into the log.
REVOKE ALL ON FUNCTION {function}() FROM PUBLIC

-- name: trigger
-- On its own table, not on the child table: a pending event would keep the application from ALTER TABLE and TRUNCATE after SET CONSTRAINTS of the key.
CREATE CONSTRAINT TRIGGER {trigger} AFTER INSERT ON {table} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {function}()

-- name: always
-- Triggers that capture replicated changes write it in the replica role.
ALTER TABLE {table} ENABLE ALWAYS TRIGGER {trigger}

-- name: drop_table
DROP TABLE IF EXISTS {table}

-- name: drop_function
DROP FUNCTION IF EXISTS {function}()
