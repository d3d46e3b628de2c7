//! In which format a model's products are made: its factors may be rounded, sums are of 32 bits.

use crate::error::Error;
use crate::input::Input;
use crate::settings::TargetRequest;
use squall_core::operator::in_format;
use squall_core::{DType, Task};

/// A format of a whole model. Kernels of each are tasks of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Floats of 32 bits.
    #[default]
    F32,
    /// Factors of convolutions and matrix products are rounded to tf32, 10 bits of the fraction;
    /// tensors stay as they are. On GPUs only.
    Tf32,
}

impl Precision {
    /// All of them, with their spelling.
    pub const ALL: &'static [(Precision, &'static str)] =
        &[(Precision::F32, "f32"), (Precision::Tf32, "tf32")];

    /// The spelling.
    pub fn name(self) -> &'static str {
        Precision::ALL.iter().find(|(p, _)| *p == self).map_or("", |(_, name)| name)
    }
}

impl Input {
    /// The same model with its products in a format; kernels without products stay as they are.
    pub fn in_precision(mut self, p: Precision, target: TargetRequest) -> Result<Input, Error> {
        if p == Precision::F32 {
            return Ok(self);
        }
        if target.is_cpu() {
            return Err(Error::Usage {
                message: format!("products in {} are made on GPUs only", p.name()),
                hint: "add `--target cuda`, or leave --precision out".into(),
            });
        }
        for t in self.tasks.iter_mut() {
            let Ok(w) = in_format(t.workload.clone(), DType::Tf32) else { continue };
            let made = Task::new(format!("{}_{}", t.name, p.name()), w);
            self.remade.insert(t.id, made.id);
            *t = Task { count: t.count, nodes: std::mem::take(&mut t.nodes), ..made };
        }
        Ok(self)
    }
}
