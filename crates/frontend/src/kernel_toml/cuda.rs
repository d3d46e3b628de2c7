//! A user's CUDA kernel of a kernel.toml, before and after its GPU is known. [`CudaKernel`] holds
//! the file's knobs, constraints and launch expressions; on a GPU it becomes a [`DeviceKernel`],
//! whose space has only the configurations that the GPU's limits allow (threads of a block, shared
//! memory). `user_kernel.rs` calls it when a target is chosen.

use super::document::{Fault, fault};
use super::launching::{Expression, Launching, Shape, limits};
use super::listed::Listed;
use super::model::{Sizes, TextSpan};
use super::recipe::{Choices, Recipe};
use squall_core::space::{Knob, SpaceError, Term};
use squall_core::{Configuration, Gpu, Space};
use std::sync::Arc;

/// A kernel before the device is known.
#[derive(Clone)]
pub struct CudaKernel {
    pub knobs: Vec<Knob>,
    /// The positions of the default values, and the place of the first default in the file, if
    /// there is one.
    pub defaults: (Vec<usize>, Option<TextSpan>),
    pub constraints: Vec<Expression>,
    /// The only configurations that are legal, where the file lists them.
    pub listed: Option<Listed>,
    pub sizes: Sizes,
    pub launching: Launching,
    pub recipe: Recipe,
    /// A second kernel in CUDA, which sees the knobs at their defaults.
    pub reference: Option<(Launching, Recipe)>,
    /// The problem's name, for errors.
    pub problem: String,
}

/// A kernel on a device.
pub struct DeviceKernel {
    pub tunable: Arc<Choices>,
    pub plain: Arc<Choices>,
    pub default: Configuration,
    pub reference: Option<Recipe>,
}

impl DeviceKernel {
    /// The second kernel, or else the first at its defaults.
    pub fn reference(&self) -> Recipe {
        self.reference.clone().unwrap_or_else(|| self.plain.recipe.clone())
    }
}

impl CudaKernel {
    /// The kernel on a device. The place in an error means something only to the caller that has
    /// just read the file.
    pub fn on(&self, gpu: &Gpu) -> Result<DeviceKernel, Fault> {
        let mut constants = self.sizes.clone();
        constants.extend(limits(gpu));
        let condition = |c: &Expression| c.condition(&self.knobs, &constants);
        let constraints: Vec<Term> =
            self.constraints.iter().map(condition).collect::<Result<_, _>>()?;
        let shape = self.launching.shape(&self.knobs, &constants, gpu)?;
        let space = self.space(&constraints, &shape)?;
        let default = self.default(&space)?;
        let only =
            default.iter().map(|(k, v)| Knob { values: vec![v.clone()], ..k.clone() }).collect();
        let fixed =
            Space::new(only, &[]).map_err(|e| Fault { at: 0..0, message: e.to_string() })?;
        let default = fixed.nth(0);
        let launched = |recipe: &Recipe, shape: Shape| Recipe {
            cuda: Some(Arc::new(shape)),
            ..recipe.clone()
        };
        let reference = match &self.reference {
            None => None,
            Some((l, r)) => {
                let shape = l.shape(&self.knobs, &constants, gpu)?;
                Some((launched(r, shape), l.grid[0].at.clone()))
            }
        };
        let recipe = launched(&self.recipe, shape);
        // The kernel and its reference are launched at the defaults before anything else.
        let first = [(&recipe, self.launching.grid[0].at.clone())]
            .into_iter()
            .chain(reference.iter().map(|(r, at)| (r, at.clone())));
        for (r, at) in first {
            r.source(&default, "k")
                .map_err(|e| Fault { at, message: format!("at the defaults of the knobs: {e}") })?;
        }
        Ok(DeviceKernel {
            tunable: Arc::new(Choices { name: "own", space, recipe: recipe.clone() }),
            plain: Arc::new(Choices { name: squall_core::UNTUNED, space: fixed, recipe }),
            default,
            reference: reference.map(|r| r.0),
        })
    }

    /// The configurations that meet the constraints and the limits of the device.
    fn space(&self, constraints: &[Term], shape: &Shape) -> Result<Space, Fault> {
        let (most_threads, most_shared) = shape.limits;
        let fits = [
            Term::product(shape.threads.clone()).at_most(most_threads),
            shape.shared.clone().at_most(most_shared),
        ];
        let space = |terms: &[Term]| {
            let space = Space::new(self.knobs.clone(), &[constraints, terms].concat())?;
            self.listed.as_ref().map_or(Ok(space.clone()), |l| l.within(&space))
        };
        let block = &self.launching.block;
        match space(&fits) {
            Ok(s) => Ok(s),
            Err(SpaceError::Empty) if space(&fits[1..]).is_ok() => fault(
                block[0].at.start..block[block.len() - 1].at.end,
                format!(
                    "every block has more than {most_threads} threads, the most that the device \
                     takes: give its knobs smaller values"
                ),
            ),
            Err(SpaceError::Empty) if space(&fits[..1]).is_ok() => fault(
                self.launching.shared.at.clone(),
                format!(
                    "every block asks for more than {most_shared} bytes of shared memory, the \
                     most that the device gives one: give its knobs smaller values"
                ),
            ),
            Err(e) => {
                let all = self.constraints.first().zip(self.constraints.last());
                let at = all.map(|(a, b)| a.at.start..b.at.end);
                let at = at.or(self.listed.as_ref().map(|l| l.at.clone()));
                let of = if self.problem.is_empty() {
                    String::new()
                } else {
                    format!(" (problem `{}`)", self.problem)
                };
                fault(at.unwrap_or(block[0].at.clone()), format!("{e}{of}"))
            }
        }
    }

    /// The configuration of the defaults; the first one where the file gives none.
    fn default(&self, space: &Space) -> Result<Configuration, Fault> {
        match (space.configuration(&self.defaults.0), &self.defaults.1) {
            (Some(c), _) => Ok(c),
            (None, None) => Ok(space.nth(0)),
            (None, Some(at)) => {
                let of = if self.problem.is_empty() {
                    String::new()
                } else {
                    format!(", for problem `{}`", self.problem)
                };
                fault(
                    at.clone(),
                    format!(
                        "the defaults of the knobs break a constraint or a limit of the device{of}"
                    ),
                )
            }
        }
    }
}
