"""The report in a real browser: drawn, quiet, hoverable, walkable, readable in light, dark and on a phone."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparsona
from sparsona.report.html import write_report

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER),
        reason="no chromium and chromedriver on this machine: apt-get install chromium chromium-driver",
    ),
]
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install sparsona[dev]")
waiting = pytest.importorskip("selenium.webdriver.support.wait")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--window-size=1280,900")  # fmt: skip
EVERY = {
    "curves", "pareto", "alone", "gains", "classes", "graph", "similarity", "masks", "gates", "ledger",
    "roc", "recall", "calibration", "confusion",
}  # fmt: skip
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def page(comparison: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "report.html"
    write_report([comparison], file)
    return file


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield browser
    browser.quit()


@pytest.fixture
def shown(driver: Any, page: Path) -> Open:
    """Opens the page in a colour scheme and a width, and waits until it is drawn."""

    def show(scheme: str = "light", width: int = 1280, height: int = 900) -> Any:
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", sizes)
        driver.get(page.as_uri())
        driver.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
        return driver

    return show


PAINTED = """
const canvas = arguments[0].querySelector("canvas");
const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
const colours = new Set();
for (let i = 0; i < pixels.length; i += 4)
  if (pixels[i + 3] > 0) colours.add((pixels[i] << 16) | (pixels[i + 1] << 8) | pixels[i + 2]);
