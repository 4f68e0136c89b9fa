"""The pictures of a case by name, in the order of the report. Each is a function Case -> chart or None."""

from collections.abc import Callable

from wellfed.model import Case
from wellfed.report import charts, trace_charts
from wellfed.report.charts import Chart

CHARTS: dict[str, Callable[[Case], Chart | None]] = {
    "step": charts.step_waterfall,
    "steps": charts.step_causes,
    "idle": trace_charts.idle_over_steps,
    "strip": trace_charts.overlap_strip,
    "ranks": charts.rank_heat,
    "waits": trace_charts.waits_of_ranks,
    "kernels": charts.kernel_list,
    "ceilings": charts.ceilings_of_peak,
    "layers": charts.verdicts_by_layer,
}
