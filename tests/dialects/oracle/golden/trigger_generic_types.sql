CREATE OR REPLACE TRIGGER "APP"."tgr_generic_i_1"
AFTER INSERT ON "APP"."generic"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:99f1c70e30905e826d7953824421f884f237b7b30a43643f886cf64831b7f3a5 log "APP"."EVENTLOG"
-- lines 6 to 40 of trigger_remove_all
                'generic', log_rows(i).table_key, log_rows(i).column_name,
-- lines 42 to 55 of trigger_field
    new_key := 'id=' || TO_CHAR(:NEW."id", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
    IF :NEW."t" IS NOT NULL THEN
        put(7, new_key, 't');
    END IF;
    put(7, new_key, 'b');
    put_inserted('vb', "PROC_EVENTLOG_BASE64"(:NEW."vb"));
    put_inserted('d', LTRIM(TO_CHAR(:NEW."d", 'SYYYY-MM-DD', 'NLS_CALENDAR=GREGORIAN')));
    put_inserted('tz', LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."tz"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')));
    put_inserted('flag', CASE WHEN :NEW."flag" THEN 'true' WHEN NOT :NEW."flag" THEN 'false' END);
-- lines 85 to 87 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."tgr_generic_u_1"
FOR UPDATE ON "APP"."generic"
COMPOUND TRIGGER
    -- eventlog sha256:d508f1af80fe3c26a64af6d79a4f4d73e5ed41c8fbce4bd0fc1462f0e37833a0 log "APP"."EVENTLOG"
-- lines 89 to 130 of trigger_remove_all
                'generic', log_rows(i).table_key, log_rows(i).column_name,
-- lines 107 to 127 of trigger_children_query_back
-- lines 180 to 187 of trigger_field
    FUNCTION boolean_changed(old_value IN BOOLEAN, new_value IN BOOLEAN) RETURN BOOLEAN IS
-- lines 141 to 145 of trigger_field
    END boolean_changed;
-- lines 187 to 203 of trigger_field
-- lines 160 to 191 of trigger_statement
        new_key := 'id=' || TO_CHAR(:NEW."id", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        old_key := new_key;
        IF number_changed(:OLD."id", :NEW."id") THEN
            old_key := 'id=' || TO_CHAR(:OLD."id", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
-- lines 264 to 274 of trigger_field
                IF :NEW."t" IS NOT NULL THEN
                    put(7, new_key, 't');
                END IF;
                put(7, new_key, 'b');
                put_inserted('vb', "PROC_EVENTLOG_BASE64"(:NEW."vb"));
                put_inserted('d', LTRIM(TO_CHAR(:NEW."d", 'SYYYY-MM-DD', 'NLS_CALENDAR=GREGORIAN')));
                put_inserted('tz', LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."tz"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')));
                put_inserted('flag', CASE WHEN :NEW."flag" THEN 'true' WHEN NOT :NEW."flag" THEN 'false' END);
-- lines 303 to 308 of trigger_field
            IF clob_changed(:OLD."t", :NEW."t") THEN
                put(8, new_key, 't');
            END IF;
            IF UPDATING THEN
                put(8, new_key, 'b');
            END IF;
            IF raw_changed(:OLD."vb", :NEW."vb") THEN
                put(2, new_key, 'vb', "PROC_EVENTLOG_BASE64"(:OLD."vb"),
                    "PROC_EVENTLOG_BASE64"(:NEW."vb"));
            END IF;
            IF moment_changed(:OLD."d", :NEW."d") THEN
                put(2, new_key, 'd', LTRIM(TO_CHAR(:OLD."d", 'SYYYY-MM-DD', 'NLS_CALENDAR=GREGORIAN')),
                    LTRIM(TO_CHAR(:NEW."d", 'SYYYY-MM-DD', 'NLS_CALENDAR=GREGORIAN')));
            END IF;
            IF zoned_changed(:OLD."tz", :NEW."tz") THEN
                put(2, new_key, 'tz', LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:OLD."tz"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')),
                    LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."tz"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')));
            END IF;
            IF boolean_changed(:OLD."flag", :NEW."flag") THEN
                put(2, new_key, 'flag', CASE WHEN :OLD."flag" THEN 'true' WHEN NOT :OLD."flag" THEN 'false' END,
                    CASE WHEN :NEW."flag" THEN 'true' WHEN NOT :NEW."flag" THEN 'false' END);
-- lines 397 to 421 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."tgr_generic_d_1"
AFTER DELETE ON "APP"."generic"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:08e7ebf493075a1f8badbabfa99abc0b9c1c2df77dc0caf1c7766e3a32328dc7 log "APP"."EVENTLOG"
-- lines 412 to 444 of trigger_remove_all
                'generic', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 466 of trigger_field
    put(4, 'id=' || TO_CHAR(:OLD."id", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 85 to 87 of trigger_field
