"""The network lasso: models that stay near their own data's wishes, and near or equal to their neighbours' models.

Hallac, Leskovec, Boyd, "Network Lasso: Clustering and Optimization in Large Graphs", KDD 2015, solved by ADMM as in
the draft of pFedNet, with the proximal maps that its norms really have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, eye_array
from scipy.sparse.linalg import splu

from sparsona.compiled import compiled
from sparsona.methods.pfednet.graph import Graph

Norm: TypeAlias = Literal[1, 2, "inf"]
Rows: TypeAlias = npt.NDArray[Any]
"""A matrix of float32 or float64."""
Ints: TypeAlias = npt.NDArray[np.int32]
Doubles: TypeAlias = npt.NDArray[np.float64]

TILE = 1024
"""Coordinates per sweep, which fit into a core's cache with a thousand clients."""
KEPT = 4
"""Cached factorisations: runs that alternate in a process have one graph and rho each."""


def network_prox(
    b: Rows,
    graph: Graph,
    strength: float,
    p: Norm = 2,
    *,
    rho: float = 1.0,
    start: Rows | None = None,
    iterations: int = 100,
    tolerance: float = 1e-4,
) -> tuple[Rows, Rows]:
    """Return argmin over Z of 1/2 |Z - B|^2 + strength * sum over edges of weight * |z_i - z_j|_p, and ADMM's state.

    A row of `b` is a node. `rho` is ADMM's penalty (times the step size, in the paper's terms): it changes the speed,
    not the solution. The state is W + (Moreau's rest of W) for every edge, from which W and the multipliers follow; as
    `start` it warm-starts the next problem on this graph. It stops when both residuals are within `tolerance`,
    absolutely per entry and relatively, or after `iterations`.
    """
    edges, (nodes, size) = np.ascontiguousarray(graph.edges, np.int32), b.shape
    if strength == 0 or not len(edges) or not size:
        return b, np.zeros((0, size), b.dtype)
    code, tau = _code(p), strength / rho * graph.weights.astype(np.float64)
    solve = _solver(nodes, edges.tobytes(), rho)
    z = b.copy()
    scales = np.zeros(0)  # none: W is ZQ, and the multipliers are zero
    if start is None or len(start) != len(edges):
        a = np.empty((len(edges), size), b.dtype)
    else:
        a = start.astype(b.dtype)
        scales = _scales(a, tau, code)
    pulled = np.zeros_like(b)
    for _ in range(iterations):
        primal = dual = width = reach = 0.0
        for at in range(0, size, TILE):
            tile = slice(at, min(at + TILE, size))
            now, rest = np.zeros((nodes, tile.stop - at), b.dtype), np.zeros((nodes, tile.stop - at), b.dtype)
            found = _pull(z, a, edges, scales, code, at, now, rest)
            primal, width, reach = primal + found[0], width + found[1], reach + found[2]
            dual += float(np.square(now - pulled[:, tile]).sum(dtype=np.float64))
            pulled[:, tile] = now
            z[:, tile] = solve(b[:, tile] + b.dtype.type(rho) * (now - rest))
            _push(z, a, edges, scales, code, at, tile.stop)
        first, scales = not len(scales), _scales(a, tau, code)
        room = tolerance * (np.sqrt(a.size) + np.sqrt(max(width, reach)))
        if not first and np.sqrt(primal) <= room and rho * np.sqrt(dual) <= room:
            break
    return z, a


@lru_cache(maxsize=KEPT)
def _solver(nodes: int, edges: bytes, rho: float) -> Callable[[Rows], Rows]:
    """Return (I + rho * Q Q^T)^-1, factorised once per graph and rho; Q Q^T is the graph's Laplacian."""
    pairs = np.frombuffer(edges, np.int32).reshape(-1, 2)
    q = Graph(nodes, pairs, np.ones(len(pairs), np.float32)).incidence()
    matrix = csc_array(eye_array(nodes) + rho * (q @ q.T))
    options = {"SymmetricMode": True}
    factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)
    lower, upper = csc_array(factors.L), csc_array(factors.U)
    lower.sort_indices()
    upper.sort_indices()
    rows, columns = np.argsort(factors.perm_r), factors.perm_c

    def solve(tile: Rows) -> Rows:
        x = np.ascontiguousarray(tile[rows])
        _forward(lower.indptr, lower.indices, lower.data, x)
        _backward(upper.indptr, upper.indices, upper.data, x)
        found: Rows = x[columns]
        return found

    return solve


def _code(p: Norm) -> int:
    return 0 if p == "inf" else int(p)


