-- lines 87 to 129 of migrations
-- lines 131 to 160 of migrations
BEGIN
    EXECUTE IMMEDIATE 'DROP FUNCTION "Logs"."proc_Ereignisse ''neu''_quote"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -4043 THEN
-- lines 6 to 10 of sequences
    EXECUTE IMMEDIATE 'DROP FUNCTION "Logs"."proc_Ereignisse ''neu''_base64"';
-- lines 12 to 13 of migrations
        IF SQLCODE <> -4043 THEN
-- lines 15 to 18 of migrations
