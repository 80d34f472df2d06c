-- Our triggers in a database, and facts about it that they depend on, for triggers.py.

-- name: log
SELECT t.owner, t.table_name
FROM all_tables t
WHERE t.owner = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND t.table_name = :name

-- name: marked_tables
-- The tables that may have our triggers, by the triggers' names (spec/triggers.md 9).
SELECT DISTINCT t.table_owner, t.table_name
FROM all_triggers t
WHERE t.base_object_type = 'TABLE'
  AND (t.trigger_name LIKE 'TGR\_%' ESCAPE '\' OR t.trigger_name LIKE 'tgr\_%' ESCAPE '\')

-- name: triggers
-- Every trigger of some tables of one schema, ours or not. In braces: the binds of an IN list.
SELECT t.owner, t.trigger_name, t.table_owner, t.table_name, t.trigger_type, t.triggering_event, t.status, o.status AS validity
FROM all_triggers t
JOIN all_objects o ON o.owner = t.owner AND o.object_name = t.trigger_name AND o.object_type = 'TRIGGER'
WHERE t.base_object_type = 'TABLE' AND t.table_owner = :owner AND t.table_name IN ({names})
ORDER BY t.table_owner, t.table_name, t.trigger_name

-- name: sources
-- The sources of some triggers of one schema, line by line: by name, since a search of all sources takes up to a minute
-- in a large dictionary.
SELECT s.owner, s.name, s.text
FROM all_source s
WHERE s.type = 'TRIGGER' AND s.owner = :owner AND s.name IN ({names})
ORDER BY s.owner, s.name, s.line

-- name: trigger
-- Whether a trigger of this name exists.
SELECT 1
FROM all_triggers
WHERE owner = NVL(:owner, SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')) AND trigger_name = :name

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
-- ALL_TRIGGERS shows a user the triggers on its own tables, or all triggers if it may create them anywhere.
SELECT 1 FROM DUAL
WHERE :owner = SYS_CONTEXT('USERENV', 'SESSION_USER')
   OR EXISTS (SELECT 1 FROM session_privs WHERE privilege = 'CREATE ANY TRIGGER')
   OR EXISTS (SELECT 1 FROM all_triggers WHERE table_owner = :owner)

-- name: ordering
-- The triggers, among some of one schema, that have FOLLOWS, and the triggers that they follow.
SELECT trigger_owner, trigger_name, referenced_trigger_owner, referenced_trigger_name
FROM all_trigger_ordering
WHERE ordering_type = 'FOLLOWS' AND trigger_owner = :owner AND trigger_name IN ({names})
ORDER BY trigger_owner, trigger_name, referenced_trigger_owner, referenced_trigger_name
