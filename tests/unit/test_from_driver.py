"""``eventlog init --from-driver``: the vendor's exported configuration as an eventlog.toml
(spec/event-log.md 9).
"""

from __future__ import annotations

import datetime
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import Run
from sqlalchemy import make_url

from eventlog.config.driver_tags import DRIVER_TAGS
from eventlog.config.idm import DriverConfig, read_driver, toml_text
from eventlog.config.jdbc_urls import jdbc_url
from eventlog.config.load import Config, load
from eventlog.errors import ConfigError

TAGS = """<?xml version="1.0" encoding="UTF-8"?>
<driver-config name="JDBC Driver">
  <driver-options>
    <jdbc-class display-name="Third-party JDBC driver class name:">org.postgresql.Driver</jdbc-class>
    <sync-schema display-name="Schema name:">indirect</sync-schema>
    <sync-tables/>
    <time-syntax display-name="Time syntax">2</time-syntax>
    <state-dir>.</state-dir>
    <enable-refs>1</enable-refs>
    <add-default-values-on-view-insert>1</add-default-values-on-view-insert>
    <connection-properties>user={$username}; password=geheim</connection-properties>
  </driver-options>
  <subscriber-options>
    <disable>1</disable>
    <key-gen-method>none</key-gen-method>
  </subscriber-options>
  <publisher-options>
    <disable>0</disable>
    <publication-mode>1</publication-mode>
    <log-table>indirect.eventlog</log-table>
    <delete-from-log>yes</delete-from-log>
    <polling-interval>60</polling-interval>
    <time-of-day>18:00:00, 06:30:00</time-of-day>
    <post-poll-stmt>DELETE FROM indirect.eventlog WHERE status = 'S'; SELECT 1</post-poll-stmt>
    <batch-size>1</batch-size>
    <query-limit>1000</query-limit>
    <pub-heartbeat-interval>10</pub-heartbeat-interval>
    <handle-future-events>TRUE</handle-future-events>
  </publisher-options>
</driver-config>
"""

DEFINITIONS = """<?xml version="1.0" encoding="UTF-8"?>
<driver-configuration dn="cn=JDBC,cn=Driver Set,o=system" name="JDBC">
  <attributes>
    <shim-auth-id value="idm"/>
    <shim-auth-server value="REMOTE(hostname=rl.example port=8090)jdbc:postgresql://db.example:5433/hr?ssl=true&amp;loglevel=2"/>
    <shim-auth-password>geheim</shim-auth-password>
    <global-config-values><configuration-values><definitions>
      <definition display-name="Log" name="drv.log.table" type="string"><value>process_log</value></definition>
      <definition display-name="Batch" name="drv.batch" type="integer"><value>16</value></definition>
    </definitions></configuration-values></global-config-values>
    <shim-config-info-xml>
      <driver-config name="JDBC 4">
        <driver-options><configuration-values><definitions>
          <header display-name="Driver"/>
          <definition display-name="Class" id="163" name="jdbc-class" type="string">
            <description>polling-interval is not here</description><value>org.postgresql.Driver</value></definition>
          <group>
            <definition display-name="Filter" name="sync-filter" type="enum">
              <enum-choice display-name="Schema">schema</enum-choice>
              <enum-choice display-name="List">list</enum-choice>
              <value>list</value>
            </definition>
            <subordinates active-value="schema">
              <definition name="sync-schema" type="string"><value>old_schema</value></definition>
            </subordinates>
            <subordinates active-value="list">
              <definition name="sync-tables" type="string">
                <value xml:space="preserve"> usr; grp, view_emp </value></definition>
            </subordinates>
          </group>
          <group>
            <definition name="show-compatibility" type="enum"><value>hide</value></definition>
            <subordinates active-value="show">
              <definition name="enable-meta-identifiers" type="boolean"><value>false</value></definition>
              <definition name="column-position-comparator" type="enum">
                <value>com.novell.nds.dirxml.driver.jdbc.util.config.comp.StringComparator</value></definition>
            </subordinates>
          </group>
          <definition name="app-secret" type="password-ref" is-sensitive="true"><value>geheim</value></definition>
          <definition name="strange-option" type="string"><value>x</value></definition>
        </definitions></configuration-values></driver-options>
        <subscriber-options><configuration-values><definitions>
          <definition name="disable" type="boolean"><value>true</value></definition>
        </definitions></configuration-values></subscriber-options>
        <publisher-options><configuration-values><definitions>
          <definition name="publication-mode" type="enum"><value>2</value></definition>
          <gcv-ref driver-param-name="log-table" name="drv.log.table"/>
          <definition name="batch-size" type="integer"><value>~drv.batch~</value></definition>
          <definition name="query-limit" type="integer"><value>~drv.unknown~</value></definition>
          <definition name="polling-interval" type="integer"><value/></definition>
          <definition name="startup-option" type="enum"><value>1</value></definition>
        </definitions></configuration-values></publisher-options>
      </driver-config>
    </shim-config-info-xml>
  </attributes>
</driver-configuration>
"""


