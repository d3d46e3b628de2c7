//! Convolutions of images: plain, grouped and depthwise.

use super::written;
use crate::Workload;

/// A convolution of `[n, c, h, w]` with `k` filters of `[c / groups, r, s]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the names are the problem's
pub struct Conv {
    pub n: i64,
    pub c: i64,
    pub h: i64,
    pub w: i64,
    pub k: i64,
    pub r: i64,
    pub s: i64,
    /// Strides along the height and the width.
    pub stride: [i64; 2],
    /// Padding at the top, the left, the bottom and the right.
    pub pads: [i64; 4],
    pub dilation: [i64; 2],
    pub groups: i64,
}

/// One axis of a sliding window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub extent: i64,
    pub kernel: i64,
    pub stride: i64,
    pub before: i64,
    pub after: i64,
    pub dilation: i64,
}

impl Window {
    /// Whether all numbers are in range; `what` names the axis for the message.
    pub fn check(&self, what: &str) -> Result<(), String> {
        let legal = |name: &str, x: i64, least: i64| match x {
            _ if x < least => {
                Err(format!("{name} along the {what} is {x}, but must be {least} or more"))
            }
            _ if x > 1 << 24 => Err(format!("{name} along the {what} is {x}, which is too large")),
            _ => Ok(()),
        };
        legal("the extent", self.extent, 1)?;
        legal("the kernel", self.kernel, 1)?;
        legal("the stride", self.stride, 1)?;
        legal("the dilation", self.dilation, 1)?;
        legal("the padding", self.before.min(self.after), 0)?;
        legal("the padding", self.before.max(self.after), 0)?;
        match self.positions() {
            p if p < 1 => Err(format!(
                "a window of {} does not fit into a {what} of {} with its padding",
                self.span(),
                self.padded()
            )),
            _ => Ok(()),
        }
    }

    /// Elements from the window's first to its last.
    pub fn span(&self) -> i64 {
        self.dilation * (self.kernel - 1) + 1
    }

    pub fn padded(&self) -> i64 {
        self.extent + self.before + self.after
    }

    pub fn is_padded(&self) -> bool {
        self.before + self.after > 0
    }

    /// Positions where the window fits.
    pub fn positions(&self) -> i64 {
        match self.padded() - self.span() {
            room if room < 0 => 0,
            room => room / self.stride + 1,
        }
    }

    /// The index at output position `p` and kernel position `r`.
    pub fn index(&self, p: &str, r: &str) -> String {
        format!("{}*{p} + {}*{r}", self.stride, self.dilation)
    }
}

/// The line of the stage that copies `X[n, c, h, w]` with its padding into `P`, and the name of the
/// tensor to read. The line is empty and the tensor is `X` where nothing is padded.
pub(super) fn padding(
    n: i64,
    c: i64,
    h: Window,
    w: Window,
    border: &str,
) -> (String, &'static str) {
    if !h.is_padded() && !w.is_padded() {
        return (String::new(), "X");
    }
    let mut conds = Vec::new();
    for (name, axis) in [("h", h), ("w", w)] {
        if axis.is_padded() {
            conds.push(format!("0 <= {name} - {} < {}", axis.before, axis.extent));
        }
    }
    let text = format!(
        "stage P: f32[n: {n}, c: {c}, h: {}, w: {}] = select({}, X[n, c, h - {}, w - {}], \
         {border})\n",
        h.padded(),
        w.padded(),
        conds.join(" and "),
        h.before,
        w.before
    );
    (text, "P")
}

impl Conv {
    /// The windows along the height and the width.
    pub(super) fn windows(&self) -> [Window; 2] {
        let axis = |i: usize, extent, kernel| Window {
            extent,
            kernel,
            stride: self.stride[i],
            before: self.pads[i],
            after: self.pads[i + 2],
            dilation: self.dilation[i],
        };
        [axis(0, self.h, self.r), axis(1, self.w, self.s)]
    }

