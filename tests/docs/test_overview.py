"""The picture on the first page: weights sum to 1, and texts fit into their boxes in any font."""

import re
from pathlib import Path

PICTURE = (Path(__file__).parents[2] / "docs" / "overview.svg").read_text(encoding="utf-8")
# DejaVu Sans, which browsers fall back to, needs 0.56 of the font size for an average letter.
WIDEST = 0.6
WHOLE = 60.0


def attributes(element: str) -> dict[str, str]:
    return dict(re.findall(r'([\w-]+)="([^"]*)"', element))


RECTANGLES = [attributes(own) for own in re.findall(r"<rect ([^>]*)/>", PICTURE)]


def test_the_weights_sum_to_one() -> None:
    bars = [own for own in RECTANGLES if own["height"] == "16" and own["fill"] != "#ffffff"]
    assert len(bars) == 3
    assert sum(float(own["width"]) for own in bars) == WHOLE


def test_texts_end_before_their_boxes_do() -> None:
    boxes = [
        [float(own[name]) for name in ("x", "y", "width", "height")]
        for own in RECTANGLES
        if "rx" in own
    ]
    assert len(boxes) == 4
    for size, group in re.findall(r'<g font-size="(\d+)"[^>]*>(.*?)</g>', PICTURE, re.DOTALL):
        for own, text in re.findall(r"<text ([^>]*)>([^<]*)</text>", group):
            x, y = (float(attributes(own)[name]) for name in ("x", "y"))
            end = x + WIDEST * float(size) * len(text)
            for left, top, width, height in boxes:
                if top <= y <= top + height and x < left + width:
                    assert end <= (left + width if left <= x else left), text
