"""Strategies: what the user fixes before the search begins, written in YAML.

A strategy says, for each mesh axis, where leaves of a role and activations may lie; the search chooses among what is
left. It restricts, it never decides more than it says:

    name: fsdp
    description: parameters and optimizer state split over data
    extends: []                        # other strategies, by name, path or written out; their rules come after these
    mesh: {data: rest}                 # axis: a number, rest (or -1), nodes, per_node, per_node/2; mesh= beats it
    roles:                             # rules by role: parameter, optimizer, batch, other, activation
      parameter: {data: split}
      optimizer: {data: parameter}
      batch: {data: S(0)}
    pins:                              # by path; pins beat rules, and must hold
      "state.params.**.embedding": {data: S(0)}
      "module:decoder/layers_*/mlp": {rank: 3, data: S(0)}

**On an axis** one may say `S(0)`, `S(-1)` (from the last dimension), `B`, one of the words of
`sbpjax.strategy.choice.WORDS` (`free`, `split`, `largest`, `heads`, `kernel`, `parameter`) or a list of alternatives,
`[S(0), S(1)]`.

**A role** has one rule or a list of them; the first that holds and speaks of an axis decides that axis, so that rules
for different axes combine. A rule's filters are `match` (path patterns), `rank` and `shape` (wide, tall, square) for
leaves; `module`, `primitive`, `phase`, `rank` and `residual` for activations. Every other key is a mesh axis. A rule
means "where it divides": elsewhere the leaf is whole on that axis, and the plan lists it. Rules see one layer of a
scanned stack: its leading dimension counts neither for `rank` nor for `S(0)`.

**A pin** that cannot hold is an error that says why. Pins see the whole shape.

Paths have dots, module paths slashes; `*` is any text within one part, `**` any number of parts, `{a,b}` either; a
pattern matches the whole path; after `re:` stands a regular expression.
"""

from sbpjax.strategy.restrictions import Relaxed as Relaxed
from sbpjax.strategy.restrictions import Restrictions as Restrictions
from sbpjax.strategy.strategy import Strategy as Strategy
from sbpjax.strategy.strategy import shipped as shipped
