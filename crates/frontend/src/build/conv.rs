//! Convolutions of images: plain, grouped and depthwise.

use super::Core;

/// One axis of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub extent: i64,
    pub kernel: i64,
    pub stride: i64,
    pub before: i64,
    pub after: i64,
    pub dilation: i64,
}

impl Window {
    /// Whether all numbers are in range and the window fits; `what` names the axis.
    pub fn check(&self, what: &str) -> Result<(), String> {
        let legal = |name: &str, x: i64, least: i64| match x {
            _ if x < least => Err(format!("the {name} along the {what} is {x}, expected {least} or more")),
            _ if x > 1 << 24 => Err(format!("the {name} along the {what} is {x}, which is too large")),
            _ => Ok(()),
        };
        legal("extent", self.extent, 1)?;
        legal("kernel", self.kernel, 1)?;
        legal("stride", self.stride, 1)?;
        legal("dilation", self.dilation, 1)?;
        legal("padding", self.before.min(self.after), 0)?;
        legal("padding", self.before.max(self.after), 0)?;
        if self.padded() < self.span() {
            return Err(format!("a kernel that spans {} does not fit a {what} of {} with its padding", self.span(), self.padded()));
        }
        Ok(())
    }

    /// Elements from the window's first to its last.
    pub fn span(&self) -> i64 {
        self.dilation * (self.kernel - 1) + 1
    }

    pub fn padded(&self) -> i64 {
        self.extent + self.before + self.after
    }

    /// Windows that lie inside the padded extent.
    pub fn positions(&self) -> i64 {
        (self.padded() - self.span()) / self.stride + 1
    }

    /// `2*p + r`.
    pub fn index(&self, position: &str, tap: &str) -> String {
        format!("{}*{position} + {}*{tap}", self.stride, self.dilation)
    }
}

/// Stage `P` where something is padded, and the name to read: `P` or `X`.
pub(super) fn padding(channels: &str, windows: [Window; 2], fill: &str) -> (String, &'static str) {
    let [h, w] = windows;
    let conds: Vec<String> = [("h", h), ("w", w)]
        .into_iter()
        .filter(|(_, x)| x.before > 0 || x.after > 0)
        .map(|(name, x)| format!("0 <= {name} - {} < {}", x.before, x.extent))
        .collect();
    if conds.is_empty() {
        return (String::new(), "X");
    }
    let stage = format!(
        "stage P: f32[{channels}, h: {}, w: {}] = select({}, X[n, c, h - {}, w - {}], {fill})\n",
        h.padded(),
        w.padded(),
        conds.join(" and "),
        h.before,
        w.before
    );
    (stage, "P")
}

/// A convolution of `[n, c, h, w]` with `k` filters of `[c / groups, r, s]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conv {
    pub n: i64,
    pub c: i64,
    pub k: i64,
    pub groups: i64,
    /// Down and along.
    pub windows: [Window; 2],
}

impl Conv {
    pub fn check(&self) -> Result<(), String> {
        let [h, w] = self.windows;
        h.check("height")?;
        w.check("width")?;
        let Conv { n, c, k, groups, .. } = *self;
        if n < 1 || c < 1 || k < 1 || groups < 1 {
            return Err(format!("batch {n}, channels {c}, filters {k} and groups {groups} must be 1 or more"));
        }
        if c % groups != 0 || k % groups != 0 {
            return Err(format!("groups {groups} must divide the {c} channels and the {k} filters"));
        }
        Ok(())
    }

    /// The convolution without bias.
    pub fn build(&self) -> Result<Core, String> {
        self.check()?;
        let Conv { n, c, k, groups, windows: [h, w] } = *self;
        let (r, s, p, q) = (h.kernel, w.kernel, h.positions(), w.positions());
        let (pad, x) = padding(&format!("n: {n}, c: {c}"), self.windows, "0");
        let (row, col) = (h.index("p", "r"), w.index("q", "s"));
        let (cg, kg) = (c / groups, k / groups);
        let depthwise = groups > 1 && cg == 1;
        let (weight, body) = match (depthwise, groups, kg) {
            (true, _, 1) => (
                format!("{c}, {r}, {s}"),
                format!("stage C: f32[n: {n}, c: {c}, p: {p}, q: {q}] = sum(r: {r}, s: {s}) {x}[n, c, {row}, {col}] * W[c, r, s]"),
            ),
            (true, ..) => (
                format!("{c}, {kg}, {r}, {s}"),
                format!("stage C: f32[n: {n}, c: {c}, m: {kg}, p: {p}, q: {q}] = sum(r: {r}, s: {s}) {x}[n, c, {row}, {col}] * W[c, m, r, s]"),
            ),
            (_, 1, _) => (
                format!("{k}, {c}, {r}, {s}"),
                format!("stage C: f32[n: {n}, k: {k}, p: {p}, q: {q}] = sum(c: {c}, r: {r}, s: {s}) {x}[n, c, {row}, {col}] * W[k, c, r, s]"),
            ),
            _ => (
                format!("{groups}, {kg}, {cg}, {r}, {s}"),
                format!(
                    "stage C: f32[n: {n}, g: {groups}, k: {kg}, p: {p}, q: {q}] = sum(c: {cg}, r: {r}, s: {s}) {x}[n, {cg}*g + c, {row}, {col}] * W[g, k, c, r, s]"
                ),
            ),
        };
        let kind = if depthwise { "depthwise_conv2d" } else { "conv2d" };
        let text = format!("workload {kind}\ndata X: f32[{n}, {c}, {}, {}]\nweight W: f32[{weight}]\n{pad}{body}\noutput C\n", h.extent, w.extent);
        Core::written(&text, &[&[n, c, h.padded(), w.padded()], &[n, k, p, q, cg, r, s]], self.label(kind))
    }

    fn label(&self, kind: &str) -> String {
        let Conv { n, c, k, groups, windows: [h, w] } = *self;
        let mut label = kind.to_string();
        if n > 1 {
            label += &format!("_n{n}");
        }
        label += &format!("_{c}x{}x{}_k{k}_{}x{}", h.extent, w.extent, h.kernel, w.kernel);
        if groups > 1 && kind == "conv2d" {
            label += &format!("_g{groups}");
        }
        label + &marks(h, w)
    }
}

/// Stride and dilation in a name, where they are not 1.
pub(super) fn marks(h: Window, w: Window) -> String {
    let mut out = String::new();
    for (mark, a, b) in [("s", h.stride, w.stride), ("d", h.dilation, w.dilation)] {
        match (a, b) {
            (1, 1) => {}
            (a, b) if a == b => out += &format!("_{mark}{a}"),
            (a, b) => out += &format!("_{mark}{a}x{b}"),
        }
    }
    out
}
