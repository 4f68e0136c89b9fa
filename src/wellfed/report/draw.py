"""Drawing charts: the only module that imports vl_convert, and only when something is drawn.

A drawing that fails costs the picture, never the report: the caller shows the table and says why.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from html import escape
from types import ModuleType
from typing import Any

from wellfed.report.charts import CONFIG, LIGHT, Chart

HOVER = {**CONFIG, "mark": {"tooltip": {"content": "data"}}}
VARIABLES = {colour: f"var(--{name},{colour})" for name, colour in LIGHT.items()}
_COLOUR = re.compile(r'(?<=")#[0-9a-f]{6}(?=")')
_FONT = re.compile(r' font-family="[^"]*"')
_SPEC = re.compile(r"const spec = .*?;\n", re.DOTALL)


ADDRESS_SPACE = 96 << 30
"""V8 reserves addresses, not memory, and aborts without them: measured with vl-convert-python 1.9, which dies under
a limit of 64 GiB and draws under one of 96 GiB. Batch systems set such limits."""


class Pictures:
    """Draws for one report, and remembers why it can't."""

    def __init__(self) -> None:
        self.why: str | None = None
        self._module: ModuleType | None = None

    def svg(self, chart: Chart, *, label: str) -> str | None:
        """The chart as inline SVG without its title (the page has it as text), coloured by CSS variables with
        the light colours as fallback. None when it could not be drawn; `why` then says so."""
        bare = {key: value for key, value in chart.items() if key != "title"}
        bare["config"] = {**CONFIG, "aria": False}
        drawn = self._call(lambda vega: vega.vegalite_to_svg(bare, allowed_base_urls=[]))
        return None if drawn is None else themed(drawn, label)

    def page(self, charts: Mapping[str, Chart]) -> str | None:
        """One page with the charts and the scripts that they need, nothing fetched. Chart data can't leave its
        string in the script: `<` is written as an escape."""
        combined = {"$schema": next(iter(charts.values()))["$schema"], "config": HOVER, "vconcat": []}
        for chart in charts.values():
            part = {key: value for key, value in chart.items() if key not in ("$schema", "config")}
            combined["vconcat"].append(part)
        # The library writes the specification into the script as it is, so it gets a harmless one to write.
        empty: Chart = {"data": {"values": []}, "mark": "point"}
        page = self._call(lambda vega: vega.vegalite_to_html(empty, bundle=True))
        if page is None:
            return None
        spec = (
            json.dumps(combined).replace("<", "\\u003c").replace(">", "\\u003e").replace("\u2028", "\\u2028")
        )
        out, found = _SPEC.subn(lambda _: f"const spec = {spec};\n", page, count=1)
        if found != 1:
            self.why = "this version of vl-convert-python writes its pages in another way"
            return None
        return out

    def _call(self, action: Callable[[Any], str]) -> str | None:
        if self.why is None and _address_space() < ADDRESS_SPACE:
            # The library would end the process, and with it everything that is not written yet.
            self.why = f"`ulimit -v` leaves less than the {ADDRESS_SPACE >> 30} GiB of addresses that drawing reserves"
        if self.why is not None:
            return None
        try:
            if self._module is None:
                import vl_convert

                self._module = vl_convert
            return action(self._module)
        except ImportError:
            self.why = "vl-convert-python is not installed"
        except (ValueError, TypeError, RuntimeError, OSError) as error:
            self.why = (
                f"drawing failed: {str(error).splitlines()[0][:200] if str(error) else type(error).__name__}"
            )
        return None


def _address_space() -> float:
    """Bytes of addresses that this process may have."""
    try:
        import resource
    except ImportError:  # not on Unix: no such limit
        return math.inf
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit


def themed(svg: str, label: str) -> str:
    """SVG for inlining: the page's font and colours, one label for those who can't see it, no fixed size."""
    svg = _FONT.sub("", _COLOUR.sub(lambda match: VARIABLES.get(match.group(), match.group()), svg))
    width, height = (float(text) for text in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
    # Names are set right-aligned in a margin measured with Arial's widths; other fonts are up to a fifth wider.
    margin = re.search(r"translate\(([\d.]+),", svg)
    left = 0.2 * float(margin.group(1)) if margin else 0.0
    width += left + 24
    opening = (
        f'<svg role="img" aria-label="{escape(label)}" viewBox="{-left:.0f} 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}">'
    )
    return opening + svg.split(">", 1)[1]
