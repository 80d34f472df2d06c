CREATE OR REPLACE TRIGGER "APP"."tgr_It's 50% of :NEW & more; ü -- /*_i_1"
AFTER INSERT ON "APP"."It's 50% of :NEW & more; ü -- /*"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:09f8972af76574dc6e0a82e8ca4abde065823321f682db45d82311470880ca77 log "APP"."EVENTLOG"
-- lines 6 to 40 of trigger_remove_all
                'It''s 50% of :NEW & more; ü -- /*', log_rows(i).table_key, log_rows(i).column_name,
-- lines 42 to 55 of trigger_field
    new_key := '"It''s 50% of :NEW & more; ü -- /* k"=' || "PROC_EVENTLOG_QUOTE"(:NEW."It's 50% of :NEW & more; ü -- /* k");
    put_inserted('It''s 50% of :NEW & more; ü -- /* v', :NEW."It's 50% of :NEW & more; ü -- /* v");
    put(7, new_key, 'Photo');
-- lines 85 to 87 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."tgr_It's 50% of :NEW & more; ü -- /*_u_1"
FOR UPDATE ON "APP"."It's 50% of :NEW & more; ü -- /*"
COMPOUND TRIGGER
    -- eventlog sha256:b74c434e343cc68de67851b2e01eb78aaa7c4c49e63ec03f0c0a63dee96061a0 log "APP"."EVENTLOG"
-- lines 89 to 130 of trigger_remove_all
                'It''s 50% of :NEW & more; ü -- /*', log_rows(i).table_key, log_rows(i).column_name,
-- lines 347 to 359 of trigger_children_query_back
-- lines 236 to 259 of trigger_field
        new_key := '"It''s 50% of :NEW & more; ü -- /* k"=' || "PROC_EVENTLOG_QUOTE"(:NEW."It's 50% of :NEW & more; ü -- /* k");
        old_key := new_key;
        IF text_changed(:OLD."It's 50% of :NEW & more; ü -- /* k", :NEW."It's 50% of :NEW & more; ü -- /* k") THEN
            old_key := '"It''s 50% of :NEW & more; ü -- /* k"=' || "PROC_EVENTLOG_QUOTE"(:OLD."It's 50% of :NEW & more; ü -- /* k");
-- lines 264 to 274 of trigger_field
                put_inserted('It''s 50% of :NEW & more; ü -- /* v', :NEW."It's 50% of :NEW & more; ü -- /* v");
                put(7, new_key, 'Photo');
-- lines 303 to 308 of trigger_field
            IF text_changed(:OLD."It's 50% of :NEW & more; ü -- /* v", :NEW."It's 50% of :NEW & more; ü -- /* v") THEN
                put(2, new_key, 'It''s 50% of :NEW & more; ü -- /* v', :OLD."It's 50% of :NEW & more; ü -- /* v",
                    :NEW."It's 50% of :NEW & more; ü -- /* v");
            END IF;
            IF UPDATING THEN
                put(8, new_key, 'Photo');
-- lines 397 to 421 of trigger_field
CREATE OR REPLACE TRIGGER "APP"."tgr_It's 50% of :NEW & more; ü -- /*_d_1"
AFTER DELETE ON "APP"."It's 50% of :NEW & more; ü -- /*"
-- lines 3 to 4 of trigger_field
    -- eventlog sha256:30abfbdb9cd3dd4e0d91c4555c5c5c1ee16d80433e1f859d074c3c6aa551a151 log "APP"."EVENTLOG"
-- lines 412 to 444 of trigger_remove_all
                'It''s 50% of :NEW & more; ü -- /*', log_rows(i).table_key, log_rows(i).column_name,
-- lines 461 to 466 of trigger_field
    put(4, '"It''s 50% of :NEW & more; ü -- /* k"=' || "PROC_EVENTLOG_QUOTE"(:OLD."It's 50% of :NEW & more; ü -- /* k"));
-- lines 85 to 87 of trigger_field
