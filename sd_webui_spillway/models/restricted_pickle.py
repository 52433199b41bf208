"""A pickle reader for checkpoints that runs none of the file's code.

A pickle names Python objects and calls them. Here a name is looked up in two closed lists and nowhere else: what a
tensor is made of, and the packages whose objects real training checkpoints carry. The latter become inert stubs:
the package is neither imported nor needed. Any other name ends the reading.
"""

from __future__ import annotations

import _compat_pickle
import collections
import pickle
from collections.abc import Callable
from typing import Any, BinaryIO, ClassVar

import numpy as np
import torch

STUB_PACKAGES = (
    "pytorch_lightning", "lightning", "lightning_fabric", "lightning_utilities", "lightning_lite", "torchmetrics",
    "omegaconf", "ldm", "sgm", "taming", "torch.optim", "torch.cuda.amp", "torch.amp", "torch.nn.modules",
    "argparse", "typing", "pathlib", "datetime",
)  # fmt: skip
"""Packages (and everything below them) whose objects are read as stubs; "torch.nn.modules" for legacy containers."""

_DTYPES = (
    "float16", "float32", "float64", "half", "float", "double", "bfloat16", "uint8", "int8", "int16", "int32", "int64",
    "short", "int", "long", "bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
_STORAGES = (
    "FloatStorage", "HalfStorage", "DoubleStorage", "BFloat16Storage", "LongStorage", "IntStorage", "ShortStorage",
    "CharStorage", "ByteStorage", "BoolStorage", "ComplexFloatStorage", "ComplexDoubleStorage",
)  # fmt: skip


class RefusedObjectError(pickle.UnpicklingError):
    """The pickle asks for something that is no part of a checkpoint; ``name`` is its dotted name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"refused: {name}")
        self.name = name


class InertStub:
    """Stands where a training framework's object was: takes any arguments, items and state, and does nothing."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> InertStub:
        return object.__new__(cls)

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def __setitem__(self, _key: Any, _value: Any) -> None:
        pass

    def append(self, _value: Any) -> None:
        pass

    def extend(self, _values: Any) -> None:
        pass

    def add(self, _value: Any) -> None:
        pass


def _stub_class(name: str) -> type[InertStub]:
    return type(name, (InertStub,), {})


def _encode(text: str, encoding: str = "latin1") -> bytes:
    """What protocol 2 writes for bytes; other codecs are not needed and some decompress."""
    if encoding not in ("latin1", "latin-1", "ascii", "utf-8"):
        raise RefusedObjectError(f"_codecs.encode({encoding!r})")
    return text.encode(encoding)


def _numpy_dtype(spec: Any, *_flags: Any) -> np.dtype[Any]:
    """A plain number type: dtypes of objects could hold code of their own."""
    if not isinstance(spec, str):
        raise RefusedObjectError("numpy.dtype of a structure")
    made = np.dtype(spec)
    if made.hasobject:
        raise RefusedObjectError("numpy.dtype of objects")
    return made


def _numpy_scalar(dtype: Any, data: Any = b"") -> Any:
    if not isinstance(dtype, np.dtype) or not isinstance(data, bytes):
        raise RefusedObjectError("numpy scalar of an object")
    return np.frombuffer(data, dtype=dtype, count=1)[0]


def _reconstruct(cls: Any, *_base_and_state: Any) -> Any:
    """``copyreg._reconstructor``, for stubs only."""
    if not (isinstance(cls, type) and issubclass(cls, InertStub)):
        raise RefusedObjectError("copyreg._reconstructor")
    return cls()


def _allowed() -> dict[tuple[str, str], Any]:
    from torch import _utils

    table: dict[tuple[str, str], Any] = {("collections", "OrderedDict"): collections.OrderedDict}
    table[("collections", "defaultdict")] = collections.defaultdict
    for module in ("builtins", "__builtin__"):
        table |= {(module, kind.__name__): kind for kind in (
            dict, list, tuple, set, frozenset, int, float, complex, bool, str, bytes, bytearray, slice, object,
        )}  # fmt: skip
        table |= {(module, "unicode"): str, (module, "long"): int}
    for name in ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter"):
        table[("torch._utils", name)] = getattr(_utils, name)
    for name in ("Size", "device"):
        table[("torch", name)] = getattr(torch, name)
    for name in (*_DTYPES, *_STORAGES):
        if hasattr(torch, name):
            table[("torch", name)] = getattr(torch, name)
    for name in ("UntypedStorage", "TypedStorage"):
        table[("torch.storage", name)] = getattr(torch.storage, name)
    for core in ("numpy.core", "numpy._core"):
        table[(f"{core}.multiarray", "scalar")] = _numpy_scalar
        table[(f"{core}.multiarray", "_reconstruct")] = _stub_class("ndarray")
    table |= {("numpy", "dtype"): _numpy_dtype, ("numpy", "ndarray"): _stub_class("ndarray")}
    table |= {("_codecs", "encode"): _encode}
    table |= {(module, "_reconstructor"): _reconstruct for module in ("copyreg", "copy_reg")}
    return table


# The pure-Python unpickler, because the C one lets a state ("BUILD") set attributes of any object, classes included.
class RestrictedUnpickler(pickle._Unpickler):
    """``pickle.Unpickler`` over the closed lists.

    Raises:
        RefusedObjectError: at the first name or state that is not in them; nothing has been run.
    """

    stack: list[Any]  # this and the next are attributes of the class above that the type stubs leave out
    _file_readline: Callable[[], bytes]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)

    def __init__(self, file: BinaryIO, **options: Any) -> None:
        super().__init__(file, **options)
        self._table = _allowed()
        self._file_readline = self._whole_line(self._file_readline)

    @staticmethod
    def _whole_line(readline: Callable[[], bytes]) -> Callable[[], bytes]:
        """A cut file must not pass for one that asks for half a name."""

        def read() -> bytes:
            line = readline()
            if not line.endswith(b"\n"):
                raise pickle.UnpicklingError("pickle data was truncated")
            return line

        return read

    def find_class(self, module: str, name: str) -> Any:
        found = self._table.get((module, name))
        if found is not None:
            return found
        if "." not in name and any(module == known or module.startswith(f"{known}.") for known in STUB_PACKAGES):
            return self._table.setdefault((module, name), _stub_class(name))
        # Protocol 2 writes Python 2's names; a person knows today's.
        raise RefusedObjectError(f"{_compat_pickle.IMPORT_MAPPING.get(module, module)}.{name}")

    def get_extension(self, code: int) -> None:
        raise RefusedObjectError(f"copyreg extension {code}")

    def load_build(self) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, np.dtype):
            swapped = isinstance(state, tuple) and len(state) > 1 and state[1] == ">"
            self.stack[-1] = target.newbyteorder(">") if swapped else target
        elif type(target) is collections.OrderedDict or isinstance(target, torch.Tensor | InertStub):
            pass  # "_metadata" of a state dict and the like: nothing that is read here
        else:
            raise RefusedObjectError(f"a state for {type(target).__module__}.{type(target).__qualname__}")

    dispatch[pickle.BUILD[0]] = load_build


class RestrictedPickle:
    """What ``torch.load`` wants of a ``pickle_module``: the names ``Unpickler``, ``load`` and ``__name__``."""

    __name__ = "restricted_pickle"
    Unpickler = RestrictedUnpickler

    @staticmethod
    def load(file: BinaryIO, **options: Any) -> Any:
        return RestrictedUnpickler(file, **options).load()