EMPTIES = "post-poll-stmt \"DELETE FROM indirect.eventlog WHERE status = 'S'\""
"""The name under which a statement of ``TAGS`` is left out."""


def taken(driver: DriverConfig) -> dict[str, object]:
    return {f"{one.section}.{one.key}": one.value for one in driver.settings}


def reasons(driver: DriverConfig) -> dict[str, str]:
    return dict(driver.left_out)


def loaded(driver: DriverConfig, tmp_path: Path) -> Config:
    path = tmp_path / "eventlog.toml"
    path.write_text(toml_text(driver, "driver.xml"), encoding="utf-8")
    return load(path, {})


class TestTags:
    def test_what_differs_from_the_profile_is_taken_over(self) -> None:
        assert taken(read_driver(TAGS.encode())) == {
            "database.schema_name": "indirect",
            "database.log_table": "indirect.eventlog",
            "format.xds.time_syntax": "canonical",
            "format.referential": "dn",
            "publisher.delete_from_log": True,
            "publisher.polling_interval": 60,
            "publisher.time_of_day": (datetime.time(6, 30), datetime.time(18)),
            "publisher.post_poll_statements": ("SELECT 1",),
            "publisher.query_limit": 1000,
            "publisher.heartbeat_interval": 10,
            "publisher.handle_future_events": True,
        }

    def test_what_is_not_is_named_with_its_reason(self) -> None:
        found = reasons(read_driver(TAGS.encode()))
        assert set(found) == {
            "jdbc-class",
            "state-dir",
            "connection-properties",
            "database URL",
            "subscriber-options",
            "enable-refs of views",
            "the clock of time-of-day",
            "add-default-values-on-view-insert",
            EMPTIES,
        }
        assert found["enable-refs of views"].startswith("columns fk__... of views stay values")
        assert (
            found["subscriber-options"]
            == "there is no subscriber channel (disable, key-gen-method)"
        )
        assert "state directory" in found["state-dir"]

    def test_a_statement_that_empties_the_log_is_a_comment_with_the_reason(self) -> None:
        driver = read_driver(TAGS.encode())
        reason = reasons(driver)[EMPTIES]
        assert reason.startswith("may change eventlog, the log: rows that are committed while")
        assert "delete_from_log = true" in reason
        assert reason.endswith("are done and old")
        assert f"\n#   {EMPTIES}: {reason}\n" in toml_text(driver, "driver.xml")

    @pytest.mark.parametrize(
        ("name", "statement"),
        [
            ("direct.direct_process", "DELETE FROM direct.direct_process"),
            ("process", "delete from direct.PROCESS"),
            ("process", "TRUNCATE TABLE process_error"),
        ],
    )
    def test_the_sample_of_the_guide_is_not_taken_over(self, name: str, statement: str) -> None:
        export = TAGS.replace("indirect.eventlog</log-table>", f"{name}</log-table>")
        start, end = export.index("<post-poll-stmt>"), export.index("</post-poll-stmt>")
        export = f"{export[:start]}<post-poll-stmt>{statement}{export[end:]}"
        export = export.replace(">indirect</sync-schema>", ">direct</sync-schema>")
        assert "publisher.post_poll_statements" not in taken(read_driver(export.encode()))

    @pytest.mark.promise(
        "option database.log_table",
        "option database.tables",
        "option publisher.profile",
        "option publisher.time_of_day",
        "option publisher.notify",
        "option publisher.on_retry",
        "option format.meta_identifiers",
    )
    def test_the_file_is_an_eventlog_toml_of_profile_idm(self, tmp_path: Path) -> None:
        config = loaded(read_driver(TAGS.encode()), tmp_path)
        assert (
            config.publisher.profile,
            config.publisher.batch_size,
            config.publisher.on_retry,
        ) == ("idm", 1, "stop")
        assert (config.publisher.time_of_day or ())[0] == datetime.time(6, 30)
        assert config.publisher.publisher_disabled is False
        assert config.database.url is None
        assert (config.database.schema_name, config.database.log_table) == (
            "indirect",
            "indirect.eventlog",
        )


