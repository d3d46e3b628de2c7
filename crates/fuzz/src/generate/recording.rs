//! Generators of the files of other tuners (Kernel Tuner's caches, T1 descriptions, T4 results) and
//! of the lines of records that a store exports. Input: a [`Draw`]; output: the bytes of a file,
//! most of it right.

use crate::draw::Draw;

/// Text in JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if (c as u32) < 0x20 => out += &format!("\\u{:04x}", c as u32),
            c => out.push(c),
        }
    }
    out + "\""
}

/// A cache file of Kernel Tuner's.
pub fn kernel_tuner(draw: &mut Draw<'_>) -> Vec<u8> {
    let knobs = 1 + draw.below(4);
    let values: Vec<Vec<String>> =
        (0..knobs).map(|_| (0..1 + draw.below(5)).map(|_| draw.number()).collect()).collect();
    let parameters: Vec<String> = values
        .iter()
        .enumerate()
        .map(|(i, v)| format!("{}: [{}]", quoted(&knob(draw, i)), v.join(", ")))
        .collect();
    let mut entries = Vec::new();
    for _ in 0..draw.below(12) {
        let key: Vec<&str> = values.iter().map(|v| v[draw.below(v.len())].as_str()).collect();
        let time = match draw.below(6) {
            0 => quoted(draw.one(&["CompilationFailedConfig", "RuntimeFailedConfig", "x", ""])),
            _ => draw.number(),
        };
        entries.push(format!(
            "{}: {{\"time\": {time}, \"compile_time\": {}}}",
            quoted(&key.join(",")),
            draw.number()
        ));
    }
    let mut text = format!(
        "{{\"device_name\": {}, \"kernel_name\": {}, \"problem_size\": {}, \"objective\": \
        \"time\", \
         \"tune_params_keys\": [], \"tune_params\": {{{}}}, \"cache\": {{{}}}}}",
        quoted(&draw.name()),
        quoted(&draw.name()),
        draw.number(),
        parameters.join(", "),
        entries.join(", ")
    );
    if draw.once_in(6) {
        let at = draw.below(text.len());
        let at = (0..=at).rev().find(|i| text.is_char_boundary(*i)).unwrap_or(0);
        text.truncate(at);
    }
    text.into_bytes()
}

fn knob(draw: &mut Draw<'_>, i: usize) -> String {
    if draw.once_in(12) { draw.name() } else { format!("k{i}") }
}

/// A T1 description of a space.
pub fn t1(draw: &mut Draw<'_>) -> Vec<u8> {
    let parameter = |draw: &mut Draw<'_>, i: usize| {
        let values = match draw.below(4) {
            0 => quoted(&format!("range(0, {})", draw.integer())),
            1 => quoted(&format!("[{}, {}]", draw.number(), draw.number())),
            2 => quoted(draw.one(&[
                "[2**i for i in range(99)]",
                "__import__('os')",
                "[",
                "open('x')",
            ])),
            _ => format!("[{}, {}]", draw.number(), draw.number()),
        };
        format!("{{\"Name\": {}, \"Type\": \"int\", \"Values\": {values}}}", quoted(&knob(draw, i)))
    };
    let n = 1 + draw.below(5);
    let parameters: Vec<String> = (0..n).map(|i| parameter(draw, i)).collect();
    let conditions: Vec<String> = (0..draw.below(3))
        .map(|_| {
            let e = draw
                .one(&[
                    "k0 * k1 <= 1024",
                    "k0 % k1 == 0",
                    "k9 > 1",
                    "((((((k0))))))",
                    "k0 ** k0 ** k0 > 1",
                    "1 / 0 == k0",
                    "exit()",
                ])
                .to_string();
            format!("{{\"Expression\": {}, \"Parameters\": [\"k0\", \"k1\"]}}", quoted(&e))
        })
        .collect();
    format!(
        "{{\"ConfigurationSpace\": {{\"TuningParameters\": [{}], \"Conditions\": [{}]}}, \
         \"KernelSpecification\": {{\"KernelName\": {}}}}}",
        parameters.join(", "),
        conditions.join(", "),
        quoted(&draw.name())
    )
    .into_bytes()
}

/// Results in T4.
pub fn t4(draw: &mut Draw<'_>) -> Vec<u8> {
    let result = |draw: &mut Draw<'_>| {
        format!(
            "{{\"configuration\": {{\"k0\": {}, \"k1\": {}}}, \"invalidity\": {}, \
            \"correctness\": {}, \
             \"measurements\": [{{\"name\": \"time\", \"value\": {}, \"unit\": {}}}], \
             \"objectives\": [\"time\"], \"times\": {{\"compilation_time\": {}, \"runtimes\": \
             [{}]}}}}",
            draw.number(),
            draw.number(),
            quoted(draw.one(&["correct", "compile", "runtime", "timeout", "constraints", "?"])),
            draw.number(),
            draw.number(),
            quoted(draw.one(&["ms", "s", "", "parsecs"])),
            draw.number(),
            draw.number(),
        )
    };
    let results: Vec<String> = (0..draw.below(8)).map(|_| result(draw)).collect();
    format!("{{\"schema_version\": \"1.0.0\", \"results\": [{}]}}", results.join(", ")).into_bytes()
}

/// Lines as `squall records export` writes them; `task` belongs to the workload in most of them.
pub fn exported_lines(draw: &mut Draw<'_>) -> Vec<u8> {
    const WORKLOAD: &str =
        "workload relu\ndata X: f32[4]\nstage Y: f32[i: 4] = max(X[i], 0)\noutput Y\n";
    let mut text = String::new();
    for _ in 0..1 + draw.below(4) {
        let outcome = match draw.below(5) {
            0 => format!("{{\"infeasible\": {}}}", quoted(&draw.name())),
            1 => format!(
                "{{\"failed\": {{\"stage\": {}, \"detail\": {}}}}}",
                quoted(draw.one(&["build", "launch", "timeout", "wrong_answer", "none"])),
                quoted(&draw.name())
            ),
            _ => {
                let samples: Vec<String> = (0..draw.below(4)).map(|_| draw.number()).collect();
                format!(
                    "{{\"measured\": {{\"samples\": [{}], \"calls\": {}, \"error\": {}}}}}",
                    samples.join(", "),
                    draw.number(),
                    draw.number()
                )
            }
        };
        let task = match draw.below(4) {
            0 => "00000000000000aa".into(),
            1 => draw.name(),
            _ => "TASK".to_string(),
        };
        let workload = if draw.once_in(6) { draw.name() } else { WORKLOAD.into() };
        text += &format!(
            "{{\"kind\": {}, \"task\": {}, \"name\": {}, \"workload\": {}, \"device\": {}, \
             \"toolchain\": \"gcc\", \"tunable\": {}, \"configuration\": {}, \"outcome\": \
             {outcome}, \
             \"cost\": {{\"build\": {}, \"measure\": 0.1, \"search\": 0.0}}, \"seed\": 0, \
             \"time\": {}}}\n",
            quoted(draw.one(&["trial", "untuned", "rematch", "?"])),
            quoted(&task),
            quoted(&draw.name()),
            quoted(&workload),
            quoted(&draw.name()),
            quoted(&draw.name()),
            quoted(draw.one(&["a=1", "a=1,b=2", "", "a", "a=1,a=2", "=", ",,,"])),
            draw.number(),
            draw.number(),
        );
    }
    text.into_bytes()
}
