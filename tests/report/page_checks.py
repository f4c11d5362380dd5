"""What a page must be, whatever it shows."""

import base64
import io
from html.parser import HTMLParser

from PIL import Image

VOID = {"meta", "img", "br", "hr", "link", "input", "wbr"}


class Page(HTMLParser):
    """Parses strictly: every tag closed in order; keeps text, images and tags."""

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.images, self.texts, self.attributes = [], [], [], [], []
        self.rows, self._row, self._cell = [], None, None
        self.feed(html)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "img":
            self.images.append(dict(attrs))
        if tag == "tr":
            self._row = []
        if tag in ("td", "th"):
            self._cell = ""

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        if tag in ("td", "th"):
            self._row.append(self._cell)
            self._cell = None
        if tag == "tr":
            self.rows.append(self._row)

    def handle_data(self, data):
        self.texts.append(data)
        if self._cell is not None:
            self._cell += data

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def check(html):
    """Self-contained: no script, no address to fetch, every image decodes to more than one colour."""
    page = Page(html)
    assert not {"script", "iframe", "object", "embed", "link", "form", "svg"} & set(page.tags)
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        if name in ("src", "href", "action", "srcset", "data", "style"):
            assert value.startswith("data:image/png;base64,") or (name == "href" and value.startswith("#")), value[:80]
    assert "url(" not in html
    assert "@import" not in html
    for image in page.images:
        content = base64.b64decode(image["src"].removeprefix("data:image/png;base64,"), validate=True)
        with Image.open(io.BytesIO(content)) as picture:
            picture.load()
            assert picture.format == "PNG"
            assert picture.width > 800
            assert len(set(picture.convert("L").histogram())) > 2
        assert image["alt"]
    identifiers = {value for _, name, value in page.attributes if name == "id"}
    targets = {value[1:] for _, name, value in page.attributes if name == "href"}
    assert targets <= identifiers
    return page