class TestDefinitions:
    def test_what_differs_from_the_profile_is_taken_over(self) -> None:
        driver = read_driver(DEFINITIONS.encode())
        assert driver.name == "JDBC 4"
        assert taken(driver) == {
            "database.tables": ("usr", "grp", "view_emp"),
            "database.log_table": "process_log",
            "format.meta_identifiers": False,
            "publisher.column_sort": "collation",
            "publisher.batch_size": 16,
        }

    def test_user_and_server_are_taken_from_the_file_next_to_it_and_no_password(self) -> None:
        driver = read_driver(DEFINITIONS.encode())
        assert driver.url == "postgresql+psycopg://idm@db.example:5433/hr?sslmode=verify-full"
        assert (
            reasons(driver)["properties of the database URL"]
            == "loglevel: add what is needed to url, after ?"
        )
        assert "geheim" not in toml_text(driver, "x")

    def test_what_is_not_is_named_with_its_reason(self) -> None:
        found = reasons(read_driver(DEFINITIONS.encode()))
        assert set(found) == {
            "jdbc-class", "sync-schema", "app-secret", "strange-option", "subscriber-options",
            "publication-mode", "query-limit", "startup-option", "enable-refs",
            "properties of the database URL",
        }  # fmt: skip
        assert "triggerless" in found["publication-mode"]
        assert "triggerless" in found["startup-option"]
        assert "sync-filter = schema, which is not chosen" in found["sync-schema"]
        assert "drv.unknown" in found["query-limit"]
        assert "a secret" in found["app-secret"]

    def test_the_file_is_an_eventlog_toml_of_profile_idm(self, tmp_path: Path) -> None:
        config = loaded(read_driver(DEFINITIONS.encode()), tmp_path)
        assert config.database.tables == ("usr", "grp", "view_emp")
        assert (config.format.meta_identifiers, config.publisher.notify) == (False, False)
        assert config.warnings == ()

    def test_the_file_names_what_it_could_not_take_over(self) -> None:
        text = toml_text(read_driver(DEFINITIONS.encode()), "driver.xml")
        for name in ("strange-option", "publication-mode", "subscriber-options"):
            assert f"\n#   {name}: " in text


VALUES = {
    "log-table": "l",
    "sync-schema": "s",
    "sync-tables": "a b",
    "time-of-day": "01:02:03",
    "post-poll-stmt": "SELECT 1",
    "column-position-comparator": "x.StringComparator",
    "time-syntax": "3",
    "enable-refs": "1",
    "enable-meta-identifiers": "no",
    "publication-mode": None,
}


