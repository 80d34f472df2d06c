CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_I_1"
AFTER INSERT ON "APP"."EMP"
FOR EACH ROW
DECLARE
    -- eventlog sha256:878fd49d26d24cb90215c248365402be128c9ee889c12a85f3a682b4842beca6 log "APP"."EVENTLOG"
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
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
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
    new_key := 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
    put_inserted('SV_FNAME', :NEW."FNAME");
    put_inserted('FK__EMPNO__MANAGER', TO_CHAR(:NEW."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    IF log_rows.COUNT < first_row THEN
        -- All of them NULL: the insert itself must not be lost.
        put(1, new_key, 'SV_FNAME');
    END IF;
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_EMP_I_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_EMP_I_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_EMP_I_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_U_1"
FOR UPDATE ON "APP"."EMP"
COMPOUND TRIGGER
    -- eventlog sha256:965a19cd0543c83c437e0d402fd63c1ef9dc982ed88140d6a3cbe1c92fa945d8 log "APP"."EVENTLOG"
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
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
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
        new_key := 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        old_key := new_key;
        IF number_changed(:OLD."EMPNO", :NEW."EMPNO") THEN
            old_key := 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
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
                put_inserted('SV_FNAME', :NEW."FNAME");
                put_inserted('FK__EMPNO__MANAGER', TO_CHAR(:NEW."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
                IF log_rows.COUNT < first_row THEN
                    -- All of them NULL: the insert itself must not be lost.
                    put(1, new_key, 'SV_FNAME');
                END IF;
                FOR i IN first_row .. log_rows.COUNT LOOP
                    moved_rows(moved_rows.COUNT + 1) := log_rows(i);
                END LOOP;
                log_rows.DELETE(first_row, log_rows.COUNT);
            END IF;
        ELSIF new_key IS NOT NULL THEN
            IF text_changed(:OLD."FNAME", :NEW."FNAME") THEN
                put(2, new_key, 'SV_FNAME', :OLD."FNAME",
                    :NEW."FNAME");
            END IF;
            IF number_changed(:OLD."MANAGER", :NEW."MANAGER") THEN
                put(2, new_key, 'FK__EMPNO__MANAGER', TO_CHAR(:OLD."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''),
                    TO_CHAR(:NEW."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
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
        WHERE owner = 'APP' AND name = 'TGR_EMP_U_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_EMP_U_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_EMP_U_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_D_1"
AFTER DELETE ON "APP"."EMP"
FOR EACH ROW
DECLARE
    -- eventlog sha256:3b6e39f413e0bb86536b42e1745cc00686ed67fe142a019594f8cce94ec2a91c log "APP"."EVENTLOG"
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
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    put(4, 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_EMP_D_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_EMP_D_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_EMP_D_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_PHONE_I_1"
AFTER INSERT ON "APP"."PHONE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:a0f00353ce65b8d9b4ccf4d1764433c3a15ec0851ddccb3274bc85090044e6ff log "APP"."EVENTLOG"
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
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    IF :NEW."EMPNO" IS NOT NULL AND :NEW."NO" IS NOT NULL THEN
        put(2, 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'MV_PHONENO', NULL, :NEW."NO");
    END IF;
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_PHONE_I_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_PHONE_I_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_PHONE_I_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_PHONE_U_1"
FOR UPDATE ON "APP"."PHONE"
COMPOUND TRIGGER
    -- eventlog sha256:e3484ecd1d69332ab92953b58bff4d518f778e896b13561cbce15f69c27d1dde log "APP"."EVENTLOG"
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
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
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
        put(2, table_key, 'MV_PHONENO', old_value, new_value);
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
        old_key := CASE WHEN :OLD."EMPNO" IS NOT NULL THEN 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') END;
        new_key := CASE WHEN :NEW."EMPNO" IS NOT NULL THEN 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') END;
        IF text_changed(old_key, new_key) THEN
            IF :OLD."EMPNO" IS NOT NULL AND :OLD."NO" IS NOT NULL THEN
                move(old_key, :OLD."NO", NULL);
            END IF;
            IF :NEW."EMPNO" IS NOT NULL AND :NEW."NO" IS NOT NULL THEN
                move(new_key, NULL, :NEW."NO");
            END IF;
        ELSIF new_key IS NOT NULL AND (text_changed(:OLD."NO", :NEW."NO")) THEN
            move(new_key, :OLD."NO", :NEW."NO");
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
                put(8, moved_rows(i).table_key, 'MV_PHONENO');
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
        WHERE owner = 'APP' AND name = 'TGR_PHONE_U_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_PHONE_U_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_PHONE_U_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_PHONE_D_1"
AFTER DELETE ON "APP"."PHONE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:0a23ea81b121c6d8929daea293bb9319a3b4834ff7a295cad49cadcfdce4f8fb log "APP"."EVENTLOG"
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
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    IF :OLD."EMPNO" IS NOT NULL AND :OLD."NO" IS NOT NULL THEN
        put(2, 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'MV_PHONENO', :OLD."NO", NULL);
    END IF;
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_PHONE_D_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_PHONE_D_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_PHONE_D_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_ACTIVE_I_1"
AFTER INSERT ON "APP"."ACTIVE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:579cd5401a88ea80cc4a216905ef188289626f5918722ff50c8255f5734a96b3 log "APP"."EVENTLOG"
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
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    first_row := log_rows.COUNT + 1;
    new_key := 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
    put(5, new_key);
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_ACTIVE_I_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_ACTIVE_I_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_ACTIVE_I_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_ACTIVE_U_1"
FOR UPDATE ON "APP"."ACTIVE"
COMPOUND TRIGGER
    -- eventlog sha256:a847c042e88f792861d0bb65da5cff8a0b3ad0a4968cab9a9a82f5b59ac5e34c log "APP"."EVENTLOG"
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
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
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

    FUNCTION moment_changed(old_value IN TIMESTAMP_UNCONSTRAINED, new_value IN TIMESTAMP_UNCONSTRAINED) RETURN BOOLEAN IS
    BEGIN
        RETURN old_value <> new_value
            OR (old_value IS NULL AND new_value IS NOT NULL)
            OR (old_value IS NOT NULL AND new_value IS NULL);
    END moment_changed;

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
        new_key := 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        old_key := new_key;
        IF number_changed(:OLD."EMPNO", :NEW."EMPNO") THEN
            old_key := 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
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
        ELSIF new_key IS NOT NULL THEN
            IF moment_changed(:OLD."SINCE", :NEW."SINCE")
            THEN
                put(6, new_key);
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
        WHERE owner = 'APP' AND name = 'TGR_ACTIVE_U_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_ACTIVE_U_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_ACTIVE_U_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_ACTIVE_D_1"
AFTER DELETE ON "APP"."ACTIVE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:8ea3c83860368d8daf099d2d53061e03c083c350ddf34f889b69e9285c396545 log "APP"."EVENTLOG"
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
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    put(4, 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    write_log;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'TGR_ACTIVE_D_1' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'TGR_ACTIVE_D_1' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."TGR_ACTIVE_D_1"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
