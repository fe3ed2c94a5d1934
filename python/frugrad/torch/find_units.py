"""The units of a model that can be pruned as a whole, found in the model itself.

Channels and neurons: ``torch.fx`` records which operation reads what. The outputs of a convolution or linear layer are
followed through batch norms, activations, dropout, pooling and flattening, to the one layer that reads them. Anything
else that has them as an input (a sum, a norm across channels, a second layer, the output of the model) means that they
are no layer, in training or in evaluation. A module that cannot be traced is one operation in the graph of the module
around it, and its parts are traced one by one. Attention heads are found by the names of an attention module's parts.
"""

import inspect
from collections import Counter
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import torch
import torch.fx as fx
import torch.nn as nn

from .roles import NAMES, attention_heads, is_conv1d
from .sparse_units import UnitLayer, UnitSlice, inputs, make_layer, outputs

_CONVS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_ONE_BY_ONE = ("relu", "relu6", "leakyrelu", "elu", "celu", "selu", "gelu", "silu", "mish", "softplus", "softsign", "tanh",
               "sigmoid", "logsigmoid", "hardtanh", "hardswish", "hardsigmoid", "hardshrink", "softshrink", "tanhshrink",
               "threshold", "rrelu", "dropout", "dropout1d", "dropout2d", "dropout3d", "alphadropout", "featurealphadropout",
               "identity", "pow", "square", "abs", "exp", "erf", "neg", "clamp", "contiguous", "float", "half",
               "add", "iadd", "sub", "isub", "mul", "imul", "truediv", "div")
_POOLS = ("max", "avg", "lp", "adaptiveavg", "adaptivemax")
_SIZES = ("size", "dim", "len", "getattr", "numel")  # these read shapes, no values
_QKV = ("c_attn", "qkv")  # all queries, all keys, all values; query_key_value has them head by head
_SEPARATE = tuple(zip(NAMES["attn_q"], NAMES["attn_k"], NAMES["attn_v"]))
_OUT = ("c_proj", "proj", *NAMES["attn_o"])


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _name(node: fx.Node) -> str:
    """The name of a function or method, without underscores; of other nodes empty."""
    if node.op not in ("call_function", "call_method"):
        return ""
    return _plain(node.target if isinstance(node.target, str) else getattr(node.target, "__name__", ""))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_plain(module: nn.Module) -> bool:
    """Whether a convolution or linear layer has weights of its own, without groups."""
    return getattr(module, "groups", 1) == 1 and isinstance(module._parameters.get("weight"), nn.Parameter)


def _is_linear(module: Optional[nn.Module]) -> bool:
    return module is not None and (type(module) is nn.Linear or is_conv1d(module)) and _is_plain(module)


