"""The estimators: scikit-learn's own checks, one model per site, and the tools of the ecosystem."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.datasets import make_classification, make_regression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sparsona.sklearn import FederatedClassifier, FederatedRegressor

ROUNDED = {"check_methods_sample_order_invariance": "float32: a row's last bits depend on its place in the batch"}


@parametrize_with_checks(  # type: ignore[untyped-decorator]  # scikit-learn has no types
    [FederatedClassifier(rounds=30), FederatedRegressor(rounds=30)], expected_failed_checks=lambda estimator: ROUNDED
)
def test_the_checks_of_scikit_learn_pass(estimator: Any, check: Any) -> None:
    check(estimator)


def _sites(rows: int) -> Any:
    return np.where(np.arange(rows) % 2, "east", "west")


def test_every_site_has_its_own_model() -> None:
    """The two sites have opposite labels: no model for both can be right."""
    X, y = make_classification(200, 5, random_state=0)
    sites = _sites(200)
    y = np.where(sites == "east", y, 1 - y)
    model = FederatedClassifier("local", rounds=20).fit(X, y, groups=sites)
    assert model.score(X, y, groups=sites) > 0.8
    turned = np.where(sites == "east", "west", "east")
    assert model.score(X, y, groups=turned) < 0.2
    again = pickle.loads(pickle.dumps(model))  # noqa: S301  # our own bytes
    assert (again.predict(X, groups=sites) == model.predict(X, groups=sites)).all()


def test_rows_without_a_known_site_are_refused() -> None:
    X, y = make_regression(40, 3, random_state=0)
    model = FederatedRegressor("local", rounds=1).fit(X, y, groups=_sites(40))
    with pytest.raises(ValueError, match="groups"):
        model.predict(X)
    with pytest.raises(ValueError, match="north"):
        model.predict(X[:1], groups=["north"])
    with pytest.raises(ValueError, match="one site per row"):
        model.predict(X, groups=["east"])
    with pytest.raises(ValueError, match="1 sample"):
        model.fit(X, y, groups=["east", *["west"] * 39])


def test_cross_validation_grids_and_pipelines_hand_the_sites_on() -> None:
    X, y = make_classification(120, 4, random_state=0)
    sites = _sites(120)
    with sklearn.config_context(enable_metadata_routing=True):
        asked = FederatedClassifier(rounds=3).set_fit_request(groups=True).set_score_request(groups=True)
        scores = cross_val_score(asked, X, y, params={"groups": sites}, cv=2)
        grid = GridSearchCV(asked, {"method": ["local", "fedavg"]}, cv=2).fit(X, y, groups=sites)
        whole = make_pipeline(StandardScaler(), asked).fit(X, y, groups=sites)
        assert len(scores) == 2
        assert grid.best_params_["method"] in {"local", "fedavg"}
        assert whole.score(X, y, groups=sites) > 0.5
