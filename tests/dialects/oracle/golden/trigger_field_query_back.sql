-- lines 1 to 4 of trigger_field
    -- eventlog sha256:58a313e5f588f87d701781816241230ce2086843988ae3d63119cfe0fcffb002 log "APP"."EVENTLOG"
-- lines 6 to 49 of trigger_row_query_back
    IF :NEW."N" IS NOT NULL THEN
        put(7, new_key, 'N');
    END IF;
    IF :NEW."N2" IS NOT NULL THEN
        put(7, new_key, 'N2');
    END IF;
    IF :NEW."F" IS NOT NULL THEN
        put(7, new_key, 'F');
    END IF;
    IF :NEW."BF" IS NOT NULL THEN
        put(7, new_key, 'BF');
    END IF;
    IF :NEW."BD" IS NOT NULL THEN
        put(7, new_key, 'BD');
    END IF;
    IF :NEW."C" IS NOT NULL THEN
        put(7, new_key, 'C');
    END IF;
    IF :NEW."NC" IS NOT NULL THEN
        put(7, new_key, 'NC');
    END IF;
    IF :NEW."V" IS NOT NULL THEN
        put(7, new_key, 'V');
    END IF;
    IF :NEW."NV" IS NOT NULL THEN
        put(7, new_key, 'NV');
    END IF;
    IF :NEW."R" IS NOT NULL THEN
        put(7, new_key, 'R');
    END IF;
    IF :NEW."D" IS NOT NULL THEN
        put(7, new_key, 'D');
    END IF;
    IF :NEW."T" IS NOT NULL THEN
        put(7, new_key, 'T');
    END IF;
    IF :NEW."TZ" IS NOT NULL THEN
        put(7, new_key, 'TZ');
    END IF;
    IF :NEW."LTZ" IS NOT NULL THEN
        put(7, new_key, 'LTZ');
    END IF;
    IF :NEW."YM" IS NOT NULL THEN
        put(7, new_key, 'YM');
    END IF;
    IF :NEW."DS" IS NOT NULL THEN
        put(7, new_key, 'DS');
    END IF;
    IF :NEW."RI" IS NOT NULL THEN
        put(7, new_key, 'RI');
    END IF;
-- lines 74 to 90 of trigger_field
    -- eventlog sha256:63142e9b2390135411be6544530d0ea4fb1d488c4880133569d1ee18a0cfe558 log "APP"."EVENTLOG"
-- lines 58 to 233 of trigger_row_query_back
                IF :NEW."N" IS NOT NULL THEN
                    put(7, new_key, 'N');
                END IF;
                IF :NEW."N2" IS NOT NULL THEN
                    put(7, new_key, 'N2');
                END IF;
                IF :NEW."F" IS NOT NULL THEN
                    put(7, new_key, 'F');
                END IF;
                IF :NEW."BF" IS NOT NULL THEN
                    put(7, new_key, 'BF');
                END IF;
                IF :NEW."BD" IS NOT NULL THEN
                    put(7, new_key, 'BD');
                END IF;
                IF :NEW."C" IS NOT NULL THEN
                    put(7, new_key, 'C');
                END IF;
                IF :NEW."NC" IS NOT NULL THEN
                    put(7, new_key, 'NC');
                END IF;
                IF :NEW."V" IS NOT NULL THEN
                    put(7, new_key, 'V');
                END IF;
                IF :NEW."NV" IS NOT NULL THEN
                    put(7, new_key, 'NV');
                END IF;
                IF :NEW."R" IS NOT NULL THEN
                    put(7, new_key, 'R');
                END IF;
                IF :NEW."D" IS NOT NULL THEN
                    put(7, new_key, 'D');
                END IF;
                IF :NEW."T" IS NOT NULL THEN
                    put(7, new_key, 'T');
                END IF;
                IF :NEW."TZ" IS NOT NULL THEN
                    put(7, new_key, 'TZ');
                END IF;
                IF :NEW."LTZ" IS NOT NULL THEN
                    put(7, new_key, 'LTZ');
                END IF;
                IF :NEW."YM" IS NOT NULL THEN
                    put(7, new_key, 'YM');
                END IF;
                IF :NEW."DS" IS NOT NULL THEN
                    put(7, new_key, 'DS');
                END IF;
                IF :NEW."RI" IS NOT NULL THEN
                    put(7, new_key, 'RI');
                END IF;
-- lines 292 to 309 of trigger_field
                put(8, new_key, 'N');
-- lines 312 to 313 of trigger_field
                put(8, new_key, 'N2');
-- lines 316 to 317 of trigger_field
                put(8, new_key, 'F');
-- lines 320 to 321 of trigger_field
                put(8, new_key, 'BF');
-- lines 324 to 325 of trigger_field
                put(8, new_key, 'BD');
-- lines 328 to 329 of trigger_field
                put(8, new_key, 'C');
-- lines 332 to 333 of trigger_field
                put(8, new_key, 'NC');
-- lines 336 to 337 of trigger_field
                put(8, new_key, 'V');
-- lines 340 to 341 of trigger_field
                put(8, new_key, 'NV');
-- lines 344 to 345 of trigger_field
                put(8, new_key, 'R');
-- lines 348 to 349 of trigger_field
                put(8, new_key, 'D');
-- lines 352 to 353 of trigger_field
                put(8, new_key, 'T');
-- lines 356 to 357 of trigger_field
                put(8, new_key, 'TZ');
-- lines 360 to 361 of trigger_field
                put(8, new_key, 'LTZ');
-- lines 364 to 365 of trigger_field
                put(8, new_key, 'YM');
-- lines 368 to 369 of trigger_field
                put(8, new_key, 'DS');
-- lines 372 to 373 of trigger_field
                put(8, new_key, 'RI');
-- lines 376 to 425 of trigger_field
-- lines 411 to 455 of trigger_remove_all