def _has_hooks(module: nn.Module) -> bool:
    """Whether a call of the module runs more than its forward(): that is not in a graph."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in module.__dict__)


# ---- graphs

class _Tracer(fx.Tracer):
    """Traces a model in which modules of some types, and those with hooks, are single operations."""

    proxy_buffer_attributes = True  # code that changes a buffer must not do so now

    def __init__(self, whole: Set[type], given: bool):
        super().__init__()
        self.whole, self.given = whole, given
        self.optional: List[str] = []
        self.failed: Optional[type] = None  # the type of the innermost module whose code cannot be traced

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        single = type(m) in self.whole or is_conv1d(m) or _has_hooks(m)
        return single or super().is_leaf_module(m, module_qualified_name)

    def create_args_for_root(self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None) -> Any:
        """The call that is traced: without *args and **kwargs; unless given, arguments behind the first may be None."""
        arguments = list(inspect.signature(root_fn).parameters.values())[1:]
        named = [a for a in arguments if a.kind not in (a.VAR_POSITIONAL, a.VAR_KEYWORD)]
        self.optional = [a.name for a in named[1:] if a.default is None]
        left_out = [] if self.given else self.optional
        values = {a.name: None if a.name in left_out else self.create_proxy("placeholder", a.name, (), {}) for a in named}
        return lambda module: root_fn(module, **values), [self.root]

    def call_module(self, m: nn.Module, forward: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            self.failed = self.failed or type(m)
            raise


def _trace(module: nn.Module, whole: Set[type], given: bool) -> Optional[fx.Graph]:
    """The graph of a module, with optional arguments given or, if its code can do so, without them; None: its own code
    cannot be traced. Adds types of modules inside that cannot to whole."""
    while True:
        tracer = _Tracer(whole, given)
        try:
            return tracer.trace(module)
        except Exception:  # noqa: BLE001  whatever the code of a model does when its inputs have no numbers
            if tracer.failed is not None and tracer.failed not in whole:
                whole.add(tracer.failed)
            elif given or not tracer.optional:
                return None
            else:
                given = True


def _called_parts(module: nn.Module) -> Iterator[Tuple[str, nn.Module]]:
    """The parts of a module that cannot be traced. Its code may call those of a Sequential one by one, and use what is
    between them."""
    for name, child in module.named_children():
        if type(child) is nn.Sequential and not isinstance(module, (nn.Sequential, nn.ModuleList, nn.ModuleDict)):
            yield from ((f"{name}.{own}", part) for own, part in child.named_children())
        else:
            yield name, child


def _graphs(module: nn.Module, path: str, whole: Set[type], given: bool) -> List[Tuple[str, fx.Graph]]:
    """The graph of a module, and those of parts that are single operations in it."""
    graph = _trace(module, whole, given)
    if graph is None:
        parts = list(_called_parts(module))
        return [found for name, part in parts for found in _graphs(part, f"{path}{name}.", whole, given)]
    names = [str(node.target) for node in graph.nodes if node.op == "call_module"]
    parts = [(name, module.get_submodule(name)) for name in names]
    single = [(name, part) for name, part in parts if type(part) in whole or _has_hooks(part)]
    inside = [found for name, part in single for found in _graphs(part, f"{path}{name}.", whole, given)]
    return [(path, graph), *inside]


@contextmanager
def _unchanged(model: nn.Module) -> Iterator[None]:
    """What the code of a model stores in attributes, lists and dicts meanwhile is no tensor, and is forgotten."""
    attributes = [module.__dict__ for module in model.modules()]
    inside = [value for each in attributes for value in each.values() if isinstance(value, (dict, list))]
    before = [(store, store.copy()) for store in (*attributes, *inside)]
    try:
        yield
    finally:
        for store, content in before:
            store.clear()
            store.update(content) if isinstance(store, dict) else store.extend(content)


def _trace_parts(model: nn.Module, training: bool) -> List[Tuple[str, fx.Graph]]:
    """The graphs of a model, in training with all arguments, or in evaluation without those that are optional."""
    with _unchanged(model), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)  # layers that are left out at random are the same ones on all ranks
        for module in model.modules():
            module.training = training
        return _graphs(model, "", set(), given=training)


# ---- channels and neurons

def _is_smooth_at_zero(node: fx.Node, name: str) -> bool:
    """Whether the function is finite, with its gradient, for the zeros of pruned units: no x / y, 1 / x or x ** 0.5."""
    second = node.args[1] if len(node.args) > 1 else None
    if name == "pow":
        return isinstance(second, (int, float)) and second >= 1
    return name not in ("truediv", "div") or isinstance(second, (int, float))


class _Units:
    """Outputs that have the same units, and what reads them."""

    def __init__(self, maker: str, dims: int):
        self.makers: List[str] = [maker]
        self.readers: List[str] = []
        self.dims = dims  # number of pixel axes; 0: a linear layer
        self.lost = False
        self.fixed = False  # the code of the model has their number


class _Flow(NamedTuple):
    """The value of a node: units along its axis 1 (maps and flat), or along its last axis."""

    units: _Units
    form: str  # maps, flat or last


class _Graph:
    """Follows the units through the nodes of one graph."""

    def __init__(self, graph: fx.Graph, path: str, modules: Mapping[str, nn.Module]):
        self.path, self.modules = path, modules
        self.calls = Counter(node.target for node in graph.nodes if node.op == "call_module")
        self.flows: Dict[fx.Node, _Flow] = {}
        self.units: List[_Units] = []
        for node in graph.nodes:
            flows = [self.flows[n] for n in node.all_input_nodes if n in self.flows]
            out = self._module(node, flows) if node.op == "call_module" else self._function(node, flows) if flows else None
            if out is not None:
                self.flows[node] = out
        self.used = {(path + str(node.target)).rpartition(".")[0] for node in graph.nodes
                     if node.op == "get_attr" and node.users}
        self.layers = [((*u.makers, u.readers[0]), u.fixed) for u in self.units if not u.lost and len(u.readers) == 1]

    def _lose(self, flows: Iterable[_Flow]) -> None:
        for flow in flows:
            flow.units.lost = True

    def _module(self, node: fx.Node, flows: List[_Flow]) -> Optional[_Flow]:
        name = self.path + str(node.target)
        module, kind = self.modules[name], _plain(type(self.modules[name]).__name__)
        once = self.calls[node.target] == 1 and not _has_hooks(module)
        conv = type(module) in _CONVS and _is_plain(module)
        if (conv or _is_linear(module)) and once:
            for flow in flows:
                if (flow.form == "maps") == conv:
                    flow.units.readers.append(name)
                else:
                    flow.units.lost = True
            self.units.append(_Units(name, module.weight.dim() - 2 if conv else 0))
            return _Flow(self.units[-1], "maps" if conv else "last")
        if type(module) in _BATCH_NORMS and once and flows and self._has_units(module, flows[0]):
            flows[0].units.makers.append(name)
            return flows[0]
        if not flows:
            return None
        start = getattr(module, "start_dim", None), getattr(module, "end_dim", None)
        known = type(module).__module__.startswith("torch.nn") and not _has_hooks(module)
        return self._pass_on(node, kind if known else "", flows, start)

    def _has_units(self, norm: nn.Module, flow: _Flow) -> bool:
        """Whether a norm has a channel for each unit, or for each of its pixels."""
        units = outputs(self.modules[flow.units.makers[0]])
        return outputs(norm) == units or (flow.form == "flat" and outputs(norm) % units == 0)

    def _is_batch(self, size: Any) -> bool:
        """Whether the first size of a view is the number of samples: -1, size(0) or shape[0]."""
        if isinstance(size, fx.Node):
            return _name(size) in ("size", "getitem") and size.args[1:] == (0,)
        return bool(size == -1)

    def _function(self, node: fx.Node, flows: List[_Flow]) -> Optional[_Flow]:
        name = _name(node)
        if name in _SIZES and not (name == "getattr" and node.args[1] not in ("shape", "ndim", "dtype", "device")):
            flows[0].units.fixed |= self._reads_number(node, name, flows[0])
            return None
        arguments: Dict[Any, Any] = {**dict(enumerate(node.args[1:])), **node.kwargs}
        start = arguments.get(0, arguments.get("start_dim", 0)), arguments.get(1, arguments.get("end_dim", -1))
        sizes = node.args[1] if len(node.args) == 2 and isinstance(node.args[1], (tuple, list)) else node.args[1:]
        if name in ("view", "reshape") and flows[0].form == "maps" and len(sizes) == 2 and self._is_batch(sizes[0]):
            flows[0].units.fixed |= sizes[1] != -1
            return flows[0]._replace(form="flat")
        if name == "mean" and flows[0].form == "maps":
            return self._mean(flows[0], arguments)
        return self._pass_on(node, name, flows, start)

    def _reads_number(self, node: fx.Node, name: str, flow: _Flow) -> bool:
        """Whether the code may get the number of units from a size, other than that of samples or pixels."""
        if name in ("dim", "len") or (name == "getattr" and node.args[1] != "shape"):
            return False
        if name == "size" and len(node.args) > 1:
            indices = [node.args[1]]
        else:
            indices = [user.args[1] if _name(user) == "getitem" else None for user in node.users
                       if user.users or _name(user) != "getitem"]
        dims = flow.units.dims if flow.form == "maps" else 0
        pixels = (*range(2, 2 + dims), *range(-dims, 0))
        others = (0, *pixels, *(slice(axis, None) for axis in pixels))
        return any(index not in others for index in indices)

    def _mean(self, flow: _Flow, arguments: Mapping[Any, Any]) -> Optional[_Flow]:
        """The mean of all pixels."""
        axes = arguments.get(0, arguments.get("dim"))
        axes = [axes] if isinstance(axes, int) else axes if isinstance(axes, (tuple, list)) else []
        dims = flow.units.dims
        if sorted(axis % (dims + 2) for axis in axes) == list(range(2, dims + 2)):
            return flow._replace(form="maps" if arguments.get(1, arguments.get("keepdim")) else "flat")
        flow.units.lost = True
        return None

    def _pass_on(self, node: fx.Node, name: str, flows: List[_Flow], start: Sequence[Any]) -> Optional[_Flow]:
        """What an operation leaves of the units; None: nothing, they are lost."""
        first, forms = flows[0], {flow.form for flow in flows}
        known = len(flows) == len(node.all_input_nodes) and len(forms) == 1
        pools = (*(f"{kind}pool{first.units.dims}d" for kind in _POOLS), "upsample", "interpolate")
        if known and first.form == "maps" and name in pools:
            return first
        if known and name == "flatten" and first.form == "maps" and tuple(start) == (1, -1):
            return first._replace(form="flat")
        if known and name in _ONE_BY_ONE and _is_smooth_at_zero(node, name):
            if all(flow.units is first.units for flow in flows):
                return first
            if name == "mul" and len({outputs(self.modules[f.units.makers[0]]) for f in flows}) == 1:
                return self._gate(*flows)
        self._lose(flows)
        return None

    def _gate(self, a: _Flow, b: _Flow) -> _Flow:
        """The product of two outputs, unit by unit: both make the units."""
        a.units.makers += b.units.makers
        a.units.readers += b.units.readers
        a.units.lost |= b.units.lost
        a.units.fixed |= b.units.fixed
        self.units.remove(b.units)
        for node, flow in self.flows.items():
            if flow.units is b.units:
                self.flows[node] = flow._replace(units=a.units)
        return a


def _is_alone(block: str, name: str, graphs: Sequence[_Graph]) -> bool:
    """Whether only the code of a block calls a module and uses its weights."""
    around = [graph for graph in graphs if not graph.path.startswith(_join(block, ""))]
    return not any(name in graph.used or name in {graph.path + str(call) for call in graph.calls} for graph in around)


def _find_feed_forward(modules: Mapping[str, nn.Module], graphs: Sequence[_Graph]) -> Dict[Tuple[str, ...], bool]:
    """The neurons of transformer layers of torch.nn, which are single operations in a graph."""
    found: Dict[Tuple[str, ...], bool] = {}
    for path, module in modules.items():
        if type(module) not in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer) or not _has_plain_activation(module):
            continue
        names = _join(path, "linear1"), _join(path, "linear2")
        plain = all(_is_linear(modules[name]) and _is_alone(path, name, graphs) for name in names)
        if plain and not any(_has_hooks(part) for part in (module.linear1, module.linear2, module.dropout)):
            found[names] = False
    return found


def _find_channels(model: nn.Module, modules: Mapping[str, nn.Module], training: bool) -> Dict[Tuple[str, ...], bool]:
    """The modules of each layer, of which the last one reads the units, and whether their number is in the code."""
    graphs = [_Graph(graph, path, modules) for path, graph in _trace_parts(model, training)]
    calls = Counter(graph.path + str(target) for graph in graphs for target in graph.calls)
    used = {name for graph in graphs for name in graph.used}
    found = {names: fixed for graph in graphs for names, fixed in graph.layers
             if all(calls[name] == 1 and name not in used for name in names)}
    return {**found, **_find_feed_forward(modules, graphs)}


def _channels(model: nn.Module, modules: Mapping[str, nn.Module]) -> List[UnitLayer]:
    found, other = (_find_channels(model, modules, training) for training in (True, False))
    found = {names: fixed or other[names] for names, fixed in found.items() if names in other}
    layers = []
    for names, fixed in found.items():
        try:
            layers.append(make_layer(modules, names[:-1], names[-1], fixed=fixed))
        except ValueError:  # sizes that are no multiple of the units: something else was between them
            continue
    return layers


def _has_plain_activation(module: nn.Module) -> bool:
    """Whether the activation of a layer of torch.nn is one of PyTorch that computes each neuron by itself."""
    function = module.activation
    return _plain(getattr(function, "__name__", type(function).__name__)) in _ONE_BY_ONE


# ---- heads

def _torch_heads(path: str, module: nn.MultiheadAttention) -> UnitLayer:
    """Heads of torch.nn.MultiheadAttention."""
    slices = []
    for name, axis, parts, scored in (("in_proj_weight", 0, 3, True), ("q_proj_weight", 0, 1, False),
                                      ("k_proj_weight", 0, 1, False), ("v_proj_weight", 0, 1, True),
                                      ("in_proj_bias", 0, 3, False), ("bias_k", 2, 1, False), ("bias_v", 2, 1, False)):
        if getattr(module, name) is not None:
            slices.append(UnitSlice(_join(path, name), axis, parts, module.head_dim, scored))
    reads = UnitSlice(_join(path, "out_proj.weight"), 1, 1, module.head_dim, True, True)
    return UnitLayer(module.num_heads, (*slices, reads), True)


def _parts(path: str, modules: Mapping[str, nn.Module]) -> Optional[Tuple[List[str], str]]:
    """The modules that make queries, keys and values of an attention module, and the one that reads the heads."""
    readers = [_join(path, name) for name in _OUT] + [_join(path.rpartition(".")[0], "output.dense")]
    reader = next((name for name in readers if _is_linear(modules.get(name))), None)
    for names in (*((name,) for name in _QKV), *_SEPARATE):
        makers = [_join(path, name) for name in names]
        if reader is not None and all(_is_linear(modules.get(name)) for name in makers):
            wanted = 3 * inputs(modules[reader])  # not so with fewer heads of keys and values
            if all(len(makers) * outputs(modules[name]) == wanted for name in makers):
                return makers, reader
    return None


def _heads(modules: Mapping[str, nn.Module], skip: Sequence[str]) -> List[UnitLayer]:
    layers = []
    for path, module in modules.items():
        if isinstance(module, nn.MultiheadAttention):
            layers.append(_torch_heads(path, module))
            continue
        parts = _parts(path, modules)
        if parts is None or any(part in f"{name}." for name in (*parts[0], parts[1]) for part in skip):
            continue
        heads = attention_heads(module)
        if heads == 0:
            raise ValueError(f"Sparsify: {path or 'the model'} has the parts of attention ({', '.join(parts[0])},"
                             f" {parts[1]}), but no attribute num_heads. Give it one, or the layers as units=,"
                             f" or skip={[parts[1]]!r}")
        layers.append(make_layer(modules, *parts, heads))
    return layers


# ---- both

def find_layers(model: nn.Module, kind: str, skip: Sequence[str] = ()) -> List[UnitLayer]:
    """The layers of channels, heads or units (both); without those that share tensors or have frozen or skipped ones."""
    modules = dict(model.named_modules(remove_duplicate=False))
    uses = Counter(id(p) for m in modules.values() for p in m._parameters.values())
    free = {name for name, p in model.named_parameters()
            if p.requires_grad and uses[id(p)] == 1 and not any(part in name for part in skip)}
    free |= {name for name, _ in model.named_buffers()}
    found = _channels(model, modules) if kind != "heads" else []
    found += _heads(modules, skip) if kind != "channels" else []
    return [layer for layer in found if all(s.name in free for s in layer.slices)]
