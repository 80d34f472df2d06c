"""The pictures of the status page in docs/pictures: a real publisher under a load, seen by a real
browser.

``.venv/bin/python scripts/pictures.py`` takes about a minute. It needs chromium and chromedriver.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from selenium import webdriver

from eventlog.sql import migrations
from eventlog.sql.embedded import running

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
ANSWER = b'<nds dtdversion="2.0"><output/></nds>'
WRITE = sa.text(
    "INSERT INTO eventlog (event_type, table_name, table_key, column_name, new_value) SELECT 1, "
    "'usr', 'idu=' || (:first + i), 'fname', 'Jack ' || i FROM generate_series(1, :rows) AS i"
)


class Receiver(BaseHTTPRequestHandler):
    """Answers after a few milliseconds: success for all."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    is_away = False

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if Receiver.is_away:
            self.close_connection = True
            return
        time.sleep(0.004)
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: Any) -> None:
        pass


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="eventlog-pictures-") as directory,
        running(Path(directory) / "pg") as url,
    ):
        engine = sa.create_engine(url)
        with engine.begin() as conn:
            conn.exec_driver_sql("CREATE TABLE usr (idu integer PRIMARY KEY, fname text)")
        migrations.upgrade(engine, log_table="eventlog")
        receiver = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        with socket.create_server(("127.0.0.1", 0)) as free:
            listen = f"127.0.0.1:{free.getsockname()[1]}"
        settings = {
            "sink.type": "http",
            "sink.url": f"http://127.0.0.1:{receiver.server_port}/xds",
            "monitor.listen": listen,
            "monitor.interval": "1",
        }
        flags = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        publisher = subprocess.Popen(  # noqa: S603 - what is installed with this interpreter
            [str(Path(sys.executable).with_name("eventlog")), *flags, "publish"],
            env=os.environ
            | {"EVENTLOG_DATABASE_URL": engine.url.render_as_string(hide_password=False)},
        )
        browser = _browser()
        try:
            first = 0
            for second in range(30):
                rows = 3000 + 2500 * (second % 20 > 12) + second * 10
                with engine.begin() as conn:
                    conn.execute(WRITE, {"first": first, "rows": rows})
                first += rows
                time.sleep(1)
                if second == 5:
                    browser.get(f"http://{listen}/")
            _shoot(browser, "status-page.png")
            Receiver.is_away = True
            receiver.shutdown()
            receiver.server_close()
            with engine.begin() as conn:
                conn.execute(WRITE, {"first": first, "rows": 4000})
            time.sleep(12)
            _shoot(browser, "status-away.png")
            publisher.kill()
            time.sleep(4)
            _shoot(browser, "status-lost.png")
        finally:
            browser.quit()
            publisher.terminate()
            publisher.wait()
            engine.dispose()


def _browser() -> Any:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--window-size=1280,1060",
    ):
        options.add_argument(argument)
    return webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))


def _shoot(browser: Any, name: str) -> None:
    browser.execute_script("scrollTo(0, 0)")
    browser.save_screenshot(str(PICTURES / name))


if __name__ == "__main__":
    main()
