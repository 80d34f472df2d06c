-- The statements of the event log that are common to the databases whose binds are written :name.
-- In braces: names of the log and of its columns, quoted.

-- name: mark
-- The rows of a range of record_ids that are still N; run by one array bind for all ranges.
UPDATE {log}
SET {status} = :status
WHERE {status} = 'N' AND {record_id} BETWEEN :first AND :last

-- name: delete
DELETE FROM {log}
WHERE {status} = 'N' AND {record_id} BETWEEN :first AND :last

-- name: count_part
-- How many rows a range of record_ids holds, and the last of them.
SELECT COUNT(*), MAX({record_id})
FROM {log}
WHERE {has_status} AND {record_id} BETWEEN :first AND :last

-- name: write_key
-- An object as a query-back row of a resync. A log of another program may have a default for the perpetrator.
INSERT INTO {log} ({number_column}{status}, {event_type}, {event_time}, {perpetrator}, {table_name}, {table_key})
VALUES ({number}'N', :event_type, {new_time}, NULL, :class_name, :table_key)
