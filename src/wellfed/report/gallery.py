"""The pictures of a case by name, in the order of the report. Each is a function Case -> chart or None."""

from collections.abc import Callable

from wellfed.model import Case
from wellfed.report import ceiling_charts, charts, roofline, trace_charts
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
    "roofline": roofline.gpu_roofline,
    "host-roofline": roofline.host_roofline,
    "latency-by-size": ceiling_charts.latency_by_size,
    "read-by-size": ceiling_charts.read_by_size,
    "memory-by-threads": ceiling_charts.bandwidth_by_threads,
    "layers": charts.verdicts_by_layer,
}
