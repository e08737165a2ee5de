"""Compilation of this package's loops, and the disk cache of their machine code.

numba keys its disk cache by the file of the called function. It does not notice a change in another
file whose code or records were compiled in, and would run the old machine code. Here one key covers
the text of every file with loops, `kernels/` and `meshes`, and of this one. A change in any of them
recompiles all.

The environment variable `NUMBA_CACHE_DIR` chooses the cache folder, as elsewhere in numba. The
default is the user's cache folder. If the folder cannot be written, or another user could have
written it, all loops are compiled in memory.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import inspect
import os
import pickle
import re
import shutil
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import llvmlite.binding
import numba
import platformdirs
from numba.core import cgutils, config, sigutils, types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher
from numba.core.runtime.nrt import rtsys
from numba.extending import intrinsic

from stanct.common.arrays import Array
from stanct.common.records import Lending, Record, recorded
from stanct.common.records import borrowed as borrowed
from stanct.common.resources import is_own, make_own_folder

# Machine code of another version is deleted when no process has loaded it for this many days.
KEPT_DAYS = 30
# What the key covers beside the files in `kernels/`.
_OTHERS = "common/compiling.py", "common/records.py", "path/meshes.py"


def source_key() -> str | None:
    """Return a digest of the files with loops and the compiler's version; None without source."""
    digest = hashlib.sha256(f"numba {numba.__version__}, llvmlite {llvmlite.__version__}".encode())
    package = resources.files("stanct")
    files = [
        file
        for file in (*(package / "kernels").iterdir(), *(package / name for name in _OTHERS))
        if file.name.endswith(".py") and file.is_file()
    ]
    for file in sorted(files, key=lambda file: file.name):
        text = file.read_bytes()
        digest.update(f"\n{file.name} {len(text)}\n".encode() + text)
    return digest.hexdigest() if files else None


def _prepared_folder() -> Path | None:
    """Make and return the folder for this version's machine code; None if nothing is cached."""
    chosen, key = config.CACHE_DIR, source_key()  # pyright: ignore[reportAttributeAccessIssue]
    above = Path(chosen or platformdirs.user_cache_dir("stanct", appauthor=False))
    # Without a home directory "~" stays in the path and would create a folder of that name here.
    if key is None or not (chosen or above.is_absolute()):
        return None
    folder = above.absolute() / ("stanct-kernels" if chosen else "kernels") / key[:32]
    try:
        make_own_folder(folder)
        if not is_own(folder):
            return None
        tempfile.TemporaryFile(dir=folder).close()
        os.utime(folder)
    except OSError:
        return None
    _prune(folder)
    return folder


def _prune(folder: Path) -> None:
    """Delete the machine code of versions that were not used for `KEPT_DAYS`.

    A process that still runs such a version keeps what it has loaded and compiles the rest again.
    """
    with contextlib.suppress(OSError):
        for other in folder.parent.iterdir():
            if other != folder and time.time() - other.stat().st_mtime > KEPT_DAYS * 86_400:
                shutil.rmtree(other, ignore_errors=True)


# Decided once, so that a loop is never cached while another loop compiled into it is not.
FOLDER = _prepared_folder()


class _Locator:
    """Tells numba's cache that every loop is in `FOLDER`.

    The name of that folder holds the source key, so nothing in it is ever out of date.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._py_file = function.__code__.co_filename  # for numba's warnings

    def ensure_cache_path(self) -> None:
        Path(self.get_cache_path()).mkdir(parents=True, exist_ok=True)

    def get_cache_path(self) -> str:
        return str(FOLDER)

    def get_source_stamp(self) -> str:
        return Path(self.get_cache_path()).name

    def get_disambiguator(self) -> str:
        return ""


# Names of shared functions in machine code.
_NAMES = re.compile(rb"stanct\.\w+\.[0-9a-f]{32}")


class _Contents(CompileResultCacheImpl):
    """Compiled functions in numba's form, all stored in one folder."""

    def __init__(self, function: Callable[..., Any]) -> None:
        # The parent's constructor would choose a folder by the function's file.
        self._lineno = function.__code__.co_firstlineno
        self._locator = _Locator(function)
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._filename_base = self.get_filename_base(name, getattr(sys, "abiflags", ""))

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        # A name that nothing has would end the process.
        _, _, (code, _) = payload[0]
        if all(llvmlite.binding.address_of_symbol(name.decode()) for name in _NAMES.findall(code)):
            return super().rebuild(target_context, payload)
        return None


