-- lines 1 to 4 of trigger_field
    -- eventlog sha256:a714c22eb2aaa9fabfea8051918a30dd070bd603e83d01e0c5b58c9642bf3fe7 log "APP"."EVENTLOG"
-- lines 6 to 9 of trigger_field
        old_value CLOB,
        new_value CLOB
-- lines 12 to 21 of trigger_field
        old_value IN CLOB DEFAULT NULL,
        new_value IN CLOB DEFAULT NULL
-- lines 24 to 46 of trigger_remove_all
    PROCEDURE put_inserted(column_name IN VARCHAR2, new_value IN CLOB) IS
-- lines 48 to 56 of trigger_field
    put_inserted('V', :NEW."V");
    put_inserted('CL', :NEW."CL");
    IF log_rows.COUNT < first_row THEN
        -- All of them NULL: the insert itself must not be lost.
        put(1, new_key, 'V');
-- lines 302 to 305 of trigger_children_query_back
-- lines 88 to 90 of trigger_field
    -- eventlog sha256:d956f52b5251d44eca285e2c11567bae8e4b61d945a05cd642e18950b66f0dd9 log "APP"."EVENTLOG"
-- lines 6 to 9 of trigger_field
        old_value CLOB,
        new_value CLOB
-- lines 98 to 114 of trigger_field
        old_value IN CLOB DEFAULT NULL,
        new_value IN CLOB DEFAULT NULL
-- lines 113 to 151 of trigger_statement
-- lines 220 to 227 of trigger_field
    PROCEDURE put_inserted(column_name IN VARCHAR2, new_value IN CLOB) IS
-- lines 237 to 274 of trigger_field
                put_inserted('V', :NEW."V");
-- lines 210 to 214 of trigger_statement
                    put(1, new_key, 'V');
-- lines 216 to 222 of trigger_statement
-- lines 337 to 340 of trigger_field
            IF clob_changed(:OLD."CL", :NEW."CL") THEN
                put(2, new_key, 'CL', :OLD."CL",
                    :NEW."CL");
-- lines 397 to 422 of trigger_field
-- lines 265 to 326 of trigger_statement
