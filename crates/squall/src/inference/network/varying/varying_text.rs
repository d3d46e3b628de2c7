//! A text over a range: a task's text or a kernel's, with a formula of the extent in the place of
//! each number that varies. Input: texts at several extents; output: a [`VaryingText`], which
//! writes the text of any extent.

use super::fit::{Series, fitted_beside, tiles_of};
use super::template::{Template, generalised};
use squall_runtime::Formula;

/// A text with a formula for each of its places.
#[derive(Clone, Debug)]
pub struct VaryingText {
    /// The text.
    pub template: Template,
    /// The formulas of its series.
    pub numbers: Vec<Formula>,
}

impl VaryingText {
    /// The text that texts at these extents have in common.
    pub fn of(extents: &[i64], texts: &[&str]) -> Option<VaryingText> {
        let (template, series) = generalised(texts)?;
        let tiles = tiles_of(extents, &series);
        let fit = |s: &Series| fitted_beside(extents, s, &tiles);
        Some(VaryingText { template, numbers: series.iter().map(fit).collect::<Option<_>>()? })
    }

    /// The numbers at an extent.
    pub fn values(&self, extent: i64) -> Option<Vec<i64>> {
        self.numbers.iter().map(|f| f.at(&[extent])).collect()
    }

    /// The text at an extent.
    pub fn at(&self, extent: i64) -> Option<String> {
        let values = self.values(extent)?;
        Some(self.template.with(&|n| values[n].to_string()))
    }
}
