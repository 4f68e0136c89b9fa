"""The HTML report in a real browser: nothing fetched, no error, readable on a desk and on a phone, by day and
by night."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import report_cases as cases

from wellfed.analyze.compare import compare_ranks
from wellfed.model.comparison import Comparison
from wellfed.report import comparison, html

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
THEMES = ("light", "dark")
WIDTHS = (1280, 390)

# For each visible text: the contrast of its colour with the first opaque background behind it.
CONTRAST = """
const channel = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : Math.pow((c + 0.055) / 1.055, 2.4); };
const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
const rgba = text => { const n = text.match(/[\\d.]+/g).map(Number); return n.length > 3 ? n : [...n, 1]; };
const behind = e => { for (; e; e = e.parentElement) { const b = rgba(getComputedStyle(e).backgroundColor);
  if (b[3] === 1) return b; } return [255, 255, 255]; };
const low = [];
for (const e of document.querySelectorAll('h1,h2,h3,p,td,th,dt,dd,li,code,a,summary,figcaption,.mark')) {
  if (!e.checkVisibility() || !e.textContent.trim()) continue;
  const [a, b] = [light(rgba(getComputedStyle(e).color)), light(behind(e))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) low.push([e.tagName, e.className, e.textContent.slice(0, 40), ratio]);
}
return low;
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    driver = shutil.which("chromedriver")
    if driver is None:
        pytest.skip("chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    )
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(service=Service(driver), options=options)
    try:
        started.set_page_load_timeout(60)
        yield started
    finally:
        started.quit()


def visit(browser: Any, path: Path, *, theme: str, width: int) -> None:
    """Opens the page afresh, with the logs emptied before."""
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.get("about:blank")
    for log in ("browser", "performance"):
        browser.get_log(log)
    browser.get(path.as_uri())


def requests(browser: Any) -> list[str]:
    events = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    return [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    out = {}
    for name in ("starved", "eight_ranks", "hostile"):
        out[name] = folder / f"{name}.html"
        out[name].write_text(html.render(cases.CASES[name]()), encoding="utf-8")
    one, other = cases.rank(), cases.rank(wait=5 * cases.MS)
    compared = compare_ranks(one, other)
    assert compared is not None
    text = comparison.headline([compared])
    page = comparison.render_html(Comparison(a="a.json", b="b.json", headline=text, ranks=(compared,)))
    out["comparison"] = folder / "comparison.html"
    out["comparison"].write_text(page, encoding="utf-8")
    return out


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", ["starved", "eight_ranks", "hostile", "comparison"])
def test_page(browser: Any, pages: dict[str, Path], name: str, theme: str, width: int) -> None:
    visit(browser, pages[name], theme=theme, width=width)
    assert browser.get_log("browser") == []
    assert requests(browser) == [pages[name].as_uri()]
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(CONTRAST) == []
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[theme]


@pytest.mark.parametrize("theme", THEMES)
def test_headings_and_charts_are_there(browser: Any, pages: dict[str, Path], theme: str) -> None:
    visit(browser, pages["starved"], theme=theme, width=1280)
    headings = browser.execute_script(
        "return [...document.querySelectorAll('h1,h2')].map(e => e.textContent)"
    )
    assert headings[0].startswith("The GPU waits for data 71.5")
    assert [name.split(":")[0] for name in headings[1:]] == [
        "Trace warnings", "Where the step goes", "Findings, by worth", "Not judged", "Measured ceilings",
        "Kernels and operators", "All verdicts", "Machine", "Ignored", "Next",
    ]  # fmt: skip
    drawn = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].map(e => [e.getBoundingClientRect().width,"
        " e.querySelectorAll('path[fill^=var],text').length, e.getAttribute('aria-label').length])"
    )
    assert len(drawn) == 8
    assert all(wide > 300 and marks > 5 and label > 10 for wide, marks, label in drawn)
    # The drawing follows the theme: its text has the page's ink.
    ink, text = browser.execute_script(
        "return [getComputedStyle(document.body).color, getComputedStyle(document.querySelector('figure svg text')).fill]"
    )
    assert ink == text


def test_no_text_of_a_chart_is_cut_off(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["starved"], theme="light", width=1280)
    outside = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].flatMap(svg => { const s = svg.getBoundingClientRect();"
        " return [...svg.querySelectorAll('text')].filter(t => { const b = t.getBoundingClientRect();"
        " return b.left < s.left - 1 || b.right > s.right + 1; }).map(t => t.textContent); })"
    )
    assert outside == []


def test_details_open_without_scripts_and_print_shows_tables(browser: Any, pages: dict[str, Path]) -> None:
    visit(browser, pages["starved"], theme="dark", width=1280)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") in (
        "rgb(255, 255, 255)",
        "rgba(0, 0, 0, 0)",
    )
    assert browser.execute_script("return getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    summary = browser.find_element("css selector", "#step summary")
    summary.click()
    assert browser.find_element("css selector", "#step details[open] table").is_displayed()


def test_interactive_charts_draw_inside_their_sandbox(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "interactive.html"
    path.write_text(html.render(cases.hostile(), interactive=True), encoding="utf-8")
    visit(browser, path, theme="light", width=1280)
    browser.switch_to.frame(browser.find_element("tag name", "iframe"))
    try:
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(browser, 20).until(
            lambda b: b.execute_script("return document.querySelectorAll('#vega-chart svg text').length") > 20
        )
        assert browser.execute_script("return document.scripts.length") == 2
    finally:
        browser.switch_to.default_content()
    assert [url for url in requests(browser) if not url.startswith(("file:", "about:", "data:"))] == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
