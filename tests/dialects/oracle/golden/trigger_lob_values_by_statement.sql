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
-- lines 300 to 303 of trigger_children_query_back
-- lines 88 to 90 of trigger_field
    -- eventlog sha256:363c89d8569494f9fa3aa50f138251a1e3fd4c07324ce5e850edf5ada2219623 log "APP"."EVENTLOG"
-- lines 6 to 9 of trigger_field
        old_value CLOB,
        new_value CLOB
-- lines 98 to 114 of trigger_field
        old_value IN CLOB DEFAULT NULL,
        new_value IN CLOB DEFAULT NULL
-- lines 113 to 149 of trigger_statement
-- lines 210 to 216 of trigger_field
    PROCEDURE put_inserted(column_name IN VARCHAR2, new_value IN CLOB) IS
-- lines 225 to 262 of trigger_field
                put_inserted('V', :NEW."V");
-- lines 206 to 210 of trigger_statement
                    put(1, new_key, 'V');
-- lines 212 to 218 of trigger_statement
-- lines 325 to 328 of trigger_field
            IF clob_changed(:OLD."CL", :NEW."CL") THEN
                put(2, new_key, 'CL', :OLD."CL",
                    :NEW."CL");
-- lines 385 to 410 of trigger_field
-- lines 261 to 322 of trigger_statement
