-- lines 1 to 4 of trigger_field
    -- eventlog sha256:9c2c44a64f29d536b739bdbdd96e3cd4db501d9d8ccb732f4a8692cdff345cc9 log "APP"."EVENTLOG"
-- lines 6 to 56 of trigger_remove_all
    put_inserted('V', :NEW."V");
-- lines 74 to 76 of trigger_field
    put(7, new_key, 'B');
-- lines 85 to 90 of trigger_field
    -- eventlog sha256:b1c0179cf817afa977906936324076c91b6eee0f11da4d3745f302656090c822 log "APP"."EVENTLOG"
-- lines 88 to 151 of trigger_statement
-- lines 160 to 206 of trigger_statement
                put_inserted('V', :NEW."V");
-- lines 292 to 294 of trigger_field
                put(7, new_key, 'B');
-- lines 303 to 308 of trigger_field
            first_row := log_rows.COUNT + 1;
-- lines 337 to 340 of trigger_field
            -- Large objects may have changed through a locator as well, which fires no trigger.
            IF log_rows.COUNT >= first_row OR clob_changed(:OLD."CL", :NEW."CL") THEN
-- lines 378 to 379 of trigger_field
            IF log_rows.COUNT >= first_row OR UPDATING('B') THEN
-- lines 384 to 385 of trigger_field
-- lines 383 to 455 of trigger_remove_all
