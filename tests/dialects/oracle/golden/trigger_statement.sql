CREATE OR REPLACE TRIGGER "APP"."TGR_EVERY_TYPE_I_1"
FOR INSERT ON "APP"."EVERY_TYPE"
COMPOUND TRIGGER
    -- eventlog sha256:d8e920c3bf8aa3fe3d184543c2cabd991aa262287cab7a2fc47a0535e683272e log "APP"."EVENTLOG"
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
                'EVERY_TYPE', log_rows(i).table_key, log_rows(i).column_name,
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

    BEFORE STATEMENT IS
    BEGIN
        -- A statement that the database begins anew must not find what its first attempt left.
        log_rows.DELETE;
    END BEFORE STATEMENT;

    AFTER EACH ROW IS
    BEGIN
        first_row := log_rows.COUNT + 1;
        new_key := 'ID=' || TO_CHAR(:NEW."ID", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        put_inserted('N', TO_CHAR(:NEW."N", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
        put_inserted('V', :NEW."V");
        put_inserted('D', LTRIM(TO_CHAR(:NEW."D", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')));
        IF :NEW."CL" IS NOT NULL THEN
            put(7, new_key, 'CL');
        END IF;
        IF log_rows.COUNT < first_row THEN
            -- All of them NULL: the insert itself must not be lost.
            put(1, new_key, 'N');
        END IF;
        IF log_rows.COUNT >= 1000 THEN
            write_log;
        END IF;
    END AFTER EACH ROW;

    AFTER STATEMENT IS
    BEGIN
        write_log;
    END AFTER STATEMENT;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_EVERY_TYPE_U_1"
FOR UPDATE ON "APP"."EVERY_TYPE"
COMPOUND TRIGGER
    -- eventlog sha256:e5e79083ff0859d208f93498b1084750b090ddf7ef0a5ad33a7b7568aa994454 log "APP"."EVENTLOG"
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
                'EVERY_TYPE', log_rows(i).table_key, log_rows(i).column_name,
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

    FUNCTION moment_changed(old_value IN TIMESTAMP_UNCONSTRAINED, new_value IN TIMESTAMP_UNCONSTRAINED) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN old_value <> new_value;
    END moment_changed;

    FUNCTION clob_changed(old_value IN CLOB, new_value IN CLOB) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN DBMS_LOB.COMPARE(old_value, new_value) <> 0;
    END clob_changed;

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
                put_inserted('N', TO_CHAR(:NEW."N", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
                put_inserted('V', :NEW."V");
                put_inserted('D', LTRIM(TO_CHAR(:NEW."D", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')));
                IF :NEW."CL" IS NOT NULL THEN
                    put(7, new_key, 'CL');
                END IF;
                IF log_rows.COUNT < first_row THEN
                    -- All of them NULL: the insert itself must not be lost.
                    put(1, new_key, 'N');
                END IF;
                FOR i IN first_row .. log_rows.COUNT LOOP
                    moved_rows(moved_rows.COUNT + 1) := log_rows(i);
                END LOOP;
                log_rows.DELETE(first_row, log_rows.COUNT);
            END IF;
        ELSIF new_key IS NOT NULL THEN
            IF number_changed(:OLD."N", :NEW."N") THEN
                put(2, new_key, 'N', TO_CHAR(:OLD."N", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''),
                    TO_CHAR(:NEW."N", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
            END IF;
            IF text_changed(:OLD."V", :NEW."V") THEN
                put(2, new_key, 'V', :OLD."V",
                    :NEW."V");
            END IF;
            IF moment_changed(:OLD."D", :NEW."D") THEN
                put(2, new_key, 'D', LTRIM(TO_CHAR(:OLD."D", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')),
                    LTRIM(TO_CHAR(:NEW."D", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')));
            END IF;
            IF clob_changed(:OLD."CL", :NEW."CL") THEN
                put(8, new_key, 'CL');
            END IF;
        END IF;
        IF log_rows.COUNT >= 1000 THEN
            write_log;
        END IF;
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
CREATE OR REPLACE TRIGGER "APP"."TGR_EVERY_TYPE_D_1"
FOR DELETE ON "APP"."EVERY_TYPE"
COMPOUND TRIGGER
    -- eventlog sha256:dcc3677d81a41dd7ce71446841c53c426c047bc41eec54e3fa821b9f7284449c log "APP"."EVENTLOG"
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

    BEFORE STATEMENT IS
    BEGIN
        -- A statement that the database begins anew must not find what its first attempt left.
        log_rows.DELETE;
    END BEFORE STATEMENT;

    AFTER EACH ROW IS
    BEGIN
        put(4, 'ID=' || TO_CHAR(:OLD."ID", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
        IF log_rows.COUNT >= 1000 THEN
            write_log;
        END IF;
    END AFTER EACH ROW;

    AFTER STATEMENT IS
    BEGIN
        write_log;
    END AFTER STATEMENT;
END;
/
