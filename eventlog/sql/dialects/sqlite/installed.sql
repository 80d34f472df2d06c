-- What the planning of triggers reads in a SQLite file.

-- name: key_collations
-- The columns of a primary key whose collation is not built into SQLite.
SELECT c.name, c.coll
FROM pragma_index_list(:table, 'main') AS i
JOIN pragma_index_xinfo(i.name, 'main') AS c
WHERE i.origin = 'pk' AND c."key" AND c.coll NOT IN ('BINARY', 'NOCASE', 'RTRIM')
ORDER BY c.seqno;

-- name: a_column
-- A column that a statement can set.
SELECT name FROM pragma_table_xinfo(:table, 'main') WHERE hidden = 0 ORDER BY cid LIMIT 1;
