//! Finds the tunables and configurations that records, predictors and users name, also by names
//! from before a rename: a table has the old names of tunables, and knobs list their own
//! ([`crate::space::Knob::formerly`]). Input: the tunables of a task and a name; output: the
//! candidate as it is called now, or nothing where no tunable makes it any more.

use crate::{Candidate, Tunable};
use std::sync::Arc;

/// Names that tunables had before, each with the one that it has now.
const RENAMED: &[(&str, &str)] = &[("gpu_group", "gpu_warpgroup")];

/// The name that a tunable has now, by the one that a record, a predictor or a user gives it.
pub fn canonical_tunable_name(name: &str) -> &str {
    RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, now)| now)
}

/// The name of a tunable and every name that it had before.
pub fn tunable_names(name: &str) -> impl Iterator<Item = &str> {
    let former = RENAMED.iter().filter(move |(_, now)| *now == name).map(|(old, _)| *old);
    std::iter::once(name).chain(former)
}

/// The tunable that a record, a predictor or a user names.
pub fn find_tunable<'a>(
    tunables: &'a [Arc<dyn Tunable>],
    name: &str,
) -> Option<&'a Arc<dyn Tunable>> {
    let name = canonical_tunable_name(name);
    tunables.iter().find(|t| t.name() == name)
}

/// The candidate that a record names, as it is called now; nothing where no tunable makes it any
/// more.
pub fn find_candidate(
    tunables: &[Arc<dyn Tunable>],
    tunable: &str,
    configuration: &str,
) -> Option<Candidate> {
    let tunable = find_tunable(tunables, tunable)?;
    let configuration = tunable.space().parse(configuration).ok()?;
    Some(Candidate { tunable: tunable.name().into(), configuration })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::{Knob, Role};
    use crate::{Configuration, KernelSource, RealizeError, Space};

    struct Named(&'static str, Space);

    impl Tunable for Named {
        fn name(&self) -> &str {
            self.0
        }

        fn space(&self) -> &Space {
            &self.1
        }

        fn realize(&self, _: &Configuration, _: &str) -> Result<KernelSource, RealizeError> {
            Err(RealizeError("it has no source".into()))
        }

        fn features(&self, _: &Configuration) -> Vec<f32> {
            Vec::new()
        }
    }

    #[test]
    fn records_of_a_tunable_that_was_renamed_are_found() {
        let space = || {
            let copy = Knob::words("copy", Role::Choice, &["threads", "tma"])
                .formerly("boxes", &[("0", "threads"), ("1", "tma")]);
            Space::new(vec![copy], &[]).expect("a space")
        };
        let all: Vec<Arc<dyn Tunable>> =
            vec![Arc::new(Named("tile@n", space())), Arc::new(Named("gpu_warpgroup", space()))];
        for (tunable, text, found) in [
            ("gpu_group", "boxes=1", Some("gpu_warpgroup: copy=tma")),
            ("gpu_warpgroup", "copy=threads", Some("gpu_warpgroup: copy=threads")),
            ("tile@n", "copy=tma", Some("tile@n: copy=tma")),
            ("gpu_group", "boxes=2", None),
            ("group", "boxes=1", None),
        ] {
            let got = find_candidate(&all, tunable, text).map(|c| c.to_string());
            assert_eq!(got.as_deref(), found, "{tunable}: {text}");
        }
        assert_eq!(
            tunable_names("gpu_warpgroup").collect::<Vec<_>>(),
            ["gpu_warpgroup", "gpu_group"]
        );
        assert_eq!(tunable_names("tile@n").collect::<Vec<_>>(), ["tile@n"]);
    }
}
