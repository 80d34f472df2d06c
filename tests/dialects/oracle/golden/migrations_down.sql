-- lines 1 to 6 of script
-- Running downgrade log_1 ->
BEGIN
    EXECUTE IMMEDIATE 'DROP FUNCTION "LOGS"."PROC_EVENTLOG_QUOTE"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -4043 THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'DROP FUNCTION "LOGS"."PROC_EVENTLOG_BASE64"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -4043 THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -942 THEN
-- lines 26 to 31 of migrations
-- lines 20 to 27 of sequences
-- lines 53 to 54 of trigger_field
    EXECUTE IMMEDIATE 'DELETE FROM "LOGS"."EVENTLOG_VERSION" WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''log_1''';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -942 THEN
-- lines 15 to 19 of migrations
-- Running downgrade internal_2 ->
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_CAPTURED"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -942 THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_CONSUMER"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -942 THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_EPOCH"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -942 THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_RESYNC"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -942 THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_STATE"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -942 THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'DROP SEQUENCE "LOGS"."EVENTLOG_DELIVERY"';
-- lines 21 to 27 of sequences
-- lines 53 to 54 of trigger_field
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_INFLIGHT"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -942 THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_ERROR"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -942 THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'DELETE FROM "LOGS"."EVENTLOG_VERSION" WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''internal_2''';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -942 THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_VERSION"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -942 THEN
-- lines 15 to 18 of migrations
COMMIT;