class _Files(IndexDataCacheFile):
    """numba's cache files with names that are unique across processes.

    Two processes that start together would number their files alike, and the index of one could
    point to the code of the other.
    """

    def _load_index(self) -> dict[Any, str]:
        try:
            return super()._load_index()
        except (EOFError, pickle.UnpicklingError):  # the machine stopped while writing it
            return {}

    def _data_name(self, number: int) -> str:
        return super()._data_name(number).replace(".nbc", f".{uuid.uuid4().hex[:16]}.nbc")


class _Cache(FunctionCache):
    """A function's machine code in `FOLDER`; code that cannot be read is compiled again."""

    _impl_class = _Contents

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._function, self._loop = function, function.__qualname__
        self._cache_file = _Files(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=self._impl.locator.get_source_stamp(),
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        waiting = _AWAITED.get(self._loop)
        while waiting is not None and waiting.is_alive():
            found = self._found(sig, target_context)
            if found is not None:
                return found
            waiting.join(0.05)
        return self._found(sig, target_context)

    def _found(self, sig: Any, target_context: Any) -> Any:
        # numba's own `load_overload` also loads all that a loop may call, as if it had to be
        # compiled, which takes .3 s.
        rtsys.initialize(target_context)
        try:
            with self._guard_against_spurious_io_errors():
                if all([loop.load_all() for loop in _uses(self._function, set())]):
                    return self._load_overload(sig, target_context)
                return None
        except (OSError, EOFError, pickle.UnpicklingError):
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):  # a full disk
            super().save_overload(sig, data)


# Loops that another process compiles, each with the thread that ends when that process does.
_AWAITED: dict[str, threading.Thread] = {}


def await_from(waiting: threading.Thread, loops: Iterable[Any]) -> None:
    """Let loops, and what they share, look into the cache again and again until a thread ends."""
    for loop in loops:
        for one in (loop, *_uses(loop.py_func, set())):
            _AWAITED[one.py_func.__qualname__] = waiting


def is_kept_or_awaited(loop: Any) -> bool:
    """Whether machine code of a loop is in the cache, is awaited, or would not be cached."""
    if FOLDER is None or loop.py_func.__qualname__ in _AWAITED:
        return True
    name = f"{loop.py_func.__module__.rpartition('.')[2]}.{loop.py_func.__qualname__}"
    return any(FOLDER.glob(f"{name}-*.nbi"))


# No loop is handed to compiled code as a value, for which numba would compile a wrapper. Loops have
# no expressions of whole arrays, which numba would look for to rewrite them. What is not said here,
# a function would take from the first function that calls it.
_ALL: Any = {
    "nogil": True, "no_cfunc_wrapper": True, "no_rewrites": True, "fastmath": False,
    "forceinline": False,
}  # fmt: skip


