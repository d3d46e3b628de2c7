//! Convolutions of images `[n, c, h, w]`: plain, grouped and depthwise, forward, as models and
//! operator lines have them. Input: the sizes of a [`Conv`]; output: its workload in canonical
//! form, with a stage that pads the image where padding is given. `convolution.rs` writes the text,
//! for all directions and layouts.

use super::convolution::{Channels, ConvAxis, Convolution, Direction};
use super::window::Window;
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
        self.general().workload()
    }

    /// The same convolution among those of all directions, dimensions and layouts.
    fn general(&self) -> Convolution {
        let axis = |w: Window| ConvAxis {
            extent: w.extent,
            kernel: w.kernel,
            stride: w.stride,
            pads: [w.before, w.after],
            dilation: w.dilation,
        };
        Convolution {
            direction: Direction::Forward,
            channels: Channels::First,
            n: self.n,
            c: self.c,
            k: self.k,
            groups: self.groups,
            axes: self.windows().map(axis).to_vec(),
        }
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
