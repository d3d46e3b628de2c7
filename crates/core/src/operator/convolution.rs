//! Convolutions of one to three dimensions in the three directions that training needs (forward,
//! gradient of the data, gradient of the weights), with their channels first or last. Input: the
//! sizes of a [`Convolution`]; output: a workload. A gradient of the data is a transposed
//! convolution as well.
//!
//! Indices of a workload are affine, and a strided gradient is not: of the gradient at `h` only
//! those taps `r` count for which `h + pad - dilation r` is a multiple of the stride. So the
//! gradient is computed in blocks of `stride` elements, `h = stride i + y`, whose elements are axes
//! (*phases*) of their own. Each phase is a dense convolution with every `stride`-th tap, and a
//! stage over the weight alone, which is computed ahead of the call, arranges the taps.

use super::window::Window;
use super::written;
use crate::Workload;

/// The direction of a convolution: the forward pass, or one of the gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// The output of image and filters.
    Forward,
    /// The gradient of the image, of that of the output and the filters.
    BackwardData,
    /// The gradient of the filters, of image and gradient of the output.
    BackwardWeights,
}

/// The place of the channels in the order of an image's axes; gradients of filters lie likewise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channels {
    /// NCHW, NCDHW.
    First,
    /// NHWC, NDHWC.
    Last,
}

/// One axis of an image, seen forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvAxis {
    /// Elements of the image.
    pub extent: i64,
    /// Taps of a filter.
    pub kernel: i64,
    /// Elements from one position of the filter to the next.
    pub stride: i64,
    /// Padding before and after the image.
    pub pads: [i64; 2],
    /// Elements from one tap to the next.
    pub dilation: i64,
}

/// A convolution in one direction. All sizes are those of the forward convolution: of images
/// `[n, c, extents]` with `k` filters of `[c / groups, kernels]`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // n, c, k and groups are the problem's own names
pub struct Convolution {
    pub direction: Direction,
    pub channels: Channels,
    pub n: i64,
    pub c: i64,
    pub k: i64,
    pub groups: i64,
    /// One to three axes, outermost first: depth, height and width.
    pub axes: Vec<ConvAxis>,
}

/// What the parts of an axis are called in texts.
struct Names {
    /// For messages.
    axis: &'static str,
    image: &'static str,
    position: &'static str,
    tap: &'static str,
    phase: &'static str,
}

const NAMES: [Names; 3] = [
    Names { axis: "depth", image: "d", position: "o", tap: "t", phase: "a" },
    Names { axis: "height", image: "h", position: "p", tap: "r", phase: "y" },
    Names { axis: "width", image: "w", position: "q", tap: "s", phase: "x" },
];

/// An axis of a backward pass to the data: `h = stride i + y` reads the gradient at
/// `i + base + slope y - (taps - 1) + t` for the `t`-th of `taps` taps.
#[derive(Clone, Copy, Debug)]
struct Phases {
    stride: i64,
    base: i64,
    slope: i64,
    taps: i64,
    dilation: i64,
    pad: i64,
}

impl Phases {
    fn new(a: &ConvAxis) -> Result<Phases, String> {
        let (stride, kernel, pad, dilation) = (a.stride, a.kernel, a.pads[0], a.dilation);
        let some = |base: i64, slope: i64, taps: i64| {
            Ok(Phases { stride, base, slope, taps, dilation, pad })
        };
        let taps = (kernel + stride - 1) / stride;
        match stride {
            1 => some(pad, 0, kernel),
            _ if dilation > 1 => Err(format!(
                "the gradient of the data is not made for a stride of {stride} with a dilation of \
                 {dilation}; one of them must be 1"
            )),
            // The taps of a phase begin where its remainder says, which is affine in the phase.
            _ if pad % stride == 0 => some(pad / stride, 0, taps),
            2 => some((pad - 1) / 2, 1, taps),
            // Elsewhere all phases walk over what any of them needs.
            _ => {
                let last = (stride - 1 + pad) / stride;
                let first = (pad - kernel + 1).div_euclid(stride)
                    + i64::from((pad - kernel + 1).rem_euclid(stride) > 0);
                some(last, 0, last - first + 1)
            }
        }
    }

