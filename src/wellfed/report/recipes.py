"""How to record what `wellfed trace` reads well: lines to paste, each a valid program with the reasons as comments.

Costs are measured where a figure stands: PyTorch 2.11 on an H200 and its Xeon host (docs/validation/trace.md). What has
not been measured is said to be so.
"""

TORCH = """\
# Four whole steps of a training or inference loop with PyTorch 1.13 and later.
import os

import torch
from torch.profiler import ProfilerActivity, profile, schedule

rank = int(os.environ.get("RANK", "0"))
try:  # PyTorch 2.1 and later: which stream waits for which event
    more = {
        "experimental_config": torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)
    }
except TypeError:
    more = {}

with profile(
    # both: without CPU no gap has a cause, without CUDA there is no GPU event (ROCm is CUDA here too)
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    # Steps 0 to 12 pass (compilation, autotuning, first allocations; warmup starts the tracer itself),
    # steps 13 to 16 are kept. The loop must call prof.step() 17 times, or no file is written.
    schedule=schedule(skip_first=10, wait=1, warmup=2, active=4, repeat=1),
    # one file a rank, its number in the name; packed it is a tenth to a fifteenth of the size
    on_trace_ready=lambda p: p.export_chrome_trace(f"trace_rank{rank}.json.gz"),
    # Sizes and types of operators: rooflines, precision, fusion. The step of a host-bound loop was
    # 2.4 to 4.2 us longer for each operator (5 to 9 under torch.compile), a third of it for the shapes;
    # loops that the GPU bounds were not longer.
    record_shapes=True,
    # Left out on purpose:
    #   with_stack      the line of code of each call; 0.2 to 0.8 us for each Python frame, and 60 to 90 %
    #                   of all events: a recording of its own, when you know what to look for
    #   profile_memory  each allocation ([memory] events): what the peak holds; cost not measured
    #   with_flops      wellfed works them out from the shapes
    #   acc_events      keeps events of several cycles in memory; the file needs it not, whatever the
    #                   warning about cleared events says
    **more,
) as prof:
    for step, batch in enumerate(loader):
        train_step(batch)
        prof.step()  # marks the end of a step: without it there are no steps, and no gains

# Then time the loop without the profiler, and give both:
#   wellfed trace trace_rank*.json.gz --step-ms 42.7
"""

NSYS = """\
# Nsight Systems, 2022.1 and later. One report for each process of the node that uses a GPU, or put nsys in
# front of torchrun: one report then holds all ranks of the node.
#   cuda   calls, kernels, copies and waits: needed.   nvtx   your step marks: needed for gains.
#   osrt   calls of the operating system: for your own eyes in the viewer, wellfed does not read them
# --cuda-graph-trace=node  kernels inside CUDA graphs. Newer versions write one row a graph by default, in
#                          which no kernel is seen. It slows each replay (by how much was not measured).
# --capture-range          only what lies between cudaProfilerStart and cudaProfilerStop (below)
# --sample=none --cpuctxsw=none  no sampling of the CPU, no context switches: less to disturb the host
# --export=sqlite          what wellfed reads, made at the end of the run
nsys profile \\
  --trace=cuda,nvtx,osrt \\
  --cuda-graph-trace=node \\
  --capture-range=cudaProfilerApi --capture-range-end=stop \\
  --sample=none --cpuctxsw=none \\
  --export=sqlite --force-overwrite=true --output=trace_%h_%p \\
  python train.py

# 2025.1 and later: add --cuda-event-trace=false, since tracing the end of events can make streams wait for
# each other. --gpu-metrics-devices=cuda-visible (2024.4 and later) samples SMs and DRAM, needs
# privileges, and is not read by wellfed. --cudabacktrace and --python-backtrace cost much: a recording of
# their own. A report without kernels though the program used the GPU: set CuptiUseRawGpuTimestamps=false
# with NSYS_CONFIG_DIRECTIVES='CuptiUseRawGpuTimestamps=false'.
#
# In train.py, after some ten steps of warm-up:
#     torch.cuda.profiler.start()
#     for i in range(5):
#         with torch.cuda.nvtx.range(f"step {i}"):
#             train_step(next(batches))
#     torch.cuda.synchronize()
#     torch.cuda.profiler.stop()
# Operators get names with torch.autograd.profiler.emit_nvtx() around the loop (it costs a range for each).
#
# Then: wellfed trace trace_*.sqlite
"""

JAX = """\
# Five steps of a JAX program on GPUs, compiled before.
import jax

arguments = {}
if hasattr(jax.profiler, "ProfileOptions"):  # older versions take no options, and record Python's frames too
    options = jax.profiler.ProfileOptions()
    options.host_tracer_level = 2  # calls of the runtime: 0 leaves every gap without a cause; 3 is verbose
    options.python_tracer_level = 0  # no Python frames: they fill the million events that the file can hold
    arguments["profiler_options"] = options

for _ in range(10):  # compile and warm up outside of the recording
    state = train_step(state, next(batches))
jax.block_until_ready(state)

jax.profiler.start_trace(f"trace/rank{jax.process_index()}", **arguments)
for step in range(5):
    with jax.profiler.StepTraceAnnotation("train", step_num=step):  # without it there are no steps, no gains
        state = train_step(state, next(batches))
jax.block_until_ready(state)  # else the last steps run on after the recording
jax.profiler.stop_trace()

# It writes trace/rank0/plugins/profile/.../*.trace.json.gz (if only .xplane.pb is there, add
# create_perfetto_trace=True to start_trace). The file keeps a million events: record few steps. What the
# recording costs has not been measured. Then: wellfed trace trace
"""

MEMORY = """\
# A memory snapshot with its history: what held the memory at the peak and at an out-of-memory error.
# PyTorch 2.1 and later; 2.0 takes (True, trace_alloc_max_entries=100_000, trace_alloc_record_context=True).
import os

import torch

rank = int(os.environ.get("RANK", "0"))
torch.cuda.memory._record_memory_history(
    max_entries=100_000,  # the newest events; the default keeps all of a run
    stacks="python",  # with C++ frames one dump took 461 s, without 4 s (pytorch/torchtitan issue 3628)
)
try:
    train(steps=3)
finally:  # also after torch.cuda.OutOfMemoryError: the error is in the history
    torch.cuda.memory._dump_snapshot(f"memory_rank{rank}.pickle")
    torch.cuda.memory._record_memory_history(enabled=None)

# Then: wellfed trace memory_rank*.pickle
"""

HANG = """\
# The flight recorder of PyTorch's process groups: the last calls of each rank, dumped when one times out.
# Documented for PyTorch 2.4 and later; the names changed, so set both: what a version does not know it ignores.
export TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_TRACE_BUFFER_SIZE=2000  # calls kept for each rank; 0 is off
export TORCH_NCCL_DUMP_ON_TIMEOUT=1
export TORCH_FR_DUMP_TEMP_FILE=/shared/dumps/nccl_trace_rank_       # the rank's number is appended; a folder
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/dumps/nccl_trace_rank_  # that all nodes see, made before
export TORCH_NCCL_ENABLE_TIMING=1  # when calls started: which GPU never reached one; an event more a call
torchrun train.py

# Collect the files of all ranks in one folder: a rank without a file is named as unknown, not as innocent.
# Then: wellfed trace /shared/dumps
"""

RECIPES = {"torch": TORCH, "nsys": NSYS, "jax": JAX, "memory": MEMORY, "hang": HANG}


def recipe(how: str) -> str:
    """The lines that record a good trace with `how`, one of RECIPES."""
    return RECIPES[how]
