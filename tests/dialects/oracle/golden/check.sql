DECLARE
    problem VARCHAR2(32767);
BEGIN
    FOR error IN (
        SELECT line, text FROM all_errors
        WHERE owner = 'APP' AND name = 'NAME' AND type = 'TRIGGER' AND attribute = 'ERROR'
        ORDER BY sequence
    ) LOOP
        problem := NVL(problem, 'NAME' || ', line ' || error.line || ': ' || error.text);
    END LOOP;
    IF problem IS NOT NULL THEN
        EXECUTE IMMEDIATE 'DROP TRIGGER "APP"."NAME"';
        RAISE_APPLICATION_ERROR(-20000, SUBSTR(problem, 1, 500));
    END IF;
END;
/
