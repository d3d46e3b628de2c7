"""Solves binary programmes with HiGHS, by SciPy: `python3 korch.py PROGRAMMES.json SECONDS`.

The file has a list of programmes: `costs`, one for each binary variable, and `rows`, each a pair of
a right side and of `[variable, factor]` pairs whose sum is at least that. Prints one line a
programme: the least cost that was found, the bound that no cost is below, and the seconds that it
took, of which each programme has so many at most.
"""

import json
import sys
import time

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_matrix

for programme in json.load(open(sys.argv[1])):
    costs, rows = np.array(programme["costs"]), programme["rows"]
    factors = [f for _, row in rows for _, f in row]
    places = [v for _, row in rows for v, _ in row]
    ends = np.cumsum([0] + [len(row) for _, row in rows])
    matrix = csr_matrix((factors, places, ends), shape=(len(rows), len(costs)))
    began = time.perf_counter()
    found = milp(
        costs,
        constraints=LinearConstraint(matrix, lb=[least for least, _ in rows]),
        integrality=np.ones(len(costs)),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0.0, "time_limit": float(sys.argv[2])},
    )
    least = float("inf") if found.fun is None else float(found.fun)
    bound = 0.0 if found.mip_dual_bound is None else float(found.mip_dual_bound)
    print(least, bound, time.perf_counter() - began, flush=True)
