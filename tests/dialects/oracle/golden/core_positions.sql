SELECT positions.token, positions.delivery_no, positions.numbered 
FROM positions 
WHERE positions.source = :source_1;
SELECT anon_1.event_id 
FROM (SELECT positions_error.event_id AS event_id 
FROM positions_error 
WHERE positions_error.source = :source_1 ORDER BY positions_error.error_time DESC) anon_1 
WHERE ROWNUM <= 10000;
SELECT SYS_EXTRACT_UTC(SYSTIMESTAMP) FROM DUAL;
SELECT positions_inflight.entry_no, positions_inflight.content 
FROM positions_inflight 
WHERE positions_inflight.source = :source_1 ORDER BY positions_inflight.entry_no;
UPDATE positions SET token=:token, delivery_no=:delivery_no, numbered=:numbered, saved=:saved WHERE positions.source = :source_1;
INSERT INTO positions_error (source, event_id, error_time, code, message, content) VALUES (:source, :event_id, :error_time, :code, :message, :content);
DELETE FROM positions_inflight WHERE positions_inflight.source = :source_1 AND positions_inflight.entry_no = :of_entry;
INSERT INTO positions_inflight (source, entry_no, content) VALUES (:source, :entry_no, :content);

                begin
                   :trans_id := dbms_transaction.local_transaction_id( TRUE );
                end;
                ;
BEGIN
    :answer := SYS.DBMS_LOCK.REQUEST(243238016, 6, 0, FALSE);
END;
/
BEGIN
    :answer := SYS.DBMS_LOCK.RELEASE(243238016);
END;
/
SELECT positions.saved 
FROM positions 
WHERE positions.source = :source_1;
SELECT count(*) AS count_1 
FROM positions_error 
WHERE positions_error.source = :source_1;
SELECT anon_1.error_time, anon_1.event_id, anon_1.code, anon_1.message 
FROM (SELECT positions_error.error_time AS error_time, positions_error.event_id AS event_id, positions_error.code AS code, positions_error.message AS message 
FROM positions_error 
WHERE positions_error.source = :source_1 ORDER BY positions_error.error_time DESC) anon_1 
WHERE ROWNUM <= 20;
CREATE TABLE positions (
	source VARCHAR2(32 CHAR) NOT NULL, 
	token CLOB, 
	delivery_no NUMBER(19) NOT NULL, 
	numbered VARCHAR2(64 CHAR), 
	saved DATE NOT NULL, 
	PRIMARY KEY (source)
);
CREATE TABLE positions_inflight (
	source VARCHAR2(32 CHAR) NOT NULL, 
	entry_no NUMBER(19) NOT NULL, 
	content CLOB NOT NULL, 
	PRIMARY KEY (source, entry_no)
);
CREATE TABLE positions_error (
	source VARCHAR2(32 CHAR) NOT NULL, 
	event_id VARCHAR2(255 CHAR) NOT NULL, 
	error_time DATE NOT NULL, 
	code VARCHAR2(64 CHAR) NOT NULL, 
	message CLOB NOT NULL, 
	content CLOB
);
