CREATE OR REPLACE TRIGGER "APP"."TGR_LONG_VALUES_I_1"
AFTER INSERT ON "APP"."LONG_VALUES"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:83ebfe3d456ee624fce9371f477b3af96dcc709c5d7ec0d9eac657e5cde81807 log "APP"."EVENTLOG"
-- lines 6 to 9 of trigger_field
        old_value CLOB,
        new_value CLOB
-- lines 12 to 21 of trigger_field
        old_value IN CLOB DEFAULT NULL,
        new_value IN CLOB DEFAULT NULL
-- lines 24 to 40 of trigger_remove_all
                'LONG_VALUES', log_rows(i).table_key, log_rows(i).column_name,
-- lines 42 to 46 of trigger_field
    PROCEDURE put_inserted(column_name IN VARCHAR2, new_value IN CLOB) IS
-- lines 48 to 56 of trigger_field
    put_inserted('V', :NEW."V");
    IF :NEW."R" IS NOT NULL THEN
        put(7, new_key, 'R');
    END IF;
    put_inserted('W', :NEW."W");
    IF log_rows.COUNT < first_row THEN
        -- All of them NULL: the insert itself must not be lost.
        put(1, new_key, 'V');
-- lines 302 to 305 of trigger_children_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_LONG_VALUES_U_1"
FOR UPDATE ON "APP"."LONG_VALUES"
COMPOUND TRIGGER
    -- eventlog sha256:fabdea9f9c728599b074da9ac8cd9884caaa7d3d8f4a0fc165778b6c3359e09d log "APP"."EVENTLOG"
-- lines 6 to 9 of trigger_field
        old_value CLOB,
        new_value CLOB
-- lines 98 to 114 of trigger_field
        old_value IN CLOB DEFAULT NULL,
        new_value IN CLOB DEFAULT NULL
-- lines 24 to 40 of trigger_remove_all
                'LONG_VALUES', log_rows(i).table_key, log_rows(i).column_name,
-- lines 107 to 127 of trigger_children_query_back
-- lines 180 to 187 of trigger_field
    PROCEDURE put_inserted(column_name IN VARCHAR2, new_value IN CLOB) IS
-- lines 237 to 274 of trigger_field
                put_inserted('V', :NEW."V");
                IF :NEW."R" IS NOT NULL THEN
                    put(7, new_key, 'R');
                END IF;
                put_inserted('W', :NEW."W");
-- lines 213 to 214 of trigger_statement
                    put(1, new_key, 'V');
-- lines 216 to 222 of trigger_statement
-- lines 337 to 340 of trigger_field
            IF raw_changed(:OLD."R", :NEW."R") THEN
                put(8, new_key, 'R');
            END IF;
            IF text_changed(:OLD."W", :NEW."W") THEN
                put(2, new_key, 'W', :OLD."W",
                    :NEW."W");
-- lines 397 to 421 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."TGR_LONG_VALUES_D_1"
AFTER DELETE ON "APP"."LONG_VALUES"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:6311e5bded5f1fd0cf8e8704e1a2808a3f16d7c0634362b47f02419992dc81d6 log "APP"."EVENTLOG"
-- lines 412 to 444 of trigger_remove_all
                'LONG_VALUES', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 470 of trigger_field
