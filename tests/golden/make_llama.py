"""Makes llama_golden.safetensors, the values of tests/golden/llama_golden_test.cpp: small random models of
`transformers`, a row for each variant, with their logits, loss and gradients, under our names.
pip install torch transformers safetensors; python make_llama.py"""
import pathlib

import torch
import transformers
from safetensors.torch import save_file

SIZES = dict(vocab_size=41, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, max_position_embeddings=512, rms_norm_eps=1e-5,
             tie_word_embeddings=False, attn_implementation="eager")
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=128,
              low_freq_factor=1.0, high_freq_factor=4.0)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=128)
VARIANTS = {
    "plain": ("Llama", dict(num_key_value_heads=4)),
    "grouped": ("Llama", {}),
    "tied": ("Llama", dict(tie_word_embeddings=True)),
    "biases": ("Llama", dict(attention_bias=True, mlp_bias=True)),
    "qwen2": ("Qwen2", {}),
    "qwen3": ("Qwen3", {}),
    "llama3": ("Llama", dict(rope_parameters=LLAMA3)),
    "yarn": ("Llama", dict(rope_parameters=YARN)),
    "window": ("Mistral", dict(sliding_window=3)),
}
NAMES = [("model.embed_tokens", "embedding.tokens"), ("model.norm", "head.norm"), ("lm_head", "head"),
         ("model.layers.", "block"), ("self_attn", "attention"), ("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"),
         ("o_proj", "out"),
         ("gate_proj", "gate"), ("up_proj", "in"), ("down_proj", "out"), ("input_layernorm", "norm1"),
         ("post_attention_layernorm", "norm2")]


def ours(name):
    for theirs, mine in NAMES:
        name = name.replace(theirs, mine)
    return name


def main():
    torch.manual_seed(1)
    tokens = torch.randint(0, 41, (2, 13))
    targets = torch.randint(0, 41, (2, 13))
    out = {"tokens": tokens.int(), "targets": targets.int()}
    for variant, (kind, changes) in VARIANTS.items():
        config = getattr(transformers, kind + "Config")(**{**SIZES, **changes})
        model = getattr(transformers, kind + "ForCausalLM")(config).float()
        for p in model.parameters():
            torch.nn.init.normal_(p, 1.0 if p.dim() == 1 else 0.0, 0.2)
        logits = model(tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        out[f"{variant}/logits"], out[f"{variant}/loss"] = logits.detach(), loss.detach().reshape(1)
        for name, p in model.named_parameters():
            out[f"{variant}/value.{ours(name)}"], out[f"{variant}/grad.{ours(name)}"] = p.detach(), p.grad
    out = {name: value.contiguous().clone() for name, value in out.items()}
    save_file(out, pathlib.Path(__file__).parent / "llama_golden.safetensors")


main()
