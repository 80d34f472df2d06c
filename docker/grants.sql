-- The publisher's rights, granted by the owner of the log and the tables: what `eventlog grants publisher` prints.

GRANT USAGE ON SCHEMA hr TO publisher;
GRANT SELECT, UPDATE (status) ON hr.eventlog TO publisher;
GRANT SELECT, INSERT ON hr.eventlog_error TO publisher;
GRANT SELECT, INSERT, UPDATE, DELETE ON hr.eventlog_inflight TO publisher;
GRANT SELECT, DELETE ON hr.eventlog_state TO publisher;
GRANT SELECT, INSERT, UPDATE ON hr.eventlog_epoch TO publisher;
GRANT SELECT ON hr.eventlog_consumer TO publisher;
GRANT SELECT ON hr.eventlog_captured TO publisher;
GRANT USAGE ON SEQUENCE hr.eventlog_delivery TO publisher;
GRANT SELECT ON SEQUENCE hr.eventlog_record_id_seq TO publisher;

-- The watched tables and their child tables, for what is read back.
GRANT SELECT ON hr.usr, hr.usr_phone, hr.grp, hr.grp_member TO publisher;
