-- What doctor asks of a MySQL besides the questions that MariaDB has too.

-- name: history
-- The transactions whose old versions of rows wait for the purge.
SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len';
