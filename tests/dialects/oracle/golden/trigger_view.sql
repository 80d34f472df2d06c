CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_I_1"
AFTER INSERT ON "APP"."EMP"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:878fd49d26d24cb90215c248365402be128c9ee889c12a85f3a682b4842beca6 log "APP"."EVENTLOG"
-- lines 6 to 40 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 42 to 55 of trigger_field
    new_key := 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
    put_inserted('SV_FNAME', :NEW."FNAME");
    put_inserted('FK__EMPNO__MANAGER', TO_CHAR(:NEW."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    IF log_rows.COUNT < first_row THEN
        -- All of them NULL: the insert itself must not be lost.
        put(1, new_key, 'SV_FNAME');
-- lines 302 to 305 of trigger_children_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_U_1"
FOR UPDATE ON "APP"."EMP"
COMPOUND TRIGGER
    -- eventlog sha256:ef2f45c5ab503ec340d965f12df5e47973fb758c2d9c9fbe93316e9601762ccd log "APP"."EVENTLOG"
-- lines 89 to 130 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 107 to 127 of trigger_children_query_back
-- lines 236 to 259 of trigger_field
        new_key := 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        old_key := new_key;
        IF number_changed(:OLD."EMPNO", :NEW."EMPNO") THEN
            old_key := 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
-- lines 264 to 274 of trigger_field
                put_inserted('SV_FNAME', :NEW."FNAME");
                put_inserted('FK__EMPNO__MANAGER', TO_CHAR(:NEW."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 213 to 214 of trigger_statement
                    put(1, new_key, 'SV_FNAME');
-- lines 216 to 222 of trigger_statement
            IF text_changed(:OLD."FNAME", :NEW."FNAME") THEN
                put(2, new_key, 'SV_FNAME', :OLD."FNAME",
                    :NEW."FNAME");
            END IF;
            IF number_changed(:OLD."MANAGER", :NEW."MANAGER") THEN
                put(2, new_key, 'FK__EMPNO__MANAGER', TO_CHAR(:OLD."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''),
                    TO_CHAR(:NEW."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 397 to 421 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_D_1"
AFTER DELETE ON "APP"."EMP"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:3b6e39f413e0bb86536b42e1745cc00686ed67fe142a019594f8cce94ec2a91c log "APP"."EVENTLOG"
-- lines 412 to 444 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 466 of trigger_field
    put(4, 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 85 to 87 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."TGR_PHONE_I_1"
AFTER INSERT ON "APP"."PHONE"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:a0f00353ce65b8d9b4ccf4d1764433c3a15ec0851ddccb3274bc85090044e6ff log "APP"."EVENTLOG"
-- lines 412 to 444 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 466 of trigger_field
    IF :NEW."EMPNO" IS NOT NULL AND :NEW."NO" IS NOT NULL THEN
        put(2, 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'MV_PHONENO', NULL, :NEW."NO");
-- lines 302 to 305 of trigger_children_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_PHONE_U_1"
FOR UPDATE ON "APP"."PHONE"
COMPOUND TRIGGER
    -- eventlog sha256:9b38f871e56f2b886baa85f749c805c776aa1a2b84adfaa2723edbc6b15e7b59 log "APP"."EVENTLOG"
-- lines 311 to 321 of trigger_children_query_back
    -- The values that rows of the statement gave up, and what is to be logged if none of them was taken again.
    TYPE values_t IS TABLE OF PLS_INTEGER INDEX BY VARCHAR2(32767);
    given_up values_t;
    told values_t;
-- lines 106 to 130 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 347 to 359 of trigger_children_query_back
-- lines 243 to 247 of trigger_field
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
-- lines 247 to 252 of trigger_field
        told.DELETE;
-- lines 255 to 259 of trigger_field
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
-- lines 75 to 79 of trigger_statement
        FOR i IN 1 .. moved_rows.COUNT LOOP
            IF moved_rows(i).new_value IS NOT NULL
                AND given_up.EXISTS(identity(moved_rows(i).table_key) || '-' || identity(moved_rows(i).new_value))
                AND NOT is_shifted(moved_rows(i).table_key)
            THEN
                told(identity(moved_rows(i).table_key)) := 1;
                put(8, moved_rows(i).table_key, 'MV_PHONENO');
-- lines 407 to 409 of trigger_field
            IF NOT is_shifted(moved_rows(i).table_key) THEN
                log_rows(log_rows.COUNT + 1) := moved_rows(i);
-- lines 416 to 421 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."TGR_PHONE_D_1"
AFTER DELETE ON "APP"."PHONE"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:0a23ea81b121c6d8929daea293bb9319a3b4834ff7a295cad49cadcfdce4f8fb log "APP"."EVENTLOG"
-- lines 412 to 444 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 466 of trigger_field
    IF :OLD."EMPNO" IS NOT NULL AND :OLD."NO" IS NOT NULL THEN
        put(2, 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'MV_PHONENO', :OLD."NO", NULL);
-- lines 302 to 305 of trigger_children_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_ACTIVE_I_1"
AFTER INSERT ON "APP"."ACTIVE"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:579cd5401a88ea80cc4a216905ef188289626f5918722ff50c8255f5734a96b3 log "APP"."EVENTLOG"
-- lines 6 to 40 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 42 to 48 of trigger_children_query_back
    new_key := 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
-- lines 50 to 53 of trigger_row_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_ACTIVE_U_1"
FOR UPDATE ON "APP"."ACTIVE"
COMPOUND TRIGGER
    -- eventlog sha256:8dfccb3c8aadb5c080dd942ddc291bfe79589a156e5213a758748ba6e1a8c253 log "APP"."EVENTLOG"
-- lines 89 to 130 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 131 to 159 of trigger_statement
-- lines 243 to 259 of trigger_field
        new_key := 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        old_key := new_key;
        IF number_changed(:OLD."EMPNO", :NEW."EMPNO") THEN
            old_key := 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
-- lines 223 to 240 of trigger_row_query_back
            IF moment_changed(:OLD."SINCE", :NEW."SINCE")
-- lines 265 to 291 of trigger_row_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_ACTIVE_D_1"
AFTER DELETE ON "APP"."ACTIVE"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:8ea3c83860368d8daf099d2d53061e03c083c350ddf34f889b69e9285c396545 log "APP"."EVENTLOG"
-- lines 412 to 444 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 466 of trigger_field
    put(4, 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 85 to 87 of trigger_field
