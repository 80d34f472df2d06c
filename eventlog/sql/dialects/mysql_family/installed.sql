-- What the planning of triggers reads on MariaDB and MySQL.

-- name: triggers
-- Every trigger of the database.
SELECT t.event_object_table, t.trigger_name, t.action_statement, t.action_timing, t.event_manipulation, t.action_order
FROM information_schema.triggers AS t
WHERE t.trigger_schema = DATABASE()
ORDER BY BINARY t.event_object_table, t.trigger_name;

-- name: engines
-- The tables whose engine has no transactions: it keeps changes that were rolled back.
SELECT t.table_name, t.engine
FROM information_schema.tables AS t
JOIN information_schema.engines AS e ON e.engine = t.engine
WHERE t.table_schema = DATABASE() AND e.transactions = 'NO' AND t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED')
ORDER BY BINARY t.table_name;
