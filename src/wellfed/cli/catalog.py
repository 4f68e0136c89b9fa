"""`wellfed catalog`: what is known of GPUs and links, each number with its source."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from wellfed.cli.common import Output, emit_value, output_options

if TYPE_CHECKING:
    from wellfed.catalog import GpuSpec, LinkSpec


@click.command("catalog", epilog="Example: wellfed catalog h200 b200")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@output_options("text", "json")
def command(names: tuple[str, ...], output: Output) -> None:
    """List what is known, show one GPU or link with its sources, or compare several.

    NAME is a key (h200-sxm-141), what people write (h200, H100-SXM-80GB), a part of a name (h100: shows all of
    them), a link (pcie-5) or a family of links (nvlink).
    """
    from wellfed import catalog
    from wellfed.report import spec_sheet

    if names:
        gpus, links = _find(names)
    else:
        gpus, links = list(catalog.gpus()), list(catalog.links())

    show = spec_sheet.render if names else spec_sheet.overview
    emit_value(
        spec_sheet.plain(gpus, links),
        output,
        text=lambda width, _: show(gpus, links, width=width),
        public=True,
    )


def _find(names: Sequence[str]) -> tuple[list["GpuSpec"], list["LinkSpec"]]:
    """What the names mean, each once and in their order. Raises WellfedError for one that means nothing."""
    from wellfed import catalog

    gpus: dict[str, GpuSpec] = {}
    links: dict[str, LinkSpec] = {}
    for name in names:
        exact = catalog.gpu(name)
        keys = [exact.key] if exact else catalog.search_gpus(name) if len(name) > 1 else []
        found = [spec for key in keys if (spec := catalog.gpu(key)) is not None]
        wires = [spec for spec in catalog.links() if name.casefold() in (spec.key, spec.family)]
        if not found and not wires:
            raise _unknown(name)
        gpus |= {spec.key: spec for spec in ([] if wires else found)}
        links |= {spec.key: spec for spec in wires}
    return list(gpus.values()), list(links.values())


def _unknown(name: str) -> Exception:
    import difflib

    from wellfed import catalog
    from wellfed.model import WellfedError

    known = [word for spec in catalog.gpus() for word in (spec.key, *spec.aliases)]
    known += [spec.key for spec in catalog.links()]
    near = difflib.get_close_matches(name.casefold(), known, n=1)
    return WellfedError(
        f"nothing is known of {name!r}", hint=f"wellfed catalog {near[0]}" if near else "wellfed catalog"
    )
