CREATE OR REPLACE TRIGGER "APP"."TGR_USR_I_1"
AFTER INSERT ON "APP"."USR"
FOR EACH ROW
DECLARE
    -- eventlog sha256:8133ff73b2fefffd083467d5c9dd19950f2833731385e0aad12ea1e176b87b04 log "APP"."EVENTLOG"
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
                'USR', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    first_row := log_rows.COUNT + 1;
    new_key := 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
    IF :NEW."FNAME" IS NOT NULL THEN
        put(7, new_key, 'FNAME');
    END IF;
    IF :NEW."LNAME" IS NOT NULL THEN
        put(7, new_key, 'LNAME');
    END IF;
    put(7, new_key, 'PHOTO');
    write_log;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_U_1"
FOR UPDATE ON "APP"."USR"
COMPOUND TRIGGER
    -- eventlog sha256:e4775cda1f037715ddb0f3192d180bd88a7c6c3e639b838be77a530dca1b1593 log "APP"."EVENTLOG"
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
                'USR', log_rows(i).table_key, log_rows(i).column_name,
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
        new_key := 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        old_key := new_key;
        IF number_changed(:OLD."IDU", :NEW."IDU") THEN
            old_key := 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
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
                IF :NEW."FNAME" IS NOT NULL THEN
                    put(7, new_key, 'FNAME');
                END IF;
                IF :NEW."LNAME" IS NOT NULL THEN
                    put(7, new_key, 'LNAME');
                END IF;
                put(7, new_key, 'PHOTO');
                FOR i IN first_row .. log_rows.COUNT LOOP
                    moved_rows(moved_rows.COUNT + 1) := log_rows(i);
                END LOOP;
                log_rows.DELETE(first_row, log_rows.COUNT);
            END IF;
        ELSIF new_key IS NOT NULL THEN
            IF text_changed(:OLD."FNAME", :NEW."FNAME") THEN
                put(8, new_key, 'FNAME');
            END IF;
            IF text_changed(:OLD."LNAME", :NEW."LNAME") THEN
                put(8, new_key, 'LNAME');
            END IF;
            IF UPDATING('PHOTO') THEN
                put(8, new_key, 'PHOTO');
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
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_D_1"
AFTER DELETE ON "APP"."USR"
FOR EACH ROW
DECLARE
    -- eventlog sha256:344cbd3eb17722057baa09d53cf41a829be0dadb59810c2c44e4c3a68bc5cb49 log "APP"."EVENTLOG"
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
                'USR', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    put(4, 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    write_log;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_NOTE_I_1"
AFTER INSERT ON "APP"."USR_NOTE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:d3ea83afceeb9fc0e7567961c48e3e0b7782dcbe8b04528171c582ba4bafe17c log "APP"."EVENTLOG"
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
                'USR', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    IF :NEW."IDU" IS NOT NULL AND :NEW."NOTE" IS NOT NULL THEN
        put(8, 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_NOTE.NOTE', NULL, NULL);
    END IF;
    write_log;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_NOTE_U_1"
AFTER UPDATE ON "APP"."USR_NOTE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:1643b13cd6c670cf99367c5eb8068813e4aa64b70e3d9ab408e1ffbe890576f7 log "APP"."EVENTLOG"
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
                'USR', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

    FUNCTION text_changed(old_value IN VARCHAR2, new_value IN VARCHAR2) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN LENGTHB(old_value) <> LENGTHB(new_value) OR UTL_RAW.COMPARE(UTL_RAW.CAST_TO_RAW(old_value), UTL_RAW.CAST_TO_RAW(new_value)) <> 0;
    END text_changed;

    FUNCTION clob_changed(old_value IN CLOB, new_value IN CLOB) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN DBMS_LOB.COMPARE(old_value, new_value) <> 0;
    END clob_changed;

BEGIN
    old_key := CASE WHEN :OLD."IDU" IS NOT NULL THEN 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') END;
    new_key := CASE WHEN :NEW."IDU" IS NOT NULL THEN 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') END;
    IF text_changed(old_key, new_key) THEN
        IF :OLD."IDU" IS NOT NULL AND :OLD."NOTE" IS NOT NULL THEN
            put(8, old_key, 'USR_NOTE.NOTE', NULL, NULL);
        END IF;
        IF :NEW."IDU" IS NOT NULL AND :NEW."NOTE" IS NOT NULL THEN
            put(8, new_key, 'USR_NOTE.NOTE', NULL, NULL);
        END IF;
    ELSIF new_key IS NOT NULL AND (clob_changed(:OLD."NOTE", :NEW."NOTE")) THEN
        put(8, new_key, 'USR_NOTE.NOTE', NULL, NULL);
    END IF;
    write_log;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_NOTE_D_1"
AFTER DELETE ON "APP"."USR_NOTE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:ffbe850078adab224d514e48551a62160a871dba5ea2449f885e4a820ae2416e log "APP"."EVENTLOG"
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
                'USR', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    IF :OLD."IDU" IS NOT NULL AND :OLD."NOTE" IS NOT NULL THEN
        put(8, 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_NOTE.NOTE', NULL, NULL);
    END IF;
    write_log;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_I_1"
AFTER INSERT ON "APP"."USR_PHONE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:5191e85f1a7a667e4d83c93cf2da56d10c5ba52284be5a1508bccce8cc5ff8b8 log "APP"."EVENTLOG"
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
                'USR', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    IF :NEW."IDU" IS NOT NULL AND :NEW."PHONENO" IS NOT NULL THEN
        put(8, 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_PHONE.PHONENO', NULL, NULL);
    END IF;
    write_log;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_U_1"
AFTER UPDATE ON "APP"."USR_PHONE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:e29d6c4a4590dac936e4c9460c47a38b2ee5505ad0dcb80e85036b35cf4d6e5f log "APP"."EVENTLOG"
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
                'USR', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

    FUNCTION text_changed(old_value IN VARCHAR2, new_value IN VARCHAR2) RETURN BOOLEAN IS
    BEGIN
        IF old_value IS NULL OR new_value IS NULL THEN
            RETURN old_value IS NOT NULL OR new_value IS NOT NULL;
        END IF;
        RETURN LENGTHB(old_value) <> LENGTHB(new_value) OR UTL_RAW.COMPARE(UTL_RAW.CAST_TO_RAW(old_value), UTL_RAW.CAST_TO_RAW(new_value)) <> 0;
    END text_changed;

BEGIN
    old_key := CASE WHEN :OLD."IDU" IS NOT NULL THEN 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') END;
    new_key := CASE WHEN :NEW."IDU" IS NOT NULL THEN 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') END;
    IF text_changed(old_key, new_key) THEN
        IF :OLD."IDU" IS NOT NULL AND :OLD."PHONENO" IS NOT NULL THEN
            put(8, old_key, 'USR_PHONE.PHONENO', NULL, NULL);
        END IF;
        IF :NEW."IDU" IS NOT NULL AND :NEW."PHONENO" IS NOT NULL THEN
            put(8, new_key, 'USR_PHONE.PHONENO', NULL, NULL);
        END IF;
    ELSIF new_key IS NOT NULL AND (text_changed(:OLD."PHONENO", :NEW."PHONENO")) THEN
        put(8, new_key, 'USR_PHONE.PHONENO', NULL, NULL);
    END IF;
    write_log;
END;
/
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_D_1"
AFTER DELETE ON "APP"."USR_PHONE"
FOR EACH ROW
DECLARE
    -- eventlog sha256:49ef8d86d6d24e3edf2268799394163cc9c40ef4790f05913852ae1d8389c746 log "APP"."EVENTLOG"
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
                'USR', log_rows(i).table_key, log_rows(i).column_name,
                log_rows(i).old_value, log_rows(i).new_value
            );
        log_rows.DELETE;
    END write_log;

BEGIN
    IF :OLD."IDU" IS NOT NULL AND :OLD."PHONENO" IS NOT NULL THEN
        put(8, 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_PHONE.PHONENO', NULL, NULL);
    END IF;
    write_log;
END;
/
