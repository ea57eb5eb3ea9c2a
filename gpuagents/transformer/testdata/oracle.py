"""Makes oracle.tar.gz: tiny models with random weights and their logits, by transformers.

usage: python3 oracle.py FILE

Each model is a folder: config.json and model.safetensors as transformers writes them, in bf16,
tokens.json, and logits.safetensors with the logits of the last rows: f32 by float32 arithmetic on
the weights as they are, bf16 by bf16 arithmetic.
"""
import json
import os
import sys
import tarfile
import tempfile

import torch
import transformers
from safetensors.torch import save_file
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM)

LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


def plain(theta):
    return {"rope_type": "default", "rope_theta": theta}


# Name: class, configuration, and the number of tokens.
MODELS = {
    "llama": (LlamaForCausalLM, LlamaConfig, dict(
        num_attention_heads=4, num_key_value_heads=1, tie_word_embeddings=False, rope_parameters=plain(10000.0)), 300),
    "llama3": (LlamaForCausalLM, LlamaConfig, dict(
        num_attention_heads=4, num_key_value_heads=2, tie_word_embeddings=True, rope_parameters=LLAMA3), 72),
    "llama-linear": (LlamaForCausalLM, LlamaConfig, dict(
        num_attention_heads=8, num_key_value_heads=8, tie_word_embeddings=False,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}), 40),
    "mistral": (MistralForCausalLM, MistralConfig, dict(
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, sliding_window=24, tie_word_embeddings=False,
        rope_parameters=plain(10000.0)), 60),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config, dict(
        num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True, rope_parameters=plain(1000000.0)), 40),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config, dict(
        num_attention_heads=8, num_key_value_heads=8, head_dim=16, tie_word_embeddings=True,
        rope_parameters=plain(1000000.0)), 40),
    "qwen3-untied": (Qwen3ForCausalLM, Qwen3Config, dict(
        num_attention_heads=4, num_key_value_heads=2, head_dim=32, tie_word_embeddings=False,
        rope_parameters=plain(1000000.0)), 40),
}
VOCABULARY, ROWS = 128, 24


def make(name, folder):
    model_class, config_class, options, count = MODELS[name]
    config = config_class(
        vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=2, max_position_embeddings=512,
        rms_norm_eps=1e-5, bos_token_id=1, eos_token_id=2, attn_implementation="eager", **options)
    torch.manual_seed(sum(name.encode()))
    model = model_class(config).eval()
    with torch.no_grad():
        for key, value in model.named_parameters():
            value.normal_()
            if value.dim() == 1 and key.endswith("norm.weight"):
                value.mul_(0.2).add_(1)
            else:
                value.mul_(0.3 if value.dim() == 1 else 0.2)
    model = model.to(torch.bfloat16)
    model.save_pretrained(folder)
    tokens = torch.randint(0, VOCABULARY, (1, count))
    with torch.no_grad():
        bf16 = model(input_ids=tokens).logits[0, -ROWS:].float()
        f32 = model.float()(input_ids=tokens).logits[0, -ROWS:].float()
    off = (bf16 - f32).norm() / f32.norm()
    print(f"{name}: {sum(p.numel() for p in model.parameters())} parameters, logits {f32.std():.3f}, bf16 {off:.2e}")
    save_file({"f32": f32.contiguous(), "bf16": bf16.contiguous()}, os.path.join(folder, "logits.safetensors"))
    with open(os.path.join(folder, "tokens.json"), "w") as f:
        json.dump(tokens[0].tolist(), f)


def main():
    print("transformers", transformers.__version__, "torch", torch.__version__)
    torch.set_num_threads(8)
    with tempfile.TemporaryDirectory() as place:
        for name in MODELS:
            make(name, os.path.join(place, name))
        with tarfile.open(sys.argv[1], "w:gz") as t:
            for name in MODELS:
                for file in ("config.json", "model.safetensors", "logits.safetensors", "tokens.json"):
                    t.add(os.path.join(place, name, file), os.path.join(name, file))
    print(os.path.getsize(sys.argv[1]), "bytes")


if __name__ == "__main__":
    main()
