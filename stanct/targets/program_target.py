"""A program with its data: the density, and the recipes of the generated programs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.deadline import OutOfTime, deadline
from stanct.common.errors import EngineError, ProgramError, SamplingError, shortened
from stanct.common.seeds import stan_seed
from stanct.engines import embedded, homes
from stanct.engines.embedded import CompilerMessageError, DrawBlock, Recipe
from stanct.stan.arithmetic import evaluated, known_numbers
from stanct.stan.between import record_of
from stanct.stan.codegen import generate
from stanct.stan.forms import Block, blocks, in_form
from stanct.stan.guards import without_generated
from stanct.stan.hierarchies import hierarchies
from stanct.stan.mixtures import with_one_component
from stanct.stan.old_syntax import in_new_words
from stanct.stan.omissions import Omission, omissions
from stanct.stan.program import Declaration, Program
from stanct.stan.target_calls import solves_equations
from stanct.targets.bounds import refuse_impossible_bounds
from stanct.targets.constants import added_once
from stanct.targets.data import StanData, explain
from stanct.targets.density import Density
from stanct.targets.lacking import LackingError, lacking, lost_all, may_lose, refuse_losses
from stanct.targets.once import computed_once
from stanct.targets.rejections import refuse_rejection, rejection, users_own
from stanct.targets.rounding import Rounding, rounding
from stanct.targets.spheres import unit_vectors, with_areas
from stanct.work.interrupts import heard

_STANC_PLACE = re.compile(r"line (?P<line>\d+), column (?P<column>\d+)[^\n]*")
_WORD = re.compile(r"[A-Za-z]\w*")
_SECONDS = 5.0
_STANC_EXCERPT = re.compile(r"^\s*-{10,}$.*^\s*-{10,}$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class ProgramTarget:
    """A target given by a Stan program with its data, checked against each other.

    `written` is the program as the user wrote it, where `program` is another form of it, and a
    `flexible` one may be sampled in other forms, with the same posterior and log Z. `made` has the
    arguments of `stanct.temper` that were not its defaults.
    """

    program: Program
    data: StanData = field(repr=False)
    prefix: str = "ct_"
    written: Program | None = field(default=None, repr=False)
    flexible: bool = field(default=False, repr=False)
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def record(self) -> dict[str, Any]:
        """Texts from which `stanct.api.tempering.recorded_target` makes this target again."""
        users = self._users
        return {
            "program": users.expanded,
            "name": users.name,
            "path": users.path,
            "ends": record_of(users.ends),
            "prefix": self.prefix,
            "made": dict(self.made),
            # A program that the user wants non-centred is made so again by `made`.
            "turned": () if "hierarchies" in self.made else self.reparametrised,
            "data": self.data.text,
            "data_origin": self.data.origin,
        }

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """The parameters that a run may sample in another form; empty if it may not.

        Where a scale is a number of the data and that number is 0, the program has no density, and
        its other form would have one.
        """
        found = blocks(self.program) if self.flexible else ()
        return tuple(block for block in found if not self._may_vanish(block))

    def _may_vanish(self, block: Block) -> bool:
        """Whether the data make a scale of a hierarchy 0, or transformed data may do so."""
        words = set() if block.parts is None else set(_WORD.findall(block.parts.scale))
        syntax = self.program.syntax
        if words & {syntax.word(name) for _, name in syntax.declarations("transformed data")}:
            return True
        values = [self.data.values[name] for name in words & set(self.program.data_names)]
        return any(np.any(np.asarray(value, float) == 0) for value in values)

    @property
    def written_centred(self) -> bool:
        """Whether a hierarchy that the user wrote in its centred form is sampled in that form."""
        users = self._users.parameter_names
        return any(one.name in users for one in hierarchies(self.program))

    def in_form(self, turned: Collection[str]) -> ProgramTarget:
        """The same problem, with these of the user's parameters in their other form."""
        if not turned:
            return self
        program = in_form(self.program, turned)
        return replace(self, program=program, written=self._users, flexible=False)

    @property
    def _users(self) -> Program:
        return self.program if self.written is None else self.written

    @property
    def omissions(self) -> tuple[Omission, ...]:
        """What the user's program leaves out, but for parameters that these data make empty."""
        numbers = known_numbers(self._users, self.data.values)
        empty = {
            one.name
            for one in self._users.parameters
            if any(evaluated(size, numbers) == 0 for size in (*one.array_dims, *one.dims))
        }
        found = omissions(self._users, numbers)
        return tuple(o for o in found if not (o.parameters and empty.issuperset(o.parameters)))

    @property
    def reparametrised(self) -> tuple[str, ...]:
        """The user's parameters that the program samples in another form."""
        sampled = self.program.parameter_names
        return tuple(name for name in self._users.parameter_names if name not in sampled)

    def code(self, kind: str, **variant: bool) -> str:
        """Generate the program of one kind; see `generate`."""
        return generate(self.program, kind, prefix=self.prefix, **variant)

    @cached_property
    def density_recipe(self) -> Recipe:
        """Recipe of the density program with the user's data."""
        return self._once(Recipe(self.code("density"), self.data.text))

    @cached_property
    def _once(self) -> Callable[[Recipe], Recipe]:
        return computed_once(self.program, self.data, self.prefix)

    @property
    def density(self) -> Density:
        """The target's log density −φ with all constants.

        Raises `DataError` if Stan rejects the data, `ProgramError` if no number is within the
        bounds of a variable, and `EngineError` if the embedded engine cannot run the generated
        program, although stanc accepts the user's, and there is no CmdStan.
        """
        return self._density

    @cached_property
    def _density(self) -> Density:
        whole = with_areas(self._made(), self.program)
        refuse_impossible_bounds(self._users, self.data, self.prefix, self._once)
        if whole.recipe.home:
            return whole
        own = self._once(Recipe(self.program.expanded, self.data.text))
        return added_once(whole, self.program, own.source)

    @cached_property
    def one_component(self) -> Density | None:
        """The density with one component of the program's mixtures each, which it names.

        One more coordinate, the last, has the component's number, from 1. None where the program
        names no mixture, or the embedded engine cannot run it.
        """
        recipe = self.density_recipe
        source = None if self.by_cmdstan else with_one_component(recipe.source)
        try:
            return None if source is None else Density(replace(recipe, source=source))
        except (CompilerMessageError, ValueError, RuntimeError):  # as for arrays of vectors
            return None

    def refuse_rejection(self, *, failed: bool = False) -> None:
        """Raise an error for a program that Stan rejects everywhere; see `refuse_rejection`."""
        refuse_rejection(self._users, self.data, self.density, failed=failed)

    def _made(self) -> Density:
        try:
            return make_density(self.density_recipe, self.program, self.data)
        except LackingError:
            home = homes.find()
            if home is None:
                raise
            recipe = replace(self.density_recipe, home=str(home.path))
            return make_density(recipe, self.program, self.data)

    @property
    def by_cmdstan(self) -> bool:
        """Whether CmdStan compiles the density, because the embedded engine cannot run it."""
        return bool(self.density.recipe.home)

    def unconstrain(self, block: DrawBlock, chain: int, rng: np.random.Generator) -> Array:
        """Return the unconstrained points of one chain of the density program, shape (draws, D).

        Draws that the transform cannot invert, such as a bound reached by rounding, are left out.
        """
        return self.unconstrained_rows(block, chain, rng)[0]

    def unconstrained_rows(
        self, block: DrawBlock, chain: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """The points of `unconstrain`, and of which draws of the chain they are, shape (m,).

        The length of an unconstrained unit vector is not in the draws and is independent of its
        direction. It is drawn from its distribution, that of the length of a standard normal
        vector.
        """
        columns = []
        width, wanted = 0, len(self.density.names)
        for every_chain in block.variables.values():
            if width == wanted:
                break
            values = every_chain[chain]
            # The first index is the fastest in Stan's flat order.
            flat = values.transpose(0, *range(values.ndim - 1, 0, -1))
            elements = math.prod(values.shape[1:])
            columns.append(flat.reshape(len(values), elements))
            width += elements
        found, failed = self.density.unconstrained(np.concatenate(columns, axis=1))
        x = found[~failed]
        for index in self._unit_vectors:
            direction = x[:, index]
            length = np.sqrt(rng.chisquare(len(index), size=(len(x), 1)))
            x[:, index] = direction / np.linalg.norm(direction, axis=1, keepdims=True) * length
        return x, np.flatnonzero(~failed)

    @property
    def parameter_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the program's parameters that have elements, in the order of declaration."""
        shapes: dict[str, tuple[int, ...]] = {}
        for flat in self.density.names:
            name, *index = flat.split(".")
            place = tuple(map(int, index))
            shapes[name] = tuple(map(max, shapes[name], place)) if name in shapes else place
        return shapes

    @cached_property
    def _unit_vectors(self) -> list[list[int]]:
        """Positions of each unit vector in the unconstrained vector."""
        return unit_vectors(self.program, self.density.unconstrained_names)

    @cached_property
    def solves_equations(self) -> bool:
        """Whether the program calls a solver, so that its density may be slow far away."""
        return solves_equations(self._users)

    @property
    def may_round(self) -> bool:
        """Whether a parameter may come so near to a bound that it rounds to it."""
        return any(_may_round(parameter) for parameter in self.program.parameters)

    def rounding(self, x: Array, log_weights: Array) -> Rounding | None:
        """What rounding hides of the posterior, by weighted draws x, shape (n, D)."""
        places = [place for vector in self._unit_vectors for place in vector]
        return rounding(self._plain, x, log_weights, np.array(places, int))

    @property
    def programs(self) -> dict[str, str]:
        """The generated program whose density Python samplers evaluate, by kind."""
        return {"density": self.code("density")}

    @property
    def data_text(self) -> str:
        """JSON text of the data."""
        return self.data.text

    @property
    def unused_data(self) -> tuple[str, ...]:
        """Names of the variables of the data that the program does not declare."""
        return self.data.unused(self.program)

    @property
    def origin(self) -> dict[str, Any]:
        """Provenance of program and data."""
        return {
            "program": self.program.label,
            "parameters": list(self._users.parameter_names),
            "program_sha256": self._users.source_hash,
            "from_text": self._users.path is None,
            "source": self._users.expanded,
            "ends": record_of(self._users.ends),
            "prefix": self.prefix,
            "reparametrised": list(self.reparametrised),
            "tempered": dict(self.made),
            "data_names": list(self.program.data_names),
            "unused_data": list(self.unused_data),
            "data_origin": self.data.origin,
            "data_sha256": self.data.sha256,
            "omissions": [omission.record() for omission in self.omissions],
        }

    def variables(self, x: Array, seed: np.random.SeedSequence) -> dict[str, Array]:
        """Compute the program's variables at unconstrained points, shape (chains, draws, D).

        The seed is for the random numbers in generated quantities.
        """
        return self.user_variables(self.density.variables(x, seed=stan_seed(seed)))

    def in_turn(self, seed: np.random.SeedSequence) -> Callable[[Array], dict[str, Array]]:
        """Return what computes the variables of rows of draws, shape (n, D), call by call.

        Random numbers in generated quantities go on from call to call.
        """
        compute = self.density.in_turn(stan_seed(seed))
        return lambda x: self.user_variables(compute(x))

    def without_generated(self, x: Array) -> dict[str, Array]:
        """Compute parameters and transformed parameters at points, shape (chains, draws, D)."""
        return self.user_variables(self._plain.variables(x, seed=1))

    @cached_property
    def _plain(self) -> Density:
        """The density without generated quantities, which the engine computes with any variable."""
        recipe = self.density.recipe
        return Density(replace(recipe, source=without_generated(recipe.source)))

    @property
    def variable_names(self) -> tuple[str, ...]:
        """Names of the user's parameters, transformed parameters and generated quantities."""
        return tuple(self.user_variables(dict.fromkeys(self.density.variable_names)))

    @property
    def variable_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the variables of `variable_names` in one draw."""
        return self.user_variables(self.density.variable_shapes)

    def user_variables(self, variables: dict[str, Any]) -> dict[str, Any]:
        """The draws under the user's own names, parameters first."""
        ours = set(self.program.parameter_names) - self._users.variable_names
        parameters = [name for name in self._users.parameter_names if name in variables]
        return {
            name: variables[name]
            for name in dict.fromkeys((*parameters, *variables))
            if not name.startswith(self.prefix) and name not in ours
        }


def _may_round(parameter: Declaration) -> bool:
    # Distances from zero are exact.
    lower = parameter.constraints.get("lower", "0")
    if parameter.type in ("unit_vector", "sum_to_zero_vector", "sum_to_zero_matrix"):
        return False
    if parameter.type in ("real", "vector", "row_vector", "matrix"):
        return "upper" in parameter.constraints or lower not in ("0", "0.0")
    return True


def make_density(recipe: Recipe, program: Program, data: StanData) -> Density:
    """Build a density; Stan's errors are translated into the user's terms."""
    try:
        if not recipe.home and may_lose(program):
            refuse_losses(program, recipe)
        density = Density(recipe)
        if not recipe.home and lost_all(program, density.variable_names):
            refuse_losses(program, recipe)
    except CompilerMessageError as cause:
        raise _unacceptable(program, cause) from cause
    except (ValueError, RuntimeError) as cause:
        message = str(cause)
        found = lacking(program, message)
        if found is None and users_own(program, message) is not None:
            found = rejection(program, message, " in the transformed data", data)
        raise found or explain(message, program, data) from cause
    if density.dimension == 0:
        raise SamplingError(
            f"With {data.origin}, {program.label} has no unconstrained parameters.",
            remedy="Check the sizes in the data.",
        )
    return density


@contextmanager
def naming_causes(target: Any) -> Iterator[None]:
    """Let the cause be the error where a fit to a program failed in the body.

    The cause is a program that Stan rejects everywhere, which is looked for during a few seconds.
    """
    try:
        yield
    except EngineError as error:
        if isinstance(target, ProgramTarget):
            try:
                with deadline(_SECONDS):
                    heard(partial(target.refuse_rejection, failed=True))
            except ProgramError as cause:
                raise cause from error
            except OutOfTime:
                pass
        raise


def check_program(program: Program) -> None:
    """Check the user's program with stanc; its message becomes a `ProgramError` with its place."""
    try:
        embedded.compile_program(program.expanded)
    except CompilerMessageError as cause:
        raise _placed(program, str(cause)) from cause


def _placed(program: Program, message: str) -> ProgramError:
    """Find the place that stanc reports in the user's own file, which may be an included one."""
    place = _STANC_PLACE.search(message)
    if place is None:
        return ProgramError(
            f"Stan does not accept this program.\n{message}",
            path=program.label,
            remedy="Correct the program; the message above is Stan's own.",
        )
    lines = program.expanded.split("\n")
    line = min(int(place["line"]), len(lines))
    # stanc counts columns in bytes.
    column = len(lines[line - 1].encode()[: int(place["column"])].decode(errors="ignore"))
    offset = sum(len(text) + 1 for text in lines[: line - 1]) + column
    words = " ".join(_STANC_EXCERPT.sub(" ", message[place.end() :]).split())
    if new := in_new_words(program.expanded, offset, words):
        return program.syntax.source.error(offset, new)
    words = shortened(words, 600)
    return program.syntax.source.error(offset, f"Stan does not accept this: {words}")


def check_generated(program: Program, code: str) -> None:
    """Check a generated program with stanc."""
    try:
        embedded.compile_program(code)
    except CompilerMessageError as cause:
        raise _unacceptable(program, cause) from cause


def _unacceptable(program: Program, cause: CompilerMessageError) -> EngineError:
    check_program(program)
    return EngineError(
        f"{program.label} is legal Stan, but the program generated from it is not:\n{cause}",
        remedy="This is a fault of stanct; please report it with the program.",
    )
