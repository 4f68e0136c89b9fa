"""`wellfed compare`: two traces or cases, what changed, and predicted against achieved."""

import click

from wellfed.cli.common import Output, emit_shapes, is_unicode, keep_inputs, output_options


@click.command("compare", epilog="Example: wellfed compare before.json.gz after.json.gz -o compare.html")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option(
    "--price",
    type=click.FloatRange(min=0),
    metavar="USD",
    help="USD per GPU and hour, for the cost of a finding.",
)
@output_options("text", "json", "md", "html", save=False)
def command(a: str, b: str, price: float | None, output: Output) -> None:
    """Compare two traces of one kind of work, before and after a change or on two machines: step time with its
    interval, where it went, idle by cause, operators and kernels, and what A's findings promised against what B
    achieved. A and B are traces (files or folders), saved cases, or JSON results of `trace`."""
    import msgspec

    from wellfed import api
    from wellfed.model.comparison import Comparison
    from wellfed.model.redact import redact_tree

    keep_inputs(output, (a, b))
    compared = api.compare(a, b, price=price)

    def render(shape: str) -> bytes:
        from wellfed.report import comparison

        tree = msgspec.to_builtins(compared)
        shown = redact_tree(tree) if output.redact else tree
        if shape == "json":
            return msgspec.json.format(msgspec.json.encode(shown), indent=2) + b"\n"
        public = msgspec.convert(shown, Comparison)
        page = comparison.render_markdown(public) if shape == "md" else comparison.render_html(public)
        return page.encode("utf-8", "replace")

    def text(columns: int, coloured: bool) -> str:
        from wellfed.report import comparison

        return comparison.render_text(compared, columns, coloured, ascii_only=not is_unicode())

    emit_shapes(output, render, text=text)
