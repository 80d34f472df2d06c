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
    -- eventlog sha256:89bc34730ea18b4c69cac5524b7b3b0b1f434c3e5dbfc169446f20dbc1e988d5 log "APP"."EVENTLOG"
-- lines 64 to 125 of trigger_children_query_back
-- lines 224 to 247 of trigger_field
-- lines 143 to 157 of trigger_children_query_back
                put_inserted('FNAME', :NEW."FNAME");
                put_inserted('LNAME', :NEW."LNAME");
-- lines 209 to 210 of trigger_statement
                    put(1, new_key, 'FNAME');
-- lines 212 to 218 of trigger_statement
            IF text_changed(:OLD."FNAME", :NEW."FNAME") THEN
                put(3, new_key, 'FNAME', :OLD."FNAME",
                    :NEW."FNAME");
-- lines 173 to 174 of trigger_children_query_back
                put(3, new_key, 'LNAME', :OLD."LNAME",
                    :NEW."LNAME");
-- lines 233 to 259 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_D_1"
FOR DELETE ON "APP"."USR"
COMPOUND TRIGGER
    -- eventlog sha256:c9c9af713a6ba056f7c3d691bf5dac210386d5c4773f48549de8db33488c6abb log "APP"."EVENTLOG"
-- lines 209 to 247 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        put(4, 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 73 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_NOTE_I_1"
FOR INSERT ON "APP"."USR_NOTE"
COMPOUND TRIGGER
    -- eventlog sha256:940e912ed8060e0265b66338d645d5020c42a565c6fc830e743137bbac2add6f log "APP"."EVENTLOG"
-- lines 209 to 247 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        IF :NEW."IDU" IS NOT NULL AND :NEW."NOTE" IS NOT NULL THEN
            put(8, 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_NOTE.NOTE', NULL, NULL);
-- lines 72 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_NOTE_U_1"
FOR UPDATE ON "APP"."USR_NOTE"
COMPOUND TRIGGER
    -- eventlog sha256:69dbbe558303f91667b6bab04363a278d6d5fe1a2a56aef9a7e4899e658c6f19 log "APP"."EVENTLOG"
-- lines 309 to 363 of trigger_children_query_back
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
-- lines 372 to 373 of trigger_children_query_back
-- lines 73 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_NOTE_D_1"
FOR DELETE ON "APP"."USR_NOTE"
COMPOUND TRIGGER
    -- eventlog sha256:7ca8eecd9ed97edad1ec2d0c65c5eb50b80e47fedcd638f113a6cc4fa7f1ddbd log "APP"."EVENTLOG"
-- lines 209 to 247 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        IF :OLD."IDU" IS NOT NULL AND :OLD."NOTE" IS NOT NULL THEN
            put(8, 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_NOTE.NOTE', NULL, NULL);
-- lines 72 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_I_1"
FOR INSERT ON "APP"."USR_PHONE"
COMPOUND TRIGGER
    -- eventlog sha256:9b2403d6e10d3ab2c1815742ddae1ef1a874000750e0e6c95da93602ebbd9775 log "APP"."EVENTLOG"
-- lines 209 to 247 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        IF :NEW."IDU" IS NOT NULL AND :NEW."PHONENO" IS NOT NULL THEN
            put(2, 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_PHONE.PHONENO', NULL, :NEW."PHONENO");
-- lines 72 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_U_1"
FOR UPDATE ON "APP"."USR_PHONE"
COMPOUND TRIGGER
    -- eventlog sha256:9f7c10ec90f49f966ca2d100e329ecfc77f458845871f058542b706ec97fbbc0 log "APP"."EVENTLOG"
-- lines 309 to 319 of trigger_children_query_back
    -- The values that rows of the statement gave up, and what is to be logged if none of them was taken again.
    TYPE values_t IS TABLE OF PLS_INTEGER INDEX BY VARCHAR2(32767);
    given_up values_t;
    told values_t;
-- lines 81 to 111 of trigger_children_query_back
-- lines 119 to 130 of trigger_children_query_back
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
-- lines 235 to 240 of trigger_field
        told.DELETE;
-- lines 243 to 247 of trigger_field
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
-- lines 395 to 397 of trigger_field
            IF NOT is_shifted(moved_rows(i).table_key) THEN
                log_rows(log_rows.COUNT + 1) := moved_rows(i);
-- lines 404 to 409 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_D_1"
FOR DELETE ON "APP"."USR_PHONE"
COMPOUND TRIGGER
    -- eventlog sha256:8bee2719b9b8f8e16ce19691b870528b3a35c3215947feaa2ecdb9c9696aec89 log "APP"."EVENTLOG"
-- lines 209 to 247 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        IF :OLD."IDU" IS NOT NULL AND :OLD."PHONENO" IS NOT NULL THEN
            put(2, 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_PHONE.PHONENO', :OLD."PHONENO", NULL);
-- lines 72 to 83 of trigger_statement
