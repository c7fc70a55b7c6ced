"""HiGHS, made silent, deterministic and interruptible."""

from __future__ import annotations

import threading

import highspy
import numpy as np
from scipy import sparse

from sbpjax.search.pool import Floats


class Solver(highspy.Highs):
    """A HiGHS that prints nothing, runs on one thread from a fixed seed, and stops at Ctrl-C."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        fixed = {"threads": 1, "parallel": "off", "random_seed": 0}
        for name, value in {**fixed, **options}.items():
            if self.setOptionValue(name, value) == highspy.HighsStatus.kError:
                raise ValueError(f"HiGHS knows no option {name}={value!r}")
        self.HandleUserInterrupt = True

    def enableCallbacks(self) -> None:
        """Called first of all by the constructor, which would greet the user."""
        self.setOptionValue("output_flag", False)
        super().enableCallbacks()

    def finish(self) -> highspy.HighsModelStatus:
        """Run to the end, in a thread, so that Ctrl-C is heard meanwhile."""
        thread: threading.Thread = self.startSolve()
        try:
            thread.join()
        except KeyboardInterrupt:
            self.cancelSolve()
            thread.join()
            raise
        return self.getModelStatus()

    def pose(self, cost: Floats, matrix: sparse.csc_array, lower: Floats, upper: Floats, *, binaries: int = 0) -> None:
        """Minimise `cost @ z` over `z >= 0` with `lower <= matrix @ z <= upper`; the first `binaries` are integers."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(cost), len(lower)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = cost, np.zeros(len(cost)), np.full(len(cost), np.inf)
        lp.row_lower_, lp.row_upper_ = lower, upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.asarray(matrix.indptr, dtype=np.int32)
        lp.a_matrix_.index_ = np.asarray(matrix.indices, dtype=np.int32)
        lp.a_matrix_.value_ = np.asarray(matrix.data, dtype=np.float64)
        if binaries:
            integers = [highspy.HighsVarType.kInteger] * binaries
            lp.integrality_ = integers + [highspy.HighsVarType.kContinuous] * (len(cost) - binaries)
        self.passModel(lp)

    def values(self) -> Floats | None:
        """The best feasible point, or None."""
        feasible = self.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        return np.array(self.getSolution().col_value) if feasible else None
