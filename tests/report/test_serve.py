"""The page of `sparsona watch`, asked over HTTP and shown in a real browser."""

from __future__ import annotations

import http.client
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparsona
from sparsona.errors import InputError
from sparsona.report.live import watching
from sparsona.runs.records import ClientRecord, RoundReport

SMALL: dict[str, Any] = {"clients": 3, "partition": "iid", "engine": "inprocess"}
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


def asked(port: int, path: str, host: str = "", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{port}"})
    answer = connection.getresponse()
    text = answer.readline().decode() if path == "/events" else answer.read().decode()
    connection.close()
    return answer.status, text


def test_the_page_its_scripts_and_its_states_are_there_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    with watching(tmp_path, port=0) as server:
        assert "Sparsona watch" in asked(server.server_port, "/")[1]
        assert asked(server.server_port, "/watch.js")[0] == asked(server.server_port, "/echarts.js")[0] == 200
        status, event = asked(server.server_port, "/events")
        assert (status, json.loads(event.removeprefix("data: "))["runs"]) == (200, [])
        assert asked(server.server_port, "/secret")[0] == 404
        assert asked(server.server_port, "/../secret")[0] == 404
        for method in ("POST", "PUT", "DELETE"):
            assert asked(server.server_port, "/", method=method)[0] == 501


def test_another_site_cannot_read_the_page_of_this_machine(tmp_path: Path) -> None:
    with watching(tmp_path, port=0) as server:
        assert asked(server.server_port, "/events", host="evil.example:80")[0] == 403


def test_a_port_in_use_is_one_line_with_the_fix(tmp_path: Path) -> None:
    with (
        watching(tmp_path, port=0) as server,
        pytest.raises(InputError, match="choose another --port"),
        watching(tmp_path, port=server.server_port),
    ):
        pass


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not (CHROMIUM and DRIVER):
        pytest.skip("no chromium and chromedriver on this machine: apt-get install chromium chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install sparsona[dev]")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = f"--user-data-dir={tmp_path_factory.mktemp('profile')}"
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--window-size=1280,900", profile):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield browser
    browser.quit()


def shows(driver: Any, element: str, words: str) -> str:
    """Wait until an element shows these words; returns its whole text."""
    from selenium.webdriver.support.wait import WebDriverWait

    def text(_: Any) -> str:
        found = str(driver.find_element("id", element).text)
        return found if words in found else ""

    return str(WebDriverWait(driver, 20).until(text, f"{element} never shows {words!r}"))


@pytest.mark.browser
def test_a_browser_follows_a_run_that_advances_a_client_that_fails_and_the_end(driver: Any, tmp_path: Path) -> None:
    go_on, folder = threading.Semaphore(0), tmp_path / "run"
    folder.mkdir()

    def wait(report: RoundReport) -> None:
        assert go_on.acquire(timeout=60)

    run = threading.Thread(target=lambda: sparsona.run("fedavg", out=folder, rounds=3, on_round=wait, **SMALL))
    with watching(folder, port=0) as server:
        driver.get(server.url)
        shows(driver, "state", "waiting for the first round")
        run.start()
        shows(driver, "state", "round 1 of 3")
        go_on.release()
        assert "accuracy" in shows(driver, "state", "round 2 of 3")
        with (folder / "records.jsonl").open("a") as records:
            refused = ClientRecord(2, "c2", took_part=True, refused="<b>its norm</b> is too large")
            records.write(refused.text())
        assert "c2" in shows(driver, "clients", "<b>its norm</b> is too large")
        go_on.release(2)
        run.join()
        shows(driver, "state", "finished: 3 rounds")
        assert driver.execute_script("return document.querySelectorAll('.chart canvas').length") == 2
        assert driver.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []
