"""The interface of a scikit-learn estimator without scikit-learn: parameters by name, repr, tags, NotFittedError."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Self

from hushprice.errors import HushpriceError, unknown


class SklearnApi:
    """An estimator whose parameters are those of its constructor; it has ``theta_`` once it is fitted."""

    @classmethod
    def _parameters(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name."""
        return {name: getattr(self, name) for name in self._parameters()}

    def set_params(self, **params: Any) -> Self:
        """Change parameters; the fitted attributes stay until the next fit."""
        for name, value in params.items():
            if name not in self._parameters():
                raise unknown(f"parameter of {type(self).__name__}", name, self._parameters())
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        defaults = inspect.signature(type(self).__init__).parameters
        values = {name: repr(value) for name, value in self.get_params().items()}
        changed = [f"{name}={value}" for name, value in values.items() if value != repr(defaults[name].default)]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """Tags: a regressor that accepts missing features."""
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(allow_nan=True),
        )

    def _check(self) -> None:
        """Raise NotFittedError if the estimator is not fitted."""
        if not hasattr(self, "theta_"):
            base = getattr(sys.modules.get("sklearn.exceptions"), "NotFittedError", AttributeError)
            kind = type("NotFittedError", (HushpriceError, base), {})
            raise kind(f"This {type(self).__name__} instance is not fitted yet. Call 'fit' before using it.")
