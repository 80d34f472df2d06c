-- The questions of doctor that only MySQL has in this form.

-- name: history
-- The transactions whose old versions of rows wait for the purge.
SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len';
