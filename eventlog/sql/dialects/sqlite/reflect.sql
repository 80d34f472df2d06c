-- The contents of the database, in one statement each. Virtual tables, which cannot have triggers,
-- and their shadow tables are left out.

-- name: columns
-- The columns of all tables and views; hidden: 0 ordinary, 3 generated and stored.
SELECT t.name AS relation, t.type AS kind, c.name, c.type, c.pk, c.hidden
FROM pragma_table_list AS t
JOIN pragma_table_xinfo(t.name, 'main') AS c
WHERE t.schema = 'main' AND t.type IN ('table', 'view') AND t.name NOT LIKE 'sqlite\_%' ESCAPE '\'
ORDER BY t.name, c.cid;

-- name: unique_keys
-- The columns of unique indexes over whole tables, in order; name is NULL for an expression.
SELECT t.name AS relation, i.name AS index_name, i.origin, c.name, c.coll
FROM pragma_table_list AS t
JOIN pragma_index_list(t.name, 'main') AS i
JOIN pragma_index_xinfo(i.name, 'main') AS c
WHERE t.schema = 'main' AND t.type = 'table' AND i."unique" AND NOT i.partial AND c."key"
ORDER BY t.name, i.seq DESC, c.seqno;

-- name: foreign_keys
-- ref_column is NULL for the primary key of the other table.
SELECT t.name AS relation, f.id, f."table" AS ref_table, f."from" AS column_name, f."to" AS ref_column
FROM pragma_table_list AS t
JOIN pragma_foreign_key_list(t.name, 'main') AS f
WHERE t.schema = 'main' AND t.type = 'table'
ORDER BY t.name, f.id, f.seq;