    /// The filter's tap at phase `y` and step `t`, and its least and greatest value.
    fn tap(&self, y: &str, t: &str) -> (String, i64, i64) {
        let (per_phase, steps) = (1 - self.stride * self.slope, self.taps - 1);
        let first = self.pad - self.stride * self.base;
        if self.stride == 1 {
            return (format!("{steps} - {t}"), 0, steps);
        }
        let (last, stride) = (first + self.stride * steps, self.stride);
        let sign = if per_phase < 0 { '-' } else { '+' };
        let text = format!("{last} {sign} {}*{y} - {stride}*{t}", per_phase.abs());
        let ends = [0, per_phase * (self.stride - 1)];
        let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        (text, first + low, first + self.stride * steps + high)
    }

    /// Where element 0 of block 0 reads first.
    fn first(&self) -> i64 {
        match self.stride {
            1 => self.pad - self.dilation * (self.taps - 1),
            _ => self.base - (self.taps - 1),
        }
    }

    /// Elements that `blocks` blocks read.
    fn read(&self, blocks: i64) -> i64 {
        match self.stride {
            1 => blocks + self.dilation * (self.taps - 1),
            _ => blocks + self.slope * (self.stride - 1) + self.taps - 1,
        }
    }

    /// Where block `i` reads for phase `y` and step `t`, from `first` on.
    fn place(&self, i: &str, y: &str, t: &str) -> String {
        match self.slope {
            0 => format!("{i} + {}*{t}", if self.stride == 1 { self.dilation } else { 1 }),
            slope => format!("{i} + {slope}*{y} + {t}"),
        }
    }
}

/// `name + by`, in a form that texts take.
fn shifted(name: &str, by: i64) -> String {
    match by {
        0 => name.into(),
        _ if by < 0 => format!("{name} - {}", -by),
        _ => format!("{name} + {by}"),
    }
}

/// Axes `name: extent`.
fn axes(list: &[(&str, i64)]) -> String {
    list.iter().map(|(n, e)| format!("{n}: {e}")).collect::<Vec<_>>().join(", ")
}

