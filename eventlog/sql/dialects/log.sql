-- The statements of the event log that several databases share. A database replaces some of them in its own log.sql.
-- In braces: names of the log and of its columns, quoted, and other words. The first texts are words of the statements;
-- each database has not_of_user besides: the rows that one user has not made. {bigint} is the type of a bound number, if the
-- database needs one. Bound values are :name, and become what the driver reads.

-- name: new_id
-- The record_id of a row N, as the index of the queue has it.
{record_id}

-- name: is_new
-- The rows N. By the literal, so that the index of the queue can be used.
{status} = 'N'

-- name: has_time
-- The time of the row is known.
{event_time} IS NOT NULL

-- name: first_row
LIMIT 1

-- name: begins_part
(n - 1) % :part_size{bigint} = 0

-- name: of_any_status
-- The rows of a window, {statuses}: those of every status that is not reserved.
{status} IN ('N', 'S', 'W', 'E', 'F')

-- name: of_new
{is_new}

-- name: of_new_left
-- Without the rows that one user made (loopback_action = keep): they do not fill the window.
{is_new} AND {not_of_user}

-- name: read_window
-- The rows from one record_id to another, in order.
SELECT {fields}
FROM {log}
WHERE {statuses} AND {new_id} BETWEEN :first AND :last
ORDER BY {record_id}
LIMIT :limit

-- name: due_ids
-- Which rows from one record_id to another are due, in the order of read_due.
SELECT {record_id}
FROM {log}
WHERE {record_id} BETWEEN :first{bigint} AND :last{bigint} AND {is_due}
ORDER BY {due_order}, {record_id}

-- name: next_row
-- The first row from one record_id to another, and whether its time is known and not after :until.
SELECT {record_id}, CASE WHEN {has_time} AND {is_due} THEN 1 ELSE 0 END
FROM {log}
WHERE {record_id} BETWEEN :first{bigint} AND :last{bigint}
ORDER BY {record_id}
{first_row}

-- name: next_not_before
-- The first row from one record_id to another whose time is unknown, or after :until.
SELECT {record_id}
FROM {log}
WHERE {record_id} BETWEEN :first{bigint} AND :last{bigint} AND NOT ({has_time} AND {is_due})
ORDER BY {record_id}
{first_row}

-- name: newest_rows
-- The rows before a record_id, of any status, the newest first: one walk of the key, which stops at the limit.
SELECT {fields}
FROM {log}
WHERE {record_id} < :before{bigint}
ORDER BY {record_id} DESC
LIMIT :limit{bigint}

-- name: refused_ids
-- The rows before a record_id with error rows of the publisher, the newest first: one walk of the index of the error table.
SELECT DISTINCT record_id
FROM {error_table}
WHERE consumer IS NULL AND record_id > 0 AND record_id < :before{bigint}
ORDER BY record_id DESC
LIMIT :limit{bigint}

-- name: refused_ids_of
-- Those of a consumer, since it was registered.
SELECT DISTINCT record_id
FROM {error_table}
WHERE consumer = :consumer AND record_id > 0 AND record_id < :before{bigint}
  AND error_time >= (SELECT begun FROM {consumer_table} WHERE name = :consumer)
ORDER BY record_id DESC
LIMIT :limit{bigint}

-- name: mark
-- The rows of a range of record_ids that are still N; run by one array bind for all ranges.
UPDATE {log}
SET {status} = :status
WHERE {is_new} AND {new_id} BETWEEN :first AND :last

-- name: delete
DELETE FROM {log}
WHERE {is_new} AND {new_id} BETWEEN :first AND :last

-- name: count_part
-- How many rows a range of record_ids holds, and the last of them.
SELECT COUNT(*), MAX({record_id})
FROM {log}
WHERE {has_status} AND {record_id} BETWEEN :first{bigint} AND :last{bigint}

-- name: cut_part
-- The first record_id of each part of equal size.
SELECT record_id
FROM (
    SELECT {record_id} AS record_id, ROW_NUMBER() OVER (ORDER BY {record_id}) AS n
    FROM {log}
    WHERE {has_status} AND {record_id} BETWEEN :first{bigint} AND :last{bigint}
) numbered
WHERE {begins_part}
ORDER BY 1

-- name: write_key
-- An object as a query-back row of a resync. A log of another program may have a default for the perpetrator.
INSERT INTO {log} ({number_column}{status}, {event_type}, {event_time}, {perpetrator}, {table_name}, {table_key})
VALUES ({number}'N', :event_type, {new_time}, NULL, :class_name, :table_key)
