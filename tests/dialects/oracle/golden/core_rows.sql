SELECT anon_2.anon_1 
FROM (SELECT CASE "LOGS"."EVENTLOG"."STATUS" WHEN 'N' THEN "LOGS"."EVENTLOG"."RECORD_ID" END AS anon_1 
FROM "LOGS"."EVENTLOG" 
WHERE CASE "LOGS"."EVENTLOG"."STATUS" WHEN 'N' THEN "LOGS"."EVENTLOG"."RECORD_ID" END IS NOT NULL AND CASE "LOGS"."EVENTLOG"."STATUS" WHEN 'N' THEN "LOGS"."EVENTLOG"."RECORD_ID" END > :param_1 ORDER BY CASE "LOGS"."EVENTLOG"."STATUS" WHEN 'N' THEN "LOGS"."EVENTLOG"."RECORD_ID" END DESC) anon_2 
WHERE ROWNUM <= 1;
SELECT min("LOGS"."EVENTLOG"."RECORD_ID") AS min_1, max("LOGS"."EVENTLOG"."RECORD_ID") AS max_1 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1;
SELECT count(*) AS count_1 
FROM "LOGS"."EVENTLOG";
SELECT count(*) AS count_1 
FROM (SELECT anon_2.place AS place 
FROM (SELECT CASE "LOGS"."EVENTLOG"."STATUS" WHEN 'N' THEN "LOGS"."EVENTLOG"."RECORD_ID" END AS place 
FROM "LOGS"."EVENTLOG" 
WHERE CASE "LOGS"."EVENTLOG"."STATUS" WHEN 'N' THEN "LOGS"."EVENTLOG"."RECORD_ID" END IS NOT NULL ORDER BY CASE "LOGS"."EVENTLOG"."STATUS" WHEN 'N' THEN "LOGS"."EVENTLOG"."RECORD_ID" END) anon_2 
WHERE ROWNUM <= 1000) anon_1;
SELECT "LOGS"."EVENTLOG"."STATUS", count(*) AS count_1 
FROM "LOGS"."EVENTLOG" GROUP BY "LOGS"."EVENTLOG"."STATUS";
SELECT anon_1.table_name, anon_1.status, count(*) AS count_1 
FROM (SELECT anon_2.table_name AS table_name, anon_2.status AS status 
FROM (SELECT "LOGS"."EVENTLOG"."TABLE_NAME" AS table_name, "LOGS"."EVENTLOG"."STATUS" AS status 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."RECORD_ID" IS NOT NULL ORDER BY "LOGS"."EVENTLOG"."RECORD_ID" DESC) anon_2 
WHERE ROWNUM <= 1000) anon_1 GROUP BY anon_1.table_name, anon_1.status;
SELECT logged.place, logged.record_id, logged.event_type, logged.table_name, logged.table_key, logged.column_name, logged.status, logged.is_chosen, logged.is_own 
FROM (SELECT "LOGS"."EVENTLOG"."RECORD_ID" AS record_id, "LOGS"."EVENTLOG"."EVENT_TYPE" AS event_type, "LOGS"."EVENTLOG"."TABLE_NAME" AS table_name, "LOGS"."EVENTLOG"."TABLE_KEY" AS table_key, "LOGS"."EVENTLOG"."COLUMN_NAME" AS column_name, "LOGS"."EVENTLOG"."STATUS" AS status, CASE WHEN ("LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2, :STATUS_1_3, :STATUS_1_4) AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1 AND ("LOGS"."EVENTLOG"."RECORD_ID" BETWEEN :RECORD_ID_2 AND :RECORD_ID_3 OR "LOGS"."EVENTLOG"."RECORD_ID" BETWEEN :RECORD_ID_4 AND :RECORD_ID_5)) THEN 1 ELSE 0 END AS is_chosen, 0 AS is_own, max(CASE WHEN ("LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2, :STATUS_1_3, :STATUS_1_4) AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1 AND ("LOGS"."EVENTLOG"."RECORD_ID" BETWEEN :RECORD_ID_2 AND :RECORD_ID_3 OR "LOGS"."EVENTLOG"."RECORD_ID" BETWEEN :RECORD_ID_4 AND :RECORD_ID_5)) THEN 1 ELSE 0 END) OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS is_wanted, min("LOGS"."EVENTLOG"."RECORD_ID") OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS place 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_6) logged 
WHERE logged.is_wanted = 1 ORDER BY logged.place, logged.record_id;
SELECT max("LOGS"."EVENTLOG_EPOCH".removed) AS max_1 
FROM "LOGS"."EVENTLOG_EPOCH";
UPDATE "LOGS"."EVENTLOG" SET "STATUS"=:"STATUS" WHERE "LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2) AND "LOGS"."EVENTLOG"."RECORD_ID" BETWEEN :RECORD_ID_1 AND :RECORD_ID_2;
SELECT logged.place, logged.record_id, logged.event_type, logged.table_name, logged.table_key, logged.column_name, logged.status, logged.is_chosen, logged.is_own 
FROM (SELECT "LOGS"."EVENTLOG"."RECORD_ID" AS record_id, "LOGS"."EVENTLOG"."EVENT_TYPE" AS event_type, "LOGS"."EVENTLOG"."TABLE_NAME" AS table_name, "LOGS"."EVENTLOG"."TABLE_KEY" AS table_key, "LOGS"."EVENTLOG"."COLUMN_NAME" AS column_name, "LOGS"."EVENTLOG"."STATUS" AS status, CASE WHEN ("LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2) AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1 AND 1 = 0) THEN 1 ELSE 0 END AS is_chosen, 0 AS is_own, max(CASE WHEN ("LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2) AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1 AND 1 = 0) THEN 1 ELSE 0 END) OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS is_wanted, min("LOGS"."EVENTLOG"."RECORD_ID") OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS place 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_2) logged 
WHERE logged.is_wanted = 1 ORDER BY logged.place, logged.record_id;
SELECT logged.place, logged.record_id, logged.event_type, logged.table_name, logged.table_key, logged.column_name, logged.status, logged.is_chosen, logged.is_own 
FROM (SELECT "LOGS"."EVENTLOG"."RECORD_ID" AS record_id, "LOGS"."EVENTLOG"."EVENT_TYPE" AS event_type, "LOGS"."EVENTLOG"."TABLE_NAME" AS table_name, "LOGS"."EVENTLOG"."TABLE_KEY" AS table_key, "LOGS"."EVENTLOG"."COLUMN_NAME" AS column_name, "LOGS"."EVENTLOG"."STATUS" AS status, CASE WHEN ("LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2, :STATUS_1_3, :STATUS_1_4) AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1) THEN 1 ELSE 0 END AS is_chosen, 0 AS is_own, max(CASE WHEN ("LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2, :STATUS_1_3, :STATUS_1_4) AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1) THEN 1 ELSE 0 END) OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS is_wanted, min("LOGS"."EVENTLOG"."RECORD_ID") OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS place 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_2) logged 
WHERE logged.is_wanted = 1 ORDER BY logged.place, logged.record_id;
SELECT logged.place, logged.record_id, logged.event_type, logged.table_name, logged.table_key, logged.column_name, logged.status, logged.is_chosen, logged.is_own 
FROM (SELECT "LOGS"."EVENTLOG"."RECORD_ID" AS record_id, "LOGS"."EVENTLOG"."EVENT_TYPE" AS event_type, "LOGS"."EVENTLOG"."TABLE_NAME" AS table_name, "LOGS"."EVENTLOG"."TABLE_KEY" AS table_key, "LOGS"."EVENTLOG"."COLUMN_NAME" AS column_name, "LOGS"."EVENTLOG"."STATUS" AS status, CASE WHEN ("LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2) AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1) THEN 1 ELSE 0 END AS is_chosen, 0 AS is_own, max(CASE WHEN ("LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2) AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1) THEN 1 ELSE 0 END) OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS is_wanted, min("LOGS"."EVENTLOG"."RECORD_ID") OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS place 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_2) logged 
WHERE logged.is_wanted = 1 ORDER BY logged.place, logged.record_id;
INSERT INTO "LOGS"."EVENTLOG" ("RECORD_ID", "STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY", "COLUMN_NAME", "OLD_VALUE", "NEW_VALUE") SELECT "APP"."SEQ_LOG".NEXTVAL, sorted.status, sorted.event_type, sorted.event_time, sorted.perpetrator, sorted.table_name, sorted.table_key, sorted.column_name, sorted.old_value, sorted.new_value 
FROM (SELECT 'N' AS status, "LOGS"."EVENTLOG"."EVENT_TYPE" AS event_type, "LOGS"."EVENTLOG"."EVENT_TIME" AS event_time, "LOGS"."EVENTLOG"."PERPETRATOR" AS perpetrator, "LOGS"."EVENTLOG"."TABLE_NAME" AS table_name, "LOGS"."EVENTLOG"."TABLE_KEY" AS table_key, "LOGS"."EVENTLOG"."COLUMN_NAME" AS column_name, "LOGS"."EVENTLOG"."OLD_VALUE" AS old_value, "LOGS"."EVENTLOG"."NEW_VALUE" AS new_value 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2) AND "LOGS"."EVENTLOG"."RECORD_ID" BETWEEN :RECORD_ID_1 AND :RECORD_ID_2 ORDER BY "LOGS"."EVENTLOG"."RECORD_ID") sorted;
INSERT INTO "LOGS"."EVENTLOG" ("RECORD_ID", "STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY", "COLUMN_NAME", "OLD_VALUE", "NEW_VALUE") SELECT "APP"."SEQ_LOG".NEXTVAL, sorted.status, sorted.event_type, sorted.event_time, sorted.perpetrator, sorted.table_name, sorted.table_key, sorted.column_name, sorted.old_value, sorted.new_value 
FROM (SELECT 'N' AS status, CASE WHEN ("LOGS"."EVENTLOG"."EVENT_TYPE" = :EVENT_TYPE_1) THEN 2 ELSE 8 END AS event_type, "LOGS"."EVENTLOG"."EVENT_TIME" AS event_time, "LOGS"."EVENTLOG"."PERPETRATOR" AS perpetrator, "LOGS"."EVENTLOG"."TABLE_NAME" AS table_name, "LOGS"."EVENTLOG"."TABLE_KEY" AS table_key, "LOGS"."EVENTLOG"."COLUMN_NAME" AS column_name, NULL AS old_value, "LOGS"."EVENTLOG"."NEW_VALUE" AS new_value 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2) AND "LOGS"."EVENTLOG"."RECORD_ID" BETWEEN :RECORD_ID_1 AND :RECORD_ID_2 ORDER BY "LOGS"."EVENTLOG"."RECORD_ID") sorted;
SELECT logged.place, logged.record_id, logged.event_type, logged.table_name, logged.table_key, logged.column_name, logged.status, logged.is_chosen, logged.is_own 
FROM (SELECT "LOGS"."EVENTLOG"."RECORD_ID" AS record_id, "LOGS"."EVENTLOG"."EVENT_TYPE" AS event_type, "LOGS"."EVENTLOG"."TABLE_NAME" AS table_name, "LOGS"."EVENTLOG"."TABLE_KEY" AS table_key, "LOGS"."EVENTLOG"."COLUMN_NAME" AS column_name, "LOGS"."EVENTLOG"."STATUS" AS status, CASE WHEN ("LOGS"."EVENTLOG"."STATUS" = :STATUS_1) THEN 1 ELSE 0 END AS is_chosen, CASE WHEN (rtrim("LOGS"."EVENTLOG"."PERPETRATOR") = :rtrim_1) THEN 1 ELSE 0 END AS is_own, max(CASE WHEN ("LOGS"."EVENTLOG"."STATUS" = :STATUS_1) THEN 1 ELSE 0 END) OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS is_wanted, min("LOGS"."EVENTLOG"."RECORD_ID") OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS place 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1) logged 
WHERE logged.is_wanted = 1 ORDER BY logged.place, logged.record_id;
SELECT logged.place, logged.record_id, logged.event_type, logged.table_name, logged.table_key, logged.column_name, logged.status, logged.is_chosen, logged.is_own 
FROM (SELECT "LOGS"."EVENTLOG"."RECORD_ID" AS record_id, "LOGS"."EVENTLOG"."EVENT_TYPE" AS event_type, "LOGS"."EVENTLOG"."TABLE_NAME" AS table_name, "LOGS"."EVENTLOG"."TABLE_KEY" AS table_key, "LOGS"."EVENTLOG"."COLUMN_NAME" AS column_name, "LOGS"."EVENTLOG"."STATUS" AS status, CASE WHEN ("LOGS"."EVENTLOG"."STATUS" = :STATUS_1) THEN 1 ELSE 0 END AS is_chosen, 0 AS is_own, max(CASE WHEN ("LOGS"."EVENTLOG"."STATUS" = :STATUS_1) THEN 1 ELSE 0 END) OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS is_wanted, min("LOGS"."EVENTLOG"."RECORD_ID") OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS place 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1) logged 
WHERE logged.is_wanted = 1 ORDER BY logged.place, logged.record_id;
INSERT INTO "LOGS"."EVENTLOG" ("RECORD_ID", "STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY")
VALUES ("APP"."SEQ_LOG".NEXTVAL, 'N', :event_type, SYS_EXTRACT_UTC(SYSTIMESTAMP), NULL, :class_name, :table_key);
SELECT logged.place, logged.record_id, logged.event_type, logged.table_name, logged.table_key, logged.column_name, logged.status, logged.is_chosen, logged.is_own 
FROM (SELECT "LOGS"."EVENTLOG"."RECORD_ID" AS record_id, "LOGS"."EVENTLOG"."EVENT_TYPE" AS event_type, "LOGS"."EVENTLOG"."TABLE_NAME" AS table_name, "LOGS"."EVENTLOG"."TABLE_KEY" AS table_key, "LOGS"."EVENTLOG"."COLUMN_NAME" AS column_name, "LOGS"."EVENTLOG"."STATUS" AS status, CASE WHEN (rtrim("LOGS"."EVENTLOG"."PERPETRATOR") = :rtrim_1 AND "LOGS"."EVENTLOG"."STATUS" = :STATUS_1 AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1 AND ("LOGS"."EVENTLOG"."RECORD_ID" BETWEEN :RECORD_ID_2 AND :RECORD_ID_3 OR "LOGS"."EVENTLOG"."RECORD_ID" BETWEEN :RECORD_ID_4 AND :RECORD_ID_5)) THEN 1 ELSE 0 END AS is_chosen, 0 AS is_own, max(CASE WHEN (rtrim("LOGS"."EVENTLOG"."PERPETRATOR") = :rtrim_1 AND "LOGS"."EVENTLOG"."STATUS" = :STATUS_1 AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1 AND ("LOGS"."EVENTLOG"."RECORD_ID" BETWEEN :RECORD_ID_2 AND :RECORD_ID_3 OR "LOGS"."EVENTLOG"."RECORD_ID" BETWEEN :RECORD_ID_4 AND :RECORD_ID_5)) THEN 1 ELSE 0 END) OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS is_wanted, min("LOGS"."EVENTLOG"."RECORD_ID") OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS place 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_6) logged 
WHERE logged.is_wanted = 1 ORDER BY logged.place, logged.record_id;
INSERT INTO "LOGS"."EVENTLOG" ("STATUS", "EVENT_TYPE", "EVENT_TIME", "PERPETRATOR", "TABLE_NAME", "TABLE_KEY", "COLUMN_NAME", "OLD_VALUE", "NEW_VALUE") SELECT 'N', "LOGS"."EVENTLOG"."EVENT_TYPE", SYS_EXTRACT_UTC(SYSTIMESTAMP), NULL AS anon_1, "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY", "LOGS"."EVENTLOG"."COLUMN_NAME", "LOGS"."EVENTLOG"."OLD_VALUE", "LOGS"."EVENTLOG"."NEW_VALUE" 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2) AND "LOGS"."EVENTLOG"."RECORD_ID" BETWEEN :RECORD_ID_1 AND :RECORD_ID_2 ORDER BY "LOGS"."EVENTLOG"."RECORD_ID";
SELECT logged.place, logged.record_id, logged.event_type, logged.table_name, logged.table_key, logged.column_name, logged.status, logged.is_chosen, logged.is_own 
FROM (SELECT "LOGS"."EVENTLOG"."RECORD_ID" AS record_id, "LOGS"."EVENTLOG"."EVENT_TYPE" AS event_type, "LOGS"."EVENTLOG"."TABLE_NAME" AS table_name, "LOGS"."EVENTLOG"."TABLE_KEY" AS table_key, "LOGS"."EVENTLOG"."COLUMN_NAME" AS column_name, "LOGS"."EVENTLOG"."STATUS" AS status, CASE WHEN (rtrim("LOGS"."EVENTLOG"."PERPETRATOR") = :rtrim_1 AND "LOGS"."EVENTLOG"."STATUS" = :STATUS_1 AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1) THEN 1 ELSE 0 END AS is_chosen, 0 AS is_own, max(CASE WHEN (rtrim("LOGS"."EVENTLOG"."PERPETRATOR") = :rtrim_1 AND "LOGS"."EVENTLOG"."STATUS" = :STATUS_1 AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1) THEN 1 ELSE 0 END) OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS is_wanted, min("LOGS"."EVENTLOG"."RECORD_ID") OVER (PARTITION BY "LOGS"."EVENTLOG"."TABLE_NAME", "LOGS"."EVENTLOG"."TABLE_KEY") AS place 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_2) logged 
WHERE logged.is_wanted = 1 ORDER BY logged.place, logged.record_id;
SELECT "LOGS"."EVENTLOG_ERROR".record_id, "LOGS"."EVENTLOG_ERROR".error_time, "LOGS"."EVENTLOG_ERROR".code, "LOGS"."EVENTLOG_ERROR".message, NULL AS anon_1, "LOGS"."EVENTLOG_ERROR".superseded_by 
FROM "LOGS"."EVENTLOG_ERROR" 
WHERE ("LOGS"."EVENTLOG_ERROR".record_id IN (:record_id_1_1) OR "LOGS"."EVENTLOG_ERROR".record_id BETWEEN :record_id_2 AND :record_id_3) AND "LOGS"."EVENTLOG_ERROR".consumer IS NULL AND "LOGS"."EVENTLOG_ERROR".code != :code_1 ORDER BY "LOGS"."EVENTLOG_ERROR".error_time;
SELECT anon_1."RECORD_ID" 
FROM (SELECT "LOGS"."EVENTLOG"."RECORD_ID" AS "RECORD_ID" 
FROM "LOGS"."EVENTLOG" 
WHERE "LOGS"."EVENTLOG"."STATUS" IN (:STATUS_1_1, :STATUS_1_2) AND "LOGS"."EVENTLOG"."RECORD_ID" > :RECORD_ID_1 ORDER BY "LOGS"."EVENTLOG"."RECORD_ID" DESC) anon_1 
WHERE ROWNUM <= 1000;
SELECT (SELECT max("LOGS"."EVENTLOG_ERROR".error_time) AS max_1 
FROM "LOGS"."EVENTLOG_ERROR" 
WHERE "LOGS"."EVENTLOG_ERROR".record_id BETWEEN :record_id_1 AND :record_id_2 AND "LOGS"."EVENTLOG_ERROR".consumer IS NULL) AS anon_1, SYS_EXTRACT_UTC(SYSTIMESTAMP) FROM DUAL;
INSERT INTO "LOGS"."EVENTLOG_ERROR" (error_time, record_id, code, message) VALUES (:error_time, :record_id, :code, :message);
SELECT (SELECT max("LOGS"."EVENTLOG_ERROR".error_time) AS max_1 
FROM "LOGS"."EVENTLOG_ERROR" 
WHERE "LOGS"."EVENTLOG_ERROR".record_id BETWEEN :record_id_1 AND :record_id_2 AND "LOGS"."EVENTLOG_ERROR".consumer = :consumer_1) AS anon_1, SYS_EXTRACT_UTC(SYSTIMESTAMP), (SELECT "LOGS"."EVENTLOG_CONSUMER".begun 
FROM "LOGS"."EVENTLOG_CONSUMER" 
WHERE "LOGS"."EVENTLOG_CONSUMER".name = :name_1) AS anon_2 FROM DUAL;
INSERT INTO "LOGS"."EVENTLOG_ERROR" (error_time, record_id, code, message, consumer, event_id) VALUES (:error_time, :record_id, :code, :message, :consumer, :event_id);
SELECT max("LOGS"."EVENTLOG_ERROR".error_time) AS max_1 
FROM "LOGS"."EVENTLOG_ERROR" 
WHERE "LOGS"."EVENTLOG_ERROR".consumer = :consumer_1;
SELECT "LOGS"."EVENTLOG_ERROR".record_id, "LOGS"."EVENTLOG_ERROR".event_id 
FROM "LOGS"."EVENTLOG_ERROR" 
WHERE "LOGS"."EVENTLOG_ERROR".record_id > :record_id_1 AND "LOGS"."EVENTLOG_ERROR".event_id IS NOT NULL AND "LOGS"."EVENTLOG_ERROR".consumer = :consumer_1 AND "LOGS"."EVENTLOG_ERROR".error_time >= (SELECT "LOGS"."EVENTLOG_CONSUMER".begun 
FROM "LOGS"."EVENTLOG_CONSUMER" 
WHERE "LOGS"."EVENTLOG_CONSUMER".name = :name_1) AND "LOGS"."EVENTLOG_ERROR".code != :code_1;
SELECT "LOGS"."EVENTLOG_STATE".entry_no, "LOGS"."EVENTLOG_STATE".owner, "LOGS"."EVENTLOG_STATE".started, "LOGS"."EVENTLOG_STATE".content 
FROM "LOGS"."EVENTLOG_STATE" 
WHERE "LOGS"."EVENTLOG_STATE".kind = 'request' AND "LOGS"."EVENTLOG_STATE".owner IS NULL ORDER BY "LOGS"."EVENTLOG_STATE".entry_no;
DELETE FROM "LOGS"."EVENTLOG_STATE" WHERE "LOGS"."EVENTLOG_STATE".entry_no = :entry_no_1;
SELECT "LOGS"."EVENTLOG_DELIVERY".NEXTVAL FROM DUAL;
INSERT INTO "LOGS"."EVENTLOG_INFLIGHT" (entry_no, owner, kind, content) VALUES (:entry_no, :owner, :kind, :content);
UPDATE "LOGS"."EVENTLOG_INFLIGHT" SET content=:content WHERE "LOGS"."EVENTLOG_INFLIGHT".entry_no = :entry_no_1;
UPDATE "LOGS"."EVENTLOG_INFLIGHT" SET kind=:kind, started=SYS_EXTRACT_UTC(SYSTIMESTAMP), content=:content WHERE "LOGS"."EVENTLOG_INFLIGHT".entry_no = :entry_no_1;
DELETE FROM "LOGS"."EVENTLOG_INFLIGHT" WHERE "LOGS"."EVENTLOG_INFLIGHT".entry_no = :entry_no_1;
DELETE FROM "LOGS"."EVENTLOG_INFLIGHT" WHERE "LOGS"."EVENTLOG_INFLIGHT".owner = :owner_1 AND "LOGS"."EVENTLOG_INFLIGHT".kind != :kind_1;
SELECT "LOGS"."EVENTLOG_INFLIGHT".entry_no, "LOGS"."EVENTLOG_INFLIGHT".owner, "LOGS"."EVENTLOG_INFLIGHT".started, "LOGS"."EVENTLOG_INFLIGHT".content 
FROM "LOGS"."EVENTLOG_INFLIGHT" 
WHERE "LOGS"."EVENTLOG_INFLIGHT".kind = 'delivery' AND "LOGS"."EVENTLOG_INFLIGHT".owner IS NULL ORDER BY "LOGS"."EVENTLOG_INFLIGHT".entry_no;
SELECT "LOGS"."EVENTLOG_STATE".entry_no, "LOGS"."EVENTLOG_STATE".owner, "LOGS"."EVENTLOG_STATE".started, "LOGS"."EVENTLOG_STATE".content 
FROM "LOGS"."EVENTLOG_STATE" 
WHERE "LOGS"."EVENTLOG_STATE".kind = 'claim' ORDER BY "LOGS"."EVENTLOG_STATE".entry_no;
SELECT "LOGS"."EVENTLOG_INFLIGHT".entry_no, "LOGS"."EVENTLOG_INFLIGHT".kind 
FROM "LOGS"."EVENTLOG_INFLIGHT" 
WHERE ("LOGS"."EVENTLOG_INFLIGHT".kind NOT IN (:kind_1_1, :kind_1_2, :kind_1_3, :kind_1_4, :kind_1_5, :kind_1_6, :kind_1_7, :kind_1_8, :kind_1_9, :kind_1_10, :kind_1_11)) ORDER BY "LOGS"."EVENTLOG_INFLIGHT".entry_no;
SELECT "LOGS"."EVENTLOG_INFLIGHT".started, SYS_EXTRACT_UTC(SYSTIMESTAMP) 
FROM "LOGS"."EVENTLOG_INFLIGHT" 
WHERE "LOGS"."EVENTLOG_INFLIGHT".entry_no = (SELECT min("LOGS"."EVENTLOG_INFLIGHT".entry_no) AS min_1 
FROM "LOGS"."EVENTLOG_INFLIGHT" 
WHERE "LOGS"."EVENTLOG_INFLIGHT".kind = 'dead_letter' AND "LOGS"."EVENTLOG_INFLIGHT".owner IS NULL);
SELECT count(*) AS count_1 
FROM (SELECT anon_2.entry_no AS entry_no 
FROM (SELECT "LOGS"."EVENTLOG_INFLIGHT".entry_no AS entry_no 
FROM "LOGS"."EVENTLOG_INFLIGHT" 
WHERE "LOGS"."EVENTLOG_INFLIGHT".kind = 'dead_letter' AND "LOGS"."EVENTLOG_INFLIGHT".owner IS NULL) anon_2 
WHERE ROWNUM <= 1000) anon_1;
SELECT anon_1.entry_no, anon_1.owner, anon_1.started, anon_1.content 
FROM (SELECT "LOGS"."EVENTLOG_INFLIGHT".entry_no AS entry_no, "LOGS"."EVENTLOG_INFLIGHT".owner AS owner, "LOGS"."EVENTLOG_INFLIGHT".started AS started, "LOGS"."EVENTLOG_INFLIGHT".content AS content 
FROM "LOGS"."EVENTLOG_INFLIGHT" 
WHERE "LOGS"."EVENTLOG_INFLIGHT".kind = 'dead_letter' AND "LOGS"."EVENTLOG_INFLIGHT".owner = :owner_1 ORDER BY "LOGS"."EVENTLOG_INFLIGHT".entry_no) anon_1 
WHERE ROWNUM <= 100;
SELECT "LOGS"."EVENTLOG_ERROR".record_id, count(*) AS count_1 
FROM "LOGS"."EVENTLOG_ERROR" 
WHERE ("LOGS"."EVENTLOG_ERROR".record_id BETWEEN :record_id_1 AND :record_id_2 OR "LOGS"."EVENTLOG_ERROR".record_id BETWEEN :record_id_3 AND :record_id_4) AND "LOGS"."EVENTLOG_ERROR".consumer = :consumer_1 AND ("LOGS"."EVENTLOG_ERROR".code NOT IN (:code_1_1, :code_1_2, :code_1_3, :code_1_4)) GROUP BY "LOGS"."EVENTLOG_ERROR".record_id;
SELECT "LOGS"."EVENTLOG_ERROR".event_id, count(*) AS count_1 
FROM "LOGS"."EVENTLOG_ERROR" 
WHERE "LOGS"."EVENTLOG_ERROR".record_id = :record_id_1 AND "LOGS"."EVENTLOG_ERROR".event_id IN (:event_id_1_1) AND "LOGS"."EVENTLOG_ERROR".consumer = :consumer_1 AND ("LOGS"."EVENTLOG_ERROR".code NOT IN (:code_1_1, :code_1_2, :code_1_3, :code_1_4)) GROUP BY "LOGS"."EVENTLOG_ERROR".event_id;
SELECT "LOGS"."EVENTLOG_ERROR".error_time, "LOGS"."EVENTLOG_ERROR".code, "LOGS"."EVENTLOG_ERROR".message, NULL AS anon_1, "LOGS"."EVENTLOG_ERROR".superseded_by 
FROM "LOGS"."EVENTLOG_ERROR" 
WHERE "LOGS"."EVENTLOG_ERROR".record_id = :record_id_1 AND "LOGS"."EVENTLOG_ERROR".consumer IS NULL AND "LOGS"."EVENTLOG_ERROR".code = :code_1 ORDER BY "LOGS"."EVENTLOG_ERROR".error_time;
SELECT "LOGS"."EVENTLOG_ERROR".error_time, "LOGS"."EVENTLOG_ERROR".code, "LOGS"."EVENTLOG_ERROR".message, NULL AS anon_1, "LOGS"."EVENTLOG_ERROR".superseded_by 
FROM "LOGS"."EVENTLOG_ERROR" 
WHERE "LOGS"."EVENTLOG_ERROR".record_id = :record_id_1 AND "LOGS"."EVENTLOG_ERROR".consumer IS NULL AND "LOGS"."EVENTLOG_ERROR".code != :code_1 ORDER BY "LOGS"."EVENTLOG_ERROR".error_time;
SELECT anon_1.record_id, anon_1.error_time, anon_1.code, anon_1.message, anon_1.event_id, anon_1.superseded_by 
FROM (SELECT "LOGS"."EVENTLOG_ERROR".record_id AS record_id, "LOGS"."EVENTLOG_ERROR".error_time AS error_time, "LOGS"."EVENTLOG_ERROR".code AS code, "LOGS"."EVENTLOG_ERROR".message AS message, "LOGS"."EVENTLOG_ERROR".event_id AS event_id, "LOGS"."EVENTLOG_ERROR".superseded_by AS superseded_by 
FROM "LOGS"."EVENTLOG_ERROR" 
WHERE "LOGS"."EVENTLOG_ERROR".consumer IS NULL AND "LOGS"."EVENTLOG_ERROR".code != :code_1 ORDER BY "LOGS"."EVENTLOG_ERROR".error_time DESC, "LOGS"."EVENTLOG_ERROR".record_id DESC) anon_1 
WHERE ROWNUM <= 20;
SELECT anon_1.record_id, anon_1.event_id, anon_1.code, anon_1.superseded_by, "LOGS"."EVENTLOG"."STATUS" 
FROM (SELECT anon_2.record_id AS record_id, anon_2.event_id AS event_id, anon_2.code AS code, anon_2.superseded_by AS superseded_by, anon_2.written AS written 
FROM (SELECT "LOGS"."EVENTLOG_ERROR".record_id AS record_id, "LOGS"."EVENTLOG_ERROR".event_id AS event_id, "LOGS"."EVENTLOG_ERROR".code AS code, "LOGS"."EVENTLOG_ERROR".superseded_by AS superseded_by, "LOGS"."EVENTLOG_ERROR".error_time AS written 
FROM "LOGS"."EVENTLOG_ERROR" 
WHERE "LOGS"."EVENTLOG_ERROR".consumer IS NULL AND "LOGS"."EVENTLOG_ERROR".code != :code_1 ORDER BY "LOGS"."EVENTLOG_ERROR".error_time DESC, "LOGS"."EVENTLOG_ERROR".record_id DESC) anon_2 
WHERE ROWNUM <= 20) anon_1 JOIN "LOGS"."EVENTLOG" ON "LOGS"."EVENTLOG"."RECORD_ID" = anon_1.record_id ORDER BY anon_1.written DESC, anon_1.record_id DESC;
SELECT anon_1.record_id, anon_1.event_id, anon_1.code, anon_1.superseded_by, :param_1 AS anon_2 
FROM (SELECT anon_3.record_id AS record_id, anon_3.event_id AS event_id, anon_3.code AS code, anon_3.superseded_by AS superseded_by, anon_3.written AS written 
FROM (SELECT "LOGS"."EVENTLOG_ERROR".record_id AS record_id, "LOGS"."EVENTLOG_ERROR".event_id AS event_id, "LOGS"."EVENTLOG_ERROR".code AS code, "LOGS"."EVENTLOG_ERROR".superseded_by AS superseded_by, "LOGS"."EVENTLOG_ERROR".error_time AS written 
FROM "LOGS"."EVENTLOG_ERROR" 
WHERE "LOGS"."EVENTLOG_ERROR".consumer = :consumer_1 AND "LOGS"."EVENTLOG_ERROR".error_time >= (SELECT "LOGS"."EVENTLOG_CONSUMER".begun 
FROM "LOGS"."EVENTLOG_CONSUMER" 
WHERE "LOGS"."EVENTLOG_CONSUMER".name = :name_1) AND "LOGS"."EVENTLOG_ERROR".code != :code_1 ORDER BY "LOGS"."EVENTLOG_ERROR".error_time DESC, "LOGS"."EVENTLOG_ERROR".record_id DESC) anon_3 
WHERE ROWNUM <= 20) anon_1 ORDER BY anon_1.written DESC, anon_1.record_id DESC;
