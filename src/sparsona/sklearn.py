"""A federation as a scikit-learn estimator: `fit(X, y, groups=site)`, and one model per site answers `predict`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from sparsona.api import run
from sparsona.data.dataset import Array
from sparsona.result import Result
from sparsona.words import counted

ALONE = "all"
"""The name of the only site, without groups."""

ONE_ROW = 1e-6
"""The share of test rows (at least one): callers of scikit-learn hold out test rows themselves."""

FEWEST = 3
"""Rows that a site needs: one each to train on, to validate and to test."""


class _Federated(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """The base of both estimators: one client per group, and predictions by the model of each row's group."""

    def __init__(
        self,
        method: str = "fedavg-ft",
        *,
        rounds: int = 30,
        settings: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.method = method
        self.rounds = rounds
        self.settings = settings
        self.random_state = random_state

    def _train(self, X: Array, y: Array, groups: ArrayLike | None, task: str) -> None:
        sites = self._sites(groups, len(X))
        rows = {site: (X[sites == site], y[sites == site]) for site in np.unique(sites).tolist()}
        small = next((site for site, (one, _) in rows.items() if len(one) < FEWEST), None)
        if small is not None:
            raise ValueError(f"site {small!r} has {counted(len(rows[small][0]), 'sample')}: it needs {FEWEST} or more")
        seed = int(check_random_state(self.random_state).randint(2**31))
        settings = {"engine": "inprocess", "seed": seed, "split": {"test": ONE_ROW}, **(self.settings or {})}
        self.result_: Result = run(self.method, data=rows, task=task, rounds=self.rounds, **settings)
        self.sites_ = np.array(sorted(rows))

    def _by_site(self, X: ArrayLike, groups: ArrayLike | None, answer: str) -> Array:
        """Return the answers of each row's own model, in the order of the rows."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        if groups is None and len(self.sites_) > 1:
            raise ValueError(f"there are {len(self.sites_)} sites, each with its own model: give groups, one per row")
        sites = self._sites(groups, len(rows))
        unknown = sorted(set(sites.tolist()) - set(self.sites_.tolist()))
        if unknown:
            raise ValueError(f"no site of the training is called {unknown[0]!r}: fit again with its rows")
        parts = {site: np.flatnonzero(sites == site) for site in np.unique(sites).tolist()}
        found = {site: np.asarray(getattr(self.result_.models[site], answer)(rows[at])) for site, at in parts.items()}
        whole = np.empty((len(rows), *next(iter(found.values())).shape[1:]), next(iter(found.values())).dtype)
        for site, at in parts.items():
            whole[at] = found[site]
        return whole

    @staticmethod
    def _sites(groups: ArrayLike | None, rows: int) -> Array:
        sites = np.full(rows, ALONE) if groups is None else np.asarray(groups).astype(np.str_)
        if sites.shape != (rows,):
            raise ValueError(f"groups have shape {sites.shape}: give one site per row, {rows} in all")
        return sites


class FederatedClassifier(ClassifierMixin, _Federated):  # type: ignore[misc]
    """Classify rows by the model of their site, trained together with the other sites.

    `method` and `settings` are as in :func:`sparsona.run`; rows of `X` are numbers. Without groups there is one
    site. ``result_`` is the :class:`sparsona.Result` of the training.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> site = np.where(np.arange(150) % 2, "east", "west")
    >>> model = FederatedClassifier(rounds=10).fit(X, y, groups=site)
    >>> bool(model.score(X[site == "east"], y[site == "east"], groups=site[site == "east"]) > 0.8)
    True
    """

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> FederatedClassifier:
        """Train one model per group of rows."""
        rows, targets = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(targets)
        self.classes_, codes = np.unique(targets, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("y has 1 class: a classifier needs at least 2 classes")
        self._train(rows, codes, groups, "classification")
        return self

    def predict(self, X: ArrayLike, groups: ArrayLike | None = None) -> Array:
        """Return the class of each row, by the model of its site."""
        shares = self.predict_proba(X, groups)
        found: Array = self.classes_[shares.argmax(1)]
        return found

    def predict_proba(self, X: ArrayLike, groups: ArrayLike | None = None) -> Array:
        """Return the probability of each class, in the order of ``classes_``."""
        return self._by_site(X, groups, "probabilities")

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> float:
        """Return the accuracy over all rows."""
        return float(accuracy_score(y, self.predict(X, groups), sample_weight=sample_weight))


class FederatedRegressor(RegressorMixin, _Federated):  # type: ignore[misc]
    """Predict numbers by the model of each row's site, trained together with the other sites."""

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> FederatedRegressor:
        """Train one model per group of rows."""
        rows, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        self._one_target = targets.ndim == 1
        self._train(rows, targets, groups, "regression")
        return self

    def predict(self, X: ArrayLike, groups: ArrayLike | None = None) -> Array:
        """The number predicted for each row, by the model of its site."""
        found = self._by_site(X, groups, "predict")
        return found.reshape(len(found)) if self._one_target else found

    def score(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> float:
        """The coefficient of determination over all rows."""
        return float(r2_score(y, self.predict(X, groups), sample_weight=sample_weight))
