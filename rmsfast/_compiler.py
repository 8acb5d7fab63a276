"""How Numba compiles kernels: each once, with an entry for threads.

Numba optimises every function, makes machine code of it, and does both again for whatever
calls it: a kernel of five levels is compiled five times. The functions that only kernels
call are *parts* here: they are linked into their callers as they are.

A kernel takes arguments of many types; its *entry* takes them at one address. So one loop
under `prange`, compiled once, runs every kernel on many threads. Called for units from -1 to the
address of a *job* (words: the address of that loop, begin, end, threads, whether these may be
asleep, how many have begun), a kernel stores its arguments, and hands them, its entry and the job
to the loop.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower
from numba.core.typed_passes import BaseNativeLowering, NativeLowering
from numba.extending import intrinsic

I64, ADDRESS = ir.IntType(64), ir.IntType(8).as_pointer()
ENTRY = ir.FunctionType(ir.VoidType(), [ADDRESS, I64, I64])  # arguments, begin, end
# As Numba calls: where result and error go; entry, arguments, job.
LOOP = ir.FunctionType(ir.IntType(32), [ADDRESS] * 2 + [I64] * 3)


def fewer_features(codegen: Any) -> str | None:
    """Features of the processor without AVX512-FP16; None if it has no such.

    Its conversions between float16 and float32 take a quarter more time than those of F16C, but
    LLVM prefers them.
    """
    features: str = codegen.magic_tuple()[2]
    has = "+avx512fp16" in features.split(",")
    return features.replace("+avx512fp16", "-avx512fp16") if has else None


class _Part(JITCodeLibrary):
    """Code that is linked into its callers, and not run from elsewhere."""

    def _optimize_functions(self, ll_module):
        ll_module.data_layout = self._codegen._data_layout

    def finalize(self):
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, _name):
        self._ensure_finalized()
        return 0

    @property
    def codegen(self):
        return self

    def set_env(self, _name, _environment):
        """Leave out what Numba keeps for code that is called from Python."""


class _Whole(JITCodeLibrary):
    """Code of a kernel, optimised once; its parts are its own.

    Numba numbers functions and record types in every process anew: parts of kernels from
    different processes, kept on disk, may have one name for different code.
    """

    def _optimize_final_module(self):
        parts = {
            f.name
            for library in self._linking_libraries
            if isinstance(library, _Part)
            for f in library._final_module.functions
            if not f.is_declaration
        }
        for f in self._final_module.functions:
            if f.name in parts:
                f.linkage = "internal"
        if fewer_features(self._codegen):
            self._inline_foreign_functions()
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)

    def _inline_foreign_functions(self):
        """Inline functions of Numba, which LLVM does not do itself: they are for more features."""
        for f in self._final_module.functions:
            known = b" ".join(f.attributes)
            foreign = b"target-features" not in known and b"noinline" not in known
            if foreign and not f.is_declaration:
                f.add_function_attribute("alwaysinline")


class _Lower(Lower):
    def lower_function_body(self):
        tail = super().lower_function_body()
        if not self.flags.no_cpython_wrapper:
            # What comes next is a branch from the tail, where variables are, to the first block.
            self.blkmap[self.firstblk] = self.front(self.entry(), self.blkmap[self.firstblk])
        return tail

    def lower_normal_function(self, fndesc):
        super().lower_normal_function(fndesc)
        if features := fewer_features(self.context.codegen()):
            for f in self.module.functions:
                if f.blocks:  # attributes with values are not known to llvmlite, but written
                    set.add(f.attributes, f'"target-features"="{features}"')

    def entry(self):
        """Define a function that loads the arguments and calls this one."""
        entry = ir.Function(self.module, ENTRY, f"entry.{self.fndesc.llvm_func_name}")
        b = ir.IRBuilder(entry.append_basic_block())
        result, error, *args = self.function.args
        values = [b.load(place) for place in places(b, entry.args[0], args[:-2])]
        b.call(
            self.function,
            [
                cgutils.alloca_once(b, result.type.pointee),
                cgutils.alloca_once(b, error.type.pointee),
                *values,
                *entry.args[1:],
            ],
        )
        b.ret_void()
        return entry

    def front(self, entry, first):
        """Block before the first, which leaves a job to the loop."""
        front, shared = (self.function.append_basic_block(n) for n in ("front", "shared"))
        result, error, *args, begin, end = self.function.args
        b = ir.IRBuilder(front)
        b.cbranch(b.icmp_signed("<", begin, I64(0)), shared, first)
        b.position_at_end(shared)
        stored = b.bitcast(cgutils.alloca_once(b, ir.ArrayType(I64, len(args))), ADDRESS)
        for value, place in zip(args, places(b, stored, args), strict=True):
            b.store(value, place)
        loop = b.inttoptr(b.load(b.inttoptr(end, I64.as_pointer())), LOOP.as_pointer())
        b.store(ir.Constant(result.type.pointee, None), result)  # False where a kernel tells one
        nothing = cgutils.alloca_once(b, ADDRESS)
        outcome = b.bitcast(nothing, ADDRESS), b.bitcast(error, ADDRESS)
        b.ret(b.call(loop, [*outcome, b.ptrtoint(entry, I64), b.ptrtoint(stored, I64), end]))
        return front


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(BaseNativeLowering):
    _name = "rmsfast_lowering"

    @property
    def lowering_class(self):
        return _Lower

    def run_pass(self, state):
        # Numba makes a library, its word for compiled code, where there is none yet.
        kind = _Part if state.flags.no_cpython_wrapper else _Whole
        state.library = kind(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return super().run_pass(state)


class Compiler(CompilerBase):
    """Numba's compiler, but for what this module is about."""

    def define_pipelines(self):
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.passes = [(_Lowering if p is NativeLowering else p, n) for p, n in passes.passes]
        passes.finalize()
        return [passes]


def places(b, memory, values):
    """Pointers to where values stand in memory, eight bytes each."""
    return [
        b.bitcast(b.gep(memory, [I64(8 * k)]), v.type.as_pointer()) for k, v in enumerate(values)
    ]


def address(result: Any) -> int:
    """Address of a compiled function, to be called as Numba calls."""
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


@intrinsic
def run_entry(typingctx, entry, args, begin, end):
    """Run units begin to end of the kernel with this entry; addresses are integers."""

    def codegen(context, b, signature, values):
        place, args, begin, end = values
        function = b.inttoptr(place, ENTRY.as_pointer())
        b.call(function, [b.inttoptr(args, ADDRESS), begin, end])
        return context.get_dummy_value()

    return types.void(entry, args, begin, end), codegen


@intrinsic
def exchange_threads(typingctx, count):
    """Set how many of Numba's threads parallel regions of this one have, and return what it was."""

    def codegen(context, b, signature, values):
        kinds = ir.FunctionType(I64, []), ir.FunctionType(ir.VoidType(), [I64])
        get, set_to = (
            cgutils.get_or_insert_function(b.module, kind, name)
            for kind, name in zip(kinds, ("get_num_threads", "set_num_threads"), strict=True)
        )
        before = b.call(get, [])  # as Numba itself declares it
        b.call(set_to, values)
        return before

    return types.intp(count), codegen
