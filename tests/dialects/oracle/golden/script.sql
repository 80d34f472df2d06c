SET DEFINE OFF
SET ESCAPE OFF
SET SQLBLANKLINES ON
SET ECHO OFF
WHENEVER OSERROR EXIT FAILURE ROLLBACK
WHENEVER SQLERROR EXIT FAILURE ROLLBACK

ALTER SESSION SET DDL_LOCK_TIMEOUT = 5;

-- create APP.LINK: watched, and not captured yet
CREATE OR REPLACE TRIGGER "APP"."TGR_LINK_I_1"
AFTER INSERT ON "APP"."LINK"
FOR EACH ROW
DECLARE
    -- eventlog sha256:a461f5bb8395bcfdf25744e21c4d6094efffb73b801f31c0e01b4352874e2f5c log "APP"."EVENTLOG"
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
                'LINK', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    first_row := log_rows.COUNT + 1;
    new_key := 'A=' || TO_CHAR(:NEW."A", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') || '+B=' || TO_CHAR(:NEW."B", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
    put(5, new_key);
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_LINK_I_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_LINK_I_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_LINK_I_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_LINK_U_1"
FOR UPDATE ON "APP"."LINK"
COMPOUND TRIGGER
    -- eventlog sha256:bf397132e7c908d82af6efd779bda2c620bcc6e30d604b07d86a8396b74b162c log "APP"."EVENTLOG"
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
                'LINK', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

    FUNCTION number_changed(old_value IN NUMBER, new_value IN NUMBER) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN old_value <> new_value;
    END number_changed;

    FUNCTION text_changed(old_value IN VARCHAR2, new_value IN VARCHAR2) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN LENGTHB(old_value) <> LENGTHB(new_value) OR UTL_RAW.COMPARE(UTL_RAW.CAST_TO_RAW(old_value), UTL_RAW.CAST_TO_RAW(new_value)) <> 0;
    END text_changed;

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
        new_key := 'A=' || TO_CHAR(:NEW."A", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') || '+B=' || TO_CHAR(:NEW."B", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        old_key := new_key;
        IF number_changed(:OLD."A", :NEW."A") OR number_changed(:OLD."B", :NEW."B") THEN
            old_key := 'A=' || TO_CHAR(:OLD."A", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') || '+B=' || TO_CHAR(:OLD."B", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
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
                put(5, new_key);
                FOR i IN first_row .. log_rows.COUNT LOOP
                    moved_rows(moved_rows.COUNT + 1) := log_rows(i);
                END LOOP;
                log_rows.DELETE(first_row, log_rows.COUNT);
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
        WHERE owner = 'APP' AND name = 'TGR_LINK_U_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_LINK_U_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_LINK_U_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_LINK_D_1"
AFTER DELETE ON "APP"."LINK"
FOR EACH ROW
DECLARE
    -- eventlog sha256:d921abf642c002cb5d6197c2b1219455d9c2939151dc596e60ec864a63d244e3 log "APP"."EVENTLOG"
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
                'LINK', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    put(4, 'A=' || TO_CHAR(:OLD."A", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') || '+B=' || TO_CHAR(:OLD."B", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_LINK_D_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_LINK_D_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_LINK_D_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/

-- drop APP.OLD ONE: no longer watched
DROP TRIGGER "APP"."TGR_OLD_I_1";
