//! The text form of a record: one line of JSON, the same in the store's `body` column, in folders
//! of records and in exported files. Numbers come back bit for bit, so a record keeps its identity;
//! a number that JSON cannot express is refused.

use squall_core::{Outcome, Record};

/// A record as one line.
pub fn encode(r: &Record) -> Result<String, String> {
    let mut numbers = vec![r.cost.build, r.cost.measure, r.cost.search, r.time];
    if let Outcome::Measured(m) = &r.outcome {
        numbers.push(m.error);
        numbers.extend(m.samples.iter().map(|s| s.0));
    }
    // JSON cannot express these; `null` in their place would make the record unreadable.
    if numbers.iter().any(|n| !n.is_finite()) {
        return Err(format!(
            "a number of the record of {} ({}) is not finite",
            r.name, r.configuration
        ));
    }
    serde_json::to_string(r).map_err(|e| e.to_string())
}

/// The record of a line.
pub fn decode(line: &str) -> Result<Record, String> {
    serde_json::from_str(line).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::*;

    fn record(outcome: Outcome, time: f64, text: &str) -> Record {
        let w = Workload::parse(
            "workload relu\ndata X: f32[4]\nstage Y: f32[i: 4] = max(X[i], 0)\noutput Y\n",
        )
        .unwrap();
        Record {
            kind: RecordKind::Untuned,
            task: TaskId::of(&w, Objective::Time),
            name: text.into(),
            workload: w.to_string(),
            device: "cpu".into(),
            toolchain: "gcc".into(),
            tunable: UNTUNED.into(),
            configuration: String::new(),
            outcome,
            cost: CpuCost { build: time, measure: 0.1, search: 1e-9 },
            seed: u64::MAX,
            time,
        }
    }

    proptest::proptest! {
        #[test]
        fn records_come_back_with_their_identity(
            ns in 1e-3f64..1e12,
            error in 0.0f64..1.0,
            time in 0.0f64..4e9,
            text in ".*",
        ) {
            let samples = vec![Nanos(ns), Nanos(ns * 1.1)];
            let measured = Measurement { samples, calls: 3, error, gpu: None, pace: None };
            for outcome in [
                Outcome::Measured(measured),
                Outcome::Infeasible(text.clone()),
                Outcome::Failed { stage: FailStage::WrongAnswer, detail: text.clone() },
            ] {
                let r = record(outcome, time, &text);
                let line = encode(&r).unwrap();
                assert!(!line.contains('\n'));
                let back = decode(&line).unwrap();
                assert_eq!(back, r);
                assert_eq!(back.identity(), r.identity());
            }
        }
    }

    #[test]
    fn numbers_that_json_cannot_say_are_refused() {
        assert!(encode(&record(Outcome::Infeasible("x".into()), f64::NAN, "x")).is_err());
        let inf = Measurement {
            samples: vec![Nanos(f64::INFINITY)],
            calls: 1,
            error: 0.0,
            gpu: None,
            pace: None,
        };
        assert!(encode(&record(Outcome::Measured(inf), 0.0, "x")).is_err());
    }
}
