-- lines 1 to 4 of trigger_children_query_back
    -- eventlog sha256:280edf7fb092c9961f6c618d0099991fcefc5b634cffe6fbab88a212f55c871a log "APP"."EVENTLOG"
-- lines 6 to 46 of trigger_children_query_back
-- lines 47 to 55 of trigger_field
    new_key := 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
    put_inserted('FNAME', :NEW."FNAME");
    put_inserted('LNAME', :NEW."LNAME");
-- lines 56 to 62 of trigger_children_query_back
    -- eventlog sha256:1c0475c7b5fb33e4ff47204e3cda0345f3e2d9d4a60ad49a9ea9ec8d54cd4bc8 log "APP"."EVENTLOG"
-- lines 64 to 127 of trigger_children_query_back
-- lines 236 to 259 of trigger_field
-- lines 145 to 159 of trigger_children_query_back
                put_inserted('FNAME', :NEW."FNAME");
                put_inserted('LNAME', :NEW."LNAME");
-- lines 166 to 173 of trigger_children_query_back
                put(2, new_key, 'FNAME', :OLD."FNAME",
                    :NEW."FNAME");
-- lines 175 to 176 of trigger_children_query_back
                put(2, new_key, 'LNAME', :OLD."LNAME",
                    :NEW."LNAME");
-- lines 178 to 438 of trigger_children_query_back
    -- eventlog sha256:86dc18537e6f56ff9956830569633fe35f0a9f4608c5a11e69ca9941764caa19 log "APP"."EVENTLOG"
-- lines 440 to 480 of trigger_children_query_back
        put(2, 'IDU=' || TO_CHAR(:NEW."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_PHONE.PHONENO', NULL, :NEW."PHONENO");
-- lines 482 to 486 of trigger_children_query_back
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
-- lines 556 to 559 of trigger_children_query_back
    -- eventlog sha256:2bb1b894f9ca40807e20197406dec063945ec1ad49431631cad40eb870dfeda6 log "APP"."EVENTLOG"
-- lines 561 to 601 of trigger_children_query_back
        put(2, 'IDU=' || TO_CHAR(:OLD."IDU", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), 'USR_PHONE.PHONENO', :OLD."PHONENO", NULL);
-- lines 302 to 305 of trigger_children_query_back
