"""The kernel that sorts the (token, expert) pairs of a step by expert, so that each expert's weights are read once for all its tokens.

    route = routing(experts=128, used=8)
    starts, token, expert, place = route(chosen)       # chosen: i32[t, used]

Pairs of an expert are in the order of their tokens. `token` and `expert` are those of each sorted pair, `place[i, k]` is where the pair of
token i and its k-th choice is, and the pairs of expert x are `starts[x] .. starts[x + 1]`.
"""

# Annotations of kernels are computed values here, which mypy does not accept as types.
# mypy: disable-error-code="valid-type,index"

from __future__ import annotations

import functools
from typing import Any

from .. import Out, Tensor, alloc, cast, check, i32, i64, kernel
from .paged import t


@functools.cache
def routing(experts: int, used: int) -> Any:
    """Returns the kernel that sorts by expert, for a model with `experts` experts of which each token uses `used`; cached."""
    EXPERTS, USED = experts, used

    @kernel(scheduled=True)
    def route(
        chosen: Tensor[i32, t, USED],
        starts: Out[i32, EXPERTS + 1],
        token: Out[i32, t * USED],
        expert: Out[i32, t * USED],
        place: Out[i32, t, USED],
    ) -> None:
        """Sorts the pairs with a counting sort, which is stable; fails at run time if `chosen` names an expert that does not exist."""
        next_place = alloc((EXPERTS,), i64, scope="stack")
        for x in range(EXPERTS):
            next_place[x] = 0
        for i in range(t):
            for k in range(USED):
                own = cast(i64, chosen[i, k])
                check(own >= 0 and own < EXPERTS, "token {0} is for expert {1}, there are {2}", i, own, EXPERTS)
                next_place[own] = next_place[own] + 1
        total = alloc((1,), i64, scope="stack")
        total[0] = 0
        for x in range(EXPERTS):
            count = next_place[x]
            starts[x] = cast(i32, total[0])
            next_place[x] = total[0]
            total[0] = total[0] + count
        starts[EXPERTS] = cast(i32, t * USED)
        for i in range(t * USED):
            token[i] = cast(i32, 0)
            expert[i] = cast(i32, 0)
        for i in range(t):
            for k in range(USED):
                own = cast(i64, chosen[i, k])
                check(own >= 0 and own < EXPERTS, "token {0} is for expert {1}, there are {2}", i, own, EXPERTS)
                at = next_place[own]
                check(at >= 0 and at < t * USED, "there are more pairs than {0}", t * USED)
                token[at] = cast(i32, i)
                expert[at] = cast(i32, own)
                place[i, k] = cast(i32, at)
                next_place[own] = at + 1

    return route
