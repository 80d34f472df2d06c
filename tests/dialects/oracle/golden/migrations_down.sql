-- lines 1 to 6 of script
-- Running downgrade 0010 -> 0006
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0006'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0010''';
-- lines 169 to 176 of migrations
-- Running downgrade 0006 -> 0003
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0003'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0006''';
-- lines 169 to 176 of migrations
-- Running downgrade 0003 -> 0002
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0002'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0003''';
-- lines 169 to 176 of migrations
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
-- lines 169 to 176 of migrations
-- lines 19 to 27 of sequences
-- lines 53 to 54 of trigger_field
    EXECUTE IMMEDIATE 'DELETE FROM "LOGS"."EVENTLOG_VERSION" WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0002''';
-- lines 169 to 176 of migrations
-- Running downgrade 0008 -> 0007
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_EPOCH"';
-- lines 169 to 176 of migrations
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0007'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0008''';
-- lines 169 to 176 of migrations
-- Running downgrade 0007 -> 0005
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0005'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0007''';
-- lines 169 to 176 of migrations
-- Running downgrade 0005 -> 0004
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0004'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0005''';
-- lines 169 to 176 of migrations
-- Running downgrade 0004 -> 0001
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_RESYNC"';
-- lines 169 to 176 of migrations
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0001'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0004''';
-- lines 169 to 176 of migrations
-- Running downgrade 0001 ->
BEGIN
    EXECUTE IMMEDIATE 'DROP SEQUENCE "LOGS"."EVENTLOG_FLIGHT"';
-- lines 21 to 27 of sequences
-- lines 53 to 54 of trigger_field
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_INFLIGHT"';
-- lines 169 to 176 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_ERROR"';
-- lines 169 to 176 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DELETE FROM "LOGS"."EVENTLOG_VERSION" WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0001''';
-- lines 169 to 176 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_VERSION"';
-- lines 375 to 382 of migrations
