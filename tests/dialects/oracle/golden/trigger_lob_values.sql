CREATE OR REPLACE TRIGGER "APP"."TGR_EVERY_TYPE_I_1"
AFTER INSERT ON "APP"."EVERY_TYPE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:49076472cf45fb1e3d6102e6c16c238522f7a4b3a2bf85f0568041a567dca502 log "APP"."EVENTLOG"
    TYPE log_row_t IS RECORD (
        event_type PLS_INTEGER,
        table_key VARCHAR2(4000),
        column_name VARCHAR2(261),
        old_value CLOB,
        new_value CLOB
    );
    TYPE log_rows_t IS TABLE OF log_row_t INDEX BY PLS_INTEGER;
    log_rows log_rows_t;
    new_key VARCHAR2(32767);
    first_row PLS_INTEGER;

    PROCEDURE put(
        event_type IN PLS_INTEGER,
        table_key IN VARCHAR2,
        column_name IN VARCHAR2 DEFAULT NULL,
        old_value IN CLOB DEFAULT NULL,
        new_value IN CLOB DEFAULT NULL
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
                'EVERY_TYPE', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

    PROCEDURE put_inserted(column_name IN VARCHAR2, new_value IN CLOB) IS
    BEGIN
        IF new_value IS NOT NULL THEN
            put(1, new_key, column_name, NULL, new_value);
        END IF;
    END put_inserted;

BEGIN
    first_row := log_rows.COUNT + 1;
    new_key := 'ID=' || TO_CHAR(:NEW."ID", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
    put_inserted('V', :NEW."V");
    put_inserted('CL', :NEW."CL");
    put_inserted('NCL', :NEW."NCL");
    put(7, new_key, 'B');
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_EVERY_TYPE_I_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_EVERY_TYPE_I_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_EVERY_TYPE_I_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_EVERY_TYPE_U_1"
FOR UPDATE ON "APP"."EVERY_TYPE"
COMPOUND TRIGGER
    -- eventlog sha256:981dfdafe3bf108c246c0ce2aa1d763da7d2e742e94225fa6d70cefb72d83ca2 log "APP"."EVENTLOG"
    TYPE log_row_t IS RECORD (
        event_type PLS_INTEGER,
        table_key VARCHAR2(4000),
        column_name VARCHAR2(261),
        old_value CLOB,
        new_value CLOB
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
        old_value IN CLOB DEFAULT NULL,
        new_value IN CLOB DEFAULT NULL
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
                'EVERY_TYPE', log_rows(i).table_key, log_rows(i).column_name,
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

    FUNCTION text_changed(old_value IN VARCHAR2, new_value IN VARCHAR2) RETURN BOOLEAN IS
    BEGIN
        RETURN UTL_RAW.CAST_TO_RAW(old_value) <> UTL_RAW.CAST_TO_RAW(new_value)
            OR (old_value IS NULL AND new_value IS NOT NULL)
            OR (old_value IS NOT NULL AND new_value IS NULL);
    END text_changed;

    FUNCTION clob_changed(old_value IN CLOB, new_value IN CLOB) RETURN BOOLEAN IS
    BEGIN
        RETURN DBMS_LOB.COMPARE(old_value, new_value) <> 0
            OR (old_value IS NULL AND new_value IS NOT NULL)
            OR (old_value IS NOT NULL AND new_value IS NULL);
    END clob_changed;

    FUNCTION nclob_changed(old_value IN NCLOB, new_value IN NCLOB) RETURN BOOLEAN IS
    BEGIN
        RETURN DBMS_LOB.COMPARE(old_value, new_value) <> 0
            OR (old_value IS NULL AND new_value IS NOT NULL)
            OR (old_value IS NOT NULL AND new_value IS NULL);
    END nclob_changed;

    PROCEDURE put_inserted(column_name IN VARCHAR2, new_value IN CLOB) IS
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
        new_key := 'ID=' || TO_CHAR(:NEW."ID", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        old_key := new_key;
        IF number_changed(:OLD."ID", :NEW."ID") THEN
            old_key := 'ID=' || TO_CHAR(:OLD."ID", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
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
                put_inserted('V', :NEW."V");
                IF :NEW."CL" IS NOT NULL THEN
                    put(7, new_key, 'CL');
                END IF;
                IF :NEW."NCL" IS NOT NULL THEN
                    put(7, new_key, 'NCL');
                END IF;
                put(7, new_key, 'B');
                FOR i IN first_row .. log_rows.COUNT LOOP
                    moved_rows(moved_rows.COUNT + 1) := log_rows(i);
                END LOOP;
                log_rows.DELETE(first_row, log_rows.COUNT);
            END IF;
        ELSIF new_key IS NOT NULL THEN
            IF text_changed(:OLD."V", :NEW."V") THEN
                put(2, new_key, 'V', :OLD."V",
                    :NEW."V");
            END IF;
            IF clob_changed(:OLD."CL", :NEW."CL") THEN
                put(2, new_key, 'CL', :OLD."CL",
                    :NEW."CL");
            END IF;
            IF nclob_changed(:OLD."NCL", :NEW."NCL") THEN
                put(2, new_key, 'NCL', :OLD."NCL",
                    :NEW."NCL");
            END IF;
            IF UPDATING('B') THEN
                put(8, new_key, 'B');
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
        WHERE owner = 'APP' AND name = 'TGR_EVERY_TYPE_U_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_EVERY_TYPE_U_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_EVERY_TYPE_U_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_EVERY_TYPE_D_1"
AFTER DELETE ON "APP"."EVERY_TYPE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:60c82770c8fdad29815482d761b821e30f940509dfd324c89f1830c86f29b349 log "APP"."EVENTLOG"
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
                'EVERY_TYPE', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    put(4, 'ID=' || TO_CHAR(:OLD."ID", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_EVERY_TYPE_D_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_EVERY_TYPE_D_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_EVERY_TYPE_D_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
