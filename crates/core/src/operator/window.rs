//! Sliding windows along one axis of an image: checked sizes (extent, kernel, stride, padding,
//! dilation), the number of positions, the text of the index that position `p` and tap `r` read,
//! such as `2*p + r`, and the line of the stage that pads an image. The builders of convolutions
//! and pools write their workloads' texts with it.

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

/// Where a position of a padded image lies inside of it, as a condition; nothing where no axis is
/// padded.
pub(super) fn inside(h: Window, w: Window) -> Option<String> {
    let padded = [("h", h), ("w", w)].into_iter().filter(|(_, axis)| axis.is_padded());
    let conds: Vec<String> = padded
        .map(|(name, axis)| format!("0 <= {name} - {} < {}", axis.before, axis.extent))
        .collect();
    (!conds.is_empty()).then(|| conds.join(" and "))
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
    let Some(inside) = inside(h, w) else { return (String::new(), "X") };
    let text = format!(
        "stage P: f32[n: {n}, c: {c}, h: {}, w: {}] = select({}, X[n, c, h - {}, w - {}], \
         {border})\n",
        h.padded(),
        w.padded(),
        inside,
        h.before,
        w.before
    );
    (text, "P")
}
