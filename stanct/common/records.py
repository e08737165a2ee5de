"""Records: named tuples that compiled loops take by their address.

A loop in machine code would take a tuple field by field, some hundreds of them, and count
references to each of its arrays.
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.core.compiler import Compiler
from numba.core.pythonapi import NativeValue, PythonAPI
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, models, register_model


class Record(types.Type):
    """A named tuple in memory, of which code holds the address alone."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind
        super().__init__(f"Record({kind})")

    def field(self, name: str) -> tuple[int, Any]:
        """Return the number of a field, and its type: named tuples in records are records."""
        place = self.kind.fields.index(name)
        return place, recorded(self.kind.types[place])


def recorded(kind: Any) -> Any:
    """The record of a named tuple's type; any other type as it is."""
    return Record(kind) if isinstance(kind, types.BaseNamedTuple) else kind


@register_model(Record)
class _RecordModel(models.PrimitiveModel):
    """The address of a record."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, manager.lookup(kind.kind).get_value_type().as_pointer())


@infer_getattr
class _RecordFields(AttributeTemplate):
    key = Record

    def generic_resolve(self, record: Any, name: str) -> Any:
        return record.field(name)[1] if name in record.kind.fields else None


@lower_getattr_generic(Record)
def _field(context: Any, builder: Any, record: Any, address: Any, name: str) -> Any:
    place, kind = record.field(name)
    found = cgutils.gep_inbounds(builder, address, 0, place)
    if isinstance(kind, Record):
        return found
    return _uncounted(context, builder, kind, builder.load(found))


def _uncounted(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Code for a value whose arrays and random generators do not know who owns their memory."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()
    if isinstance(kind, types.NumPyRandomGeneratorType):
        generator = cgutils.create_struct_proxy(kind)(context, builder, value=value)
        generator.meminfo = cgutils.get_null_value(generator.meminfo.type)
        return generator._getvalue()
    context.nrt.incref(builder, kind, value)
    return value


def _borrowed(_typing: Any, value: Any) -> Any:
    """A named tuple as a record without counted references; valid while the original lives.

    An array that is taken out of a tuple costs a count of references each time, about 10 ns, and so
    does each call of a random generator. A loop that begins with this has them for free. A call
    hands over the address of a record, and a tuple field by field, some hundreds of them.
    """
    kind = recorded(value)

    def generate(context: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        if kind is value:
            return _uncounted(context, builder, value, arguments[0])
        return cgutils.alloca_once_value(builder, arguments[0])

    return kind(value), generate


borrowed: Any = intrinsic(_borrowed)


class _Lent(PythonAPI):
    """Hands arguments over to a loop without counting references to them.

    The caller keeps them, and no loop returns an argument or a part of one. numba would count each
    array of a tuple, and write code that releases it for every way in which a call can end. That
    would take half a second for a loop.
    """

    def __init__(self, counting: Any, builder: Any) -> None:
        super().__init__(counting.subtarget(enable_nrt=False), builder)
        self._counting = PythonAPI(counting, builder)

    def from_native_return(self, typ: Any, val: Any, env_manager: Any) -> Any:
        return self._counting.from_native_return(typ, val, env_manager)

    def to_native_value(self, typ: Any, obj: Any) -> NativeValue:
        if isinstance(typ, Record | types.Array | types.NumPyRandomGeneratorType):
            kind = typ.kind if isinstance(typ, Record) else typ
            place = cgutils.alloca_once(self.builder, self.context.get_value_type(kind))
            self._fill(kind, obj, place)
            return NativeValue(place if kind is not typ else self.builder.load(place))
        return super().to_native_value(typ, obj)

    def _fill(self, kind: Any, obj: Any, place: Any) -> None:
        """Write the code that puts an object at a place in memory."""
        if isinstance(kind, types.Array):
            self.numba_array_adaptor(obj, self.builder.bitcast(place, self.voidptr))
        elif isinstance(kind, types.BaseNamedTuple):
            for number, inner in enumerate(kind.types):  # pyright: ignore
                item = self.tuple_getitem(obj, number)
                self._fill(inner, item, cgutils.gep_inbounds(self.builder, place, 0, number))
        elif isinstance(kind, types.NumPyRandomGeneratorType):
            generator = cgutils.create_struct_proxy(kind)(self.context, self.builder)
            inner = self.object_getattr_string(obj, "bit_generator")
            kind = types.NumPyRandomBitGeneratorType("bit_generator")
            generator.bit_generator = self.to_native_value(kind, inner).value
            self.decref(inner)
            self.builder.store(generator._getvalue(), place)
        else:
            self.builder.store(self.to_native_value(kind, obj).value, place)


class Lending(Compiler):
    """Compiles a loop with a way for Python to call it that counts no references."""

    def define_pipelines(self) -> Any:
        context: Any = self.state.targetctx

        def wrapper(*given: Any, **named: Any) -> None:
            lean = context.subtarget(enable_nrt=False)
            lean.get_python_api = lambda builder: _Lent(context, builder)
            type(context).create_cpython_wrapper(lean, *given, **named)

        self.state.targetctx = context.subtarget(create_cpython_wrapper=wrapper)
        return super().define_pipelines()
