SET DEFINE OFF
SET ESCAPE OFF
SET SQLBLANKLINES ON
SET ECHO OFF
WHENEVER OSERROR EXIT FAILURE ROLLBACK
WHENEVER SQLERROR EXIT FAILURE ROLLBACK
BEGIN
    EXECUTE IMMEDIATE 'CREATE TABLE "LOGS"."EVENTLOG_VERSION" (
    version_num VARCHAR2(32 CHAR) NOT NULL,
    CONSTRAINT "EVENTLOG_VERSION_pkc" PRIMARY KEY (version_num)
)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -955 THEN
            RAISE;
        END IF;
END;
/

-- Running upgrade  -> log_1
BEGIN
    EXECUTE IMMEDIATE 'CREATE SEQUENCE "LOGS"."SEQ_EVENTLOG_1" CACHE 1000 ORDER';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -955 THEN
            RAISE;
        END IF;
END;
/

BEGIN
    EXECUTE IMMEDIATE 'CREATE TABLE "LOGS"."EVENTLOG" (
    record_id NUMBER(38, 0) DEFAULT "LOGS"."SEQ_EVENTLOG_1".NEXTVAL NOT NULL,
    status CHAR(1) DEFAULT ''N'' NOT NULL,
    event_type NUMBER(1, 0) NOT NULL,
    event_time TIMESTAMP DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL,
    perpetrator VARCHAR2(261 CHAR),
    table_name VARCHAR2(261 CHAR) NOT NULL,
    table_key VARCHAR2(4000 CHAR) NOT NULL,
    column_name VARCHAR2(261 CHAR),
    old_value CLOB,
    new_value CLOB,
    CONSTRAINT "PK_EVENTLOG" PRIMARY KEY (record_id),
    CONSTRAINT "CK_EVENTLOG_1" CHECK (ASCII("STATUS") BETWEEN 65 AND 90 OR ASCII("STATUS") BETWEEN 97 AND 122),
    CONSTRAINT "CK_EVENTLOG_2" CHECK (event_type BETWEEN 1 AND 8)
)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -955 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON TABLE "LOGS"."EVENTLOG" IS 'Event log: triggers write it, the eventlog publisher reads and marks it';

COMMENT ON COLUMN "LOGS"."EVENTLOG".record_id IS 'Place in the queue: ascending, with gaps';

COMMENT ON COLUMN "LOGS"."EVENTLOG".status IS 'N new, S success, W warning, E error, F fatal; any other letter: left alone';

COMMENT ON COLUMN "LOGS"."EVENTLOG".event_type IS '1 insert field, 2 update field, 3 update field (remove all values), 4 delete row; read back: 5 insert row, 6 update row, 7 insert field, 8 update field';

COMMENT ON COLUMN "LOGS"."EVENTLOG".event_time IS 'When the change was made, in UTC';

COMMENT ON COLUMN "LOGS"."EVENTLOG".perpetrator IS 'Database user who made the change; NULL: not the publisher';

COMMENT ON COLUMN "LOGS"."EVENTLOG".table_name IS 'Table or view whose object changed';

COMMENT ON COLUMN "LOGS"."EVENTLOG".table_key IS 'Key of the object: column=value+column=value';

COMMENT ON COLUMN "LOGS"."EVENTLOG".column_name IS 'Column that changed, for types 1, 2, 3, 7 and 8';

COMMENT ON COLUMN "LOGS"."EVENTLOG".old_value IS 'Value before, for types 1 to 3; binary values are base64';

COMMENT ON COLUMN "LOGS"."EVENTLOG".new_value IS 'Value after, for types 1 to 3; binary values are base64';

BEGIN
    EXECUTE IMMEDIATE 'CREATE INDEX "LOGS"."IDX_EVENTLOG_5" ON "LOGS"."EVENTLOG" (CASE "STATUS" WHEN ''N'' THEN "RECORD_ID" END)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE NOT IN (-955, -1408) THEN
            RAISE;
        END IF;
END;
/