@pytest.mark.parametrize("tag", DRIVER_TAGS)
@pytest.mark.parametrize(
    "form",
    [
        "<a><b>{tagged}</b></a>",
        '<a><x name="{name}">{value}</x></a>',
        '<a><definition name="{name}"><value>{value}</value></definition></a>',
        '<d xmlns="urn:x"><publisher-options><p name="{name}" '
        'value="{value}"/></publisher-options></d>',
    ],
)
def test_every_tag_is_read_in_every_form_wherever_it_stands(tag: str, form: str) -> None:
    default = (
        "1"
        if tag in ("disable", "delete-from-log", "allow-loopback", "handle-future-events")
        else "7"
    )
    value = VALUES.get(tag, default)
    tagged = f"<{tag}>{value}</{tag}>" if " " not in tag else f'<p name="{tag}">{value}</p>'
    export = form.format(
        name=tag, value=value or "1", tagged=tagged if value else f"<{tag}>1</{tag}>"
    )
    driver = read_driver(export.encode())
    expected = set() if value is None else {f"{DRIVER_TAGS[tag].section}.{DRIVER_TAGS[tag].key}"}
    assert set(taken(driver)) == expected


@pytest.mark.parametrize(
    ("name", "items", "setting", "value"),
    [
        ("sync-tables", ["usr", " grp ", ""], "database.tables", ("usr", "grp")),
        ("post-poll-stmt", ["SELECT 1 -- one;", "SELECT 2"], "publisher.post_poll_statements",
         ("SELECT 1 -- one;", "SELECT 2")),
    ],
)  # fmt: skip
def test_a_parameter_that_is_a_list_has_the_value_of_its_items(
    name: str, items: list[str], setting: str, value: tuple[str, ...]
) -> None:
    of_items = "".join(f"<item>{one}</item>" for one in items)
    driver = read_driver(
        '<driver-config><driver-options><definition name="log-table"><value>l</value></definition>'
        f'<definition name="{name}" type="list"><value>{of_items}</value></definition>'
        "</driver-options></driver-config>".encode()
    )
    assert taken(driver) == {"database.log_table": "l", setting: value}
    assert "item" not in reasons(driver)