fn extents(list: &[i64]) -> String {
    list.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

/// An image of which a window reads a part along each axis: from `first` on, `read` elements.
struct Reach {
    extent: i64,
    first: i64,
    read: i64,
}

impl Reach {
    fn is_inside(&self) -> bool {
        self.first >= 0 && self.first + self.read <= self.extent
    }
}

impl Convolution {
    fn names(&self) -> &'static [Names] {
        &NAMES[3 - self.axes.len().min(3)..]
    }

    fn windows(&self) -> Vec<Window> {
        let window = |a: &ConvAxis| Window {
            extent: a.extent,
            kernel: a.kernel,
            stride: a.stride,
            before: a.pads[0],
            after: a.pads[1],
            dilation: a.dilation,
        };
        self.axes.iter().map(window).collect()
    }

    /// Positions of the filter along each axis: the size of the forward output.
    pub fn positions(&self) -> Vec<i64> {
        self.windows().iter().map(Window::positions).collect()
    }

    /// The extents that a gradient of the data is computed over: those of the image, rounded up to
    /// multiples of the strides. What lies beyond the image is no part of the gradient.
    pub fn computed(&self) -> Vec<i64> {
        self.axes.iter().map(|a| (a.extent + a.stride - 1) / a.stride * a.stride).collect()
    }

    /// Channels and extents in the order in which they lie, without the images.
    fn lies<T: Clone>(&self, channels: &[T], places: &[T]) -> Vec<T> {
        match self.channels {
            Channels::First => [channels, places].concat(),
            Channels::Last => [places, channels].concat(),
        }
    }

    /// The result's shape as a graph sees it.
    pub fn output(&self) -> Vec<i64> {
        let image = |c: i64, places: &[i64]| [vec![self.n], self.lies(&[c], places)].concat();
        match self.direction {
            Direction::Forward => image(self.k, &self.positions()),
            Direction::BackwardData => image(self.c, &self.computed()),
            Direction::BackwardWeights => {
                let taps: Vec<i64> = self.axes.iter().map(|a| a.kernel).collect();
                [vec![self.k], self.lies(&[self.c / self.groups.max(1)], &taps)].concat()
            }
        }
    }

    /// The shape of a bias for each channel of the result; gradients of filters have none.
    pub fn bias(&self) -> Option<Vec<i64>> {
        let channels = match self.direction {
            Direction::Forward => self.k,
            Direction::BackwardData => self.c,
            Direction::BackwardWeights => return None,
        };
        let ones = vec![1; if self.channels == Channels::First { self.axes.len() } else { 0 }];
        Some([vec![channels], ones].concat())
    }

    fn is_depthwise(&self) -> bool {
        self.groups == self.c && self.c > 1
    }

    fn check(&self) -> Result<(), String> {
        let &Convolution { n, c, k, groups: g, .. } = self;
        if !(1..=3).contains(&self.axes.len()) {
            return Err(format!("a convolution has one to three axes, not {}", self.axes.len()));
        }
        if [n, c, k, g].iter().any(|&x| !(1..=1 << 24).contains(&x)) {
            return Err(format!(
                "a convolution needs positive sizes, not n={n} c={c} k={k} groups={g}"
            ));
        }
        if c % g != 0 || k % g != 0 {
            return Err(format!("{c} channels and {k} filters do not divide into {g} groups"));
        }
        let all = self.windows();
        all.iter().zip(self.names()).try_for_each(|(w, n)| w.check(n.axis))
    }

    /// The workload of the convolution alone, without an epilogue. Inputs are the kernel's own, `X`
    /// first: the image (forward and backward weights) or the gradient of the output (backward
    /// data); then the weight `W`, or the gradient `G` of the output.
    ///
    /// # Errors
    /// Where sizes are not positive, do not fit each other, or are too large, and where a gradient
    /// of the data has both a stride and a dilation.
    pub fn workload(&self) -> Result<Workload, String> {
        self.check()?;
        match self.direction {
            Direction::Forward => written(&self.forward()),
            Direction::BackwardData => written(&self.backward_data()?),
            Direction::BackwardWeights => written(&self.backward_weights()),
        }
    }

    fn kind(&self) -> String {
        let depthwise = if self.is_depthwise() { "depthwise_" } else { "" };
        // One axis is a height of one, as models have it.
        let dimensions = self.axes.len().max(2);
        match self.direction {
            Direction::Forward => format!("{depthwise}conv{dimensions}d"),
            Direction::BackwardData => format!("{depthwise}conv{dimensions}d_backward_data"),
            Direction::BackwardWeights => format!("{depthwise}conv{dimensions}d_backward_weights"),
        }
    }

    /// An access to an image: the channel's index and the places'.
    fn at(&self, channel: &str, places: &[String]) -> String {
        format!("n, {}", self.lies(&[channel.to_string()], places).join(", "))
    }

    /// The stage that copies what is read of `X` into a frame of zeros, and the name of what is
    /// read. The line is empty where all that is read lies inside of `X`. `last` lays the copy's
    /// channels last, however those of `X` lie.
    fn framed(&self, channels: i64, channel: &str, reach: &[Reach], last: bool) -> String {
        if reach.iter().all(Reach::is_inside) {
            return String::new();
        }
        let names = self.names();
        let places: Vec<String> =
            reach.iter().zip(names).map(|(r, n)| shifted(n.image, r.first)).collect();
        let conds: Vec<String> = reach
            .iter()
            .zip(&places)
            .filter(|(r, _)| !r.is_inside())
            .map(|(r, place)| format!("0 <= {place} < {}", r.extent))
            .collect();
        let sizes: Vec<(&str, i64)> =
            reach.iter().zip(names).map(|(r, n)| (n.image, r.read)).collect();
        let frame = match last {
            true => [sizes.as_slice(), &[(channel, channels)]].concat(),
            false => self.lies(&[(channel, channels)], &sizes),
        };
        format!(
            "stage P: f32[n: {}, {}] = select({}, X[{}], 0)\n",
            self.n,
            axes(&frame),
            conds.join(" and "),
            self.at(channel, &places)
        )
    }

    /// What a window reads of the image.
    fn reach(&self) -> Vec<Reach> {
        let one = |w: &Window| match w.is_padded() {
            true => Reach { extent: w.extent, first: -w.before, read: w.padded() },
            false => Reach { extent: w.extent, first: 0, read: w.extent },
        };
        self.windows().iter().map(one).collect()
    }

    fn image(&self, channels: i64, places: &[i64]) -> String {
        extents(&[vec![self.n], self.lies(&[channels], places)].concat())
    }

    /// The shape of the filters, and how they and images are indexed by group and channel.
    fn grouping(&self) -> Grouping {
        let (cg, kg) = (self.c / self.groups, self.k / self.groups);
        let taps: Vec<i64> = self.axes.iter().map(|a| a.kernel).collect();
        Grouping { groups: self.groups, cg, kg, taps }
    }

    fn forward(&self) -> String {
        let Grouping { groups: g, cg, kg, taps } = self.grouping();
        let names = self.names();
        let positions: Vec<(&str, i64)> =
            names.iter().zip(self.positions()).map(|(n, e)| (n.position, e)).collect();
        let steps: Vec<(&str, i64)> = names.iter().zip(&taps).map(|(n, &e)| (n.tap, e)).collect();
        let windows = self.windows();
        let places: Vec<String> =
            windows.iter().zip(names).map(|(w, n)| w.index(n.position, n.tap)).collect();
        let of_taps = steps.iter().map(|s| s.0).collect::<Vec<_>>().join(", ");
        let (sum, weight, filter, read, made): (Vec<_>, Vec<i64>, String, String, Vec<_>) =
            if self.is_depthwise() && self.k == self.c {
                let filter = format!("c, {of_taps}");
                (steps, vec![self.c], filter, "c".into(), vec![("c", self.c)])
            } else if self.is_depthwise() {
                let made = vec![("c", self.c), ("m", kg)];
                (steps, vec![self.c, kg], format!("c, m, {of_taps}"), "c".into(), made)
            } else if g > 1 {
                let sum = [vec![("c", cg)], steps].concat();
                let made = vec![("g", g), ("k", kg)];
                (sum, vec![g, kg, cg], format!("g, k, c, {of_taps}"), format!("{cg}*g + c"), made)
            } else {
                let sum = [vec![("c", cg)], steps].concat();
                (sum, vec![kg, cg], format!("k, c, {of_taps}"), "c".into(), vec![("k", kg)])
            };
        let reach = self.reach();
        let frame = self.framed(self.c, "c", &reach, self.channels == Channels::Last);
        let sizes: Vec<i64> = self.axes.iter().map(|a| a.extent).collect();
        format!(
            "workload {}\ndata X: f32[{}]\nweight W: f32[{}]\n{frame}stage Y: f32[n: {}, {}] = \
             sum({}) {}[{}] * W[{filter}]\noutput Y",
            self.kind(),
            self.image(self.c, &sizes),
            extents(&[weight, taps].concat()),
            self.n,
            axes(&self.lies(&made, &positions)),
            axes(&sum),
            if frame.is_empty() { "X" } else { "P" },
            self.at(&read, &places),
        )
    }

    fn backward_data(&self) -> Result<String, String> {
        let Grouping { groups: g, cg, kg, taps } = self.grouping();
        let names = self.names();
        let phases: Vec<Phases> = self.axes.iter().map(Phases::new).collect::<Result<_, _>>()?;
        let positions = self.positions();
        let blocks: Vec<i64> =
            self.axes.iter().map(|a| (a.extent + a.stride - 1) / a.stride).collect();
        let reach: Vec<Reach> = (0..phases.len())
            .map(|i| Reach {
                extent: positions[i],
                first: phases[i].first(),
                read: phases[i].read(blocks[i]),
            })
            .collect();
        let frame = self.framed(self.k, "k", &reach, self.channels == Channels::Last);
        // Where nothing is framed, places are those of the gradient itself.
        let of_frame = |i: usize, place: String| match frame.is_empty() {
            true => shifted(&place, reach[i].first),
            false => place,
        };
        let places: Vec<String> = (0..phases.len())
            .map(|i| {
                let n = &names[i];
                of_frame(i, phases[i].place(n.image, n.phase, n.tap))
            })
            .collect();
        // The filters with their taps turned, by phase where there are several.
        let several: Vec<usize> = (0..phases.len()).filter(|&i| phases[i].stride > 1).collect();
        let of_phases: Vec<(&str, i64)> =
            several.iter().map(|&i| (names[i].phase, phases[i].stride)).collect();
        let steps: Vec<(&str, i64)> =
            phases.iter().zip(names).map(|(p, n)| (n.tap, p.taps)).collect();
        let group: Vec<(&str, i64)> = if g > 1 { vec![("g", g)] } else { Vec::new() };
        let turned = [&of_phases[..], &group, &[("c", cg), ("k", kg)], &steps].concat();
        let (mut conds, mut of_weight) = (Vec::new(), Vec::new());
        for ((p, n), kernel) in phases.iter().zip(names).zip(&taps) {
            let (tap, low, high) = p.tap(n.phase, n.tap);
            if low < 0 || high >= *kernel {
                conds.push(format!("0 <= {tap} < {kernel}"));
            }
            of_weight.push(tap);
        }
        let grouped = if g > 1 { "g, " } else { "" };
        let weight = format!("W[{grouped}k, c, {}]", of_weight.join(", "));
        let value = match conds.is_empty() {
            true => weight,
            false => format!("select({}, {weight}, 0)", conds.join(" and ")),
        };
        let outer: Vec<i64> = if g > 1 { vec![g, kg, cg] } else { vec![kg, cg] };
        let made = [&group[..], &[("c", cg)]].concat();
        let elements: Vec<(&str, i64)> = (0..phases.len())
            .flat_map(|i| {
                let phase = (phases[i].stride > 1).then(|| (names[i].phase, phases[i].stride));
                [(names[i].image, blocks[i])].into_iter().chain(phase)
            })
            .collect();
        let index = |list: &[(&str, i64)]| list.iter().map(|a| a.0).collect::<Vec<_>>().join(", ");
        let read = if g > 1 { format!("{kg}*g + k") } else { "k".into() };
        Ok(format!(
            "workload {}\ndata X: f32[{}]\nweight W: f32[{}]\n{frame}stage V: f32[{}] = \
             {value}\nstage Y: f32[n: {}, {}] = sum({}) {}[{}] * V[{}]\noutput Y",
            self.kind(),
            self.image(self.k, &positions),
            extents(&[outer, taps].concat()),
            axes(&turned),
            self.n,
            axes(&self.lies(&made, &elements)),
            axes(&[vec![("k", kg)], steps].concat()),
            if frame.is_empty() { "X" } else { "P" },
            self.at(&read, &places),
            index(&turned),
        ))
    }

    /// The frame has its channels last, so that vectors can hold channels of the image.
    fn backward_weights(&self) -> String {
        let Grouping { groups: g, cg, kg, taps } = self.grouping();
        let names = self.names();
        let positions: Vec<(&str, i64)> =
            names.iter().zip(self.positions()).map(|(n, e)| (n.position, e)).collect();
        let steps: Vec<(&str, i64)> = names.iter().zip(&taps).map(|(n, &e)| (n.tap, e)).collect();
        let windows = self.windows();
        let places: Vec<String> =
            windows.iter().zip(names).map(|(w, n)| w.index(n.position, n.tap)).collect();
        let frame = self.framed(self.c, "c", &self.reach(), true);
        let of_group = |size: i64, name: &str| match g {
            1 => name.to_string(),
            _ => format!("{size}*g + {name}"),
        };
        let channel = of_group(cg, "c");
        let image = match frame.is_empty() {
            true => format!("X[{}]", self.at(&channel, &places)),
            false => format!("P[n, {}, {channel}]", places.join(", ")),
        };
        let at: Vec<String> = names.iter().map(|n| n.position.to_string()).collect();
        let gradient = format!("G[{}]", self.at(&of_group(kg, "k"), &at));
        let group: Vec<(&str, i64)> = if g > 1 { vec![("g", g)] } else { Vec::new() };
        let sizes: Vec<i64> = self.axes.iter().map(|a| a.extent).collect();
        format!(
            "workload {}\ndata X: f32[{}]\ndata G: f32[{}]\n{frame}stage Y: f32[{}] = sum({}) \
             {gradient} * {image}\noutput Y",
            self.kind(),
            self.image(self.c, &sizes),
            self.image(self.k, &self.positions()),
            axes(&[group, vec![("k", kg)], self.lies(&[("c", cg)], &steps)].concat()),
            axes(&[vec![("n", self.n)], positions].concat()),
        )
    }

    /// A readable name for the task: `conv2d_backward_data_64x56x56_k64_3x3_s2`.
    pub fn name(&self) -> String {
        let by = |list: Vec<i64>| match list.iter().all(|x| *x == list[0]) {
            true => list[0].to_string(),
            false => list.iter().map(i64::to_string).collect::<Vec<_>>().join("x"),
        };
        let all = |of: fn(&ConvAxis) -> i64| self.axes.iter().map(of).collect::<Vec<_>>();
        let sizes = |list: Vec<i64>| list.iter().map(i64::to_string).collect::<Vec<_>>().join("x");
        let mut name = self.kind();
        if self.channels == Channels::Last {
            name += "_nhwc";
        }
        if self.n > 1 {
            name += &format!("_n{}", self.n);
        }
        name += &format!("_{}x{}_k{}", self.c, sizes(all(|a| a.extent)), self.k);
        name += &format!("_{}", sizes(all(|a| a.kernel)));
        if self.axes.iter().any(|a| a.stride != 1) {
            name += &format!("_s{}", by(all(|a| a.stride)));
        }
        if self.axes.iter().any(|a| a.dilation != 1) {
            name += &format!("_d{}", by(all(|a| a.dilation)));
        }
        if self.groups > 1 && !self.is_depthwise() {
            name += &format!("_g{}", self.groups);
        }
        name
    }

    /// The backward pass to the data of which a transposed convolution is one, and its name: of
    /// images `[n, inputs, extents]`, with `outputs` channels in the result. `axes` are those of
    /// the transposed convolution, with the extents of its input; the last number of each is what
    /// is added to the result's extent (`output_padding`).
    ///
    /// # Errors
    /// Where the result would be empty, or what is added is not below the stride.
    pub fn transposed(
        channels: Channels,
        [n, inputs, outputs, groups]: [i64; 4],
        axes: &[(ConvAxis, i64)],
    ) -> Result<(Convolution, String), String> {
        let axis = |(a, added): &(ConvAxis, i64)| {
            let far = [a.extent, a.kernel, a.stride, a.pads[0], a.pads[1], a.dilation];
            if far.iter().any(|x| !(0..=1 << 24).contains(x)) {
                return Err("a size of the transposed convolution is out of range".to_string());
            }
            if *added < 0 || *added >= a.stride.max(1) {
                return Err(format!(
                    "an output padding of {added} is not below the stride of {}",
                    a.stride
                ));
            }
            let span = a.dilation * (a.kernel - 1) + 1;
            let extent = a.stride * (a.extent - 1) + span + added - a.pads[0] - a.pads[1];
            Ok(ConvAxis { extent, ..*a })
        };
        let direction = Direction::BackwardData;
        let all: Vec<ConvAxis> = axes.iter().map(axis).collect::<Result<_, _>>()?;
        let c = Convolution { direction, channels, n, c: outputs, k: inputs, groups, axes: all };
        c.check()?;
        let name = c.name().replacen("_backward_data", "_transposed", 1);
        Ok((c, name))
    }
}

/// Groups, channels and filters of each, and taps.
struct Grouping {
    groups: i64,
    cg: i64,
    kg: i64,
    taps: Vec<i64>,
}

#[cfg(test)]
mod tests;
