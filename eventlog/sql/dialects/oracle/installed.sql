-- What a database has of our triggers, and what they need to know of it, for triggers.py.

-- name: log
SELECT t.owner, t.table_name
FROM all_tables t
WHERE t.owner = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND t.table_name = :name

-- name: triggers
-- Every trigger of these schemas' tables, ours or not.
SELECT t.owner, t.trigger_name, t.table_owner, t.table_name, t.trigger_type, t.triggering_event, t.status, o.status AS validity
FROM all_triggers t
JOIN all_objects o ON o.owner = t.owner AND o.object_name = t.trigger_name AND o.object_type = 'TRIGGER'
WHERE t.base_object_type = 'TABLE'
ORDER BY t.table_owner, t.table_name, t.trigger_name

-- name: sources
-- The sources of ours, line by line. The marker is one of the first lines.
SELECT s.owner, s.name, s.type, s.text
FROM all_source s
WHERE s.type IN ('TRIGGER', 'FUNCTION')
  AND (s.owner, s.name) IN (
    SELECT m.owner, m.name
    FROM all_source m
    WHERE m.type IN ('TRIGGER', 'FUNCTION') AND m.line <= 8 AND m.text LIKE '%-- eventlog sha256:%')
ORDER BY s.owner, s.name, s.type, s.line

-- name: functions
SELECT object_name
FROM all_objects
WHERE owner = :owner AND object_type = 'FUNCTION' AND object_name IN (:quote, :base64)

-- name: sequence
SELECT 1
FROM all_sequences
WHERE sequence_owner = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND sequence_name = :name

-- name: errors
-- What the compiler found in an object.
SELECT line, position, text
FROM all_errors
WHERE owner = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND name = :name AND type = :object_type AND attribute = 'ERROR'
ORDER BY sequence

-- name: sees_triggers
-- ALL_TRIGGERS shows those on one's own tables, and all of them to who may create them anywhere.
SELECT 1 FROM DUAL
WHERE :owner = SYS_CONTEXT('USERENV', 'SESSION_USER')
   OR EXISTS (SELECT 1 FROM session_privs WHERE privilege = 'CREATE ANY TRIGGER')
   OR EXISTS (SELECT 1 FROM all_triggers WHERE table_owner = :owner)

-- name: ordering
-- Which triggers say FOLLOWS, and what they name.
SELECT trigger_owner, trigger_name, referenced_trigger_owner, referenced_trigger_name
FROM all_trigger_ordering
WHERE ordering_type = 'FOLLOWS'
ORDER BY trigger_owner, trigger_name, referenced_trigger_owner, referenced_trigger_name
