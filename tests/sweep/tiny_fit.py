"""Takes the arguments of ``fit`` and keeps a run directory as it does, in a fraction of a second and without torch.

It stands in for the network in tests that kill sweeps dozens of times; everything that is killed is real.
"""

import json
import os
import sys
import time
from pathlib import Path

options = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:] if "=" in word)
run = Path(options["record.root"]) / options["record.experiment"] / options["record.run_id"]
witness = Path("witness.jsonl")


def say(what):
    with witness.open("a") as file:
        file.write(json.dumps({"what": what, "run": run.name, "pid": os.getpid(), "time": time.time()}) + "\n")


say("start")
if run.exists():
    sys.exit(f"grok_lightning: error: {run} exists and is not written over")
(run / "checkpoints").mkdir(parents=True)
seconds = float(options.get("seconds", 0.2))
with (run / "metrics.jsonl").open("w") as metrics:
    for step in range(1, 5):
        time.sleep(seconds / 4)
        metrics.write(json.dumps({"step": step, "val/acc": float(options["model.c"]) / step}) + "\n")
        metrics.flush()
if float(options["model.c"]) < 0:
    sys.exit("grok_lightning: error: model.c is negative")
if "code" in options:
    os.kill(os.getpid(), int(options["code"]))
if "silent" not in options:
    partial = run / "summary.partial"
    partial.write_text(json.dumps({"status": "completed", "steps": 4}))
    partial.replace(run / "summary.json")
    say("end")
