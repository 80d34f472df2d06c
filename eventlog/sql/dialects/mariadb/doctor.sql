-- What doctor asks of a MariaDB besides the questions that MySQL has too.

-- name: history
-- The transactions whose old versions of rows wait for the purge.
SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_HISTORY_LIST_LENGTH';
