-- lines 1 to 4 of trigger_field
    -- eventlog sha256:9c2c44a64f29d536b739bdbdd96e3cd4db501d9d8ccb732f4a8692cdff345cc9 log "APP"."EVENTLOG"
-- lines 6 to 56 of trigger_remove_all
    put_inserted('V', :NEW."V");
-- lines 74 to 76 of trigger_field
    put(7, new_key, 'B');
-- lines 85 to 90 of trigger_field
    -- eventlog sha256:929ef743bdf5585e9ed0c98f6a47ca1d7c72f535bceae3748e41ebc93e52828b log "APP"."EVENTLOG"
-- lines 88 to 149 of trigger_statement
-- lines 157 to 202 of trigger_statement
                put_inserted('V', :NEW."V");
-- lines 280 to 282 of trigger_field
                put(7, new_key, 'B');
-- lines 291 to 296 of trigger_field
            first_row := log_rows.COUNT + 1;
-- lines 325 to 328 of trigger_field
            -- Large objects may have changed through a locator as well, which fires no trigger.
            IF log_rows.COUNT >= first_row OR clob_changed(:OLD."CL", :NEW."CL") THEN
-- lines 366 to 367 of trigger_field
            IF log_rows.COUNT >= first_row OR UPDATING('B') THEN
-- lines 372 to 373 of trigger_field
-- lines 371 to 443 of trigger_remove_all
