CREATE OR REPLACE FUNCTION "LOGS"."PROC_EVENTLOG_QUOTE"(value IN VARCHAR2) RETURN VARCHAR2 DETERMINISTIC
AS
    quoted VARCHAR2(32767);
    is_special BOOLEAN := value IS NULL OR ASCII(value) = 32 OR ASCII(SUBSTR(value, -1)) = 32;
    code PLS_INTEGER;
BEGIN
    FOR place IN 1 .. NVL(LENGTH(value), 0) LOOP
        code := ASCII(SUBSTR(value, place, 1));
        IF code IN (34, 92) THEN
            quoted := quoted || CHR(92);
        END IF;
        quoted := quoted || SUBSTR(value, place, 1);
        -- Control characters, both quotation marks, plus, comma, semicolon, less, equals, greater, backslash.
        IF code < 32 OR code IN (34, 39, 43, 44, 59, 60, 61, 62, 92, 127) THEN
            is_special := TRUE;
        END IF;
    END LOOP;
    IF is_special THEN
        RETURN CHR(34) || quoted || CHR(34);
    END IF;
    RETURN value;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'LOGS' AND name = 'PROC_EVENTLOG_QUOTE' AND type = 'FUNCTION' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'PROC_EVENTLOG_QUOTE' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
CREATE OR REPLACE FUNCTION "LOGS"."PROC_EVENTLOG_BASE64"(value IN RAW) RETURN VARCHAR2 DETERMINISTIC
AS
    encoded VARCHAR2(32767);
    place PLS_INTEGER := 1;
    piece RAW(1536);
BEGIN
    WHILE place <= NVL(UTL_RAW.LENGTH(value), 0) LOOP
        piece := UTL_RAW.SUBSTR(value, place, LEAST(1536, UTL_RAW.LENGTH(value) - place + 1));
        encoded := encoded
            || REPLACE(REPLACE(UTL_RAW.CAST_TO_VARCHAR2(UTL_ENCODE.BASE64_ENCODE(piece)), CHR(13)), CHR(10));
        place := place + 1536;
    END LOOP;
    RETURN encoded;
END;
/
DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'LOGS' AND name = 'PROC_EVENTLOG_BASE64' AND type = 'FUNCTION' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'PROC_EVENTLOG_BASE64' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
BEGIN
    EXECUTE IMMEDIATE 'DROP FUNCTION "Logs"."proc_Ereignisse ''neu''_quote"';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -4043 THEN
            RAISE;
        END IF;
END;
/
BEGIN
    EXECUTE IMMEDIATE 'DROP FUNCTION "Logs"."proc_Ereignisse ''neu''_base64"';
EXCEPTION
    WHEN OTHERS THEN
        IF SQLCODE <> -4043 THEN
            RAISE;
        END IF;
END;
/
