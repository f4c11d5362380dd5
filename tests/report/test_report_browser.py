"""The page of `report` as a browser shows it: headless Chromium, where it is installed."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import pytest
from report.recorded_runs import write

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")

# The page stands in a frame: a headless window cannot be as narrow as a phone.
FRAME = """<!doctype html><meta charset="utf-8"><body style="margin:0">
<iframe id="frame" src="{address}" style="width:{width}px;height:900px;border:0"></iframe><pre id="seen"></pre>
<script>
onload = () => {{
  const page = document.getElementById("frame").contentDocument;
  const images = [...page.images].map(image => ({{
    alt: image.alt, loaded: image.complete && image.naturalWidth > 0, width: image.getBoundingClientRect().width}}));
  document.getElementById("seen").textContent = JSON.stringify({{
    images, width: page.documentElement.scrollWidth, height: page.documentElement.scrollHeight,
    text: page.body.innerText.length}});
}};
</script>"""


def chromium(*flags):
    """Standard output and what the console of the page said."""
    profile = Path("profile").absolute()
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    command += ["--allow-file-access-from-files", f"--user-data-dir={profile}", "--enable-logging=stderr", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def seen(page, width):
    """The page in a window of so many CSS pixels: its images and size; with the messages of its console."""
    frame = Path("frame.html").absolute()
    frame.write_text(FRAME.format(address=page.absolute().as_uri(), width=width), encoding="utf-8")
    source, console = chromium("--virtual-time-budget=20000", "--dump-dom", frame.as_uri())
    (found,) = re.findall(r'<pre id="seen">(.*?)</pre>', source, re.DOTALL)
    return json.loads(unescape(found)), console


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    from grok_lightning.__main__ import run

    path = write(tmp_path_factory.mktemp("browser") / "run")
    assert run(["report", str(path), "--formats", "png"]) == 0
    return path / "figures" / "report.html"


@pytest.mark.parametrize("width", [390, 1280])
def test_every_image_loads_and_nothing_is_wider_than_the_window(report, width):
    page, console = seen(report, width)
    assert console == []
    assert len(page["images"]) == 12
    assert all(image["loaded"] for image in page["images"]), page["images"]
    assert min(image["width"] for image in page["images"]) > 600  # so wide that the lettering can be read
    assert page["width"] <= width
    assert page["text"] > 1000


def test_a_page_with_a_broken_image_and_a_script_is_told_from_a_whole_one(report):
    html = report.read_text(encoding="utf-8")
    broken = Path("broken.html")
    html = re.sub(r"base64,\w{40}", "base64,", html, count=1)
    broken.write_text(html.replace("</body>", "<script>1</script></body>"), encoding="utf-8")
    page, console = seen(broken, 1280)
    assert [image["loaded"] for image in page["images"]].count(False) == 1
    assert any("script" in line for line in console)


def test_it_prints(report):
    pdf = Path("page.pdf").absolute()
    chromium(f"--print-to-pdf={pdf}", "--no-pdf-header-footer", report.absolute().as_uri())
    assert pdf.read_bytes().startswith(b"%PDF-")
    assert pdf.stat().st_size > 100_000
