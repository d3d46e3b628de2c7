"""Squall: the fastest implementation of a tensor kernel on the hardware at hand.

Tune a kernel or a model, and look at what was found:

>>> import squall
>>> report = squall.tune("matmul m=64 n=64 k=64", trials=4, store=tmp / "tuned.squall")
>>> [task["name"] for task in report.tasks]
['matmul_64x64x64']

Run a whole model through its best kernels (``squall.compile(path)`` gives a callable):

    network = squall.compile("model.onnx", store="tuned.squall")
    y = network(x)

Search a space of your own; you measure, Squall proposes:

>>> space = squall.Space({"block": [16, 32, 64], "unroll": range(1, 5)}, ["block * unroll <= 128"])
>>> len(space)
10
>>> study = squall.Study(space, trials=10, seed=1)
>>> while asked := study.ask():
...     for configuration in asked:
...         study.tell(configuration, 1.0 / configuration["block"] + 0.001 * configuration["unroll"])
>>> study.best
({'block': 64, 'unroll': 1}, 0.016625)

``squall.kernel_tuner.SquallStrategy`` is this search inside Kernel Tuner, ``squall.optuna.SquallSampler``
inside Optuna.
"""

from squall._squall import Error, __version__
from squall._kernel import tune_kernel
from squall._dlpack import GpuArray
from squall._gpu import GpuNetwork
from squall._network import Network, compile, export
from squall._report import Report, tasks, tune, tune_model
from squall._search import Failed, Space, Study, strategies
from squall._store import Store, choose, predict

__all__ = [
    "Error",
    "Failed",
    "GpuArray",
    "GpuNetwork",
    "Network",
    "Report",
    "Space",
    "Store",
    "Study",
    "__version__",
    "choose",
    "compile",
    "export",
    "predict",
    "strategies",
    "tasks",
    "tune",
    "tune_kernel",
    "tune_model",
]
