"""The HTML report in a real browser: tables that sort, links that open what they lead to, narrow and wide, light and dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_browser import browse, pytestmark  # noqa: F401  (the mark skips this module where there is no browser)

import pliant
from pliant import Tensor, dim, f32, nn, ops
from pliant.report import facts
from pliant.report.profile import Limits

n = dim("n", max=64)


class Deep(nn.Module):
    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(7)])
        self.load_state_dict({name: rng.standard_normal(p.shape) for name, p in self.named_parameters()})

    def forward(self, x: Tensor[f32, n, 8]) -> Tensor[f32, n, 8]:
        for layer in self.layers:
            x = ops.softmax(layer(x))
        return x


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report with times."""
    path: Path = tmp_path_factory.mktemp("report") / "page.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(facts, "limits", lambda threads: Limits(1e11, 1e10))
        f = pliant.compile(Deep(), threads=2)
        f.profile(np.ones((5, 8), np.float32))
        f.report(path)
    return path.as_uri()


def asked(page: str, script: str, **more: Any) -> Any:
    """What a script answers in the page, which says nothing on its console."""
    answer = browse(page, script, **more)
    assert answer["said"] == []
    return answer["value"]


_SHOWN = """
  const texts = (rows) => rows.filter((r) => !r.hidden).map((r) => [...r.cells].map((c) => c.textContent));
  const shown = () => page.$$eval("#launches tbody tr", texts);
  const column = (name) => page.click(`#launches th button:text-is("${name}")`);
"""


def test_tables_sort_filter_and_show_the_top_ten(page: str) -> None:
    script = f"""{_SHOWN}
      const answers = [await shown()];
      await column("ms"); answers.push(await shown());
      await column("ms"); answers.push(await shown());
      await page.check("#launches .top"); await column("layers"); answers.push(await shown());
      await page.fill("#launches .filter", "LAYERS.3"); answers.push(await shown());
      return answers;
    """
    first, falling, rising, by_layer, filtered = asked(page, script)
    assert [int(row[0]) for row in first] == list(range(len(first))) and len(first) > 10
    times = [float(row[3]) for row in falling]
    assert times == sorted(times, reverse=True) and [float(row[3]) for row in rising] == sorted(times)
    layers = [row[2] for row in by_layer]
    assert len(layers) == 10 and layers == sorted(layers)
    assert filtered and all("layers.3" in row[2] for row in filtered)


def test_links_open_what_they_lead_to(page: str) -> None:
    script = """
      const link = page.locator("#times tbody a").first();
      const name = await link.textContent();
      await link.click();
      const opened = page.locator("details.kernel[open]").first();
      const shows = await opened.locator("> summary strong").textContent();
      await opened.locator('a[href^="#launch-"]').first().click();
      return [name, shows, await page.evaluate(() => document.querySelector(location.hash).cells[1].textContent)];
    """
    name, shows, launched = asked(page, script)
    assert name == shows == launched


# For each element with text of its own: the contrast of its color with the background that is behind it, by the formula of WCAG 2.
_CONTRAST = """
  await page.emulateMedia({ colorScheme: given.scheme });
  return page.evaluate(() => {
    for (const d of document.querySelectorAll("details")) d.open = true;
    const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255, c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    const luminance = (c) => light(c).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (e) => {
      const color = rgb(getComputedStyle(e).backgroundColor);
      return color[3] === 0 ? behind(e.parentElement) : color;
    };
    let worst = [99, ""];
    for (const e of document.querySelectorAll("body :not(script, svg, svg *)")) {
      if (![...e.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim())) continue;
      const [a, b] = [luminance(rgb(getComputedStyle(e).color)), luminance(behind(e))];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (ratio < worst[0]) worst = [ratio, `${e.tagName}.${e.className}: ${e.textContent.slice(0, 40)}`];
    }
    return { worst, back: luminance(behind(document.body)), wide: document.documentElement.scrollWidth };
  });
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_is_readable(page: str, scheme: str, width: int) -> None:
    """All text has the contrast of 4.5 to 1, and only tables and pictures scroll sideways."""
    found = asked(page, _CONTRAST, given={"scheme": scheme}, size={"width": width, "height": 900})
    assert found["worst"][0] >= 4.5, found["worst"]
    assert found["wide"] == width and (found["back"] > 0.8) == (scheme == "light")
