-- The questions of doctor that only MariaDB has in this form.

-- name: history
-- The transactions whose old versions of rows wait for the purge.
SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'INNODB_HISTORY_LIST_LENGTH';
