"""llm42 in a trainer written in PyTorch: weights, tokens and log-probabilities as tensors.

    model = llm42.Model(folder, no_mmap=True)        # its weights may then be written
    engine, scorer = llm42.Engine(model, preset="best"), llm42.Scorer(model)
    weights = llm42_torch.weights(model)             # tensors over the model's memory
    ...                                              # generate; compute `own`, PyTorch's log-probabilities; then
    exact = llm42_torch.logprobs(scorer, ids, own, temperature=0.8)
    loss(exact).backward()                           # exact has llm42's bits, and own gets the gradient
    ...                                              # the optimiser's step; then
    weights["layer.0.q"].copy_(trained)              # for each weight
    engine.reload(), scorer.reload()

README.md beside this file describes it, and sweep/science/rl.py is a whole trainer.
"""
import warnings

import torch

_TYPES = {"uint16": torch.bfloat16, "uint8": torch.float8_e4m3fn, "float32": torch.float32}


def tensor(array):
    """A tensor over an array's memory. Do not write to one over a request's array, although PyTorch would allow it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(array)


def weights(model):
    """Model.weights() as tensors of their types, over the model's memory: writing to them changes the model."""
    arrays = model.weights()
    if not all(array.flags.writeable for array in arrays.values()):  # writing would end the process by SIGSEGV
        raise ValueError(f"{model.path}: its weights are mapped and must not be written, but tensors can be: load it "
                         "with no_mmap=True")
    return {name: tensor(array).view(_TYPES[array.dtype.name]) for name, array in arrays.items()}


class _Exact(torch.autograd.Function):
    @staticmethod
    def forward(context, own, exact):
        return exact.clone()

    @staticmethod
    def backward(context, gradient):
        return gradient, None


def logprobs(scorer, ids, own, **sampling):
    """The scorer's log-probabilities of the last tokens of ids, or of a text; their gradient goes to PyTorch's own.

    own: a tensor [n], float32, of PyTorch's log-probabilities of the last n of the ids, with the same sampling.
    sampling: temperature, top_k, top_p and min_p (default: raw log-probabilities). The result has the bits of
    scorer.score(ids, **sampling), and own's shape and device. Its gradient is handed on to own as it is."""
    ids = scorer.model.ids(ids, "logprobs")
    if own.dim() != 1 or own.dtype != torch.float32 or len(own) >= len(ids):
        raise ValueError(f"own: {own.dtype} {list(own.shape)}: must be float32 [n], with n below the {len(ids)} ids")
    exact = tensor(scorer.score(ids, **sampling).logprobs[len(ids) - len(own):])
    return _Exact.apply(own, exact.to(own.device))
