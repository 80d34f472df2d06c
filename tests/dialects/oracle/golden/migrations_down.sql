-- lines 1 to 6 of script
-- Running downgrade 0006 -> 0003
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0003'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0006''';
-- lines 137 to 144 of migrations
-- Running downgrade 0003 -> 0002
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0002'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0003''';
-- lines 137 to 144 of migrations
-- Running downgrade 0002 ->
BEGIN
    EXECUTE IMMEDIATE 'DROP FUNCTION "LOGS"."PROC_EVENTLOG_QUOTE"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -4043 THEN
-- lines 51 to 56 of migrations
    EXECUTE IMMEDIATE 'DROP FUNCTION "LOGS"."PROC_EVENTLOG_BASE64"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -4043 THEN
-- lines 51 to 56 of migrations
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG"';
-- lines 137 to 144 of migrations
-- lines 19 to 27 of sequences
-- lines 53 to 54 of trigger_field
    EXECUTE IMMEDIATE 'DELETE FROM "LOGS"."EVENTLOG_VERSION" WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0002''';
-- lines 137 to 144 of migrations
-- Running downgrade 0007 -> 0005
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0005'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0007''';
-- lines 137 to 144 of migrations
-- Running downgrade 0005 -> 0004
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0004'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0005''';
-- lines 137 to 144 of migrations
-- Running downgrade 0004 -> 0001
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_RESYNC"';
-- lines 137 to 144 of migrations
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''0001'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0004''';
-- lines 137 to 144 of migrations
-- Running downgrade 0001 ->
BEGIN
    EXECUTE IMMEDIATE 'DROP SEQUENCE "LOGS"."EVENTLOG_FLIGHT"';
-- lines 21 to 27 of sequences
-- lines 53 to 54 of trigger_field
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_INFLIGHT"';
-- lines 137 to 144 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_ERROR"';
-- lines 137 to 144 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DELETE FROM "LOGS"."EVENTLOG_VERSION" WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''0001''';
-- lines 137 to 144 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP TABLE "LOGS"."EVENTLOG_VERSION"';
-- lines 327 to 334 of migrations
