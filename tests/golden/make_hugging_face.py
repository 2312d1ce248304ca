"""Makes the folders in hugging_face/ beside this script, and takes weights through the program and transformers.

    pip install torch transformers        (made with torch 2.15 and transformers 5.24)
    python tests/golden/make_hugging_face.py [build/bin]

For each small random model, f32:

hugging_face/<name>/          what save_pretrained wrote: config.json and the weights in shards of 12 KB
hugging_face/<name>.again/    these weights through `import`, `export --dtype bf16`, transformers' from_pretrained and
                              save_pretrained; written only where the folder of programs is given
hugging_face/<name>.logits.safetensors
    tokens          (2, 8)
    logits          (2, 8, vocab)    of <name>, computed in f32
    logits_again    (2, 8, vocab)    of <name>.again, likewise

With the programs the script also prints how far the logits of what `export` wrote are from those of what `import` read.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

here = pathlib.Path(__file__).parent / "hugging_face"
torch.set_num_threads(1)
vocab, context = 31, 8
no_tokens = {"bos_token_id": None, "eos_token_id": None, "attn_implementation": "eager"}


def gpt2(tied):
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=16, n_positions=context, vocab_size=vocab,
                                      tie_word_embeddings=tied, **no_tokens))


models = {"gpt2": ("gpt2", lambda: gpt2(True)), "gpt2_untied": ("gpt2", lambda: gpt2(False))}


def disturb(model):
    """Biases and norms too, so that no path is trivial."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model.eval()


def logits_of(folder, tokens):
    model, info = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    assert not any(info.values()), info
    with torch.no_grad():
        return model.eval()(tokens).logits.contiguous()


def save(model, folder, **options):
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, **options)
    (folder / "generation_config.json").unlink(missing_ok=True)


def round_trip(program, name, again, tokens, logits):
    with tempfile.TemporaryDirectory() as scratch:
        run = pathlib.Path(scratch) / "run"
        subprocess.run([program, "import", "--from", here / name, "--to", run], check=True)
        for dtype in ("f32", "bf16"):
            out = pathlib.Path(scratch) / dtype
            subprocess.run([program, "export", "--from", run, "--to", out, "--dtype", dtype], check=True)
            config = json.loads((out / "config.json").read_text())
            away = (logits_of(out, tokens) - logits).abs().max() / logits.abs().max()
            print(f"{name}: export as {dtype}, {config['model_type']}: logits {away:.2g} of their largest away")
        save(AutoModelForCausalLM.from_pretrained(pathlib.Path(scratch) / "bf16", dtype=torch.bfloat16), again)


for name, (program, make) in models.items():
    torch.manual_seed(1)
    save(disturb(make()), here / name, max_shard_size="12KB")
    tokens = torch.randint(0, vocab, (2, context))
    golden = {"tokens": tokens, "logits": logits_of(here / name, tokens)}
    if len(sys.argv) > 1:
        round_trip(pathlib.Path(sys.argv[1]) / program, name, here / f"{name}.again", tokens, golden["logits"])
    if (here / f"{name}.again").exists():
        golden["logits_again"] = logits_of(here / f"{name}.again", tokens)
    save_file(golden, here / f"{name}.logits.safetensors")