CREATE OR REPLACE FUNCTION "LOGS"."PROC_EVENTLOG_QUOTE"(value IN VARCHAR2) RETURN VARCHAR2 DETERMINISTIC
AS
    quoted VARCHAR2(32767);
    is_special BOOLEAN := value IS NULL;
    piece VARCHAR2(16);
    code PLS_INTEGER;
BEGIN
    FOR place IN 1 .. NVL(LENGTH(value), 0) LOOP
        piece := SUBSTR(value, place, 1);
        code := CASE WHEN LENGTHB(piece) = 1 THEN ASCII(piece) ELSE 256 END;
        IF code IN (34, 92) THEN
            quoted := quoted || CHR(92);
        END IF;
        quoted := quoted || piece;
        IF code = 32 AND place IN (1, LENGTH(value)) THEN
            is_special := TRUE;
        END IF;
        -- Control characters, both quotation marks, plus, comma, semicolon, less, equals, greater, backslash.
        IF code < 32 OR code IN (34, 39, 43, 44, 59, 60, 61, 62, 92, 127) THEN
            is_special := TRUE;
        END IF;
    END LOOP;
    IF is_special THEN
        RETURN CHR(34) || quoted || CHR(34);
    END IF;
    RETURN value;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'LOGS' AND name = 'PROC_EVENTLOG_QUOTE' AND type = 'FUNCTION' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'PROC_EVENTLOG_QUOTE' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/

CREATE OR REPLACE FUNCTION "LOGS"."PROC_EVENTLOG_BASE64"(value IN RAW) RETURN VARCHAR2 DETERMINISTIC
AS
    encoded VARCHAR2(32767);
    place PLS_INTEGER := 1;
    piece RAW(1536);
BEGIN
    WHILE place <= NVL(UTL_RAW.LENGTH(value), 0) LOOP
        piece := UTL_RAW.SUBSTR(value, place, LEAST(1536, UTL_RAW.LENGTH(value) - place + 1));
        encoded := encoded
            || REPLACE(REPLACE(UTL_RAW.CAST_TO_VARCHAR2(UTL_ENCODE.BASE64_ENCODE(piece)), CHR(13)), CHR(10));
        place := place + 1536;
    END LOOP;
    RETURN encoded;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'LOGS' AND name = 'PROC_EVENTLOG_BASE64' AND type = 'FUNCTION' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'PROC_EVENTLOG_BASE64' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/

INSERT INTO "LOGS"."EVENTLOG_VERSION" (version_num)
SELECT 'log_1' FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM "LOGS"."EVENTLOG_VERSION" WHERE version_num IN ('log_1'));

-- Running upgrade  -> internal_2
BEGIN
    EXECUTE IMMEDIATE 'CREATE TABLE "LOGS"."EVENTLOG_ERROR" (
    record_id NUMBER(38, 0) NOT NULL,
    error_time TIMESTAMP DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL,
    code VARCHAR2(64 CHAR) NOT NULL,
    message CLOB NOT NULL,
    consumer VARCHAR2(64 CHAR),
    event_id CLOB
)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -955 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON TABLE "LOGS"."EVENTLOG_ERROR" IS 'Rows of EVENTLOG that failed: one row per failure, never changed afterwards';

COMMENT ON COLUMN "LOGS"."EVENTLOG_ERROR".record_id IS 'The row of the log that failed';

COMMENT ON COLUMN "LOGS"."EVENTLOG_ERROR".error_time IS 'When it failed, in UTC';

COMMENT ON COLUMN "LOGS"."EVENTLOG_ERROR".code IS 'Reason: code of a row check; or receiver, skipped, requeued';

COMMENT ON COLUMN "LOGS"."EVENTLOG_ERROR".message IS 'Reason in words';

COMMENT ON COLUMN "LOGS"."EVENTLOG_ERROR".consumer IS 'Whose failure it is; NULL: the publisher''s';

COMMENT ON COLUMN "LOGS"."EVENTLOG_ERROR".event_id IS 'Event-id of an object of a consumer''s snapshot, or new event-id under which a row is sent again';

