-- lines 1 to 6 of script
-- Running downgrade 0011 -> 0010
-- lines 77 to 78 of migrations
        EXECUTE IMMEDIATE 'CREATE INDEX "LOGS"."IDX_EVENTLOG_1" ON "LOGS"."EVENTLOG" ("STATUS", "RECORD_ID") ONLINE';
-- lines 80 to 84 of migrations
            EXECUTE IMMEDIATE 'CREATE INDEX "LOGS"."IDX_EVENTLOG_1" ON "LOGS"."EVENTLOG" ("STATUS", "RECORD_ID")';
-- lines 86 to 95 of migrations
    EXECUTE IMMEDIATE 'DROP INDEX "LOGS"."IDX_EVENTLOG_5"';
-- lines 97 to 105 of migrations
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0010'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0011''';
-- lines 197 to 204 of migrations
-- Running downgrade 0010 -> 0006
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0006'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0010''';
-- lines 197 to 204 of migrations
-- Running downgrade 0006 -> 0003
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0003'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0006''';
-- lines 197 to 204 of migrations
-- Running downgrade 0003 -> 0002
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0002'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0003''';
-- lines 197 to 204 of migrations
-- Running downgrade 0002 ->
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
-- lines 197 to 204 of migrations
-- lines 19 to 27 of sequences
-- lines 53 to 54 of trigger_field
    EXECUTE IMMEDIATE 'DELETE FROM "LOGS"."EVENTLOG_VERSION" WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0002''';
-- lines 197 to 204 of migrations
-- Running downgrade 0008 -> 0007
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_EPOCH"';
-- lines 197 to 204 of migrations
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0007'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0008''';
-- lines 197 to 204 of migrations
-- Running downgrade 0007 -> 0005
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0005'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0007''';
-- lines 197 to 204 of migrations
-- Running downgrade 0005 -> 0004
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0004'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0005''';
-- lines 197 to 204 of migrations
-- Running downgrade 0004 -> 0001
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_RESYNC"';
-- lines 197 to 204 of migrations
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0001'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0004''';
-- lines 197 to 204 of migrations
-- Running downgrade 0001 ->
BEGIN
    EXECUTE IMMEDIATE 'DROP SEQUENCE "LOGS"."EVENTLOG_FLIGHT"';
-- lines 21 to 27 of sequences
-- lines 53 to 54 of trigger_field
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_INFLIGHT"';
-- lines 197 to 204 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_ERROR"';
-- lines 197 to 204 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DELETE FROM "LOGS"."EVENTLOG_VERSION" WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0001''';
-- lines 197 to 204 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_VERSION"';
-- lines 452 to 459 of migrations
