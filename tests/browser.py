"""TensorBoard in headless Chromium. Run as a script, it makes the picture in docs/workbench.md.

python tests/browser.py LOGDIR docs/figures/tensorboard.png
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
# The page's text, that of components which hide theirs included.
TEXT = """
function text(node) {
    if (node.nodeType === Node.TEXT_NODE) return node.textContent + " ";
    const inner = node.shadowRoot ? [node.shadowRoot, ...node.childNodes] : [...node.childNodes];
    return inner.map(text).join("");
}
return text(document.body);
"""


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


def wait_for(driver, address, words, seconds=300):
    """Open a page until its text has all the words; return the text."""
    from selenium.common.exceptions import WebDriverException

    end = time.monotonic() + seconds
    text, loaded = "", False
    while time.monotonic() < end and not all(word in text for word in words):
        try:
            if not loaded:
                driver.get(address)
                loaded = True
            text = driver.execute_script(TEXT)
        except WebDriverException:  # the server is not there yet
            loaded = False
        time.sleep(0.5)
    return text


if __name__ == "__main__":
    with serve(sys.argv[1]) as address, browse() as driver:
        wait_for(driver, f"{address}/#custom_scalars", ["churn of the greedy action"])
        time.sleep(5)
        driver.save_screenshot(sys.argv[2])
