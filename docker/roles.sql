-- Run by psql as superuser when the database of compose.yaml is made, after the sample schema (eventlog/cli/demo.sql).
-- The roles and what they are for: docs/guides/install.md.

\getenv owner_password HR_OWNER_PASSWORD
\getenv publisher_password PUBLISHER_PASSWORD

CREATE ROLE hr_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE publisher LOGIN PASSWORD :'publisher_password';

ALTER SCHEMA hr OWNER TO hr_owner;
ALTER TABLE hr.usr OWNER TO hr_owner;
ALTER TABLE hr.usr_phone OWNER TO hr_owner;
ALTER TABLE hr.grp OWNER TO hr_owner;
ALTER TABLE hr.grp_member OWNER TO hr_owner;
