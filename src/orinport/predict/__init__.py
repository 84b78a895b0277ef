"""Time, bound, utilisation and bytes of every layer, without a board.

Calling this module is `orinport.api.predict`: Python binds the name of a subpackage in its parent, where the
public function of the same name also has to be found.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orinport.predict.prediction import Prediction


class _Callable(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Prediction:
        """See `orinport.api.predict`."""
        from orinport.api import predict

        return predict(*arguments, **options)


sys.modules[__name__].__class__ = _Callable
