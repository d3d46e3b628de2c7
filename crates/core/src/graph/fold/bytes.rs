//! Evaluators that pack the constant weights of a quantised model for kernels of bytes
//! (`PackBytes`, `PackScales`). Input: weights as in the file with their scales, zero points and
//! bias; output: bytes in the kernels' order, and a scale and an offset for each channel of the
//! result. [`crate::graph::infer::bytes`] describes the operators, `core/src/operator/quantised.rs`
//! the kernels.

use super::{NOT_HERE, need};
use crate::graph::infer::bytes::{Weights, filled};
use crate::graph::infer::{Ctx, Output};
use crate::graph::{Constant, elements};
use crate::operator::{OFFSET_UNIT, sum_unit};

/// The numbers of the channels, from a vector that has one for each or one for all. Channels get
/// `otherwise` where there is no vector; so do channels that only fill up.
fn each(ctx: &Ctx, i: usize, count: i64, otherwise: f64) -> Result<Vec<f64>, String> {
    let Some(c) = ctx.constant(i, "numbers of channels")? else {
        return Ok(vec![otherwise; count as usize]);
    };
    let given = c.as_f32().ok_or(NOT_HERE)?;
    match given {
        [one] => Ok(vec![f64::from(*one); count as usize]),
        all if all.len() as i64 == count => Ok(all.iter().map(|x| f64::from(*x)).collect()),
        all => Err(format!("its input {i} has {} numbers for {count} channels", all.len())),
    }
}

/// The numbers that lead from the data's bytes to those of the result.
struct Steps {
    data_scale: f64,
    result_scale: f64,
    zero: f64,
    result_zero: f64,
}

impl Steps {
    fn of(ctx: &Ctx) -> Result<Steps, String> {
        let number = |name: &str| Ok::<f64, String>(f64::from(ctx.float_or(name, 1.0)?));
        let whole = |name: &str| Ok::<f64, String>(ctx.int_or(name, 0)? as f64);
        Ok(Steps {
            data_scale: number("data_scale")?,
            result_scale: number("result_scale")?,
            zero: whole("zero")?,
            result_zero: whole("result_zero")?,
        })
    }

    /// Scale and offset of a channel whose floats have this factor and addend, and whose weights
    /// have this sum.
    fn channel(&self, factor: f64, addend: f64, sum: f64) -> (f64, f64) {
        let scale = self.data_scale * factor / self.result_scale;
        (scale, addend / self.result_scale + self.result_zero - self.zero * sum * scale)
    }

    /// Scales over a unit and offsets of channels as kernels read them; those that only fill up, to
    /// `count`, have what stands for 0.
    fn vectors(
        &self,
        mut channels: Vec<(f64, f64)>,
        count: i64,
        unit: f64,
    ) -> Result<[Constant; 2], String> {
        channels.resize(count as usize, (0.0, self.result_zero));
        let vector = |data: Vec<f32>| match data.iter().all(|x| x.is_finite()) {
            true => Ok(Constant::F32 { shape: vec![count], data }),
            false => Err("its scales make numbers that are not finite".to_string()),
        };
        Ok([
            vector(channels.iter().map(|c| (c.0 / unit) as f32).collect())?,
            vector(channels.iter().map(|c| (c.1 / OFFSET_UNIT) as f32).collect())?,
        ])
    }
}