@compiled
def _forward(starts: Ints, rows: Ints, values: Doubles, x: Rows) -> None:
    """x <- L^-1 x; the diagonal of L is 1 and stands first in each column."""
    for column in range(len(starts) - 1):
        for k in range(starts[column] + 1, starts[column + 1]):
            factor, row = x.dtype.type(values[k]), rows[k]
            for c in range(x.shape[1]):
                x[row, c] -= factor * x[column, c]


@compiled
def _backward(starts: Ints, rows: Ints, values: Doubles, x: Rows) -> None:
    """x <- U^-1 x; the diagonal of U stands last in each column."""
    for column in range(len(starts) - 2, -1, -1):
        last = starts[column + 1] - 1
        scale = x.dtype.type(1 / values[last])
        for c in range(x.shape[1]):
            x[column, c] *= scale
        for k in range(starts[column], last):
            factor, row = x.dtype.type(values[k]), rows[k]
            for c in range(x.shape[1]):
                x[row, c] -= factor * x[column, c]


@compiled
def _scale(a: Rows, tau: float, p: int) -> float:
    """Return the number of a row's prox: threshold (p = 1), factor (2) or bound (0: infinity)."""
    if p == 1:
        return tau
    total = 0.0
    if p == 2:
        for c in range(len(a)):
            total += np.float64(a[c]) * np.float64(a[c])
        return max(0.0, 1.0 - tau / np.sqrt(total)) if total > 0 else 0.0
    for c in range(len(a)):
        total += abs(np.float64(a[c]))
    if total <= tau:
        return 0.0
    bound, count = (total - tau) / len(a), len(a)  # Michelot: what is below the bound leaves, until nothing does
    while True:
        total, left = 0.0, 0
        for c in range(len(a)):
            if abs(a[c]) > bound:
                total += abs(np.float64(a[c]))
                left += 1
        if left == count or left == 0:
            return bound
        bound, count = (total - tau) / left, left


@compiled
def _prox_row(a: Rows, scale: float, p: int, out: Rows) -> None:
    s = a.dtype.type(scale)
    if p == 2:
        for c in range(len(a)):
            out[c] = s * a[c]
    elif p == 1:
        for c in range(len(a)):
            out[c] = max(a[c] - s, min(a[c] + s, a.dtype.type(0)))
    else:
        for c in range(len(a)):
            out[c] = max(-s, min(a[c], s))


@compiled
def _scales(a: Rows, tau: Doubles, p: int) -> Doubles:
    out = np.empty(len(a))
    for e in range(len(a)):
        out[e] = _scale(a[e], tau[e], p)
    return out


@compiled
def _pull(
    z: Rows, a: Rows, edges: Ints, scales: Doubles, p: int, at: int, pulled: Rows, rest: Rows
) -> tuple[float, float, float]:
    """W Q^T and (A - W) Q^T of the columns from `at` on, and the squares of W - ZQ, W and ZQ there."""
    width = pulled.shape[1]
    kept = np.empty(width, z.dtype)
    off = here = gap = 0.0
    for e in range(len(edges)):
        i, j = edges[e]
        zi, zj, ae = z[i, at : at + width], z[j, at : at + width], a[e, at : at + width]
        pi, pj, ri, rj = pulled[i], pulled[j], rest[i], rest[j]
        if len(scales):
            _prox_row(ae, scales[e], p, kept)
        else:
            for c in range(width):
                kept[c] = ae[c] = zi[c] - zj[c]
        for c in range(width):
            pi[c] += kept[c]
            pj[c] -= kept[c]
            ri[c] += ae[c] - kept[c]
            rj[c] -= ae[c] - kept[c]
        for c in range(width):
            apart = zi[c] - zj[c]
            off += (kept[c] - apart) ** 2
            here += kept[c] ** 2
            gap += apart**2
    return off, here, gap


@compiled
def _push(z: Rows, a: Rows, edges: Ints, scales: Doubles, p: int, at: int, to: int) -> None:
    """A <- ZQ + (A - W), what the next W and multipliers are made of, in the columns from `at` to `to`."""
    kept = np.empty(to - at, z.dtype)
    for e in range(len(edges)):
        i, j = edges[e]
        zi, zj, ae = z[i, at:to], z[j, at:to], a[e, at:to]
        if len(scales):
            _prox_row(ae, scales[e], p, kept)
        else:
            kept[:] = ae
        for c in range(len(kept)):
            ae[c] = zi[c] - zj[c] + (ae[c] - kept[c])
