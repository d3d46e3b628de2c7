#!/usr/bin/env python3
"""Whole networks on a CUDA GPU: Squall's beside PyTorch's, outputs compared, in one run.

  run.py NETWORK,.. --squall PATH --peers PATH/gpu_networks.py --out RESULT.json
         [--tune SECONDS] [--seconds 2] [--batch 1] [--compile default|none] [--dtypes fp32,tf32,bf16]
         [--precision f32,tf32,bf16,f16] [--budget SECONDS]

Networks are torchvision's by name, or `bert` (12 layers of 768, 128 tokens). Each is written as
ONNX with its random weights, tuned from nothing where --tune says so, checked against PyTorch's
output, and timed: device time of a replayed graph. What PyTorch takes is measured by functions of
the peers' script: captured graphs in two layouts, torch.compile captured. --budget ends the run
before a network that might not fit."""
import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
import warnings

import numpy as np
import torch

warnings.filterwarnings("ignore")
DTYPES = {"fp32": (False, torch.float32), "tf32": (True, torch.float32), "bf16": (True, torch.bfloat16)}


def network(name, batch):
    """The model, and an input of it."""
    torch.manual_seed(0)
    if name == "bert":
        import transformers

        config = transformers.BertConfig(attn_implementation="eager")
        bert = transformers.BertModel(config, add_pooling_layer=False)

        class Hidden(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.bert = bert

                self.register_buffer("places", torch.arange(128)[None])
                self.register_buffer("types", torch.zeros(1, 128, dtype=torch.long))

            def forward(self, ids):
                # Without a mask: making it copies from the host, which no captured graph takes.
                x = self.bert.embeddings(input_ids=ids, position_ids=self.places, token_type_ids=self.types)
                return self.bert.encoder(x, attention_mask=None)[0]

        return Hidden().eval(), torch.randint(0, config.vocab_size, (batch, 128))
    import torchvision

    more = {"aux_logits": False, "init_weights": True} if name in ("googlenet", "inception_v3") else {}
    size = 299 if name == "inception_v3" else 224
    m = getattr(torchvision.models, name)(weights=None, **more).eval()
    if name.startswith("vit"):
        # torchvision's head starts at zero, and so would every output.
        torch.nn.init.normal_(m.heads.head.weight, std=0.02)
    return m, torch.randn(batch, 3, size, size)


def call(arguments, log):
    """Runs Squall; its last line of output as JSON, or what it complains of."""
    began = time.time()
    done = subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log.append({"command": " ".join(arguments), "code": done.returncode, "s": round(time.time() - began, 1)})
    if done.returncode != 0:
        return {"error": done.stderr.strip()[-600:]}
    lines = [l for l in done.stdout.splitlines() if l.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": "no output"}


def ours(a, name, m, x, expected, folder, result):
    """Squall's times and errors, for each precision."""
    path = f"{folder}/{name}.onnx"
    torch.onnx.export(m, (x,), path, dynamo=False, opset_version=17, input_names=["x"], output_names=["y"])
    np.save(f"{folder}/{name}_x.npy", x.numpy())
    store = f"{folder}/{name}.squall"
    for precision in a.precision.split(","):
        more = [] if precision == "f32" else ["--precision", precision]
        r, log = {}, []
        if a.tune:
            t = [a.squall, "tune", path, "--target", "cuda", "--seconds", str(a.tune), "--store", store, "--json"]
            tuned = call(t + more, log)
            tasks = tuned.get("tasks", [])
            r["trials"] = sum(k.get("trials", 0) for k in tasks)
            times = [(k.get("best_ns"), k.get("count", 1)) for k in tasks]
            if times and all(t for t, _ in times):
                r["sum_of_kernels_us"] = round(sum(t * n for t, n in times) / 1e3, 1)
            if "error" in tuned:
                r["tune_error"] = tuned["error"]
        y = f"{folder}/{name}_{precision}.npy"
        b = [a.squall, "bench", path, "--target", "cuda", "--input", f"{folder}/{name}_x.npy", "--output", y]
        b += ["--seconds", str(a.seconds), "--json"] + (["--store", store] if a.tune else [])
        got = call(b + more, log)
        r["log"] = log
        if "error" in got:
            r["error"] = got["error"]
        else:
            given = np.load(y).astype(np.float64)
            r["difference"] = float(np.abs(given - expected).max() / np.abs(expected).max())
            r["device_us"] = round(got["best_ns"] / 1e3, 1)
            r["device_median_us"] = round(got["median_ns"] / 1e3, 1)
            r["host_us"] = round(got["host_to_host"]["best_ns"] / 1e3, 1)
            r["steps_us"] = round(sum(l["best_ns"] for l in got["layers"]) / 1e3, 1)
            r["steps"] = len(got["layers"])
            r.update({k: got[k] for k in ("kernels", "tuned", "guessed", "plain", "arena_bytes")})
            slow = sorted(got["layers"], key=lambda l: -l["best_ns"])[: a.slowest]
            r["slowest"] = [[l["name"], l["by"], round(l["best_ns"] / 1e3, 2), round(l["share"], 3)] for l in slow]
        result["squall_" + precision] = r
        print(name, "squall", precision, json.dumps({k: v for k, v in r.items() if k != "slowest"}), flush=True)


def peers(a, replay, m, x, result):
    """PyTorch's times, microseconds a call."""
    m, x = m.cuda(), x.cuda()
    is_image = x.dim() == 4
    with torch.inference_mode():
        for tag in a.dtypes.split(","):
            tf32, dtype = DTYPES[tag]
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
            x_of = x.to(dtype) if is_image else x
            try:
                formats = [("nchw", torch.contiguous_format), ("nhwc", torch.channels_last)]
                for layout, form in formats if is_image else formats[:1]:
                    given = x_of.to(memory_format=form) if is_image else x_of
                    placed = m.to(dtype).to(memory_format=form) if is_image else m.to(dtype)
                    result[f"torch_{tag}_{layout}_graph_us"] = replay(placed, given)
                    m = m.float()
                if a.compile != "none":
                    torch._dynamo.reset()
                    compiled = torch.compile(m.to(dtype).to(memory_format=torch.contiguous_format))
                    result[f"torch_{tag}_compile_graph_us"] = replay(compiled, x_of)
                    m = m.float()
            except Exception as e:  # a peer that fails is told apart, not hidden
                result[f"torch_{tag}_error"] = str(e)[:300]
                torch.cuda.synchronize()
    print({k: v for k, v in result.items() if k.startswith("torch")}, flush=True)
    m.cpu()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names")
    p.add_argument("--squall", required=True)
    p.add_argument("--peers", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--tune", type=float, default=0)
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--compile", default="default")
    p.add_argument("--dtypes", default="fp32,tf32,bf16")
    p.add_argument("--precision", default="f32")
    p.add_argument("--budget", type=float, default=1e9)
    p.add_argument("--slowest", type=int, default=12)
    a = p.parse_args()
    spec = importlib.util.spec_from_file_location("gpu_networks", a.peers)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    torch.backends.cudnn.benchmark = True
    folder = os.environ.get("TMPDIR", "/tmp") + "/squall-gpu-networks"
    os.makedirs(folder, exist_ok=True)
    began, all_of = time.time(), {}
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "batch": a.batch, "argv": sys.argv[1:]}
    for name in a.names.split(","):
        if time.time() - began + a.tune > a.budget:
            all_of[name] = {"skipped": "the budget of time is used"}
            continue
        result = all_of[name] = {}
        try:
            m, x = network(name, a.batch)
            with torch.inference_mode():
                expected = m.double()(x.double() if x.dim() == 4 else x).numpy()
            m = m.float()
            ours(a, name, m, x, expected, folder, result)
            if a.dtypes:
                peers(a, script.replay, m, x, result)
            best = [v for k, v in result.items() if k.startswith("torch_fp32") and k.endswith("graph_us")]
            us = result.get("squall_f32", {}).get("device_us")
            if best and us:
                result["times_as_fast_fp32"] = round(min(best) / us, 2)
        except Exception as e:
            result["error"] = f"{type(e).__name__}: {e}"[:500]
        print(name, result.get("times_as_fast_fp32"), result.get("error", ""), flush=True)
        with open(a.out, "w") as f:
            json.dump(dict(about, networks=all_of), f, indent=1)
    with open(a.out, "w") as f:
        json.dump(dict(about, networks=all_of), f, indent=1)


if __name__ == "__main__":
    main()
