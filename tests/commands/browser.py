"""TensorBoard in headless Chromium. Run as a script, it makes the picture in docs/workbench.md.

python tests/commands/browser.py LOGDIR docs/figures/tensorboard.png
"""

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--window-size=1500,1250",
]
# The page's elements and texts, those inside of components included.
WALK = """
function inner(node) {
    return node.shadowRoot ? [node.shadowRoot, ...node.childNodes] : [...node.childNodes];
}
function text(node) {
    if (["STYLE", "SCRIPT", "TEMPLATE"].includes(node.tagName)) return "";
    if (node.nodeType === Node.TEXT_NODE) return node.textContent + " ";
    return inner(node).map(text).join("");
}
function elements(node, name) {
    const found = inner(node).flatMap(child => elements(child, name));
    return (node.tagName || "").toLowerCase() === name ? [node, ...found] : found;
}
"""
TEXT = WALK + "return text(document.body).replace(/\\s+/g, ' ');"
# The title of each chart, and how many lines through two points or more are drawn in it.
CURVES = (
    WALK
    + """
const cards = elements(document.body, "tf-custom-scalar-multi-line-chart-card");
return Object.fromEntries(cards.map(card => [
    text(elements(card, "tf-card-heading")[0]).trim(),
    elements(card, "path").filter(path =>
        path.classList.contains("line") && (path.getAttribute("d") || "").includes("L")).length,
]));
"""
)


@contextmanager
def serve(logdir):
    """Run TensorBoard; give its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    flags = ["--logdir", logdir, "--port", port, "--host", "127.0.0.1", "--load_fast", "false"]
    with subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", *flags], stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@contextmanager
def browse():
    """Start Chromium; give its driver."""
    from selenium import webdriver

    with tempfile.TemporaryDirectory() as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM
        for flag in [*FLAGS, f"--user-data-dir={profile}"]:
            options.add_argument(flag)
        driver = webdriver.Chrome(options, webdriver.ChromeService(DRIVER))
        try:
            yield driver
        finally:
            driver.quit()


def wait_for(driver, address, script, is_enough, seconds=300):
    """Open a page and ask a script until its answer is enough; return the last answer."""
    from selenium.common.exceptions import WebDriverException

    driver.get("about:blank")  # else only the part after the # would change
    end = time.monotonic() + seconds
    answer, loaded = None, False
    while time.monotonic() < end and not (answer and is_enough(answer)):
        try:
            if not loaded:
                driver.get(address)
                loaded = True
            answer = driver.execute_script(script)
        except WebDriverException:  # the server is not there yet
            loaded = False
        time.sleep(0.5)
    return answer


if __name__ == "__main__":
    with serve(sys.argv[1]) as address, browse() as driver:
        name = "churn of the greedy action"
        wait_for(driver, f"{address}/#custom_scalars", CURVES, lambda curves: curves.get(name))
        time.sleep(5)  # for the layout to settle
        driver.save_screenshot(sys.argv[2])
