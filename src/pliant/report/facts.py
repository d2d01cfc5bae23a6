"""What the report shows of an executable: its launches, its kernels, and the times of the last profile.

x = facts_of(f, provenance)
x.steps[0].name, x.times[0].duration
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..loop.stmt import Func
from ..provenance import Provenance
from ..runtime.executable import Executable
from ..support.record import dataclass
from ..sym.expr import Var
from ..sym.typical import typical
from .launches import Step, steps
from .profile import Launch, Limits, Profile, limits


@dataclass(frozen=True, slots=True)
class Facts:
    """The data that the sections of the HTML report are rendered from."""

    f: Executable
    provenance: Provenance
    steps: Sequence[Step]
    numbers: Mapping[Func, int]  # kernel -> its number, in order of first use
    profile: Profile | None
    times: Sequence[Launch | None]  # the measured launch of each step; None without a profile
    machine: Limits | None

    def name(self, func: Func) -> str:
        """Returns the name of a kernel; one that another kernel before it has too gets a number: `matmul (2)`."""
        same = [other for other in self.numbers if other.name == func.name]
        return func.name if func is same[0] else f"{func.name} ({same.index(func) + 1})"

    @property
    def total(self) -> int:
        """The time in all kernels, in nanoseconds; 0 without a profile."""
        return sum(t.duration for t in self.times if t is not None)

    def launched(self) -> Mapping[Func, list[int]]:
        """Returns the launches of each kernel by number; kernels that take the most time come first."""
        found: dict[Func, list[int]] = {func: [] for func in self.numbers}
        for i, step in enumerate(self.steps):
            found[step.func].append(i)
        return dict(sorted(found.items(), key=lambda item: -sum(t.duration for t in self.measured(item[1]))))

    def measured(self, which: Sequence[int]) -> list[Launch]:
        """Returns the measured ones of these launches."""
        return [t for i in which if (t := self.times[i]) is not None]

    def dims(self) -> dict[Var, int]:
        """Returns the values of the dims that the page is drawn for: those of the profiled run, or examples."""
        host = self.provenance.lowered.host
        assert host is not None
        symbols = host.layout.symbols
        dims = typical(symbols)
        if self.profile is not None:
            dims |= {v: self.profile.dims[v.name] for v in symbols if v.name in self.profile.dims}
        return dims


def facts_of(f: Executable, provenance: Provenance) -> Facts:
    """Returns the facts of an executable; launches have times if those of the last profile are known to be theirs."""
    profile = provenance.profiled
    names = [x.kernel for x in profile.launches] if profile is not None else None
    launched = steps(provenance, names)
    numbers = {func: i for i, func in enumerate(dict.fromkeys(s.func for s in launched))}
    fits = names == [s.name for s in launched]
    times: Sequence[Launch | None] = profile.launches if profile is not None and fits else [None] * len(launched)
    machine = limits(profile.threads) if profile is not None else None
    return Facts(f, provenance, launched, numbers, profile, times, machine)