@pytest.mark.parametrize(
    ("options", "kept", "refused"),
    [
        ("<sync-schema>s</sync-schema><sync-tables>a "
"b</sync-tables>", {"database.schema_name": "s"}, "sync-tables"),
        ("<sync-filter>list</sync-filter><sync-schema>s</sync-schema><sync-tables>a</sync-tables>",
         {"database.tables": ("a",)}, "sync-schema"),
        ("<sync-filter>Schema</sync-filter><sync-schema>s</sync-schema><sync-tables>a</sync-tables>",
         {"database.schema_name": "s"}, "sync-tables"),
        ("<sync-filter>empty</sync-filter><sync-schema>s</sync-schema>", {}, "sync-filter"),
        ("<log-table>l</log-table><polling-interval>0</polling-interval>",
         {"database.log_table": "l"}, "polling-interval"),
        ("<log-table>l</log-table><batch-size>5</batch-size><batch-size>6</batch-size>",
         {"database.log_table": "l", "publisher.batch_size": 5}, "batch-size (its second value)"),
        ("<sync-schema>s</sync-schema>", {"database.schema_name": "s"}, "log-table"),
        ("<log-table>l</log-table><enable-locking>1</enable-locking>", {"database.log_table": "l"},
         "enable-locking"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_or_is_not_legal_is_named(
    options: str, kept: dict[str, object], refused: str
) -> None:
    driver = read_driver(
        f"<driver-config><driver-options>{options}</driver-options></driver-config>".encode()
    )
    assert taken(driver) == kept
    assert refused in reasons(driver)


def test_of_two_names_of_one_parameter_the_first_is_taken_and_the_other_is_named() -> None:
    driver = read_driver(
        b'<driver-config><query-limit>7</query-limit><definition name="query limit"><value>9</value>'
        b"</definition></driver-config>"
    )
    settings = tomllib.loads(toml_text(driver, "export.xml"))
    assert settings["publisher"]["query_limit"] == 7
    reason = driver.left_out["query limit"]
    assert reason == "cannot be combined with query-limit, which has the same meaning"


@pytest.mark.parametrize(
    ("export", "part"),
    [
        (b"", "cannot be read"),
        (b"<a><b></a>", "not well-formed"),
        (
            b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><log-table>&x;</log-table>',
            "delete the DOCTYPE",
        ),
        (b"<a/>", "contains no parameter of the JDBC driver"),
        (
            b"<driver-config><publisher-options><pollRate>5</pollRate></publisher-options></driver-config>",
            "no parameter",
        ),
        (
            b'<set><driver-config name="A"><log-table>a</log-table></driver-config>'
            b'<driver-config name="B"><log-table>b</log-table></driver-config></set>',
            r"2 JDBC drivers \(A, B\)",
        ),
    ],
)
def test_what_is_no_export_of_one_jdbc_driver_is_refused(export: bytes, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        read_driver(export)


def test_of_several_drivers_the_one_of_jdbc_is_read() -> None:
    export = (
        '<driver-set><driver-configuration><shim-auth-id value="ad"/><driver-config '
        'name="AD"><publisher-options>'
        "<pub-heartbeat-interval>3</pub-heartbeat-interval></publisher-options></driver-config></driver-configuration>"
        '<driver-configuration><shim-auth-id value="idm"/><shim-auth-server value="jdbc:postgresql://h/d"/>'
        "<driver-config "
        'name="DB"><log-table>l</log-table></driver-config></driver-configuration></driver-set>'
    )
    driver = read_driver(export.encode())
    assert (driver.name, driver.url) == ("DB", "postgresql+psycopg://idm@h/d")
    assert taken(driver) == {"database.log_table": "l"}


def test_the_form_of_a_running_driver_names_server_and_user_otherwise() -> None:
    export = (
        "<init-params><authentication-info><server>jdbc:oracle:thin:@ora:1521:HR</server><user>idm</user>"
        "<password>geheim</password></authentication-info><driver-options><log-table>l</log-table>"
        "<force-username-case>upper</force-username-case></driver-options></init-params>"
    )
    driver = read_driver(export.encode())
    assert driver.url == "oracle+oracledb://IDM@ora:1521/HR"
    assert "database" not in reasons(driver)
    assert "geheim" not in toml_text(driver, "x")


URLS = [
    ("jdbc:postgresql://host:5432/db", "postgresql+psycopg://host:5432/db", []),
    ("jdbc:postgresql://host/db", "postgresql+psycopg://host/db", []),
    ("jdbc:postgresql:db", "postgresql+psycopg://localhost/db", []),
    ("jdbc:postgresql://[::1]:5432/my%20db", "postgresql+psycopg://[::1]:5432/my db", []),
    ("jdbc:postgresql://a:1,b/db", "postgresql+psycopg:///db?host=a%2Cb&port=1%2C5432", []),
    ("jdbc:postgresql://h/d?user=u&password=geheim&sslmode=require",
     "postgresql+psycopg://u@h/d?sslmode=require", ["password"]),
    ("jdbc:postgresql://u:geheim@h:1/d", "postgresql+psycopg://h:1/d", []),
    ("jdbc:oracle:thin:@host:1521:sid", "oracle+oracledb://host:1521/sid", []),
    ("jdbc:oracle:thin:@//host:1521/svc.example",
    "oracle+oracledb://host:1521?service_name=svc.example", []), ("jdbc:oracle:thin:@host:1521/svc",
    "oracle+oracledb://host:1521?service_name=svc", []),
    ("jdbc:oracle:thin:scott/gehe@im@host:1521:sid", "oracle+oracledb://scott@host:1521/sid", []),
    ("jdbc:oracle:oci8:@tns-name", "oracle+oracledb://tns-name", []),
    ("jdbc:mariadb://host:3306/db?user=u&password=geheim", "mariadb+pymysql://u@host:3306/db",
     ["password"]),
    ("jdbc:mysql://host:3306/db?user=u&useSSL=false", "mysql+pymysql://u@host:3306/db",
     ["usessl"]),
]  # fmt: skip


@pytest.mark.parametrize(("jdbc", "url", "left_out"), URLS)
def test_jdbc_urls_become_urls_of_sqlalchemy_without_password(
    jdbc: str, url: str, left_out: list[str]
) -> None:
    found, names = jdbc_url(jdbc)
    assert (found.render_as_string(hide_password=False), names) == (url, left_out)
    assert make_url(found.render_as_string()) == found


@pytest.mark.parametrize(
    ("jdbc", "reason"),
    [
        ("jdbc:sqlserver://host:1433;databaseName=db;user=sa;password=geheim", "'sqlserver'"),
        ("jdbc:microsoft:sqlserver://host;password=geheim", "'sqlserver' is not supported"),
        ("jdbc:jtds:sqlserver://host/db", "'sqlserver' is not supported"),
        ("jdbc:db2://h:1/d:user=u;password=geheim;", "'db2' is not supported"),
        ("jdbc:sybase:Tds:host:2048/db", "'sybase' is not supported"),
        ("jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(HOST=h)))", "of oracle in this form"),
        ("jdbc:sqlite:hr.db", "of sqlite in this form"),
        ("jdbc:", "is not supported"),
    ],
)
def test_the_url_of_a_database_that_is_not_supported_is_refused_by_its_name_without_its_text(
    jdbc: str, reason: str
) -> None:
    driver = read_driver(
        f"<a><log-table>l</log-table><auth-server>{jdbc}</auth-server></a>".encode()
    )
    assert driver.url is None
    assert reason in reasons(driver)["database URL"]
    assert reasons(driver)["database URL"].endswith("; set url")
    assert "geheim" not in toml_text(driver, "x")


TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)


@given(st.sampled_from(sorted(DRIVER_TAGS)), TEXTS, TEXTS)
def test_whatever_the_texts_are_the_file_can_be_read(tag: str, value: str, name: str) -> None:
    def xml(text: str) -> str:
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
        return "".join(c for c in escaped if c not in "\ufffe\uffff")

    export = (
        f'<driver-config name="{xml(name)}&#10;x = '
        '1"><driver-options><log-table>l</log-table><definition '
        f'name="{tag}"><value>{xml(value)}</value></definition><definition '
        f'name="o{xml(name)}&#10;[x]"><value>1</value></definition></driver-options></driver-config>'
    )
    text = toml_text(read_driver(export.encode()), name)
    assert "x" not in tomllib.loads(text)


class TestCommand:
    @pytest.mark.promise("option init--from-driver")
    def test_it_writes_the_file_and_names_what_it_could_not_take_over(self, run: Run) -> None:
        Path("driver.xml").write_text(DEFINITIONS)
        code, out, err = run("init", "--from-driver", "driver.xml")
        assert (code, out) == (0, "")
        assert "not imported: publication-mode: " in err
        assert err.splitlines()[-1].startswith("eventlog.toml written. ")
        assert "geheim" not in err + Path("eventlog.toml").read_text()
        assert run("config")[0] == 0

    def test_it_overwrites_nothing_unasked(self, run: Run) -> None:
        Path("driver.xml").write_text(TAGS)
        Path("eventlog.toml").write_text("# mine\n")
        code, _, err = run("init", "--from-driver", "driver.xml")
        assert (code, err.count("\n")) == (2, 1)
        assert Path("eventlog.toml").read_text() == "# mine\n"
        assert run("init", "--from-driver", "driver.xml", "--force")[0] == 0

    @pytest.mark.parametrize("text", [None, "<a>", "<a/>"])
    def test_what_cannot_be_read_is_one_line_and_writes_nothing(
        self, run: Run, text: str | None
    ) -> None:
        if text is not None:
            Path("driver.xml").write_text(text)
        code, out, err = run("init", "--from-driver", "driver.xml")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("eventlog: --from-driver driver.xml: ")
        assert not Path("eventlog.toml").exists()