BEGIN
    EXECUTE IMMEDIATE 'CREATE INDEX "LOGS"."IDX_EVENTLOG_2" ON "LOGS"."EVENTLOG_ERROR" (record_id)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE NOT IN (-955, -1408) THEN
            RAISE;
        END IF;
END;
/

BEGIN
    EXECUTE IMMEDIATE 'CREATE TABLE "LOGS"."EVENTLOG_INFLIGHT" (
    entry_no NUMBER(38, 0) NOT NULL,
    owner VARCHAR2(64 CHAR),
    kind VARCHAR2(64 CHAR) NOT NULL,
    started TIMESTAMP DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL,
    content CLOB NOT NULL,
    CONSTRAINT "PK_EVENTLOG_INFLIGHT" PRIMARY KEY (entry_no)
)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -955 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON TABLE "LOGS"."EVENTLOG_INFLIGHT" IS 'Deliveries of the readers of EVENTLOG that are not marked yet, and what consumers have done';

COMMENT ON COLUMN "LOGS"."EVENTLOG_INFLIGHT".entry_no IS 'Number of the entry, never reused';

COMMENT ON COLUMN "LOGS"."EVENTLOG_INFLIGHT".owner IS 'Consumer; NULL: the publisher, or a command';

COMMENT ON COLUMN "LOGS"."EVENTLOG_INFLIGHT".kind IS 'Purpose of the entry';

COMMENT ON COLUMN "LOGS"."EVENTLOG_INFLIGHT".started IS 'When it was last written, in UTC';

COMMENT ON COLUMN "LOGS"."EVENTLOG_INFLIGHT".content IS 'JSON';

BEGIN
    EXECUTE IMMEDIATE 'CREATE SEQUENCE "LOGS"."EVENTLOG_DELIVERY" CACHE 1000 ORDER';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -955 THEN
            RAISE;
        END IF;
END;
/

BEGIN
    EXECUTE IMMEDIATE 'CREATE TABLE "LOGS"."EVENTLOG_STATE" (
    entry_no NUMBER(38, 0) NOT NULL,
    owner VARCHAR2(64 CHAR),
    kind VARCHAR2(64 CHAR) NOT NULL,
    started TIMESTAMP DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL,
    content CLOB NOT NULL
)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -955 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON TABLE "LOGS"."EVENTLOG_STATE" IS 'Records of commands for other processes of EVENTLOG: claims, removed rows, requests, verifications';

COMMENT ON COLUMN "LOGS"."EVENTLOG_STATE".entry_no IS 'Number of the entry, never reused';

COMMENT ON COLUMN "LOGS"."EVENTLOG_STATE".owner IS 'Consumer; NULL: the publisher, or a command';

COMMENT ON COLUMN "LOGS"."EVENTLOG_STATE".kind IS 'Purpose of the entry';

COMMENT ON COLUMN "LOGS"."EVENTLOG_STATE".started IS 'When it was last written, in UTC';

COMMENT ON COLUMN "LOGS"."EVENTLOG_STATE".content IS 'JSON';

BEGIN
    EXECUTE IMMEDIATE 'CREATE UNIQUE INDEX "LOGS"."IDX_EVENTLOG_7" ON "LOGS"."EVENTLOG_STATE" (kind, owner, entry_no)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE NOT IN (-955, -1408) THEN
            RAISE;
        END IF;
END;
/

BEGIN
    EXECUTE IMMEDIATE 'CREATE TABLE "LOGS"."EVENTLOG_RESYNC" (
    digest CHAR(64) NOT NULL,
    class_name VARCHAR2(261 CHAR) NOT NULL,
    selection CLOB NOT NULL,
    started TIMESTAMP DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL,
    position CLOB,
    rows_written NUMBER(38, 0) NOT NULL
)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -955 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON TABLE "LOGS"."EVENTLOG_RESYNC" IS 'Resyncs into EVENTLOG that are not finished, or are due: one row each, deleted with its last batch';

COMMENT ON COLUMN "LOGS"."EVENTLOG_RESYNC".digest IS 'SHA-256 of what is written again';

COMMENT ON COLUMN "LOGS"."EVENTLOG_RESYNC".class_name IS 'Class whose objects are written again';

