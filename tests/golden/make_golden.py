"""Makes the golden files beside this script: what PyTorch and Hugging Face compute, for ours to be held against.

    pip install torch transformers        (made with torch 2.13 and transformers 5.24)
    python tests/golden/make_golden.py

Everything is f32 (tokens and targets i64), computed on one CPU thread, in safetensors files that hold:

gpt2_weights.safetensors    the weights under Hugging Face's names (linear weights (in, out); lm_head is wte)
gpt2_golden.safetensors
    tokens, targets    (11, 4, 16)     eleven batches
    logits             (4, 16, 97)     of batch 0
    loss               ()              of batch 0: mean cross-entropy
    grad.<name>                        of that loss, one for each weight, under its name
    losses             (11)            AdamW: losses[i] is the loss of batch i after i updates (on batches 0 … i-1)
    losses_clip        (11)            the same with the gradient's global norm clipped to 0.5 in each step
    norms              (10)            that norm before clipping
  The model: 2 layers, 2 heads, width 32, context 16, vocabulary 97, tanh GELU, LayerNorm eps 1e-5, no dropout.
  AdamW: lr 1e-3, betas 0.9 and 0.95, eps 1e-8, weight decay 0.1 on weights of two dimensions and 0 on the others.
ops_golden.safetensors      single ops, <op>.<name>: inputs, d<output> as given to backward, outputs, d<input>
    gelu_tanh, gelu_erf, silu    x (3, 37) → y
    softmax     x (5, 19) → y, over the last dimension
    layernorm   x (3, 5, 24), gain, bias (24) → y; eps 1e-5
    rmsnorm     x (3, 5, 24), gain (24) → y; eps 1e-5
    attention   q, k, v (2, 2, 7, 8) → o (batch, head, position, feature), causal, scores scaled by 1/√8
    attention_full                     the same without the mask
    cross_entropy                      logits (6, 11), targets (6) → loss (), the mean
    embedding   table (9, 6), ids (2, 5) → y (2, 5, 6)
    rotary      x (2, 2, 7, 8) → y: position t turns the pair (x[i], x[i + 4]) by t · 10000^(-2i/8), as Llama does
"""
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

here = pathlib.Path(__file__).parent
torch.set_num_threads(1)
layers, heads, width, context, vocab, batch, updates = 2, 2, 32, 16, 97, 4, 10


def gpt2():
    """The model; biases and norms are disturbed too, so that no gradient and no path is trivial."""
    torch.manual_seed(1)
    model = GPT2LMHeadModel(GPT2Config(
        n_layer=layers, n_head=heads, n_embd=width, n_positions=context, vocab_size=vocab,
        activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager",
        bos_token_id=0, eos_token_id=0))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model


def loss_of(model, tokens, targets):
    logits = model(tokens).logits
    return logits, F.cross_entropy(logits.view(-1, vocab), targets.view(-1))


def adamw_losses(tokens, targets, clip):
    model = gpt2()
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [p for p in parameters if p.dim() == 2], "weight_decay": 0.1},
         {"params": [p for p in parameters if p.dim() != 2], "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for step in range(updates + 1):
        _, loss = loss_of(model, tokens[step], targets[step])
        losses.append(loss.detach())
        if step == updates:
            break
        optimizer.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, clip))
        optimizer.step()
    return torch.stack(losses), torch.stack(norms)


def make_gpt2():
    model = gpt2()
    torch.manual_seed(2)
    text = torch.randint(0, vocab, (updates + 1, batch, context + 1))
    tokens, targets = text[..., :-1].contiguous(), text[..., 1:].contiguous()
    logits, loss = loss_of(model, tokens[0], targets[0])
    loss.backward()
    golden = {"tokens": tokens, "targets": targets, "logits": logits.detach(), "loss": loss.detach()}
    golden |= {f"grad.{name}": parameter.grad for name, parameter in model.named_parameters()}
    golden["losses"], _ = adamw_losses(tokens, targets, float("inf"))
    golden["losses_clip"], golden["norms"] = adamw_losses(tokens, targets, 0.5)
    save_file({name: p.detach() for name, p in model.named_parameters()}, here / "gpt2_weights.safetensors")
    save_file(golden, here / "gpt2_golden.safetensors")
    print("loss", loss.item(), "losses", golden["losses"].tolist(), "norms", golden["norms"].tolist())


def rotary(x):
    positions, width_ = torch.arange(x.shape[-2], dtype=torch.float32), x.shape[-1]
    angles = torch.outer(positions, 10000.0 ** (-torch.arange(0, width_, 2, dtype=torch.float32) / width_))
    angles = torch.cat((angles, angles), -1)[None]
    return apply_rotary_pos_emb(x, x, angles.cos(), angles.sin())[0]


def make_ops():
    torch.manual_seed(3)
    golden = {}

    def add(op, function, inputs, output="y", fixed=()):
        """Records one op: `inputs` get gradients, `fixed` (name, tensor) are passed on behind them."""
        inputs = {name: tensor.requires_grad_() for name, tensor in inputs.items()}
        out = function(*inputs.values(), *(tensor for _, tensor in fixed))
        given = torch.randn(out.shape) if out.dim() else torch.ones(())
        out.backward(given)
        tensors = {output: out, f"d{output}": given, **dict(fixed), **inputs}
        tensors |= {f"d{name}": tensor.grad for name, tensor in inputs.items()}
        golden.update({f"{op}.{name}": tensor.detach().contiguous().clone() for name, tensor in tensors.items()})

    add("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), {"x": 2 * torch.randn(3, 37)})
    add("gelu_erf", F.gelu, {"x": 2 * torch.randn(3, 37)})
    add("silu", F.silu, {"x": 2 * torch.randn(3, 37)})
    add("softmax", lambda x: F.softmax(x, -1), {"x": 3 * torch.randn(5, 19)})
    add("layernorm", lambda x, gain, bias: F.layer_norm(x, (24,), gain, bias, 1e-5),
        {"x": 1 + 2 * torch.randn(3, 5, 24), "gain": torch.randn(24), "bias": torch.randn(24)})
    add("rmsnorm", lambda x, gain: F.rms_norm(x, (24,), gain, 1e-5),
        {"x": 1 + 2 * torch.randn(3, 5, 24), "gain": torch.randn(24)})
    for op, causal in (("attention", True), ("attention_full", False)):
        add(op, lambda q, k, v, causal=causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
            {name: torch.randn(2, 2, 7, 8) for name in "qkv"}, "o")
    add("cross_entropy", F.cross_entropy, {"logits": 3 * torch.randn(6, 11)}, "loss",
        (("targets", torch.randint(0, 11, (6,))),))
    add("embedding", lambda table, ids: F.embedding(ids, table), {"table": torch.randn(9, 6)}, "y",
        (("ids", torch.randint(0, 9, (2, 5))),))
    add("rotary", rotary, {"x": torch.randn(2, 2, 7, 8)})
    save_file(golden, here / "ops_golden.safetensors")


make_gpt2()
make_ops()
