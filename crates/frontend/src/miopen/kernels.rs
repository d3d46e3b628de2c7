//! Makes workloads (tensor expressions that Squall tunes) of MIOpen's problems. Input: a line that
//! is a key of MIOpen's databases or a command of MIOpenDriver; output: the kernels that it names,
//! one for each direction, over the builders of `core/src/operator/convolution.rs`.
//! `frontend/src/ops.rs` reads operator lines of this kind by it.

use super::convolution::Convolution;
use super::driver;
use crate::error::shown;
use squall_core::operator::{
    Channels, Conv, ConvAxis, Convolution as Workloads, Direction, Epilogue, functions, in_format,
};
use squall_core::tasks::named;
use squall_core::{DType, TensorKind, Workload};

/// Whether a line is a command of MIOpenDriver, or one without the program's name but with a flag,
/// or a key of MIOpen's databases.
pub fn is_problem(line: &str) -> bool {
    let flagged = || line.split_whitespace().any(|w| w.starts_with('-'));
    driver::is_driver_line(line) && (line.contains("MIOpenDriver") || flagged())
        || Convolution::parse(line.trim()).is_ok()
}

/// The kernels of a line: one for a key, one for each direction of a command; each with its name.
///
/// # Errors
/// Where it is no problem that MIOpen has, or one that no workload is made for; the text says why.
pub fn kernels(line: &str) -> Result<Vec<(String, Workload)>, String> {
    let all = match driver::is_driver_line(line) {
        true => driver::read(line)?,
        false => vec![Convolution::parse(line.trim())?],
    };
    all.iter().map(Convolution::kernel).collect()
}

impl Convolution {
    /// The workload of the problem, and a name for it. A gradient of data whose extents are no
    /// multiples of the strides is computed over the next multiples.
    ///
    /// # Errors
    /// Where layout or precision is one that no workload is made for, and where the sizes of input
    /// and output do not follow from each other.
    pub fn kernel(&self) -> Result<(String, Workload), String> {
        let channels = match self.layout.as_str() {
            "NCHW" | "NCDHW" => Channels::First,
            "NHWC" | "NHWC-NHWC-NHWC" | "NDHWC" | "NDHWC-NDHWC-NDHWC" => Channels::Last,
            other => {
                return Err(format!(
                    "a layout of {} has no workload; NCHW, NHWC, NCDHW and NDHWC have, for all \
                     three tensors alike",
                    shown(other)
                ));
            }
        };
        let (c, size, k, out) = match self.direction {
            'F' => (self.a, &self.input, self.b, &self.output),
            _ => (self.b, &self.output, self.a, &self.input),
        };
        let axis = |i: usize| ConvAxis {
            extent: size[i],
            kernel: self.filter[i],
            stride: self.stride[i],
            pads: [self.padding[i]; 2],
            dilation: self.dilation[i],
        };
        let direction = match self.direction {
            'F' => Direction::Forward,
            'B' => Direction::BackwardData,
            _ => Direction::BackwardWeights,
        };
        let axes: Vec<ConvAxis> = (0..size.len()).map(axis).collect();
        let conv = Workloads { direction, channels, n: self.n, c, k, groups: self.groups, axes };
        let workload = conv.workload()?;
        if conv.positions() != *out {
            return Err(format!(
                "an image of {size:?} gives an output of {:?} by the other sizes, not of {out:?}",
                conv.positions()
            ));
        }
        let (workload, tags) = self.biased(&conv, workload)?;
        let name = named(&plain_name(&conv), &tags);
        let format = match self.precision.as_str() {
            "FP32" => return Ok((name, workload)),
            "FP16" => DType::F16,
            "BF16" => DType::Bf16,
            other => {
                return Err(format!(
                    "a precision of {} has no workload; FP32, FP16 and BF16 have",
                    shown(other)
                ));
            }
        };
        Ok((format!("{name}_{}", format.name()), in_format(workload, format)?))
    }

    /// The workload with the bias that a forward convolution may have.
    fn biased(&self, conv: &Workloads, w: Workload) -> Result<(Workload, Vec<String>), String> {
        let (Some(bias), Direction::Forward, 1..) = (conv.bias(), conv.direction, self.bias) else {
            return Ok((w, Vec::new()));
        };
        let mut steps = Epilogue::none();
        let operand = steps.operand("B", TensorKind::Weight, bias);
        steps.body = functions::add(steps.body.clone(), operand);
        Ok((steps.attach(w, &conv.output())?, vec!["bias".into()]))
    }
}

/// A convolution has the name that an operator line gives it.
fn plain_name(conv: &Workloads) -> String {
    match (conv.direction, conv.channels, conv.axes.as_slice()) {
        (Direction::Forward, Channels::First, [h, w]) => Conv {
            n: conv.n,
            c: conv.c,
            h: h.extent,
            w: w.extent,
            k: conv.k,
            r: h.kernel,
            s: w.kernel,
            stride: [h.stride, w.stride],
            pads: [h.pads[0], w.pads[0], h.pads[1], w.pads[1]],
            dilation: [h.dilation, w.dilation],
            groups: conv.groups,
        }
        .name(),
        _ => conv.name(),
    }
}
