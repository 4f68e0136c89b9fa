"""Which hooks go where, once what they hook into is imported."""

from __future__ import annotations

from typing import Any

from . import process


def begin(asked: dict[str, str]) -> None:
    process.when_imported("torch", lambda torch: _torch(torch, asked))
    process.when_imported("vllm.v1.engine.core", lambda module: _engine(module, "EngineCore", asked))
    process.when_imported("vllm.engine.llm_engine", lambda module: _engine(module, "LLMEngine", asked))
    if "step_fn" in asked:
        from . import functions

        functions.begin(asked["step_fn"], asked)
    if "pattern" in asked:
        from . import collector

        collector.begin(asked)


def _torch(torch: Any, asked: dict[str, str]) -> None:
    process.log("torch", getattr(torch, "__version__", "?"))
    from . import clock, collector, loader

    clock.install(torch, asked)
    collector.begin(asked)
    process.when_imported("torch.utils.data.dataloader", loader.install)


def _engine(module: Any, name: str, asked: dict[str, str]) -> None:
    """vLLM: in its first design LLMEngine.step runs the model; in the second the core's step does, in its own process, and
    LLMEngine of `vllm.engine.llm_engine` is another name of the front's, which only passes results on."""
    from . import functions

    cls = getattr(module, name, None)
    if cls is None or cls.__module__ != module.__name__:
        return
    for method in ("step", "step_with_batch_queue"):
        if method in vars(cls):
            functions.wrap(cls, method, f"vllm {name}.{method}", asked)
