CREATE OR REPLACE TRIGGER "APP"."TGR_ACC_I_1"
AFTER INSERT ON "APP"."ACC"
FOR EACH ROW
DECLARE
    -- eventlog sha256:26064c7f55f384603d9e7f2ffa34eb40af35f54c9197f3add4d651658d1f5872 log "APP"."EVENTLOG"
    TYPE log_row_t IS RECORD (
        event_type PLS_INTEGER,
        table_key VARCHAR2(4000),
        column_name VARCHAR2(261),
        old_value VARCHAR2(4000),
        new_value VARCHAR2(4000)
    );
    TYPE log_rows_t IS TABLE OF log_row_t INDEX BY PLS_INTEGER;
    log_rows log_rows_t;
    new_key VARCHAR2(32767);
    first_row PLS_INTEGER;

    PROCEDURE put(
        event_type IN PLS_INTEGER,
        table_key IN VARCHAR2,
        column_name IN VARCHAR2 DEFAULT NULL,
        old_value IN VARCHAR2 DEFAULT NULL,
        new_value IN VARCHAR2 DEFAULT NULL
    ) IS
        log_row log_row_t;
    BEGIN
        log_row.event_type := event_type;
        log_row.table_key := table_key;
        log_row.column_name := column_name;
        log_row.old_value := old_value;
        log_row.new_value := new_value;
        log_rows(log_rows.COUNT + 1) := log_row;
    END put;

    PROCEDURE write_log IS
    BEGIN
        FORALL i IN 1 .. log_rows.COUNT
            INSERT INTO "APP"."EVENTLOG" ("STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY", "COLUMN_NAME", "OLD_VALUE", "NEW_VALUE")
            VALUES (
                'N', log_rows(i).event_type, SYS_EXTRACT_UTC(SYSTIMESTAMP), SYS_CONTEXT('USERENV', 'SESSION_USER'),
                'ACC', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

    PROCEDURE put_inserted(column_name IN VARCHAR2, new_value IN VARCHAR2) IS
    BEGIN
        IF new_value IS NOT NULL THEN
            put(1, new_key, column_name, NULL, new_value);
        END IF;
    END put_inserted;

BEGIN
    first_row := log_rows.COUNT + 1;
    new_key := 'DAY=' || LTRIM(TO_CHAR(:NEW."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:NEW."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:NEW."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:NEW."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:NEW."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
         || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:NEW."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    put_inserted('OWNER', :NEW."OWNER");
    IF log_rows.COUNT < first_row THEN
        -- All of them NULL: the insert itself must not be lost.
        put(1, new_key, 'OWNER');
    END IF;
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_ACC_I_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_ACC_I_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_ACC_I_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_ACC_U_1"
FOR UPDATE ON "APP"."ACC"
COMPOUND TRIGGER
    -- eventlog sha256:91c1d2e949d13f5e776d9d826edaeaed791d5d8b3260e4f8caed25ce25bbdb0d log "APP"."EVENTLOG"
    TYPE log_row_t IS RECORD (
        event_type PLS_INTEGER,
        table_key VARCHAR2(4000),
        column_name VARCHAR2(261),
        old_value VARCHAR2(4000),
        new_value VARCHAR2(4000)
    );
    TYPE log_rows_t IS TABLE OF log_row_t INDEX BY PLS_INTEGER;
    log_rows log_rows_t;
    new_key VARCHAR2(32767);
    first_row PLS_INTEGER;
    old_key VARCHAR2(32767);
    -- Keys that rows of the statement gave up and took, and what is to be logged for them.
    TYPE keys_t IS TABLE OF PLS_INTEGER INDEX BY VARCHAR2(32767);
    given_up keys_t;
    taken keys_t;
    left_rows log_rows_t;
    moved_rows log_rows_t;

    PROCEDURE put(
        event_type IN PLS_INTEGER,
        table_key IN VARCHAR2,
        column_name IN VARCHAR2 DEFAULT NULL,
        old_value IN VARCHAR2 DEFAULT NULL,
        new_value IN VARCHAR2 DEFAULT NULL
    ) IS
        log_row log_row_t;
    BEGIN
        log_row.event_type := event_type;
        log_row.table_key := table_key;
        log_row.column_name := column_name;
        log_row.old_value := old_value;
        log_row.new_value := new_value;
        log_rows(log_rows.COUNT + 1) := log_row;
    END put;

    PROCEDURE write_log IS
    BEGIN
        FORALL i IN 1 .. log_rows.COUNT
            INSERT INTO "APP"."EVENTLOG" ("STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY", "COLUMN_NAME", "OLD_VALUE", "NEW_VALUE")
            VALUES (
                'N', log_rows(i).event_type, SYS_EXTRACT_UTC(SYSTIMESTAMP), SYS_CONTEXT('USERENV', 'SESSION_USER'),
                'ACC', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

    FUNCTION number_changed(old_value IN NUMBER, new_value IN NUMBER) RETURN BOOLEAN IS
    BEGIN
        RETURN old_value <> new_value
            OR (old_value IS NULL AND new_value IS NOT NULL)
            OR (old_value IS NOT NULL AND new_value IS NULL);
    END number_changed;

    FUNCTION double_changed(old_value IN BINARY_DOUBLE, new_value IN BINARY_DOUBLE) RETURN BOOLEAN IS
    BEGIN
        RETURN old_value <> new_value
            OR (old_value IS NULL AND new_value IS NOT NULL)
            OR (old_value IS NOT NULL AND new_value IS NULL);
    END double_changed;

    FUNCTION text_changed(old_value IN VARCHAR2, new_value IN VARCHAR2) RETURN BOOLEAN IS
    BEGIN
        RETURN UTL_RAW.CAST_TO_RAW(old_value) <> UTL_RAW.CAST_TO_RAW(new_value)
            OR (old_value IS NULL AND new_value IS NOT NULL)
            OR (old_value IS NOT NULL AND new_value IS NULL);
    END text_changed;

    FUNCTION raw_changed(old_value IN RAW, new_value IN RAW) RETURN BOOLEAN IS
    BEGIN
        RETURN old_value <> new_value
            OR (old_value IS NULL AND new_value IS NOT NULL)
            OR (old_value IS NOT NULL AND new_value IS NULL);
    END raw_changed;

    FUNCTION moment_changed(old_value IN TIMESTAMP_UNCONSTRAINED, new_value IN TIMESTAMP_UNCONSTRAINED) RETURN BOOLEAN IS
    BEGIN
        RETURN old_value <> new_value
            OR (old_value IS NULL AND new_value IS NOT NULL)
            OR (old_value IS NOT NULL AND new_value IS NULL);
    END moment_changed;

    FUNCTION zoned_changed(old_value IN TIMESTAMP_TZ_UNCONSTRAINED, new_value IN TIMESTAMP_TZ_UNCONSTRAINED) RETURN BOOLEAN IS
    BEGIN
        RETURN old_value <> new_value
            OR (old_value IS NULL AND new_value IS NOT NULL)
            OR (old_value IS NOT NULL AND new_value IS NULL);
    END zoned_changed;

    PROCEDURE put_inserted(column_name IN VARCHAR2, new_value IN VARCHAR2) IS
    BEGIN
        IF new_value IS NOT NULL THEN
            put(1, new_key, column_name, NULL, new_value);
        END IF;
    END put_inserted;

    FUNCTION identity(key_text IN VARCHAR2) RETURN VARCHAR2 IS
    BEGIN
        RETURN RAWTOHEX(UTL_RAW.CAST_TO_RAW(key_text));
    END identity;

    BEFORE STATEMENT IS
    BEGIN
        -- A statement that the database begins anew must not find what its first attempt left.
        log_rows.DELETE;
        given_up.DELETE;
        taken.DELETE;
        left_rows.DELETE;
        moved_rows.DELETE;
    END BEFORE STATEMENT;

    AFTER EACH ROW IS
    BEGIN
        new_key := 'DAY=' || LTRIM(TO_CHAR(:NEW."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:NEW."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:NEW."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:NEW."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:NEW."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
             || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:NEW."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
        old_key := new_key;
        IF moment_changed(:OLD."DAY", :NEW."DAY") OR text_changed(:OLD."BRANCH", :NEW."BRANCH") OR text_changed(:OLD."CODE", :NEW."CODE") OR raw_changed(:OLD."HASH", :NEW."HASH") OR number_changed(:OLD."AMOUNT", :NEW."AMOUNT") OR zoned_changed(:OLD."MOMENT", :NEW."MOMENT") OR double_changed(:OLD."RATE", :NEW."RATE") THEN
            old_key := 'DAY=' || LTRIM(TO_CHAR(:OLD."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:OLD."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:OLD."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:OLD."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:OLD."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
             || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:OLD."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:OLD."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
        END IF;
        IF text_changed(old_key, new_key) THEN
            IF old_key IS NOT NULL THEN
                given_up(identity(old_key)) := 1;
                put(4, old_key);
                left_rows(left_rows.COUNT + 1) := log_rows(log_rows.COUNT);
                log_rows.DELETE(log_rows.COUNT);
            END IF;
            IF new_key IS NOT NULL THEN
                taken(identity(new_key)) := 1;
                first_row := log_rows.COUNT + 1;
                put_inserted('OWNER', :NEW."OWNER");
                IF log_rows.COUNT < first_row THEN
                    -- All of them NULL: the insert itself must not be lost.
                    put(1, new_key, 'OWNER');
                END IF;
                FOR i IN first_row .. log_rows.COUNT LOOP
                    moved_rows(moved_rows.COUNT + 1) := log_rows(i);
                END LOOP;
                log_rows.DELETE(first_row, log_rows.COUNT);
            END IF;
        ELSIF new_key IS NOT NULL THEN
            IF text_changed(:OLD."OWNER", :NEW."OWNER") THEN
                put(2, new_key, 'OWNER', :OLD."OWNER",
                    :NEW."OWNER");
            END IF;
        END IF;
        write_log;
    END AFTER EACH ROW;

    AFTER STATEMENT IS
    BEGIN
        FOR i IN 1 .. left_rows.COUNT LOOP
            IF NOT taken.EXISTS(identity(left_rows(i).table_key)) THEN
                log_rows(log_rows.COUNT + 1) := left_rows(i);
            END IF;
        END LOOP;
        FOR i IN 1 .. moved_rows.COUNT LOOP
            IF NOT given_up.EXISTS(identity(moved_rows(i).table_key)) THEN
                log_rows(log_rows.COUNT + 1) := moved_rows(i);
            ELSIF taken.EXISTS(identity(moved_rows(i).table_key)) THEN
                -- Another row of the statement had this key: the object stays, and is another one now.
                taken.DELETE(identity(moved_rows(i).table_key));
                put(6, moved_rows(i).table_key);
            END IF;
        END LOOP;
        write_log;
    END AFTER STATEMENT;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_ACC_U_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_ACC_U_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_ACC_U_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_ACC_D_1"
AFTER DELETE ON "APP"."ACC"
FOR EACH ROW
DECLARE
    -- eventlog sha256:7966993e571d5262d2bec0fc50c9d7fd4d0d59feb5a6c1fb85fc4c369d385899 log "APP"."EVENTLOG"
    TYPE log_row_t IS RECORD (
        event_type PLS_INTEGER,
        table_key VARCHAR2(4000),
        column_name VARCHAR2(261),
        old_value VARCHAR2(4000),
        new_value VARCHAR2(4000)
    );
    TYPE log_rows_t IS TABLE OF log_row_t INDEX BY PLS_INTEGER;
    log_rows log_rows_t;

    PROCEDURE put(
        event_type IN PLS_INTEGER,
        table_key IN VARCHAR2,
        column_name IN VARCHAR2 DEFAULT NULL,
        old_value IN VARCHAR2 DEFAULT NULL,
        new_value IN VARCHAR2 DEFAULT NULL
    ) IS
        log_row log_row_t;
    BEGIN
        log_row.event_type := event_type;
        log_row.table_key := table_key;
        log_row.column_name := column_name;
        log_row.old_value := old_value;
        log_row.new_value := new_value;
        log_rows(log_rows.COUNT + 1) := log_row;
    END put;

    PROCEDURE write_log IS
    BEGIN
        FORALL i IN 1 .. log_rows.COUNT
            INSERT INTO "APP"."EVENTLOG" ("STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY", "COLUMN_NAME", "OLD_VALUE", "NEW_VALUE")
            VALUES (
                'N', log_rows(i).event_type, SYS_EXTRACT_UTC(SYSTIMESTAMP), SYS_CONTEXT('USERENV', 'SESSION_USER'),
                'ACC', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    put(4, 'DAY=' || LTRIM(TO_CHAR(:OLD."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:OLD."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:OLD."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:OLD."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:OLD."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
         || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:OLD."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:OLD."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')));
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_ACC_D_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_ACC_D_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_ACC_D_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_ACC_TAG_I_1"
AFTER INSERT ON "APP"."ACC_TAG"
FOR EACH ROW
DECLARE
    -- eventlog sha256:7352980fa85cf980631010019953808872be50d575d97c4c34fec77fef04628f log "APP"."EVENTLOG"
    TYPE log_row_t IS RECORD (
        event_type PLS_INTEGER,
        table_key VARCHAR2(4000),
        column_name VARCHAR2(261),
        old_value VARCHAR2(4000),
        new_value VARCHAR2(4000)
    );
    TYPE log_rows_t IS TABLE OF log_row_t INDEX BY PLS_INTEGER;
    log_rows log_rows_t;

    PROCEDURE put(
        event_type IN PLS_INTEGER,
        table_key IN VARCHAR2,
        column_name IN VARCHAR2 DEFAULT NULL,
        old_value IN VARCHAR2 DEFAULT NULL,
        new_value IN VARCHAR2 DEFAULT NULL
    ) IS
        log_row log_row_t;
    BEGIN
        log_row.event_type := event_type;
        log_row.table_key := table_key;
        log_row.column_name := column_name;
        log_row.old_value := old_value;
        log_row.new_value := new_value;
        log_rows(log_rows.COUNT + 1) := log_row;
    END put;

    PROCEDURE write_log IS
    BEGIN
        FORALL i IN 1 .. log_rows.COUNT
            INSERT INTO "APP"."EVENTLOG" ("STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY", "COLUMN_NAME", "OLD_VALUE", "NEW_VALUE")
            VALUES (
                'N', log_rows(i).event_type, SYS_EXTRACT_UTC(SYSTIMESTAMP), SYS_CONTEXT('USERENV', 'SESSION_USER'),
                'ACC', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    IF :NEW."DAY" IS NOT NULL AND :NEW."BRANCH" IS NOT NULL AND :NEW."CODE" IS NOT NULL AND :NEW."HASH" IS NOT NULL AND :NEW."AMOUNT" IS NOT NULL AND :NEW."MOMENT" IS NOT NULL AND :NEW."RATE" IS NOT NULL AND :NEW."TAG" IS NOT NULL THEN
        put(2, 'DAY=' || LTRIM(TO_CHAR(:NEW."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:NEW."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:NEW."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:NEW."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:NEW."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
         || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:NEW."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')), 'ACC_TAG.TAG', NULL, :NEW."TAG");
    END IF;
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_ACC_TAG_I_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_ACC_TAG_I_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_ACC_TAG_I_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_ACC_TAG_U_1"
FOR UPDATE ON "APP"."ACC_TAG"
COMPOUND TRIGGER
    -- eventlog sha256:fd43fa5df47c312845716a79e8015296769adf7c101b58d74975d6fecb2b3b1f log "APP"."EVENTLOG"
    TYPE log_row_t IS RECORD (
        event_type PLS_INTEGER,
        table_key VARCHAR2(4000),
        column_name VARCHAR2(261),
        old_value VARCHAR2(4000),
        new_value VARCHAR2(4000)
    );
    TYPE log_rows_t IS TABLE OF log_row_t INDEX BY PLS_INTEGER;
    log_rows log_rows_t;
    old_key VARCHAR2(32767);
    new_key VARCHAR2(32767);
    -- The values that rows of the statement gave up, and what is to be logged if none of them was taken again.
    TYPE values_t IS TABLE OF PLS_INTEGER INDEX BY VARCHAR2(32767);
    given_up values_t;
    told values_t;
    moved_rows log_rows_t;

    PROCEDURE put(
        event_type IN PLS_INTEGER,
        table_key IN VARCHAR2,
        column_name IN VARCHAR2 DEFAULT NULL,
        old_value IN VARCHAR2 DEFAULT NULL,
        new_value IN VARCHAR2 DEFAULT NULL
    ) IS
        log_row log_row_t;
    BEGIN
        log_row.event_type := event_type;
        log_row.table_key := table_key;
        log_row.column_name := column_name;
        log_row.old_value := old_value;
        log_row.new_value := new_value;
        log_rows(log_rows.COUNT + 1) := log_row;
    END put;

    PROCEDURE write_log IS
    BEGIN
        FORALL i IN 1 .. log_rows.COUNT
            INSERT INTO "APP"."EVENTLOG" ("STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY", "COLUMN_NAME", "OLD_VALUE", "NEW_VALUE")
            VALUES (
                'N', log_rows(i).event_type, SYS_EXTRACT_UTC(SYSTIMESTAMP), SYS_CONTEXT('USERENV', 'SESSION_USER'),
                'ACC', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

    FUNCTION text_changed(old_value IN VARCHAR2, new_value IN VARCHAR2) RETURN BOOLEAN IS
    BEGIN
        RETURN UTL_RAW.CAST_TO_RAW(old_value) <> UTL_RAW.CAST_TO_RAW(new_value)
            OR (old_value IS NULL AND new_value IS NOT NULL)
            OR (old_value IS NOT NULL AND new_value IS NULL);
    END text_changed;

    FUNCTION identity(key_text IN VARCHAR2) RETURN VARCHAR2 IS
    BEGIN
        RETURN RAWTOHEX(UTL_RAW.CAST_TO_RAW(key_text));
    END identity;

    PROCEDURE move(table_key IN VARCHAR2, old_value IN VARCHAR2, new_value IN VARCHAR2) IS
    BEGIN
        put(2, table_key, 'ACC_TAG.TAG', old_value, new_value);
        moved_rows(moved_rows.COUNT + 1) := log_rows(log_rows.COUNT);
        log_rows.DELETE(log_rows.COUNT);
        IF old_value IS NOT NULL THEN
            given_up(identity(table_key) || '-' || identity(old_value)) := 1;
        END IF;
    END move;

    FUNCTION is_shifted(table_key IN VARCHAR2) RETURN BOOLEAN IS
    BEGIN
        RETURN told.EXISTS(identity(table_key));
    END is_shifted;

    BEFORE STATEMENT IS
    BEGIN
        -- A statement that the database begins anew must not find what its first attempt left.
        log_rows.DELETE;
        given_up.DELETE;
        told.DELETE;
        moved_rows.DELETE;
    END BEFORE STATEMENT;

    AFTER EACH ROW IS
    BEGIN
        old_key := CASE WHEN :OLD."DAY" IS NOT NULL AND :OLD."BRANCH" IS NOT NULL AND :OLD."CODE" IS NOT NULL AND :OLD."HASH" IS NOT NULL AND :OLD."AMOUNT" IS NOT NULL AND :OLD."MOMENT" IS NOT NULL AND :OLD."RATE" IS NOT NULL THEN 'DAY=' || LTRIM(TO_CHAR(:OLD."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:OLD."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:OLD."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:OLD."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:OLD."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
             || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:OLD."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:OLD."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')) END;
        new_key := CASE WHEN :NEW."DAY" IS NOT NULL AND :NEW."BRANCH" IS NOT NULL AND :NEW."CODE" IS NOT NULL AND :NEW."HASH" IS NOT NULL AND :NEW."AMOUNT" IS NOT NULL AND :NEW."MOMENT" IS NOT NULL AND :NEW."RATE" IS NOT NULL THEN 'DAY=' || LTRIM(TO_CHAR(:NEW."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:NEW."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:NEW."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:NEW."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:NEW."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
             || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:NEW."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')) END;
        IF text_changed(old_key, new_key) THEN
            IF :OLD."DAY" IS NOT NULL AND :OLD."BRANCH" IS NOT NULL AND :OLD."CODE" IS NOT NULL AND :OLD."HASH" IS NOT NULL AND :OLD."AMOUNT" IS NOT NULL AND :OLD."MOMENT" IS NOT NULL AND :OLD."RATE" IS NOT NULL AND :OLD."TAG" IS NOT NULL THEN
                move(old_key, :OLD."TAG", NULL);
            END IF;
            IF :NEW."DAY" IS NOT NULL AND :NEW."BRANCH" IS NOT NULL AND :NEW."CODE" IS NOT NULL AND :NEW."HASH" IS NOT NULL AND :NEW."AMOUNT" IS NOT NULL AND :NEW."MOMENT" IS NOT NULL AND :NEW."RATE" IS NOT NULL AND :NEW."TAG" IS NOT NULL THEN
                move(new_key, NULL, :NEW."TAG");
            END IF;
        ELSIF new_key IS NOT NULL AND (text_changed(:OLD."TAG", :NEW."TAG")) THEN
            move(new_key, :OLD."TAG", :NEW."TAG");
        END IF;
    END AFTER EACH ROW;

    AFTER STATEMENT IS
    BEGIN
        FOR i IN 1 .. moved_rows.COUNT LOOP
            IF moved_rows(i).new_value IS NOT NULL
                AND given_up.EXISTS(identity(moved_rows(i).table_key) || '-' || identity(moved_rows(i).new_value))
                AND NOT is_shifted(moved_rows(i).table_key)
            THEN
                told(identity(moved_rows(i).table_key)) := 1;
                put(8, moved_rows(i).table_key, 'ACC_TAG.TAG');
            END IF;
        END LOOP;
        FOR i IN 1 .. moved_rows.COUNT LOOP
            IF NOT is_shifted(moved_rows(i).table_key) THEN
                log_rows(log_rows.COUNT + 1) := moved_rows(i);
            END IF;
        END LOOP;
        write_log;
    END AFTER STATEMENT;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_ACC_TAG_U_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_ACC_TAG_U_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_ACC_TAG_U_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_ACC_TAG_D_1"
AFTER DELETE ON "APP"."ACC_TAG"
FOR EACH ROW
DECLARE
    -- eventlog sha256:0ee9bce4eae34e6de44777dbd5568c454f9610820a34d1469229e427343c92a7 log "APP"."EVENTLOG"
    TYPE log_row_t IS RECORD (
        event_type PLS_INTEGER,
        table_key VARCHAR2(4000),
        column_name VARCHAR2(261),
        old_value VARCHAR2(4000),
        new_value VARCHAR2(4000)
    );
    TYPE log_rows_t IS TABLE OF log_row_t INDEX BY PLS_INTEGER;
    log_rows log_rows_t;

    PROCEDURE put(
        event_type IN PLS_INTEGER,
        table_key IN VARCHAR2,
        column_name IN VARCHAR2 DEFAULT NULL,
        old_value IN VARCHAR2 DEFAULT NULL,
        new_value IN VARCHAR2 DEFAULT NULL
    ) IS
        log_row log_row_t;
    BEGIN
        log_row.event_type := event_type;
        log_row.table_key := table_key;
        log_row.column_name := column_name;
        log_row.old_value := old_value;
        log_row.new_value := new_value;
        log_rows(log_rows.COUNT + 1) := log_row;
    END put;

    PROCEDURE write_log IS
    BEGIN
        FORALL i IN 1 .. log_rows.COUNT
            INSERT INTO "APP"."EVENTLOG" ("STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY", "COLUMN_NAME", "OLD_VALUE", "NEW_VALUE")
            VALUES (
                'N', log_rows(i).event_type, SYS_EXTRACT_UTC(SYSTIMESTAMP), SYS_CONTEXT('USERENV', 'SESSION_USER'),
                'ACC', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    IF :OLD."DAY" IS NOT NULL AND :OLD."BRANCH" IS NOT NULL AND :OLD."CODE" IS NOT NULL AND :OLD."HASH" IS NOT NULL AND :OLD."AMOUNT" IS NOT NULL AND :OLD."MOMENT" IS NOT NULL AND :OLD."RATE" IS NOT NULL AND :OLD."TAG" IS NOT NULL THEN
        put(2, 'DAY=' || LTRIM(TO_CHAR(:OLD."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:OLD."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:OLD."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:OLD."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:OLD."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
         || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:OLD."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:OLD."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')), 'ACC_TAG.TAG', :OLD."TAG", NULL);
    END IF;
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_ACC_TAG_D_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_ACC_TAG_D_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_ACC_TAG_D_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
