-- What the publisher may do, given by the owner of the log. `eventlog grants publisher` prints it.
WHENEVER SQLERROR EXIT FAILURE
GRANT SELECT, UPDATE (status) ON eventlog TO publisher;
GRANT SELECT, INSERT ON eventlog_error TO publisher;
GRANT SELECT, INSERT, UPDATE, DELETE ON eventlog_inflight TO publisher;
GRANT SELECT, DELETE ON eventlog_state TO publisher;
GRANT SELECT, INSERT, UPDATE ON eventlog_epoch TO publisher;
GRANT SELECT ON eventlog_consumer TO publisher;
GRANT SELECT ON eventlog_captured TO publisher;
GRANT SELECT ON eventlog_delivery TO publisher;
GRANT SELECT ON seq_eventlog_1 TO publisher;
GRANT SELECT ON eventlog_version TO publisher;
EXIT
