"""The guide's recipe records a trace that wellfed reads."""

import re
import sys
import types
from pathlib import Path

import pytest

import wellfed
from wellfed.ingest import read_timeline

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.torch
@pytest.mark.timeout(300)
# Without a GPU, PyTorch says that it leaves the CUDA activities out.
@pytest.mark.filterwarnings("ignore:.*CUDA.*")
def test_the_recipe_records_what_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    guide = (ROOT / "docs/guides/slow-step.md").read_text(encoding="utf-8")
    found = re.search(r"^ *```python\n(.*?)^ *```$", guide, re.M | re.S)
    assert found
    recipe = "\n".join(line.removeprefix("    ") for line in found[1].splitlines())
    weight = torch.randn(64, 64, requires_grad=True)

    def train_step(batch: torch.Tensor) -> None:
        (batch @ weight).square().mean().backward()

    module = types.ModuleType("recipe")
    vars(module).update(
        loader=torch.utils.data.DataLoader(torch.randn(400, 64), batch_size=16), train_step=train_step
    )
    monkeypatch.setitem(sys.modules, "recipe", module)
    monkeypatch.chdir(tmp_path)
    exec(compile(recipe, "slow-step.md", "exec"), vars(module))

    timeline = read_timeline(tmp_path / "trace.json.gz")
    assert sum(timeline.names[name].startswith("ProfilerStep#") for name in timeline.name) == 4
    case = wellfed.trace(tmp_path / "trace.json.gz")
    if torch.cuda.is_available():
        assert case.ranks[0].budget is not None
    else:
        assert case.ranks[0].budget is None, "no GPU event is not an idle GPU"
        assert [v.reason for v in case.verdicts if v.code == "T001"] == ["no-gpu-event"]
