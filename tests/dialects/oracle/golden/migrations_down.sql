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
-- lines 455 to 462 of migrations
-- lines 19 to 27 of sequences
-- lines 53 to 54 of trigger_field
    EXECUTE IMMEDIATE 'DELETE FROM "LOGS"."EVENTLOG_VERSION" WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''log_1''';
-- lines 455 to 462 of migrations
-- Running downgrade internal_7 -> internal_6
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''internal_6'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''internal_7''';
-- lines 455 to 462 of migrations
-- Running downgrade internal_6 -> internal_5
BEGIN
    EXECUTE IMMEDIATE 'ALTER TABLE "LOGS"."EVENTLOG_CONSUMER" DROP COLUMN masks';
-- lines 12 to 13 of migrations
        IF SQLCODE NOT IN (-904, -942) THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'DELETE FROM "LOGS"."EVENTLOG_INFLIGHT" WHERE kind = ''masks''';
-- lines 455 to 462 of migrations
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''internal_5'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''internal_6''';
-- lines 455 to 462 of migrations
-- Running downgrade internal_5 -> internal_4
BEGIN
    EXECUTE IMMEDIATE 'ALTER TABLE "LOGS"."EVENTLOG_CONSUMER" DROP COLUMN paused';
-- lines 12 to 13 of migrations
        IF SQLCODE NOT IN (-904, -942) THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''internal_4'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''internal_5''';
-- lines 455 to 462 of migrations
-- Running downgrade internal_4 -> internal_3
BEGIN
    EXECUTE IMMEDIATE 'ALTER TABLE "LOGS"."EVENTLOG_ERROR" DROP COLUMN superseded_by';
-- lines 12 to 13 of migrations
        IF SQLCODE NOT IN (-904, -942) THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''internal_3'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''internal_4''';
-- lines 455 to 462 of migrations
-- Running downgrade internal_3 -> internal_2
BEGIN
    EXECUTE IMMEDIATE 'ALTER TABLE "LOGS"."EVENTLOG_CONSUMER" DROP COLUMN sink';
-- lines 12 to 13 of migrations
        IF SQLCODE NOT IN (-904, -942) THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'ALTER TABLE "LOGS"."EVENTLOG_CONSUMER" DROP COLUMN classes';
-- lines 12 to 13 of migrations
        IF SQLCODE NOT IN (-904, -942) THEN
-- lines 26 to 31 of migrations
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''internal_2'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''internal_3''';
-- lines 455 to 462 of migrations
-- Running downgrade internal_2 ->
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_CAPTURED"';
-- lines 455 to 462 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_CONSUMER"';
-- lines 455 to 462 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_EPOCH"';
-- lines 455 to 462 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_RESYNC"';
-- lines 455 to 462 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_STATE"';
-- lines 455 to 462 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP SEQUENCE "LOGS"."EVENTLOG_DELIVERY"';
-- lines 21 to 27 of sequences
-- lines 53 to 54 of trigger_field
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_INFLIGHT"';
-- lines 455 to 462 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_ERROR"';
-- lines 455 to 462 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DELETE FROM "LOGS"."EVENTLOG_VERSION" WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''internal_2''';
-- lines 455 to 462 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_VERSION"';
-- lines 535 to 542 of migrations