COMMENT ON COLUMN "LOGS"."EVENTLOG_RESYNC".selection IS 'Description of the chosen objects';

COMMENT ON COLUMN "LOGS"."EVENTLOG_RESYNC".started IS 'When it was started, in UTC';

COMMENT ON COLUMN "LOGS"."EVENTLOG_RESYNC".position IS 'Last key that is written, or last line of the file; NULL: none yet';

COMMENT ON COLUMN "LOGS"."EVENTLOG_RESYNC".rows_written IS 'Rows written so far';

BEGIN
    EXECUTE IMMEDIATE 'CREATE UNIQUE INDEX "LOGS"."IDX_EVENTLOG_3" ON "LOGS"."EVENTLOG_RESYNC" (digest)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE NOT IN (-955, -1408) THEN
            RAISE;
        END IF;
END;
/

BEGIN
    EXECUTE IMMEDIATE 'CREATE TABLE "LOGS"."EVENTLOG_EPOCH" (
    epoch VARCHAR2(64 CHAR),
    server CLOB,
    raised TIMESTAMP,
    removed NUMBER(38, 0)
)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -955 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON TABLE "LOGS"."EVENTLOG_EPOCH" IS 'The epoch of EVENTLOG: one row, changed when the database has lost its newest transactions';

COMMENT ON COLUMN "LOGS"."EVENTLOG_EPOCH".epoch IS 'What new event-ids contain after the record_id; NULL: nothing';

COMMENT ON COLUMN "LOGS"."EVENTLOG_EPOCH".server IS 'JSON: identity of the server, such as its timeline';

COMMENT ON COLUMN "LOGS"."EVENTLOG_EPOCH".raised IS 'When the epoch began, in UTC; NULL: never';

COMMENT ON COLUMN "LOGS"."EVENTLOG_EPOCH".removed IS 'Highest record_id that was removed; NULL: none';

INSERT INTO "LOGS"."EVENTLOG_EPOCH" (server) SELECT NULL FROM DUAL
WHERE NOT (EXISTS (SELECT 1
FROM "LOGS"."EVENTLOG_EPOCH"));

BEGIN
    EXECUTE IMMEDIATE 'CREATE TABLE "LOGS"."EVENTLOG_CONSUMER" (
    name VARCHAR2(64 CHAR) NOT NULL,
    begun TIMESTAMP DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL,
    begins VARCHAR2(64 CHAR) NOT NULL,
    done CLOB NOT NULL,
    moved TIMESTAMP,
    requeued CLOB,
    loaded CLOB
)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -955 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON TABLE "LOGS"."EVENTLOG_CONSUMER" IS 'The consumers of EVENTLOG: one row each';

COMMENT ON COLUMN "LOGS"."EVENTLOG_CONSUMER".name IS 'Name of the consumer';

COMMENT ON COLUMN "LOGS"."EVENTLOG_CONSUMER".begun IS 'When it was registered, in UTC';

COMMENT ON COLUMN "LOGS"."EVENTLOG_CONSUMER".begins IS 'Where it began: latest, earliest, snapshot, a record_id or a time';

COMMENT ON COLUMN "LOGS"."EVENTLOG_CONSUMER".done IS 'JSON: the record_ids that it had done when it was registered';

COMMENT ON COLUMN "LOGS"."EVENTLOG_CONSUMER".moved IS 'When its snapshot last advanced, in UTC; NULL: never';

COMMENT ON COLUMN "LOGS"."EVENTLOG_CONSUMER".requeued IS 'JSON: what is sent again; NULL: nothing';

COMMENT ON COLUMN "LOGS"."EVENTLOG_CONSUMER".loaded IS 'JSON: position of its snapshot; NULL: there is none, or it has ended';

BEGIN
    EXECUTE IMMEDIATE 'CREATE UNIQUE INDEX "LOGS"."IDX_EVENTLOG_6" ON "LOGS"."EVENTLOG_CONSUMER" (name)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE NOT IN (-955, -1408) THEN
            RAISE;
        END IF;
END;
/

