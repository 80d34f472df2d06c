CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_I_1"
AFTER INSERT ON "APP"."EMP"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:e9933b65fab6a838240df18f0513527081b3ca99fae67795d4eaa80f414abf65 log "APP"."EVENTLOG"
-- lines 6 to 40 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 42 to 48 of trigger_children_query_back
    new_key := 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
-- lines 50 to 53 of trigger_row_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_U_1"
FOR UPDATE ON "APP"."EMP"
COMPOUND TRIGGER
    -- eventlog sha256:606a43c6fc83d49cce6af8bd6176a65a7f042425e3bd5e224ac84937c10c8a77 log "APP"."EVENTLOG"
-- lines 89 to 130 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 107 to 144 of trigger_children_query_back
        new_key := 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        old_key := new_key;
        IF number_changed(:OLD."EMPNO", :NEW."EMPNO") THEN
            old_key := 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
-- lines 223 to 240 of trigger_row_query_back
            IF text_changed(:OLD."FNAME", :NEW."FNAME")
            OR number_changed(:OLD."MANAGER", :NEW."MANAGER")
-- lines 265 to 291 of trigger_row_query_back
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
    -- eventlog sha256:44c879c3babbc58f3fc85d791e0dc93dc41c1cdd1ca9200c7b0b35fcaba12193 log "APP"."EVENTLOG"
-- lines 412 to 444 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 466 of trigger_field
    IF :NEW."EMPNO" IS NOT NULL AND :NEW."NO" IS NOT NULL THEN
        put(8, 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'MV_PHONENO', NULL, NULL);
-- lines 302 to 305 of trigger_children_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_PHONE_U_1"
AFTER UPDATE ON "APP"."PHONE"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:e1c15547e306aee6ab3e2a261b6292f8306471160d8aad6fbe933b85818123c1 log "APP"."EVENTLOG"
-- lines 311 to 345 of trigger_children_query_back
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 527 to 540 of trigger_children_query_back
    old_key := CASE WHEN :OLD."EMPNO" IS NOT NULL THEN 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') END;
    new_key := CASE WHEN :NEW."EMPNO" IS NOT NULL THEN 'PK_EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') END;
    IF text_changed(old_key, new_key) THEN
        IF :OLD."EMPNO" IS NOT NULL AND :OLD."NO" IS NOT NULL THEN
            put(8, old_key, 'MV_PHONENO', NULL, NULL);
        END IF;
        IF :NEW."EMPNO" IS NOT NULL AND :NEW."NO" IS NOT NULL THEN
            put(8, new_key, 'MV_PHONENO', NULL, NULL);
        END IF;
    ELSIF new_key IS NOT NULL AND (text_changed(:OLD."NO", :NEW."NO")) THEN
        put(8, new_key, 'MV_PHONENO', NULL, NULL);
-- lines 302 to 305 of trigger_children_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_PHONE_D_1"
AFTER DELETE ON "APP"."PHONE"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:b09ab56917c002bca59928dc886d718d6bf4094c104c7180babdf7670746a46f log "APP"."EVENTLOG"
-- lines 412 to 444 of trigger_remove_all
                'VIEW_EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 466 of trigger_field
    IF :OLD."EMPNO" IS NOT NULL AND :OLD."NO" IS NOT NULL THEN
        put(8, 'PK_EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'MV_PHONENO', NULL, NULL);
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