class _Loop(CPUDispatcher):
    """A function that Python calls; in other loops it is a part of their machine code."""

    _part: Any = None
    _insert: Any

    @property
    def _numba_type_(self) -> Any:
        if self._part is None:
            self._part = part(self.py_func)
        return types.Dispatcher(self._part)

    def compile(self, sig: Any) -> Any:
        kinds, _ = sigutils.normalize_signature(sig)
        # What the compiler makes forms no circles, and looking for them takes a tenth of its time.
        with _without_collection():
            return super().compile(tuple(recorded(kind) for kind in kinds))

    def add_overload(self, cres: Any) -> None:
        super().add_overload(cres)
        kinds = cres.signature.args
        given = [kind.kind if isinstance(kind, Record) else kind for kind in kinds]
        # Of two entries for the same types numba takes neither, and resolves each call anew.
        if given != list(kinds):
            self._insert([kind._code for kind in given], cres.entry_point)


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function to run without the interpreter's lock, and cache its machine code.

    Only for functions in `kernels/` and `meshes`: the cache key covers no other file.
    """
    return _kept(_Loop(function, None, {"nopython": True, **_ALL}, Lending))


def _kept(loop: Any) -> Any:
    if FOLDER is not None:
        loop._cache = _Cache(loop.py_func)
    return loop


@contextlib.contextmanager
def _without_collection() -> Iterator[None]:
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


class _Shared(CPUDispatcher):
    """A function that loops of several libraries call by its name."""

    _cache: Any
    targetctx: Any

    def symbol(self, kinds: Iterable[Any]) -> str:
        """Return the name of the machine code for types of arguments."""
        digest = hashlib.sha256(str(tuple(kinds)).encode()).hexdigest()[:32]
        return f"stanct.{self.py_func.__qualname__}.{digest}"

    def add_overload(self, cres: Any) -> None:
        super().add_overload(cres)
        address = cres.library.get_pointer_to_function(cres.fndesc.llvm_func_name)
        llvmlite.binding.add_symbol(self.symbol(cres.signature.args), address)

    def load_all(self) -> bool:
        """Load what is kept of it; return whether there is any."""
        kept = self._cache._cache_file._load_index()
        here = [key[0] for key in kept if key[1] == self.targetctx.codegen().magic_tuple()]
        for kinds in here:
            self.compile(kinds)
        return bool(here)


def shared(*, reordered: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function once for all loops that call it, with records for tuples.

    Its machine code is cached beside theirs. It becomes no part of them, so a call costs some
    nanoseconds. Python cannot call it. Sums may be `reordered`, as in `summed` functions.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        options = {**_ALL, "fastmath": _SUMS if reordered else False, "no_cpython_wrapper": True}
        loop: Any = _kept(_Shared(function, targetoptions={"nopython": True, **options}))

        def call(_typing: Any, *kinds: Any) -> Any:
            kinds = tuple(types.unliteral(kind) for kind in kinds)
            loop.compile(kinds)
            signature = loop.overloads[kinds].signature

            def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
                found, convention = signature.return_type, context.call_conv
                kind = convention.get_function_type(found, kinds)
                code = cgutils.get_or_insert_function(builder.module, kind, loop.symbol(kinds))
                status, value = convention.call_function(builder, code, found, kinds, values)
                with cgutils.if_unlikely(builder, status.is_error):
                    convention.return_status_propagate(builder, status)
                return value

            return signature, generate

        own = inspect.signature(function).parameters.values()
        first = inspect.Parameter("_typing", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        call.__signature__ = inspect.Signature([first, *own])
        caller: Any = intrinsic(call)
        caller.loop, caller.inlined = loop, inlined(function)
        return caller

    return decorate


def _uses(function: Callable[..., Any], seen: set[Any]) -> list[Any]:
    """The shared functions that a function calls, also by its parts and by what they share."""
    found: list[Any] = []
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        loop = getattr(value, "loop", value)
        inner = getattr(loop, "py_func", None)
        if inner is not None and (inner, loop is value) not in seen:
            seen.add((inner, loop is value))
            found += _uses(inner, seen) + ([] if loop is value else [loop])
    return found


class _Parts(Compiler):
    """Compiles what only other loops call, and leaves optimisation and machine code to them.

    numba does both for every function with all that it calls, and again as a part of each caller.
    Loops of five levels would take twice as long. Where a later numba has no such hooks, they do.
    """

    def define_pipelines(self) -> Any:
        state: Any = self.state
        state.library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        state.library._optimize_final_module = lambda: None
        state.library._finalize_final_module = lambda: _end(state.library)
        return super().define_pipelines()


def _end(library: Any) -> None:
    """End a library without machine code, but with the variables that numba sets in it."""
    module = str(library.codegen._create_empty_module(library.name))
    for variable in library._final_module.global_variables:
        if variable.name.startswith("_ZN08NumbaEnv"):
            module += f'@"{variable.name}" = common global i8* null, align 8\n'
    library.codegen._engine.add_module(llvmlite.binding.parse_assembly(module))
    library._finalized = True


# No wrapper for calls from Python is compiled, so only loops can call these functions. They have no
# cache of their own, because they become part of their callers' machine code.
_PART: Any = {**_ALL, "no_cpython_wrapper": True, "pipeline_class": _Parts}
part = numba.njit(**_PART)

# Sums may be reordered, which vectorisation needs.
_SUMS = {"reassoc", "contract"}
summed = numba.njit(**_PART | {"fastmath": _SUMS})

# A call hands over a tuple field by field, some hundreds of them.
inlined = numba.njit(**_PART | {"forceinline": True})


# numba takes seconds to compile what NumPy does with `a[:] = b` and `searchsorted`, and longer for
# its functions of one number than for those of `math`. What is inlined is optimised at each place.
@inlined
def copy(source: Array, target: Array) -> None:
    """Copy an array of shape (n,) into another one."""
    for i in range(target.size):
        target[i] = source[i]


@part
def number_below(ascending: Array, value: float, equal: bool) -> int:
    """How many entries are less than a value, or also those that are equal; all if it is NaN."""
    low, high = 0, ascending.size
    while low < high:
        middle = (low + high) // 2
        entry = ascending[middle]
        if value < entry or (value == entry and not equal):
            high = middle
        else:
            low = middle + 1
    return low
