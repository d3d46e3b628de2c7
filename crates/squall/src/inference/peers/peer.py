"""Another library's time of a model, asked by Squall line by line: JSON in, "@" and JSON out."""

import json
import os
import sys
import time


def session(c):
    """A function that runs the model once, the outputs of which it gives, and the version."""
    import numpy as np

    inputs = {name: np.load(path) for name, path in c["inputs"]}
    if c["library"] == "onnxruntime":
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = c["threads"]
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        s = ort.InferenceSession(c["model"], options, providers=["CPUExecutionProvider"])
        return lambda: s.run(None, inputs), ort.__version__
    import openvino as ov

    core = ov.Core()
    settings = {
        "INFERENCE_NUM_THREADS": c["threads"],
        "NUM_STREAMS": 1,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    model = core.read_model(c["model"])
    model.reshape({name: list(x.shape) for name, x in inputs.items()})
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    outputs = range(len(model.outputs))
    return (
        lambda: [request.get_output_tensor(i).data for i in outputs] if request.infer(inputs) is not None else [],
        ov.__version__,
    )


def main():
    run = None
    for line in sys.stdin:
        try:
            c = json.loads(line)
            if c["do"] == "load":
                import numpy as np

                run, version = session(c)
                outputs = run()
                np.save(c["output"], np.ascontiguousarray(outputs[0], dtype=np.float32))
                said = {"version": version}
            else:
                run()
                times, end = [], time.perf_counter() + c["seconds"]
                while len(times) < 2 or time.perf_counter() < end:
                    t = time.perf_counter()
                    run()
                    times.append(time.perf_counter() - t)
                said = {"seconds": times}
        except Exception as e:
            said = {"error": " ".join(str(e).split())[:300] or type(e).__name__}
        print("@" + json.dumps(said), flush=True)


if __name__ == "__main__":
    # What a library prints goes elsewhere than the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = answers
    main()
