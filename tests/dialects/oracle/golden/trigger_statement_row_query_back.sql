CREATE OR REPLACE TRIGGER "APP"."TGR_USR_I_1"
FOR INSERT ON "APP"."USR"
COMPOUND TRIGGER
    -- eventlog sha256:d9233a2823a33c82adb4ffe1ba9c4840e2ca35c79d7907095de55e14940bda06 log "APP"."EVENTLOG"
-- lines 6 to 46 of trigger_children_query_back
-- lines 53 to 61 of trigger_statement
        new_key := 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        put(5, new_key);
-- lines 73 to 83 of trigger_statement
-- lines 60 to 62 of trigger_children_query_back
    -- eventlog sha256:c96e4bd6d57f4d02c7d246c0a15a71f19043070e843f8cfa95938e191371653a log "APP"."EVENTLOG"
-- lines 64 to 159 of trigger_children_query_back
-- lines 234 to 240 of trigger_row_query_back
            IF text_changed(:OLD."FNAME", :NEW."FNAME")
            OR text_changed(:OLD."LNAME", :NEW."LNAME")
            OR UPDATING('PHOTO')
-- lines 265 to 268 of trigger_row_query_back
-- lines 239 to 263 of trigger_statement
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
    -- eventlog sha256:6f0af77dbb5ff7bd4397ed85a65af3ad102dfcbfe580db8c2edb8cce0143803a log "APP"."EVENTLOG"
-- lines 211 to 249 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        IF :NEW."IDU" IS NOT NULL AND :NEW."PHONENO" IS NOT NULL THEN
            put(8, 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_PHONE.PHONENO', NULL, NULL);
-- lines 72 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_U_1"
FOR UPDATE ON "APP"."USR_PHONE"
COMPOUND TRIGGER
    -- eventlog sha256:db2893953b5bbe9e98749b72eb6e4772e41add090685e5f94aabf1942435870a log "APP"."EVENTLOG"
-- lines 311 to 359 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
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
-- lines 548 to 549 of trigger_children_query_back
-- lines 73 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_D_1"
FOR DELETE ON "APP"."USR_PHONE"
COMPOUND TRIGGER
    -- eventlog sha256:a17d2e1f6fb3ac72578df8cfbdb9a27d56a5cacb7f57c0e430f4acd53fe34c59 log "APP"."EVENTLOG"
-- lines 211 to 249 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        IF :OLD."IDU" IS NOT NULL AND :OLD."PHONENO" IS NOT NULL THEN
            put(8, 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_PHONE.PHONENO', NULL, NULL);
-- lines 72 to 83 of trigger_statement
