CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_I_1"
AFTER INSERT ON "APP"."EMP"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:39463e19632cbe56c20f0b332cd211a58814d8be87cea99abfb2a7a131705b85 log "Logs"."Ereignisse 'neu'"
-- lines 6 to 37 of trigger_field
            INSERT INTO "Logs"."Ereignisse 'neu'" ("c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10")
            VALUES (
                'N', log_rows(i).event_type, SYSTIMESTAMP, SYS_CONTEXT('USERENV', 'SESSION_USER'),
                'EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 42 to 55 of trigger_field
    new_key := 'EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
    put_inserted('FNAME', :NEW."FNAME");
    put_inserted('MANAGER', TO_CHAR(:NEW."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    IF log_rows.COUNT < first_row THEN
        -- All of them NULL: the insert itself must not be lost.
        put(1, new_key, 'FNAME');
-- lines 302 to 305 of trigger_children_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_U_1"
FOR UPDATE ON "APP"."EMP"
COMPOUND TRIGGER
    -- eventlog sha256:5c42300817769b7ebfb8082b5eaa6a29f25e29703c85a2229d5e5af8140d98f5 log "Logs"."Ereignisse 'neu'"
-- lines 92 to 130 of trigger_field
            INSERT INTO "Logs"."Ereignisse 'neu'" ("c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10")
            VALUES (
                'N', log_rows(i).event_type, SYSTIMESTAMP, SYS_CONTEXT('USERENV', 'SESSION_USER'),
                'EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 107 to 127 of trigger_children_query_back
-- lines 236 to 259 of trigger_field
        new_key := 'EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        old_key := new_key;
        IF number_changed(:OLD."EMPNO", :NEW."EMPNO") THEN
            old_key := 'EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
-- lines 264 to 274 of trigger_field
                put_inserted('FNAME', :NEW."FNAME");
                put_inserted('MANAGER', TO_CHAR(:NEW."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 213 to 214 of trigger_statement
                    put(1, new_key, 'FNAME');
-- lines 216 to 222 of trigger_statement
            IF text_changed(:OLD."FNAME", :NEW."FNAME") THEN
                put(2, new_key, 'FNAME', :OLD."FNAME",
                    :NEW."FNAME");
            END IF;
            IF number_changed(:OLD."MANAGER", :NEW."MANAGER") THEN
                put(2, new_key, 'MANAGER', TO_CHAR(:OLD."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''),
                    TO_CHAR(:NEW."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 397 to 421 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_D_1"
AFTER DELETE ON "APP"."EMP"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:3c68486387e3a656149f53d3d163088cf2afd01f1d8ad7984ba2ede08a650ce7 log "Logs"."Ereignisse 'neu'"
-- lines 427 to 456 of trigger_field
            INSERT INTO "Logs"."Ereignisse 'neu'" ("c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10")
            VALUES (
                'N', log_rows(i).event_type, SYSTIMESTAMP, SYS_CONTEXT('USERENV', 'SESSION_USER'),
                'EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 466 of trigger_field
    put(4, 'EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 85 to 87 of trigger_field
