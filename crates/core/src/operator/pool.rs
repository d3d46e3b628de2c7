//! Pooling over windows of images `[n, c, h, w]`: the largest value or the mean of each window.
//! Input: the sizes of a [`Pool`]; output: its workload. Padding never is the largest; whether it
//! counts in a mean is a flag, as in ONNX.

use super::window::{Window, padding};
use super::written;
use crate::Workload;

/// The value that pooling takes from a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolKind {
    /// The largest value; padding is never the largest.
    Max,
    /// The mean of the window's values inside the image, or with the padding's zeros.
    Average {
        /// Whether padding counts.
        count_padding: bool,
    },
}

/// Pooling of `[n, c, h, w]` over windows of `[r, s]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the problem's
pub struct Pool {
    pub kind: PoolKind,
    pub n: i64,
    pub c: i64,
    pub h: i64,
    pub w: i64,
    pub r: i64,
    pub s: i64,
    /// Strides along the height and the width.
    pub stride: [i64; 2],
    /// Padding at the top, the left, the bottom and the right.
    pub pads: [i64; 4],
    pub dilation: [i64; 2],
    /// Numbers of positions along the height and the width, where rounding up gives more than fit
    /// into the padding.
    pub positions: Option<[i64; 2]>,
}

impl Pool {
    /// The windows along the height and the width: as given, and with the padding extended to what
    /// the last position reaches.
    fn windows(&self) -> [(Window, Window); 2] {
        let axis = |i: usize, extent, kernel| {
            let (before, after) = (self.pads[i], self.pads[i + 2]);
            let asked = Window {
                extent,
                kernel,
                stride: self.stride[i],
                before,
                after,
                dilation: self.dilation[i],
            };
            let positions = self.positions.map_or(1, |p| p[i].clamp(1, 1 << 24));
            let reach = (positions - 1).saturating_mul(asked.stride).saturating_add(asked.span())
                - extent
                - before;
            (asked, Window { after: after.max(reach), ..asked })
        };
        [axis(0, self.h, self.r), axis(1, self.w, self.s)]
    }

    /// The result's shape.
    pub fn output(&self) -> [i64; 4] {
        let [(_, h), (_, w)] = self.windows();
        let [p, q] = self.positions.unwrap_or([h.positions(), w.positions()]);
        [self.n, self.c, p, q]
    }

    /// The workload of the pooling alone, without an epilogue.
    pub fn workload(&self) -> Result<Workload, String> {
        let &Pool { n, c, r, s, .. } = self;
        if [n, c].iter().any(|&x| !(1..=1 << 24).contains(&x)) {
            return Err(format!("pooling needs positive sizes, not n={n} c={c}"));
        }
        let [(asked_h, h), (asked_w, w)] = self.windows();
        h.check("height")?;
        w.check("width")?;
        let [_, _, p, q] = self.output();
        if !(1..=h.positions()).contains(&p) || !(1..=w.positions()).contains(&q) {
            return Err(format!("{p} x {q} positions do not fit"));
        }
        let (row, column) = (h.index("p", "r"), w.index("q", "s"));
        let border = if self.kind == PoolKind::Max { "-inf" } else { "0" };
        let (copy, x) = padding(n, c, h, w, border);
        let head = format!("workload pool\ndata X: f32[{n}, {c}, {}, {}]\n{copy}", self.h, self.w);
        let axes = format!("n: {n}, c: {c}, p: {p}, q: {q}");
        let body = format!("{x}[n, c, {row}, {column}]");
        let PoolKind::Average { count_padding } = self.kind else {
            return written(&format!(
                "{head}stage Y: f32[{axes}] = max(r: {r}, s: {s}) {body}\noutput Y"
            ));
        };
        let sum = format!("{head}stage S: f32[{axes}] = sum(r: {r}, s: {s}) {body}\n");
        // The range that the mean counts along an axis: the image, or the given padding as well.
        // The padding that rounding up adds is never counted.
        let mut conds = Vec::new();
        for (asked, reached, index) in [(asked_h, h, &row), (asked_w, w, &column)] {
            let (low, high) = match count_padding {
                true => (-asked.before, asked.extent + asked.after),
                false => (0, asked.extent),
            };
            let last = (reached.positions() - 1) * reached.stride + reached.span() - reached.before;
            if -asked.before < low || last > high {
                conds.push(format!("{low} <= {index} - {} < {high}", asked.before));
            }
        }
        match conds.is_empty() {
            true => {
                written(&format!("{sum}stage Y: f32[{axes}] = S[n, c, p, q] / {}\noutput Y", r * s))
            }
            false => written(&format!(
                "{sum}stage N: f32[p: {p}, q: {q}] = sum(r: {r}, s: {s}) select({}, 1, 0)\n\
                 stage Y: f32[{axes}] = S[n, c, p, q] / N[p, q]\noutput Y",
                conds.join(" and ")
            )),
        }
    }

    /// A readable name for the task.
    pub fn name(&self) -> String {
        let kind = if self.kind == PoolKind::Max { "maxpool" } else { "avgpool" };
        let batch = if self.n > 1 { format!("_n{}", self.n) } else { String::new() };
        let stride = match self.stride {
            [1, 1] => String::new(),
            [a, b] if a == b => format!("_s{a}"),
            [a, b] => format!("_s{a}x{b}"),
        };
        format!("{kind}{batch}_{}x{}x{}_{}x{}{stride}", self.c, self.h, self.w, self.r, self.s)
    }
}
