-- lines 1 to 4 of trigger_field
    -- eventlog sha256:49076472cf45fb1e3d6102e6c16c238522f7a4b3a2bf85f0568041a567dca502 log "APP"."EVENTLOG"
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
    put_inserted('NCL', :NEW."NCL");
    put(7, new_key, 'B');
-- lines 85 to 90 of trigger_field
    -- eventlog sha256:981dfdafe3bf108c246c0ce2aa1d763da7d2e742e94225fa6d70cefb72d83ca2 log "APP"."EVENTLOG"
-- lines 6 to 9 of trigger_field
        old_value CLOB,
        new_value CLOB
-- lines 98 to 114 of trigger_field
        old_value IN CLOB DEFAULT NULL,
        new_value IN CLOB DEFAULT NULL
-- lines 113 to 149 of trigger_statement
-- lines 210 to 223 of trigger_field
    PROCEDURE put_inserted(column_name IN VARCHAR2, new_value IN CLOB) IS
-- lines 225 to 262 of trigger_field
                put_inserted('V', :NEW."V");
-- lines 280 to 286 of trigger_field
-- lines 291 to 296 of trigger_field
-- lines 325 to 328 of trigger_field
            IF clob_changed(:OLD."CL", :NEW."CL") THEN
                put(2, new_key, 'CL', :OLD."CL",
                    :NEW."CL");
-- lines 367 to 368 of trigger_field
                put(2, new_key, 'NCL', :OLD."NCL",
                    :NEW."NCL");
-- lines 370 to 373 of trigger_field
-- lines 371 to 443 of trigger_remove_all
