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
-- lines 300 to 303 of trigger_children_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_U_1"
FOR UPDATE ON "APP"."EMP"
COMPOUND TRIGGER
    -- eventlog sha256:42b958524b968d6ef808f8aec3b03f88179fa06433e6a2e661985a4ba00e2e5a log "Logs"."Ereignisse 'neu'"
-- lines 92 to 130 of trigger_field
            INSERT INTO "Logs"."Ereignisse 'neu'" ("c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10")
            VALUES (
                'N', log_rows(i).event_type, SYSTIMESTAMP, SYS_CONTEXT('USERENV', 'SESSION_USER'),
                'EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 107 to 125 of trigger_children_query_back
-- lines 224 to 247 of trigger_field
        new_key := 'EMPNO=' || TO_CHAR(:NEW."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
        old_key := new_key;
        IF number_changed(:OLD."EMPNO", :NEW."EMPNO") THEN
            old_key := 'EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''');
-- lines 252 to 262 of trigger_field
                put_inserted('FNAME', :NEW."FNAME");
                put_inserted('MANAGER', TO_CHAR(:NEW."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 209 to 210 of trigger_statement
                    put(1, new_key, 'FNAME');
-- lines 212 to 218 of trigger_statement
            IF text_changed(:OLD."FNAME", :NEW."FNAME") THEN
                put(2, new_key, 'FNAME', :OLD."FNAME",
                    :NEW."FNAME");
            END IF;
            IF number_changed(:OLD."MANAGER", :NEW."MANAGER") THEN
                put(2, new_key, 'MANAGER', TO_CHAR(:OLD."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''),
                    TO_CHAR(:NEW."MANAGER", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 385 to 409 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."TGR_EMP_D_1"
AFTER DELETE ON "APP"."EMP"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:3c68486387e3a656149f53d3d163088cf2afd01f1d8ad7984ba2ede08a650ce7 log "Logs"."Ereignisse 'neu'"
-- lines 415 to 444 of trigger_field
            INSERT INTO "Logs"."Ereignisse 'neu'" ("c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9", "c10")
            VALUES (
                'N', log_rows(i).event_type, SYSTIMESTAMP, SYS_CONTEXT('USERENV', 'SESSION_USER'),
                'EMP', log_rows(i).table_key, log_rows(i).column_name,
-- lines 449 to 454 of trigger_field
    put(4, 'EMPNO=' || TO_CHAR(:OLD."EMPNO", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 85 to 87 of trigger_field
