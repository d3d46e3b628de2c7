//! Pooling of images.

use super::conv::{marks, padding};
use super::{Core, Window};
use squall_core::expr::{Affine, Binary, Expr, Source, Var};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolKind {
    Max,
    Average {
        /// Whether padding counts as elements.
        include_pad: bool,
    },
}

/// Pooling of `[n, c, h, w]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pool {
    pub kind: PoolKind,
    pub n: i64,
    pub c: i64,
    /// Down and along.
    pub windows: [Window; 2],
    /// Results down and along; the last windows may reach beyond the padding.
    pub positions: [i64; 2],
}

impl Pool {
    pub fn build(&self) -> Result<Core, String> {
        let Pool { kind, n, c, windows, positions: [p, q] } = *self;
        windows[0].check("height")?;
        windows[1].check("width")?;
        // What the last window needs is padded; what it does not need may be there as well.
        let reach = |w: Window, positions: i64| Window { after: w.after.max((positions - 1) * w.stride + w.span() - w.extent - w.before), ..w };
        let wide = [reach(windows[0], p), reach(windows[1], q)];
        let [h, w] = wide;
        let (fill, op, name) = match kind {
            PoolKind::Max => ("-inf", "max", "maxpool"),
            PoolKind::Average { .. } => ("0", "sum", "avgpool"),
        };
        let (pad, x) = padding(&format!("n: {n}, c: {c}"), wide, fill);
        let (r, s) = (h.kernel, w.kernel);
        let (row, col) = (h.index("p", "r"), w.index("q", "s"));
        // Elements that a border's window counts: those of the image, or of the padded image.
        let count = match kind {
            PoolKind::Max => None,
            PoolKind::Average { include_pad } => {
                let counted = |w: Window, wide: Window| match include_pad {
                    true => (wide.padded() > w.padded()).then_some((0, w.padded())),
                    false => (wide.padded() > w.extent).then_some((w.before, w.before + w.extent)),
                };
                let conds: Vec<String> = [(counted(windows[0], h), &row), (counted(windows[1], w), &col)]
                    .into_iter()
                    .filter_map(|(c, index)| c.map(|(low, high)| format!("0 <= {index} - {low} < {}", high - low)))
                    .collect();
                (!conds.is_empty()).then(|| conds.join(" and "))
            }
        };
        let count_stage = match &count {
            Some(conds) => format!("stage N: f32[p: {p}, q: {q}] = sum(r: {r}, s: {s}) select({conds}, 1, 0)\n"),
            None => String::new(),
        };
        let text = format!(
            "workload pool\ndata X: f32[{n}, {c}, {}, {}]\n{pad}{count_stage}stage C: f32[n: {n}, c: {c}, p: {p}, q: {q}] = {op}(r: {r}, s: {s}) {x}[n, c, {row}, {col}]\noutput C\n",
            h.extent, w.extent
        );
        let batch = if n > 1 { format!("_n{n}") } else { String::new() };
        let label = format!("{name}{batch}_{c}x{}x{}_{r}x{s}{}", h.extent, w.extent, marks(h, w));
        let mut core = Core::written(&text, &[&[n, c, h.padded(), w.padded()], &[n, c, p, q, r, s]], label)?;
        if matches!(kind, PoolKind::Average { .. }) {
            let elements = match count {
                // The count stands just before the sum; inputs are numbered first.
                Some(_) => Expr::load(Source(core.workload.stages.len() as u32 - 1), vec![Affine::var(Var(2)), Affine::var(Var(3))]),
                None => Expr::Const((r * s) as f64),
            };
            core.own.then("", |sum| Expr::binary(Binary::Div, sum, elements));
        }
        Ok(core)
    }
}
