CREATE OR REPLACE TRIGGER "APP"."TGR_EVERY_TYPE_I_1"
AFTER INSERT ON "APP"."EVERY_TYPE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:0e169c1f13a89c258926e1ea64f2aab16699bed80b2682afa14bc442906d5e92 log "LOGS"."EVENTLOG"
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
            INSERT INTO "LOGS"."EVENTLOG" ("STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY", "COLUMN_NAME", "OLD_VALUE", "NEW_VALUE")
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

BEGIN
    first_row := log_rows.COUNT + 1;
    new_key := 'ID=' || TO_CHAR(:NEW."ID", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
    put_inserted('N', TO_CHAR(:NEW."N", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    put_inserted('N2', TO_CHAR(:NEW."N2", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    put_inserted('F', TO_CHAR(:NEW."F", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    put_inserted('BF', TO_CHAR(:NEW."BF", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    put_inserted('BD', TO_CHAR(:NEW."BD", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    put_inserted('C', :NEW."C");
    put_inserted('NC', TO_CHAR(:NEW."NC"));
    put_inserted('V', :NEW."V");
    put_inserted('NV', TO_CHAR(:NEW."NV"));
    put_inserted('R', "LOGS"."PROC_EVENTLOG_BASE64"(:NEW."R"));
    put_inserted('D', LTRIM(TO_CHAR(:NEW."D", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')));
    put_inserted('T', LTRIM(TO_CHAR(:NEW."T", 'SYYYY-MM-DD HH24:MI:SS.FF9', 'NLS_CALENDAR=GREGORIAN')));
    put_inserted('TZ', LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."TZ"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')));
    put_inserted('LTZ', LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."LTZ"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')));
    put_inserted('YM', CASE WHEN :NEW."YM" IS NOT NULL THEN CASE WHEN :NEW."YM" < INTERVAL '0' MONTH THEN '-' ELSE '+' END || TO_CHAR(ABS(EXTRACT(YEAR FROM :NEW."YM")), 'FM999999990') || '-' || TO_CHAR(ABS(EXTRACT(MONTH FROM :NEW."YM")), 'FM00') END);
    put_inserted('DS', CASE WHEN :NEW."DS" IS NOT NULL THEN CASE WHEN :NEW."DS" < INTERVAL '0' SECOND THEN '-' ELSE '+' END || TO_CHAR(ABS(EXTRACT(DAY FROM :NEW."DS")), 'FM999999990') || ' ' || TO_CHAR(ABS(EXTRACT(HOUR FROM :NEW."DS")), 'FM00') || ':' || TO_CHAR(ABS(EXTRACT(MINUTE FROM :NEW."DS")), 'FM00') || ':' || TO_CHAR(ABS(EXTRACT(SECOND FROM :NEW."DS")), 'FM00.000000000') END);
    put_inserted('RI', ROWIDTOCHAR(:NEW."RI"));
    IF :NEW."CL" IS NOT NULL THEN
        put(7, new_key, 'CL');
    END IF;
    IF :NEW."NCL" IS NOT NULL THEN
        put(7, new_key, 'NCL');
    END IF;
    put(7, new_key, 'B');
    put(7, new_key, 'BFI');
    put(7, new_key, 'X');
    put(7, new_key, 'L');
    put(7, new_key, 'J');
    write_log;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_EVERY_TYPE_U_1"
FOR UPDATE ON "APP"."EVERY_TYPE"
COMPOUND TRIGGER
    -- eventlog sha256:8bab9ba4d7a6b43a6be6191d909760bd0f9160e07d1cf608b7e01a82ab692cb0 log "LOGS"."EVENTLOG"
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
            INSERT INTO "LOGS"."EVENTLOG" ("STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY", "COLUMN_NAME", "OLD_VALUE", "NEW_VALUE")
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

    FUNCTION float_changed(old_value IN BINARY_FLOAT, new_value IN BINARY_FLOAT) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN old_value <> new_value;
    END float_changed;

    FUNCTION double_changed(old_value IN BINARY_DOUBLE, new_value IN BINARY_DOUBLE) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN old_value <> new_value;
    END double_changed;

    FUNCTION text_changed(old_value IN VARCHAR2, new_value IN VARCHAR2) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN LENGTHB(old_value) <> LENGTHB(new_value) OR UTL_RAW.COMPARE(UTL_RAW.CAST_TO_RAW(old_value), UTL_RAW.CAST_TO_RAW(new_value)) <> 0;
    END text_changed;

    FUNCTION national_changed(old_value IN NVARCHAR2, new_value IN NVARCHAR2) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN LENGTHB(old_value) <> LENGTHB(new_value) OR UTL_RAW.COMPARE(UTL_RAW.CAST_TO_RAW(old_value), UTL_RAW.CAST_TO_RAW(new_value)) <> 0;
    END national_changed;

    FUNCTION raw_changed(old_value IN RAW, new_value IN RAW) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN UTL_RAW.LENGTH(old_value) <> UTL_RAW.LENGTH(new_value) OR UTL_RAW.COMPARE(old_value, new_value) <> 0;
    END raw_changed;

    FUNCTION moment_changed(old_value IN TIMESTAMP_UNCONSTRAINED, new_value IN TIMESTAMP_UNCONSTRAINED) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN old_value <> new_value;
    END moment_changed;

    FUNCTION zoned_changed(old_value IN TIMESTAMP_TZ_UNCONSTRAINED, new_value IN TIMESTAMP_TZ_UNCONSTRAINED) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN old_value <> new_value;
    END zoned_changed;

    FUNCTION months_changed(old_value IN YMINTERVAL_UNCONSTRAINED, new_value IN YMINTERVAL_UNCONSTRAINED) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN old_value <> new_value;
    END months_changed;

    FUNCTION seconds_changed(old_value IN DSINTERVAL_UNCONSTRAINED, new_value IN DSINTERVAL_UNCONSTRAINED) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN old_value <> new_value;
    END seconds_changed;

    FUNCTION clob_changed(old_value IN CLOB, new_value IN CLOB) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN DBMS_LOB.COMPARE(old_value, new_value) <> 0;
    END clob_changed;

    FUNCTION nclob_changed(old_value IN NCLOB, new_value IN NCLOB) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN DBMS_LOB.COMPARE(old_value, new_value) <> 0;
    END nclob_changed;

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
                put_inserted('N2', TO_CHAR(:NEW."N2", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
                put_inserted('F', TO_CHAR(:NEW."F", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
                put_inserted('BF', TO_CHAR(:NEW."BF", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
                put_inserted('BD', TO_CHAR(:NEW."BD", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
                put_inserted('C', :NEW."C");
                put_inserted('NC', TO_CHAR(:NEW."NC"));
                put_inserted('V', :NEW."V");
                put_inserted('NV', TO_CHAR(:NEW."NV"));
                put_inserted('R', "LOGS"."PROC_EVENTLOG_BASE64"(:NEW."R"));
                put_inserted('D', LTRIM(TO_CHAR(:NEW."D", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')));
                put_inserted('T', LTRIM(TO_CHAR(:NEW."T", 'SYYYY-MM-DD HH24:MI:SS.FF9', 'NLS_CALENDAR=GREGORIAN')));
                put_inserted('TZ', LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."TZ"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')));
                put_inserted('LTZ', LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."LTZ"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')));
                put_inserted('YM', CASE WHEN :NEW."YM" IS NOT NULL THEN CASE WHEN :NEW."YM" < INTERVAL '0' MONTH THEN '-' ELSE '+' END || TO_CHAR(ABS(EXTRACT(YEAR FROM :NEW."YM")), 'FM999999990') || '-' || TO_CHAR(ABS(EXTRACT(MONTH FROM :NEW."YM")), 'FM00') END);
                put_inserted('DS', CASE WHEN :NEW."DS" IS NOT NULL THEN CASE WHEN :NEW."DS" < INTERVAL '0' SECOND THEN '-' ELSE '+' END || TO_CHAR(ABS(EXTRACT(DAY FROM :NEW."DS")), 'FM999999990') || ' ' || TO_CHAR(ABS(EXTRACT(HOUR FROM :NEW."DS")), 'FM00') || ':' || TO_CHAR(ABS(EXTRACT(MINUTE FROM :NEW."DS")), 'FM00') || ':' || TO_CHAR(ABS(EXTRACT(SECOND FROM :NEW."DS")), 'FM00.000000000') END);
                put_inserted('RI', ROWIDTOCHAR(:NEW."RI"));
                IF :NEW."CL" IS NOT NULL THEN
                    put(7, new_key, 'CL');
                END IF;
                IF :NEW."NCL" IS NOT NULL THEN
                    put(7, new_key, 'NCL');
                END IF;
                put(7, new_key, 'B');
                put(7, new_key, 'BFI');
                put(7, new_key, 'X');
                put(7, new_key, 'L');
                put(7, new_key, 'J');
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
            IF number_changed(:OLD."N2", :NEW."N2") THEN
                put(2, new_key, 'N2', TO_CHAR(:OLD."N2", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''),
                    TO_CHAR(:NEW."N2", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
            END IF;
            IF number_changed(:OLD."F", :NEW."F") THEN
                put(2, new_key, 'F', TO_CHAR(:OLD."F", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''),
                    TO_CHAR(:NEW."F", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
            END IF;
            IF float_changed(:OLD."BF", :NEW."BF") THEN
                put(2, new_key, 'BF', TO_CHAR(:OLD."BF", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''),
                    TO_CHAR(:NEW."BF", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
            END IF;
            IF double_changed(:OLD."BD", :NEW."BD") THEN
                put(2, new_key, 'BD', TO_CHAR(:OLD."BD", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''),
                    TO_CHAR(:NEW."BD", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
            END IF;
            IF text_changed(:OLD."C", :NEW."C") THEN
                put(2, new_key, 'C', :OLD."C",
                    :NEW."C");
            END IF;
            IF national_changed(:OLD."NC", :NEW."NC") THEN
                put(2, new_key, 'NC', TO_CHAR(:OLD."NC"),
                    TO_CHAR(:NEW."NC"));
            END IF;
            IF text_changed(:OLD."V", :NEW."V") THEN
                put(2, new_key, 'V', :OLD."V",
                    :NEW."V");
            END IF;
            IF national_changed(:OLD."NV", :NEW."NV") THEN
                put(2, new_key, 'NV', TO_CHAR(:OLD."NV"),
                    TO_CHAR(:NEW."NV"));
            END IF;
            IF raw_changed(:OLD."R", :NEW."R") THEN
                put(2, new_key, 'R', "LOGS"."PROC_EVENTLOG_BASE64"(:OLD."R"),
                    "LOGS"."PROC_EVENTLOG_BASE64"(:NEW."R"));
            END IF;
            IF moment_changed(:OLD."D", :NEW."D") THEN
                put(2, new_key, 'D', LTRIM(TO_CHAR(:OLD."D", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')),
                    LTRIM(TO_CHAR(:NEW."D", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')));
            END IF;
            IF moment_changed(:OLD."T", :NEW."T") THEN
                put(2, new_key, 'T', LTRIM(TO_CHAR(:OLD."T", 'SYYYY-MM-DD HH24:MI:SS.FF9', 'NLS_CALENDAR=GREGORIAN')),
                    LTRIM(TO_CHAR(:NEW."T", 'SYYYY-MM-DD HH24:MI:SS.FF9', 'NLS_CALENDAR=GREGORIAN')));
            END IF;
            IF zoned_changed(:OLD."TZ", :NEW."TZ") THEN
                put(2, new_key, 'TZ', LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:OLD."TZ"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')),
                    LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."TZ"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')));
            END IF;
            IF zoned_changed(:OLD."LTZ", :NEW."LTZ") THEN
                put(2, new_key, 'LTZ', LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:OLD."LTZ"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')),
                    LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."LTZ"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')));
            END IF;
            IF months_changed(:OLD."YM", :NEW."YM") THEN
                put(2, new_key, 'YM', CASE WHEN :OLD."YM" IS NOT NULL THEN CASE WHEN :OLD."YM" < INTERVAL '0' MONTH THEN '-' ELSE '+' END || TO_CHAR(ABS(EXTRACT(YEAR FROM :OLD."YM")), 'FM999999990') || '-' || TO_CHAR(ABS(EXTRACT(MONTH FROM :OLD."YM")), 'FM00') END,
                    CASE WHEN :NEW."YM" IS NOT NULL THEN CASE WHEN :NEW."YM" < INTERVAL '0' MONTH THEN '-' ELSE '+' END || TO_CHAR(ABS(EXTRACT(YEAR FROM :NEW."YM")), 'FM999999990') || '-' || TO_CHAR(ABS(EXTRACT(MONTH FROM :NEW."YM")), 'FM00') END);
            END IF;
            IF seconds_changed(:OLD."DS", :NEW."DS") THEN
                put(2, new_key, 'DS', CASE WHEN :OLD."DS" IS NOT NULL THEN CASE WHEN :OLD."DS" < INTERVAL '0' SECOND THEN '-' ELSE '+' END || TO_CHAR(ABS(EXTRACT(DAY FROM :OLD."DS")), 'FM999999990') || ' ' || TO_CHAR(ABS(EXTRACT(HOUR FROM :OLD."DS")), 'FM00') || ':' || TO_CHAR(ABS(EXTRACT(MINUTE FROM :OLD."DS")), 'FM00') || ':' || TO_CHAR(ABS(EXTRACT(SECOND FROM :OLD."DS")), 'FM00.000000000') END,
                    CASE WHEN :NEW."DS" IS NOT NULL THEN CASE WHEN :NEW."DS" < INTERVAL '0' SECOND THEN '-' ELSE '+' END || TO_CHAR(ABS(EXTRACT(DAY FROM :NEW."DS")), 'FM999999990') || ' ' || TO_CHAR(ABS(EXTRACT(HOUR FROM :NEW."DS")), 'FM00') || ':' || TO_CHAR(ABS(EXTRACT(MINUTE FROM :NEW."DS")), 'FM00') || ':' || TO_CHAR(ABS(EXTRACT(SECOND FROM :NEW."DS")), 'FM00.000000000') END);
            END IF;
            IF text_changed(:OLD."RI", :NEW."RI") THEN
                put(2, new_key, 'RI', ROWIDTOCHAR(:OLD."RI"),
                    ROWIDTOCHAR(:NEW."RI"));
            END IF;
            IF clob_changed(:OLD."CL", :NEW."CL") THEN
                put(8, new_key, 'CL');
            END IF;
            IF nclob_changed(:OLD."NCL", :NEW."NCL") THEN
                put(8, new_key, 'NCL');
            END IF;
            IF UPDATING('B') THEN
                put(8, new_key, 'B');
            END IF;
            IF UPDATING('BFI') THEN
                put(8, new_key, 'BFI');
            END IF;
            IF UPDATING('X') THEN
                put(8, new_key, 'X');
            END IF;
            IF UPDATING('L') THEN
                put(8, new_key, 'L');
            END IF;
            IF UPDATING('J') THEN
                put(8, new_key, 'J');
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
CREATE OR REPLACE TRIGGER "APP"."TGR_EVERY_TYPE_D_1"
AFTER DELETE ON "APP"."EVERY_TYPE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:421b513b75347c6f4cf77731b2a553a681376d0ac743100faeff0bd57150402d log "LOGS"."EVENTLOG"
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
            INSERT INTO "LOGS"."EVENTLOG" ("STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY", "COLUMN_NAME", "OLD_VALUE", "NEW_VALUE")
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