BEGIN
    EXECUTE IMMEDIATE 'CREATE TABLE "LOGS"."EVENTLOG_CAPTURED" (
    schema_name VARCHAR2(261 CHAR),
    table_name VARCHAR2(261 CHAR) NOT NULL,
    captured TIMESTAMP DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL,
    content CLOB NOT NULL
)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -955 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON TABLE "LOGS"."EVENTLOG_CAPTURED" IS 'Tables that EVENTLOG captures: one row each, written by triggers apply';

COMMENT ON COLUMN "LOGS"."EVENTLOG_CAPTURED".schema_name IS 'Schema of the table; NULL: there is none';

COMMENT ON COLUMN "LOGS"."EVENTLOG_CAPTURED".table_name IS 'Name of the table';

COMMENT ON COLUMN "LOGS"."EVENTLOG_CAPTURED".captured IS 'When this was last written, in UTC';

COMMENT ON COLUMN "LOGS"."EVENTLOG_CAPTURED".content IS 'JSON: the table as it was when its triggers were applied';

INSERT INTO "LOGS"."EVENTLOG_VERSION" (version_num)
SELECT 'internal_2' FROM DUAL
WHERE NOT EXISTS (SELECT 1 FROM "LOGS"."EVENTLOG_VERSION" WHERE version_num IN ('internal_2', 'internal_3', 'internal_4', 'internal_5', 'internal_6', 'internal_7'));

-- Running upgrade internal_2 -> internal_3
BEGIN
    EXECUTE IMMEDIATE 'ALTER TABLE "LOGS"."EVENTLOG_CONSUMER" ADD sink CLOB';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -1430 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON COLUMN "LOGS"."EVENTLOG_CONSUMER".sink IS 'Sink that it had when it last started, without secrets; NULL: none was recorded';

BEGIN
    EXECUTE IMMEDIATE 'ALTER TABLE "LOGS"."EVENTLOG_CONSUMER" ADD classes CLOB';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -1430 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON COLUMN "LOGS"."EVENTLOG_CONSUMER".classes IS 'JSON: the classes that it sent when it last started; NULL: all';

BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''internal_3'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''internal_2''';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -942 THEN
            RAISE;
        END IF;
END;
/

-- Running upgrade internal_3 -> internal_4
BEGIN
    EXECUTE IMMEDIATE 'ALTER TABLE "LOGS"."EVENTLOG_ERROR" ADD superseded_by NUMBER(38, 0)';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -1430 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON COLUMN "LOGS"."EVENTLOG_ERROR".superseded_by IS 'The row with which a resync has logged the object again; NULL: none';

BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''internal_4'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''internal_3''';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -942 THEN
            RAISE;
        END IF;
END;
/

-- Running upgrade internal_4 -> internal_5
BEGIN
    EXECUTE IMMEDIATE 'ALTER TABLE "LOGS"."EVENTLOG_CONSUMER" ADD paused CLOB';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -1430 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON COLUMN "LOGS"."EVENTLOG_CONSUMER".paused IS 'JSON: why it sends nothing, who paused it and since when; NULL: not paused';

BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''internal_5'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''internal_4''';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -942 THEN
            RAISE;
        END IF;
END;
/

-- Running upgrade internal_5 -> internal_6
BEGIN
    EXECUTE IMMEDIATE 'ALTER TABLE "LOGS"."EVENTLOG_CONSUMER" ADD masks CLOB';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -1430 THEN
            RAISE;
        END IF;
END;
/

COMMENT ON COLUMN "LOGS"."EVENTLOG_CONSUMER".masks IS 'JSON: the masks that it has used; NULL: unknown';

BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''internal_6'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''internal_5''';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -942 THEN
            RAISE;
        END IF;
END;
/

-- Running upgrade internal_6 -> internal_7
BEGIN
    EXECUTE IMMEDIATE 'UPDATE "LOGS"."EVENTLOG_VERSION" SET version_num=''internal_7'' WHERE "LOGS"."EVENTLOG_VERSION".version_num = ''internal_6''';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -942 THEN
            RAISE;
        END IF;
END;
/
COMMIT;
