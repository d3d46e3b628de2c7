//! Plain kernels (untuned C for one operator) of `Choose`, an operator of Squall's own that copies
//! one of two operands by a boolean known only at run time; see `core/src/graph/infer/choice.rs`.
//! It writes the C of a call at constant shapes. `mod.rs` collects the tables `OPS` of all families
//! of operators.

use super::Generator;
use super::program::Program;

pub(super) const OPS: &[(&str, Generator)] = &[(squall_core::graph::infer::CHOOSE, choose)];

/// Copies the second or the third operand, by the boolean of the first.
fn choose(p: &mut Program) -> Result<(), String> {
    p.body("  if (M0) memcpy(y0, *x0 ? (const void *)x1 : (const void *)x2, sizeof(Y0) * M0);\n");
    p.on_device("  for (long i = 0; i < M0; i++) y0[i] = *x0 ? x1[i] : x2[i];\n");
    Ok(())
}