return colours.size;
"""


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390), ("dark", 390)])
def test_every_plot_is_drawn_and_nothing_complains(shown: Open, page: Path, scheme: str, width: int) -> None:
    driver = shown(scheme, width)
    assert driver.get_log("browser") == []
    charts = driver.find_elements("css selector", ".chart")
    assert {chart.get_attribute("id").removeprefix("chart-") for chart in charts} == EVERY
    for chart in charts:
        assert driver.execute_script(PAINTED, chart) > 8, chart.get_attribute("id")
    assert driver.execute_script("return document.documentElement.dataset.theme") == scheme
    wide = driver.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width, "nothing but tables scrolls sideways"
    assert page.stat().st_size < 3e6
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0, "no network"


def test_it_begins_with_three_sentences_and_says_what_i_gain(shown: Open) -> None:
    driver = shown()
    sentences = [one.text for one in driver.find_elements("css selector", "#sentences li")]
    assert len(sentences) == 3
    assert "best of 6 methods" in sentences[0]
    assert "training alone" in sentences[1]
    assert sentences[2].startswith("It costs")
    first = driver.find_element("id", "mine").text
    assert first.startswith("alone ")
    picker = driver.find_element("css selector", "#you select")
    options = picker.find_elements("tag name", "option")
    assert [one.text for one in options[:2]] == ["c0, seed 0", "c1, seed 0"]
    assert len(options) == 10, "five clients in each of two seeds"
    options[3].click()
    assert driver.find_element("id", "mine").text != first
    command = driver.find_element("css selector", "#now pre").text
    tag = driver.find_element("css selector", "tr.best .tag").text
    assert tag == ("best so far" if sentences[0].startswith("Not clear") else "advised")
    if sentences[0].startswith("Not clear"):
        assert command.startswith("sparsona compare")
        assert command.endswith("--seeds 5")
    else:
        assert command.startswith("sparsona run")


def test_a_hover_shows_values(shown: Open) -> None:
    driver = shown()
    box = driver.find_element("id", "chart-curves")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", box)
    x, y = driver.execute_script(
        "const chart = sparsona.charts.curves, [one] = chart.getOption().series;"
        "const [x, y] = chart.convertToPixel({seriesIndex: 0}, one.data[1]);"
        "return [x - arguments[0].clientWidth / 2, y - arguments[0].clientHeight / 2]",
        box,
    )
    webdriver.ActionChains(driver).move_to_element_with_offset(box, round(x), round(y)).perform()
    text = driver.execute_script(VISIBLE_TIP, box)
    assert "round 2" in text
    assert "pre " in text
    assert "%" in text


VISIBLE_TIP = """
const seen = (d) => d.innerText.trim() && getComputedStyle(d).visibility !== "hidden";
return [...arguments[0].querySelectorAll(":scope > div")].filter(seen).map((d) => d.innerText).join(" ");
"""


def test_the_keyboard_reaches_and_walks_every_plot(shown: Open) -> None:
    driver = shown()
    keys = webdriver.Keys
    reached: list[str] = []
    for _ in range(120):
        webdriver.ActionChains(driver).send_keys(keys.TAB).perform()
        one = driver.switch_to.active_element
        name = one.get_attribute("id") or ""
        if name.startswith("chart-"):
            reached.append(name.removeprefix("chart-"))
            said = []
            for key in (keys.ARROW_RIGHT, keys.ARROW_RIGHT):
                webdriver.ActionChains(driver).send_keys(key).perform()
                said.append(driver.find_element("id", "say").get_attribute("textContent"))
            title = one.get_attribute("aria-label").partition(". Arrow")[0]
            assert said[0].startswith(f"{title}: "), name
            assert len(said[0]) > len(title) + 3, f"{name} says a value"
            assert said[0] != said[1], f"{name} goes on to the next value"
        if one.tag_name == "body" or set(reached) == EVERY:
            break
    assert set(reached) == EVERY


def test_controls_change_the_plots_and_tables_can_be_sorted_and_opened(shown: Open) -> None:
    driver = shown()

    def name() -> str:
        return str(driver.execute_script("return sparsona.charts.curves.getOption().xAxis[0].name"))

    assert name() == "rounds"
    driver.find_element("xpath", "//section[@id='learning']//button[text()='MB']").click()
    assert name().startswith("MB")
    driver.find_element("xpath", "//section[@id='learning']//summary").click()
    filled = waiting.WebDriverWait(driver, 10)
    filled.until(lambda _: len(driver.find_elements("css selector", "#learning tbody tr")) == 18)  # 6 methods, 3 rounds
    driver.find_element("xpath", "//table[@id='comparison']//button[text()='up']").click()
    first = driver.find_element("css selector", "#comparison tbody tr th").text
    most = driver.execute_script("return sparsona.data.methods.reduce((a, b) => (b.up > a.up ? b : a)).label")
    assert first.startswith(most)


def test_the_confusion_matrix_is_that_of_the_chosen_method(shown: Open) -> None:
    driver = shown()
    for option in driver.find_elements("css selector", "#answers select option")[:2]:
        option.click()
        drawn = "return sparsona.charts.confusion.getOption().series[0].data.map((cell) => cell[3])"
        held = "return sparsona.data.methods.find((m) => m.label === arguments[0]).answers.confusion.flat()"
        assert driver.execute_script(drawn) == driver.execute_script(held, option.text)


def test_a_regression_is_drawn_row_by_row(driver: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 3)).astype(np.float32)
    y = (50 + 10 * x[:, :1] + rng.normal(size=(90, 1))).astype(np.float32)
    data = {f"w{k}": (x[k::3], y[k::3]) for k in range(3)}
    for method in ("local", "fedavg"):
        sparsona.run(method, data=data, rounds=2, training={"lr": 0.1}, engine="inprocess", out=tmp_path / method)
    write_report([tmp_path], tmp_path / "report.html")
    driver.get((tmp_path / "report.html").as_uri())
    assert driver.get_log("browser") == []
    for name in ("predicted", "residuals"):
        assert driver.execute_script(PAINTED, driver.find_element("id", f"chart-{name}")) > 8
    points = "return sparsona.charts[arguments[0]].getOption().series[0].data"
    true, said = np.array(driver.execute_script(points, "predicted")).T
    assert len(true) == 18, "every test row"
    drawn = np.array(driver.execute_script(points, "residuals"))
    assert np.allclose(drawn, np.stack([said, true - said], 1))


def test_the_colours_can_be_chosen(shown: Open) -> None:
    driver = shown("light")
    button = driver.find_element("id", "theme")
    button.click()
    button.click()
    assert button.text == "Colours: dark"
    assert driver.execute_script("return document.documentElement.dataset.theme") == "dark"


def test_a_privacy_budget_is_drawn_against_the_score_with_the_ledger_of_each_client(
    shown: Open, private: Path, tmp_path: Path
) -> None:
    write_report([private], tmp_path / "private.html")
    driver = shown()
    driver.get((tmp_path / "private.html").as_uri())
    for chart in ("epsilon", "spent"):
        figure = driver.find_element("id", f"chart-{chart}")
        assert driver.execute_script(PAINTED, figure) > 8
        driver.execute_script("arguments[0].parentNode.querySelector('details').open = true", figure)
    rows = [row.text for row in driver.find_elements("css selector", "#privacy tbody tr")]
    assert sum("no budget" in row for row in rows) == 1
    assert {row.split()[0] for row in rows} >= {"c0", "c1"}
    assert driver.get_log("browser") == []
