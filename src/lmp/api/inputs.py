"""How a user's own module is called: ``inputs`` and ``init`` of the API, read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lmp.errors import UsageError
from lmp.workload.spec import Construct, Spec, is_plain, parse_init, parse_inputs, parse_tensor

if TYPE_CHECKING:
    import torch

Inputs = str | Mapping[str, Any]
Init = str | Mapping[str, Any]

_EXAMPLE = 'inputs="x: float[batch_size, seq_len, 256]"'


def spec_of(inputs: Inputs | None, init: Init | None, module: torch.nn.Module | None = None) -> Spec:
    """How the class is built and called. Raises UsageError for what cannot be read."""
    if inputs is None:
        raise UsageError(f"inputs are missing: lmp must know what forward() is called with\ngive them as in {_EXAMPLE}")
    if isinstance(inputs, str):
        found = parse_inputs(inputs)
    else:
        found = {name: _as_input(name, value, module) for name, value in inputs.items()}
    if init is None or isinstance(init, str):
        return Spec(found, parse_init(init or ""))
    arguments = {name: tuple(v) if isinstance(v, list) else v for name, v in init.items()}
    odd = [name for name, value in arguments.items() if not is_plain(value) or isinstance(value, Construct)]
    if odd:
        raise UsageError(
            f"init: {odd[0]} is {arguments[odd[0]]!r:.60}, which is not a number, text, boolean, None or tuple\n"
            'write an object as text, init="config=Config(n_embd=64)", or give a live module'
        )
    return Spec(found, arguments)


def _as_input(name: str, value: Any, module: torch.nn.Module | None) -> Any:
    import torch

    if isinstance(value, str):
        return parse_tensor(value)
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        if module is not None:
            from lmp.workload.live import dtype_of

            dtype = "float" if value.dtype == dtype_of(module) else dtype
        value, written = tuple(value.shape), dtype
    else:
        written = "float"
    if isinstance(value, (tuple, list, torch.Size)) and all(isinstance(d, (int, str)) for d in value):
        return parse_tensor(f"{written}[{', '.join(map(str, value))}]")
    if value is None or is_plain(value):
        return value
    raise UsageError(
        f"inputs: {name} is {value!r:.60}, which is not a tensor, shape, text or plain value\n"
        f"give them as in {_EXAMPLE}"
    )
