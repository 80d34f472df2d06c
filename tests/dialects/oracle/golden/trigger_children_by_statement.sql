CREATE OR REPLACE TRIGGER "APP"."TGR_USR_I_1"
FOR INSERT ON "APP"."USR"
COMPOUND TRIGGER
    -- eventlog sha256:d565898edbd41a28c8000e71dfced5cfd7e5bd4954c39b4fef04863cca296223 log "APP"."EVENTLOG"
-- lines 6 to 46 of trigger_children_query_back
-- lines 46 to 61 of trigger_statement
        new_key := 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        put_inserted('FNAME', :NEW."FNAME");
        put_inserted('LNAME', :NEW."LNAME");
-- lines 69 to 70 of trigger_statement
            put(1, new_key, 'FNAME');
-- lines 72 to 83 of trigger_statement
-- lines 60 to 62 of trigger_children_query_back
    -- eventlog sha256:9d30abc17490ebd19284457c27f0f1a8c52fb8543ae43d6ebecd66a431558fb2 log "APP"."EVENTLOG"
-- lines 64 to 127 of trigger_children_query_back
-- lines 236 to 259 of trigger_field
-- lines 145 to 159 of trigger_children_query_back
                put_inserted('FNAME', :NEW."FNAME");
                put_inserted('LNAME', :NEW."LNAME");
-- lines 213 to 214 of trigger_statement
                    put(1, new_key, 'FNAME');
-- lines 216 to 222 of trigger_statement
            IF text_changed(:OLD."FNAME", :NEW."FNAME") THEN
                put(3, new_key, 'FNAME', :OLD."FNAME",
                    :NEW."FNAME");
-- lines 175 to 176 of trigger_children_query_back
                put(3, new_key, 'LNAME', :OLD."LNAME",
                    :NEW."LNAME");
-- lines 237 to 263 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_D_1"
FOR DELETE ON "APP"."USR"
COMPOUND TRIGGER
    -- eventlog sha256:c9c9af713a6ba056f7c3d691bf5dac210386d5c4773f48549de8db33488c6abb log "APP"."EVENTLOG"
-- lines 211 to 249 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        put(4, 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 73 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_NOTE_I_1"
FOR INSERT ON "APP"."USR_NOTE"
COMPOUND TRIGGER
    -- eventlog sha256:940e912ed8060e0265b66338d645d5020c42a565c6fc830e743137bbac2add6f log "APP"."EVENTLOG"
-- lines 211 to 249 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        IF :NEW."IDU" IS NOT NULL AND :NEW."NOTE" IS NOT NULL THEN
            put(8, 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_NOTE.NOTE', NULL, NULL);
-- lines 72 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_NOTE_U_1"
FOR UPDATE ON "APP"."USR_NOTE"
COMPOUND TRIGGER
    -- eventlog sha256:f8a7d9330a8b95783a25749c1f4c8f10f64d8e3e4683bcc82b446df8e5c5a2ad log "APP"."EVENTLOG"
-- lines 311 to 367 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
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
-- lines 376 to 377 of trigger_children_query_back
-- lines 73 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_NOTE_D_1"
FOR DELETE ON "APP"."USR_NOTE"
COMPOUND TRIGGER
    -- eventlog sha256:7ca8eecd9ed97edad1ec2d0c65c5eb50b80e47fedcd638f113a6cc4fa7f1ddbd log "APP"."EVENTLOG"
-- lines 211 to 249 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        IF :OLD."IDU" IS NOT NULL AND :OLD."NOTE" IS NOT NULL THEN
            put(8, 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_NOTE.NOTE', NULL, NULL);
-- lines 72 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_I_1"
FOR INSERT ON "APP"."USR_PHONE"
COMPOUND TRIGGER
    -- eventlog sha256:9b2403d6e10d3ab2c1815742ddae1ef1a874000750e0e6c95da93602ebbd9775 log "APP"."EVENTLOG"
-- lines 211 to 249 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        IF :NEW."IDU" IS NOT NULL AND :NEW."PHONENO" IS NOT NULL THEN
            put(2, 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_PHONE.PHONENO', NULL, :NEW."PHONENO");
-- lines 72 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_U_1"
FOR UPDATE ON "APP"."USR_PHONE"
COMPOUND TRIGGER
    -- eventlog sha256:16f4748444e1ed2bab4d874680b2daad2dc276d6e109a11beb8bfbb3c1369634 log "APP"."EVENTLOG"
-- lines 311 to 321 of trigger_children_query_back
    -- The values that rows of the statement gave up, and what is to be logged if none of them was taken again.
    TYPE values_t IS TABLE OF PLS_INTEGER INDEX BY VARCHAR2(32767);
    given_up values_t;
    told values_t;
-- lines 81 to 111 of trigger_children_query_back
-- lines 120 to 132 of trigger_children_query_back
    PROCEDURE move(table_key IN VARCHAR2, old_value IN VARCHAR2, new_value IN VARCHAR2) IS
    BEGIN
        put(2, table_key, 'USR_PHONE.PHONENO', old_value, new_value);
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
        old_key := CASE WHEN :OLD."IDU" IS NOT NULL THEN 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') END;
        new_key := CASE WHEN :NEW."IDU" IS NOT NULL THEN 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''') END;
        IF text_changed(old_key, new_key) THEN
            IF :OLD."IDU" IS NOT NULL AND :OLD."PHONENO" IS NOT NULL THEN
                move(old_key, :OLD."PHONENO", NULL);
            END IF;
            IF :NEW."IDU" IS NOT NULL AND :NEW."PHONENO" IS NOT NULL THEN
                move(new_key, NULL, :NEW."PHONENO");
            END IF;
        ELSIF new_key IS NOT NULL AND (text_changed(:OLD."PHONENO", :NEW."PHONENO")) THEN
            move(new_key, :OLD."PHONENO", :NEW."PHONENO");
-- lines 75 to 79 of trigger_statement
        FOR i IN 1 .. moved_rows.COUNT LOOP
            IF moved_rows(i).new_value IS NOT NULL
                AND given_up.EXISTS(identity(moved_rows(i).table_key) || '-' || identity(moved_rows(i).new_value))
                AND NOT is_shifted(moved_rows(i).table_key)
            THEN
                told(identity(moved_rows(i).table_key)) := 1;
                put(8, moved_rows(i).table_key, 'USR_PHONE.PHONENO');
-- lines 407 to 409 of trigger_field
            IF NOT is_shifted(moved_rows(i).table_key) THEN
                log_rows(log_rows.COUNT + 1) := moved_rows(i);
-- lines 416 to 421 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_D_1"
FOR DELETE ON "APP"."USR_PHONE"
COMPOUND TRIGGER
    -- eventlog sha256:8bee2719b9b8f8e16ce19691b870528b3a35c3215947feaa2ecdb9c9696aec89 log "APP"."EVENTLOG"
-- lines 211 to 249 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        IF :OLD."IDU" IS NOT NULL AND :OLD."PHONENO" IS NOT NULL THEN
            put(2, 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_PHONE.PHONENO', :OLD."PHONENO", NULL);
-- lines 72 to 83 of trigger_statement
