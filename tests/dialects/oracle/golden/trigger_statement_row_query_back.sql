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
    -- eventlog sha256:488b81d22f75d4a28f9d2b6b70ff860fceb4bc9414e5a77373ca4b9b73ba091a log "APP"."EVENTLOG"
-- lines 64 to 157 of trigger_children_query_back
-- lines 222 to 228 of trigger_row_query_back
            IF text_changed(:OLD."FNAME", :NEW."FNAME")
            OR text_changed(:OLD."LNAME", :NEW."LNAME")
            OR UPDATING('PHOTO')
-- lines 253 to 256 of trigger_row_query_back
-- lines 235 to 259 of trigger_statement
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
    -- eventlog sha256:6f0af77dbb5ff7bd4397ed85a65af3ad102dfcbfe580db8c2edb8cce0143803a log "APP"."EVENTLOG"
-- lines 209 to 247 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        IF :NEW."IDU" IS NOT NULL AND :NEW."PHONENO" IS NOT NULL THEN
            put(8, 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_PHONE.PHONENO', NULL, NULL);
-- lines 72 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_U_1"
FOR UPDATE ON "APP"."USR_PHONE"
COMPOUND TRIGGER
    -- eventlog sha256:ea839573d15cea4901249faeed1da213534ee8c3385275014bd461588d62d31c log "APP"."EVENTLOG"
-- lines 309 to 356 of trigger_children_query_back
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
-- lines 543 to 544 of trigger_children_query_back
-- lines 73 to 83 of trigger_statement
CREATE OR REPLACE TRIGGER "APP"."TGR_USR_PHONE_D_1"
FOR DELETE ON "APP"."USR_PHONE"
COMPOUND TRIGGER
    -- eventlog sha256:a17d2e1f6fb3ac72578df8cfbdb9a27d56a5cacb7f57c0e430f4acd53fe34c59 log "APP"."EVENTLOG"
-- lines 209 to 247 of trigger_children_query_back
-- lines 53 to 60 of trigger_statement
        IF :OLD."IDU" IS NOT NULL AND :OLD."PHONENO" IS NOT NULL THEN
            put(8, 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_PHONE.PHONENO', NULL, NULL);
-- lines 72 to 83 of trigger_statement
