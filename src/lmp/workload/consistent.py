"""placeholder"""

from typing import Any


def consistent(model_class: type[Any]) -> tuple[Any, tuple[str, ...]]:
    return model_class.config_class(), ()