    /// The result's shape as a graph sees it.
    pub fn output(&self) -> [i64; 4] {
        let [h, w] = self.windows();
        [self.n, self.k, h.positions(), w.positions()]
    }

    /// Whether each channel has filters of its own.
    pub fn is_depthwise(&self) -> bool {
        self.groups == self.c && self.c > 1
    }

    /// The workload of the convolution alone, without an epilogue.
    pub fn workload(&self) -> Result<Workload, String> {
        let &Conv { n, c, k, r, s, groups: g, .. } = self;
        if [n, c, k, g].iter().any(|&x| !(1..=1 << 24).contains(&x)) {
            return Err(format!(
                "a convolution needs positive sizes, not n={n} c={c} k={k} groups={g}"
            ));
        }
        if c % g != 0 || k % g != 0 {
            return Err(format!("{c} channels and {k} filters do not divide into {g} groups"));
        }
        let [h, w] = self.windows();
        h.check("height")?;
        w.check("width")?;
        let (p, q) = (h.positions(), w.positions());
        let (row, column) = (h.index("p", "r"), w.index("q", "s"));
        let (copy, x) = padding(n, c, h, w, "0");
        let input = format!("data X: f32[{n}, {c}, {}, {}]", self.h, self.w);
        let (kind, weight, axes, body) = if self.is_depthwise() && k == c {
            let body = format!("sum(r: {r}, s: {s}) {x}[n, c, {row}, {column}] * W[c, r, s]");
            (
                "depthwise_conv2d",
                format!("{c}, {r}, {s}"),
                format!("n: {n}, c: {c}, p: {p}, q: {q}"),
                body,
            )
        } else if self.is_depthwise() {
            let m = k / c;
            let body = format!("sum(r: {r}, s: {s}) {x}[n, c, {row}, {column}] * W[c, m, r, s]");
            (
                "depthwise_conv2d",
                format!("{c}, {m}, {r}, {s}"),
                format!("n: {n}, c: {c}, m: {m}, p: {p}, q: {q}"),
                body,
            )
        } else if g > 1 {
            let (cg, kg) = (c / g, k / g);
            let body = format!(
                "sum(c: {cg}, r: {r}, s: {s}) {x}[n, {cg}*g + c, {row}, {column}] \
                 * W[g, k, c, r, s]"
            );
            (
                "conv2d",
                format!("{g}, {kg}, {cg}, {r}, {s}"),
                format!("n: {n}, g: {g}, k: {kg}, p: {p}, q: {q}"),
                body,
            )
        } else {
            let body =
                format!("sum(c: {c}, r: {r}, s: {s}) {x}[n, c, {row}, {column}] * W[k, c, r, s]");
            (
                "conv2d",
                format!("{k}, {c}, {r}, {s}"),
                format!("n: {n}, k: {k}, p: {p}, q: {q}"),
                body,
            )
        };
        written(&format!(
            "workload {kind}\n{input}\nweight W: f32[{weight}]\n{copy}stage Y: f32[{axes}] = \
             {body}\noutput Y"
        ))
    }

    /// A readable name for the task.
    pub fn name(&self) -> String {
        let pair = |[a, b]: [i64; 2]| if a == b { a.to_string() } else { format!("{a}x{b}") };
        let mut name =
            if self.is_depthwise() { String::from("depthwise") } else { String::from("conv2d") };
        if self.n > 1 {
            name += &format!("_n{}", self.n);
        }
        name += &format!("_{}x{}x{}", self.c, self.h, self.w);
        if !(self.is_depthwise() && self.k == self.c) {
            name += &format!("_k{}", self.k);
        }
        name += &format!("_{}x{}", self.r, self.s);
        if self.stride != [1, 1] {
            name += &format!("_s{}", pair(self.stride));
        }
        if self.dilation != [1, 1] {
            name += &format!("_d{}", pair(self.dilation));
        }
        if self.groups > 1 && !self.is_depthwise() {
            name += &format!("_g{}", self.groups);
        }
        name
    }
}
