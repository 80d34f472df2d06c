-- lines 1 to 4 of trigger_field
    -- eventlog sha256:e23af970d3faee9bd59279e3db957ea003b2df572de736e0058faba8b37467ba log "APP"."EVENTLOG"
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
    put_inserted('NCL', TO_CLOB(:NEW."NCL"));
    put(7, new_key, 'B');
-- lines 85 to 90 of trigger_field
    -- eventlog sha256:6010bf6f1485665d43dde06f31303019decc6d3f57220350305f7e36911f7c17 log "APP"."EVENTLOG"
-- lines 6 to 9 of trigger_field
        old_value CLOB,
        new_value CLOB
-- lines 98 to 114 of trigger_field
        old_value IN CLOB DEFAULT NULL,
        new_value IN CLOB DEFAULT NULL
-- lines 113 to 151 of trigger_statement
-- lines 220 to 235 of trigger_field
    PROCEDURE put_inserted(column_name IN VARCHAR2, new_value IN CLOB) IS
-- lines 237 to 274 of trigger_field
                put_inserted('V', :NEW."V");
-- lines 292 to 298 of trigger_field
-- lines 303 to 308 of trigger_field
-- lines 337 to 340 of trigger_field
            IF clob_changed(:OLD."CL", :NEW."CL") THEN
                put(2, new_key, 'CL', :OLD."CL",
                    :NEW."CL");
-- lines 379 to 380 of trigger_field
                put(2, new_key, 'NCL', TO_CLOB(:OLD."NCL"),
                    TO_CLOB(:NEW."NCL"));
-- lines 382 to 385 of trigger_field
-- lines 383 to 455 of trigger_remove_all
