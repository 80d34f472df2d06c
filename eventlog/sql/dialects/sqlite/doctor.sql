-- The questions of doctor on SQLite. Nothing here changes anything. In braces: names of the log and
-- of its columns, quoted; :log_name is the log's, :now the time now in the zone of event_time.
-- "Newest" rows are those of the highest record_ids.

-- name: statuses
-- The newest rows by status.
SELECT status, count(*) AS rows, min(record_id) AS first, max(record_id) AS last
FROM (SELECT CAST({status} AS TEXT) AS status, {record_id} AS record_id
      FROM {log} ORDER BY {record_id} DESC LIMIT :sample)
GROUP BY status ORDER BY status;

-- name: without_record_id
-- Rows N without a usable record_id.
SELECT count(*) AS rows, min(record_id) AS first, count(*) AS rows_checked
FROM (SELECT {record_id} AS record_id FROM {log}
      WHERE {status} = 'N' AND ({record_id} IS NULL OR {record_id} <= 0) LIMIT :limit);

-- name: made_by
-- Which of the first rows N were made by one user.
SELECT count(*) FILTER (WHERE perpetrator = :perpetrator) AS rows,
       min(record_id) FILTER (WHERE perpetrator = :perpetrator) AS first, count(*) AS rows_checked
FROM (SELECT {record_id} AS record_id, rtrim({perpetrator}, ' ') AS perpetrator FROM {log}
      WHERE {status} = 'N' AND {record_id} > 0 ORDER BY {record_id} LIMIT :limit);

-- name: ahead
-- The latest event_time of the newest rows.
SELECT record_id, event_time, (t - julianday(:now)) * 86400.0 AS seconds
FROM (SELECT {record_id} AS record_id, CAST({event_time} AS TEXT) AS event_time, julianday({event_time}) AS t
      FROM {log} ORDER BY {record_id} DESC LIMIT :sample)
WHERE t IS NOT NULL AND record_id IS NOT NULL
ORDER BY t DESC LIMIT 1;

-- name: spelled_keys
-- Each spelling of a key among the newest rows.
SELECT table_name, table_key, count(*) AS rows, min(record_id) AS first
FROM (SELECT CAST({table_name} AS TEXT) AS table_name, CAST({table_key} AS TEXT) AS table_key, {record_id} AS record_id
      FROM {log} ORDER BY {record_id} DESC LIMIT :sample)
WHERE record_id > 0
GROUP BY table_name, table_key ORDER BY min(record_id);

-- name: index_columns
-- The columns of the log's indexes in order, and the text of each partial index, which contains its predicate.
SELECT i.name, x.name AS column_name, CASE WHEN i.partial THEN s.sql END AS sql
FROM pragma_index_list(:log_name) AS i
JOIN pragma_index_xinfo(i.name) AS x
LEFT JOIN main.sqlite_schema AS s ON s.type = 'index' AND s.name = i.name
WHERE x."key"
ORDER BY i.name, x.seqno;

-- name: reading_index
-- Shown, not run: makes the index that the publisher reads by (spec/triggers.md 7).
CREATE INDEX {reading_index} ON {log} ({record_id}) WHERE {status} = 'N';

-- name: row_index
-- Shown, not run: makes the index by which single rows are found.
CREATE UNIQUE INDEX {row_index} ON {log} ({record_id});

-- name: inflight
SELECT (julianday(strftime('%Y-%m-%d %H:%M:%f', 'now')) - julianday(started)) * 86400.0 AS seconds
FROM {inflight} WHERE entry_no = :delivery;

-- name: tables
SELECT name FROM main.sqlite_schema WHERE type IN ('table', 'view');

-- name: generated_columns
-- The columns of the tables that may have generated columns, virtual ones (hidden: 2) or stored ones (3), with the text of their table. The answer is the columns that their expressions name.
SELECT t.name AS relation, t.sql, c.name, c.hidden
FROM main.sqlite_schema AS t
JOIN pragma_table_xinfo(t.name, 'main') AS c
WHERE t.type = 'table' AND t.sql LIKE '% AS%(%'
ORDER BY t.name, c.cid;