/// `PackBytes`: whole weights, and where given a bias, the weights' scales, and what the sum with
/// its bias is multiplied by.
pub(crate) fn pack(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let form = Weights::of(ctx)?;
    let given = need(ctx, 0)?;
    let (whole, shape) = (given.as_f32().ok_or(NOT_HERE)?, given.shape());
    if let Some(w) = whole.iter().find(|w| !(-128.0..=127.0).contains(*w) || w.fract() != 0.0) {
        return Err(format!("its weight {w} is no byte with a sign"));
    }
    let (channels, products) = match *shape {
        [c, 1, r, s] if form == Weights::Depthwise => (c, r * s),
        [k, c, r, s] => (k, c * r * s),
        [n, k] if form == Weights::Rows => (n, k),
        [k, n] => (n, k),
        _ => return Err(format!("weights of shape {shape:?} are no {}", form.name())),
    };
    let bias = each(ctx, 1, channels, 0.0)?;
    let (scales, factors) = (each(ctx, 2, channels, 1.0)?, each(ctx, 3, channels, 1.0)?);
    let packed = packed(form, shape, whole, &outputs[0].shape)?;
    let sum = |channel: i64| -> f64 {
        let of = |place: i64| f64::from(whole[place as usize]);
        match form {
            Weights::Columns => (0..products).map(|k| of(k * channels + channel)).sum(),
            _ => (0..products).map(|i| of(channel * products + i)).sum(),
        }
    };
    // Kernels know the power of two of sums over all that they see, filled up.
    let seen = match (form, shape) {
        (Weights::Filters, &[_, c, r, s]) => filled(c) * r * s,
        _ => products,
    };
    let unit = sum_unit(seen, form == Weights::Depthwise);
    let steps = Steps::of(ctx)?;
    let channel =
        |at: usize| steps.channel(scales[at] * factors[at], bias[at] * factors[at], sum(at as i64));
    let all = (0..channels as usize).map(channel).collect();
    let [s, z] = steps.vectors(all, outputs[1].shape[0], unit)?;
    Ok(vec![packed, s, z])
}

/// Weights in the order of kernels.
fn packed(form: Weights, shape: &[i64], whole: &[f32], to: &[i64]) -> Result<Constant, String> {
    let count = elements(to)? as usize;
    match (form, shape, to) {
        (Weights::Depthwise, &[c, _, r, s], &[_, _, filled]) => {
            let mut data = vec![0.0f32; count];
            for (channel, filter) in whole.chunks((r * s) as usize).enumerate().take(c as usize) {
                for (place, w) in filter.iter().enumerate() {
                    data[place * filled as usize + channel] = *w;
                }
            }
            Ok(Constant::F32 { shape: to.to_vec(), data })
        }
        (Weights::Filters, &[_, c, r, s], &[_, _, _, filled]) => {
            let mut data = vec![0i64; count];
            let places = (r * s) as usize;
            for (line, values) in whole.chunks(places).enumerate() {
                let (filter, channel) = (line / c as usize, line % c as usize);
                for (place, w) in values.iter().enumerate() {
                    data[(filter * places + place) * filled as usize + channel] = *w as i64;
                }
            }
            Ok(Constant::I64 { shape: to.to_vec(), data })
        }
        (Weights::Columns, &[k, n], _) => {
            let columns = (0..n).flat_map(|j| (0..k).map(move |i| (i * n + j) as usize));
            let data = columns.map(|at| whole[at] as i64).collect();
            Ok(Constant::I64 { shape: to.to_vec(), data })
        }
        _ => {
            let data = whole.iter().map(|w| *w as i64).collect();
            Ok(Constant::I64 { shape: to.to_vec(), data })
        }
    }
}

/// `PackScales`: what is added to floats of channels and what the sum is multiplied by, where
/// given; or, with the attribute `epsilon`, factors, addends, means and variances of a
/// normalisation.
pub(crate) fn pack_scales(ctx: &Ctx, outputs: &[Output]) -> Result<Vec<Constant>, String> {
    let channels = ctx.int_or("channels", 0)?;
    let (addends, factors): (Vec<f64>, Vec<f64>) = if ctx.node.attributes.contains_key("epsilon") {
        let epsilon = f64::from(ctx.float_or("epsilon", 0.0)?);
        let of = |i: usize| each(ctx, i, channels, 0.0);
        let (scale, shift, mean, variance) = (of(0)?, of(1)?, of(2)?, of(3)?);
        let factors: Vec<f64> =
            scale.iter().zip(variance).map(|(s, v)| s / (v + epsilon).sqrt()).collect();
        let channels = shift.iter().zip(mean).zip(&factors);
        (channels.map(|((b, m), f)| b - m * f).collect(), factors)
    } else {
        let (sums, factors) = (each(ctx, 0, channels, 0.0)?, each(ctx, 1, channels, 1.0)?);
        (sums.iter().zip(&factors).map(|(b, f)| b * f).collect(), factors)
    };
    let steps = Steps::of(ctx)?;
    let all =
        addends.iter().zip(&factors).map(|(addend, factor)| steps.channel(*factor, *addend, 1.0));
    steps.vectors(all.collect(), outputs[0].shape[0], 1.0).map(Vec::from)
}
