CREATE OR REPLACE TRIGGER "APP"."TGR_ACC_I_1"
AFTER INSERT ON "APP"."ACC"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:26064c7f55f384603d9e7f2ffa34eb40af35f54c9197f3add4d651658d1f5872 log "APP"."EVENTLOG"
-- lines 6 to 40 of trigger_remove_all
                'ACC', log_rows(i).table_key, log_rows(i).column_name,
-- lines 42 to 55 of trigger_field
    new_key := 'DAY=' || LTRIM(TO_CHAR(:NEW."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:NEW."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:NEW."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:NEW."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:NEW."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
         || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:NEW."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
    put_inserted('OWNER', :NEW."OWNER");
    IF log_rows.COUNT < first_row THEN
        -- All of them NULL: the insert itself must not be lost.
        put(1, new_key, 'OWNER');
-- lines 302 to 305 of trigger_children_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_ACC_U_1"
FOR UPDATE ON "APP"."ACC"
COMPOUND TRIGGER
    -- eventlog sha256:b0616d0e34caa8d4e87e1d830cfef9c313d088b95721c3d68738956330ac5b63 log "APP"."EVENTLOG"
-- lines 89 to 130 of trigger_remove_all
                'ACC', log_rows(i).table_key, log_rows(i).column_name,
-- lines 135 to 147 of trigger_field
-- lines 156 to 171 of trigger_field
-- lines 180 to 203 of trigger_field
-- lines 236 to 259 of trigger_field
        new_key := 'DAY=' || LTRIM(TO_CHAR(:NEW."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:NEW."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:NEW."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:NEW."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:NEW."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
             || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:NEW."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
        old_key := new_key;
        IF moment_changed(:OLD."DAY", :NEW."DAY") OR text_changed(:OLD."BRANCH", :NEW."BRANCH") OR text_changed(:OLD."CODE", :NEW."CODE") OR raw_changed(:OLD."HASH", :NEW."HASH") OR number_changed(:OLD."AMOUNT", :NEW."AMOUNT") OR zoned_changed(:OLD."MOMENT", :NEW."MOMENT") OR double_changed(:OLD."RATE", :NEW."RATE") THEN
            old_key := 'DAY=' || LTRIM(TO_CHAR(:OLD."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:OLD."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:OLD."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:OLD."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:OLD."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
             || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:OLD."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:OLD."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''));
-- lines 264 to 274 of trigger_field
                put_inserted('OWNER', :NEW."OWNER");
-- lines 213 to 214 of trigger_statement
                    put(1, new_key, 'OWNER');
-- lines 216 to 222 of trigger_statement
            IF text_changed(:OLD."OWNER", :NEW."OWNER") THEN
                put(2, new_key, 'OWNER', :OLD."OWNER",
                    :NEW."OWNER");
-- lines 397 to 421 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."TGR_ACC_D_1"
AFTER DELETE ON "APP"."ACC"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:7966993e571d5262d2bec0fc50c9d7fd4d0d59feb5a6c1fb85fc4c369d385899 log "APP"."EVENTLOG"
-- lines 412 to 444 of trigger_remove_all
                'ACC', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 466 of trigger_field
    put(4, 'DAY=' || LTRIM(TO_CHAR(:OLD."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:OLD."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:OLD."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:OLD."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:OLD."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
         || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:OLD."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:OLD."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')));
-- lines 85 to 87 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."TGR_ACC_TAG_I_1"
AFTER INSERT ON "APP"."ACC_TAG"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:7352980fa85cf980631010019953808872be50d575d97c4c34fec77fef04628f log "APP"."EVENTLOG"
-- lines 412 to 444 of trigger_remove_all
                'ACC', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 466 of trigger_field
    IF :NEW."DAY" IS NOT NULL AND :NEW."BRANCH" IS NOT NULL AND :NEW."CODE" IS NOT NULL AND :NEW."HASH" IS NOT NULL AND :NEW."AMOUNT" IS NOT NULL AND :NEW."MOMENT" IS NOT NULL AND :NEW."RATE" IS NOT NULL AND :NEW."TAG" IS NOT NULL THEN
        put(2, 'DAY=' || LTRIM(TO_CHAR(:NEW."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:NEW."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:NEW."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:NEW."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:NEW."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
         || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:NEW."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')), 'ACC_TAG.TAG', NULL, :NEW."TAG");
-- lines 302 to 305 of trigger_children_query_back
CREATE OR REPLACE TRIGGER "APP"."TGR_ACC_TAG_U_1"
FOR UPDATE ON "APP"."ACC_TAG"
COMPOUND TRIGGER
    -- eventlog sha256:cb3df945761662a5ba86f50da5750d3eafaff0a61b3e5fe0ea1fcd1522f31e08 log "APP"."EVENTLOG"
-- lines 311 to 321 of trigger_children_query_back
    -- The values that rows of the statement gave up, and what is to be logged if none of them was taken again.
    TYPE values_t IS TABLE OF PLS_INTEGER INDEX BY VARCHAR2(32767);
    given_up values_t;
    told values_t;
-- lines 106 to 130 of trigger_remove_all
                'ACC', log_rows(i).table_key, log_rows(i).column_name,
-- lines 347 to 359 of trigger_children_query_back
-- lines 243 to 247 of trigger_field
    PROCEDURE move(table_key IN VARCHAR2, old_value IN VARCHAR2, new_value IN VARCHAR2) IS
    BEGIN
        put(2, table_key, 'ACC_TAG.TAG', old_value, new_value);
        moved_rows(moved_rows.COUNT + 1) := log_rows(log_rows.COUNT);
        log_rows.DELETE(log_rows.COUNT);
        IF old_value IS NOT NULL THEN
            given_up(identity(table_key) || '-' || identity(old_value)) := 1;
        END IF;
    END move;

    FUNCTION is_shifted(table_key IN VARCHAR2) RETURN BOOLEAN IS
    BEGIN
        RETURN told.EXISTS(identity(table_key));
    END is_shifted;
-- lines 247 to 252 of trigger_field
        told.DELETE;
-- lines 255 to 259 of trigger_field
        old_key := CASE WHEN :OLD."DAY" IS NOT NULL AND :OLD."BRANCH" IS NOT NULL AND :OLD."CODE" IS NOT NULL AND :OLD."HASH" IS NOT NULL AND :OLD."AMOUNT" IS NOT NULL AND :OLD."MOMENT" IS NOT NULL AND :OLD."RATE" IS NOT NULL THEN 'DAY=' || LTRIM(TO_CHAR(:OLD."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:OLD."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:OLD."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:OLD."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:OLD."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
             || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:OLD."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:OLD."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')) END;
        new_key := CASE WHEN :NEW."DAY" IS NOT NULL AND :NEW."BRANCH" IS NOT NULL AND :NEW."CODE" IS NOT NULL AND :NEW."HASH" IS NOT NULL AND :NEW."AMOUNT" IS NOT NULL AND :NEW."MOMENT" IS NOT NULL AND :NEW."RATE" IS NOT NULL THEN 'DAY=' || LTRIM(TO_CHAR(:NEW."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:NEW."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:NEW."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:NEW."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:NEW."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
             || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:NEW."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:NEW."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')) END;
        IF text_changed(old_key, new_key) THEN
            IF :OLD."DAY" IS NOT NULL AND :OLD."BRANCH" IS NOT NULL AND :OLD."CODE" IS NOT NULL AND :OLD."HASH" IS NOT NULL AND :OLD."AMOUNT" IS NOT NULL AND :OLD."MOMENT" IS NOT NULL AND :OLD."RATE" IS NOT NULL AND :OLD."TAG" IS NOT NULL THEN
                move(old_key, :OLD."TAG", NULL);
            END IF;
            IF :NEW."DAY" IS NOT NULL AND :NEW."BRANCH" IS NOT NULL AND :NEW."CODE" IS NOT NULL AND :NEW."HASH" IS NOT NULL AND :NEW."AMOUNT" IS NOT NULL AND :NEW."MOMENT" IS NOT NULL AND :NEW."RATE" IS NOT NULL AND :NEW."TAG" IS NOT NULL THEN
                move(new_key, NULL, :NEW."TAG");
            END IF;
        ELSIF new_key IS NOT NULL AND (text_changed(:OLD."TAG", :NEW."TAG")) THEN
            move(new_key, :OLD."TAG", :NEW."TAG");
-- lines 75 to 79 of trigger_statement
        FOR i IN 1 .. moved_rows.COUNT LOOP
            IF moved_rows(i).new_value IS NOT NULL
                AND given_up.EXISTS(identity(moved_rows(i).table_key) || '-' || identity(moved_rows(i).new_value))
                AND NOT is_shifted(moved_rows(i).table_key)
            THEN
                told(identity(moved_rows(i).table_key)) := 1;
                put(8, moved_rows(i).table_key, 'ACC_TAG.TAG');
-- lines 407 to 409 of trigger_field
            IF NOT is_shifted(moved_rows(i).table_key) THEN
                log_rows(log_rows.COUNT + 1) := moved_rows(i);
-- lines 416 to 421 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."TGR_ACC_TAG_D_1"
AFTER DELETE ON "APP"."ACC_TAG"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:0ee9bce4eae34e6de44777dbd5568c454f9610820a34d1469229e427343c92a7 log "APP"."EVENTLOG"
-- lines 412 to 444 of trigger_remove_all
                'ACC', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 466 of trigger_field
    IF :OLD."DAY" IS NOT NULL AND :OLD."BRANCH" IS NOT NULL AND :OLD."CODE" IS NOT NULL AND :OLD."HASH" IS NOT NULL AND :OLD."AMOUNT" IS NOT NULL AND :OLD."MOMENT" IS NOT NULL AND :OLD."RATE" IS NOT NULL AND :OLD."TAG" IS NOT NULL THEN
        put(2, 'DAY=' || LTRIM(TO_CHAR(:OLD."DAY", 'SYYYY-MM-DD HH24:MI:SS', 'NLS_CALENDAR=GREGORIAN')) || '+BRANCH=' || "PROC_EVENTLOG_QUOTE"(:OLD."BRANCH") || '+CODE=' || "PROC_EVENTLOG_QUOTE"(RTRIM(:OLD."CODE", ' ')) || '+HASH=' || "PROC_EVENTLOG_QUOTE"("PROC_EVENTLOG_BASE64"(:OLD."HASH")) || '+AMOUNT=' || "PROC_EVENTLOG_QUOTE"(REGEXP_REPLACE(TO_CHAR(:OLD."AMOUNT", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,'''), '^(-?)\.', '\10.'))
         || '+MOMENT=' || LTRIM(TO_CHAR(SYS_EXTRACT_UTC(:OLD."MOMENT"), 'SYYYY-MM-DD HH24:MI:SS.FF9"Z"', 'NLS_CALENDAR=GREGORIAN')) || '+RATE=' || "PROC_EVENTLOG_QUOTE"(TO_CHAR(:OLD."RATE", 'TM9', 'NLS_NUMERIC_CHARACTERS=''.,''')), 'ACC_TAG.TAG', :OLD."TAG", NULL);
-- lines 302 to 305 of trigger_children_query_back
