//! A convolution as MIOpen's databases name it, and the GPUs that the databases are for.
//! [`Convolution`] parses and prints a key; from it come the [`Problem`] that predictors learn
//! from, and, in `kernels.rs`, a workload.
//!
//! A key is `a-h-w-RxS-b-oh-ow-n-PHxPW-SHxSW-DHxDW-bias-layout-precision-direction[_gG]`, with a
//! depth beside each size where the convolution is in three dimensions, and three layouts where
//! they differ. `a h w` are of the kernel's input, `b oh ow` of its output: for backward directions
//! the input is the gradient of the forward output.

use squall_core::forecast::Problem;
use std::path::Path;

/// A convolution in one direction. Sizes are by axis: height and width, or depth, height and width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Channels of the kernel's input.
    pub a: i64,
    /// Its size.
    pub input: Vec<i64>,
    /// Size of the filter.
    pub filter: Vec<i64>,
    /// Channels of the kernel's output.
    pub b: i64,
    /// Its size.
    pub output: Vec<i64>,
    /// Images.
    pub n: i64,
    /// Padding on each side.
    pub padding: Vec<i64>,
    /// Steps of the filter.
    pub stride: Vec<i64>,
    /// Distance of the filter's taps.
    pub dilation: Vec<i64>,
    /// Whether a bias is added.
    pub bias: i64,
    /// `NCHW`, or three where they differ: `NHWC-NCHW-NCHW`.
    pub layout: String,
    /// FP32, FP16, BF16, INT8, ..
    pub precision: String,
    /// F forward, B backward data, W backward weights.
    pub direction: char,
    /// Groups.
    pub groups: i64,
}

impl Convolution {
    /// Reads a key.
    pub fn parse(key: &str) -> Result<Convolution, String> {
        let wrong = |what: &str, part: &str| {
            Err(format!("`{}` is no {what} of a problem", crate::error::shown(part)))
        };
        let (head, groups) = match key.split_once("_g") {
            Some((head, g)) => match whole(g) {
                Some(g) if g > 0 => (head, g),
                _ => return wrong("number of groups", g),
            },
            None => (key, 1),
        };
        let parts: Vec<&str> = head.split('-').collect();
        // The place of the filter says how many dimensions there are.
        let dimensions = match parts.iter().position(|p| p.contains('x')) {
            Some(3) => 2,
            Some(4) => 3,
            _ => return wrong("key", key),
        };
        let layouts = match parts.len().checked_sub(10 + 2 * dimensions) {
            Some(1) => 1,
            Some(3) => 3,
            _ => return wrong("key", key),
        };
        let mut at = 0;
        let mut next = || {
            at += 1;
            parts[at - 1]
        };
        let number = |part: &str| {
            whole(part)
                .filter(|&n| n > 0)
                .ok_or(format!("`{}` is no size of a problem", crate::error::shown(part)))
        };
        let axes = |part: &str, least: i64| -> Result<Vec<i64>, String> {
            let all: Option<Vec<i64>> =
                part.split('x').map(|p| whole(p).filter(|&n| n >= least)).collect();
            all.filter(|a| a.len() == dimensions)
                .ok_or(format!("`{}` is no size of a problem", crate::error::shown(part)))
        };
        let a = number(next())?;
        let input = (0..dimensions).map(|_| number(next())).collect::<Result<_, _>>()?;
        let filter = axes(next(), 1)?;
        let b = number(next())?;
        let output = (0..dimensions).map(|_| number(next())).collect::<Result<_, _>>()?;
        let n = number(next())?;
        let (padding, stride, dilation) = (axes(next(), 0)?, axes(next(), 1)?, axes(next(), 1)?);
        let bias = next();
        let Some(bias) = whole(bias) else { return wrong("bias", bias) };
        let layout = (0..layouts).map(|_| next()).collect::<Vec<_>>().join("-");
        let precision = next();
        let direction = next();
        let is_word =
            |w: &str| !w.is_empty() && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !is_word(precision) || !is_word(&layout) {
            return wrong("precision or layout", &format!("{layout}-{precision}"));
        }
        let direction = match direction {
            "F" => 'F',
            "B" => 'B',
            "W" => 'W',
            other => return wrong("direction (F, B or W)", other),
        };
        Ok(Convolution {
            a,
            input,
            filter,
            b,
            output,
            n,
            padding,
            stride,
            dilation,
            bias,
            layout,
            precision: precision.into(),
            direction,
            groups,
        })
    }

    /// Its key.
    pub fn key(&self) -> String {
        let by =
            |v: &[i64], sign: &str| v.iter().map(i64::to_string).collect::<Vec<_>>().join(sign);
        let mut key = format!(
            "{}-{}-{}-{}-{}-{}-{}-{}-{}-{}-{}-{}-{}",
            self.a,
            by(&self.input, "-"),
            by(&self.filter, "x"),
            self.b,
            by(&self.output, "-"),
            self.n,
            by(&self.padding, "x"),
            by(&self.stride, "x"),
            by(&self.dilation, "x"),
            self.bias,
            self.layout,
            self.precision,
            self.direction
        );
        if self.groups != 1 {
            key += &format!("_g{}", self.groups);
        }
        key
    }

    /// The layer in the forward view: `C-H-W-K-R-S-PH-PW-SH-SW-DH-DW-G`.
    pub fn layer(&self) -> String {
        let (c, size, k) = if self.direction == 'F' {
            (self.a, &self.input, self.b)
        } else {
            (self.b, &self.output, self.a)
        };
        let mut parts = vec![c];
        parts.extend(size);
        parts.push(k);
        for v in [&self.filter, &self.padding, &self.stride, &self.dilation] {
            parts.extend(v);
        }
        parts.push(self.groups);
        parts.iter().map(i64::to_string).collect::<Vec<_>>().join("-")
    }

    /// The problem of running it on a device with a solver.
    pub fn problem(&self, solver: &str, device: &Device) -> Problem {
        let mut numbers: Vec<(String, i64)> =
            vec![("a".into(), self.a), ("b".into(), self.b), ("n".into(), self.n)];
        // Depth comes first where there is one, and has names of its own.
        let mut axes = |names: [&str; 3], v: &[i64]| {
            let names = &names[3 - v.len().min(3)..];
            numbers.extend(names.iter().zip(v).map(|(n, &i)| (n.to_string(), i)));
        };
        axes(["d", "h", "w"], &self.input);
        axes(["od", "oh", "ow"], &self.output);
        axes(["T", "R", "S"], &self.filter);
        axes(["PD", "PH", "PW"], &self.padding);
        axes(["SD", "SH", "SW"], &self.stride);
        axes(["DD", "DH", "DW"], &self.dilation);
        numbers.push(("bias".into(), self.bias));
        numbers.push(("g".into(), self.groups));
        numbers.push(("gfx".into(), device.gfx));
        numbers.extend(device.units.map(|u| ("cu".to_string(), u)));
        Problem {
            solver: solver.into(),
            device: device.name.clone(),
            words: vec![
                ("direction".into(), self.direction.to_string()),
                ("precision".into(), self.precision.clone()),
                ("layout".into(), self.layout.clone()),
            ],
            numbers,
            key: self.key(),
            layer: self.layer(),
        }
    }
}

/// Digits only: no sign, no space.
pub(super) fn whole(text: &str) -> Option<i64> {
    text.bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
        .filter(|&n: &i64| n <= i64::from(i32::MAX))
}

/// A GPU, by MIOpen's name for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// `gfx906_60`, or `gfx906` where the number of compute units is not known.
    pub name: String,
    /// The architecture's hexadecimal digits: 0x906.
    pub gfx: i64,
    /// Compute units.
    pub units: Option<i64>,
}

impl Device {
    /// Reads a name: `gfx906`, `gfx906_60`, or as newer databases have it `gfx9063c`, the number of
    /// compute units in hexadecimal.
    pub fn parse(name: &str) -> Result<Device, String> {
        let bad =
            || format!("`{}` is no device like gfx906 or gfx906_60", crate::error::shown(name));
        let rest = name.strip_prefix("gfx").ok_or_else(bad)?;
        let digits: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
        let units = match &rest[digits.len()..] {
            "" => None,
            tail => {
                Some(tail.strip_prefix('_').and_then(whole).filter(|&u| u > 0).ok_or_else(bad)?)
            }
        };
        // Architectures from gfx10 on have four digits.
        let wide = if digits.starts_with('1') { 4 } else { 3 };
        let hexadecimal = |t: &str| i64::from_str_radix(t, 16).ok();
        if digits.len() < wide
            || digits.len() > wide + 3
            || (digits.len() > wide && units.is_some())
        {
            return Err(bad());
        }
        let gfx = hexadecimal(&digits[..wide]).ok_or_else(bad)?;
        let units = units.or_else(|| hexadecimal(&digits[wide..]).filter(|&u| u > 0));
        let name = units.map_or_else(
            || format!("gfx{}", &digits[..wide]),
            |u| format!("gfx{}_{u}", &digits[..wide]),
        );
        Ok(Device { name, gfx, units })
    }

    /// The device that a database's name begins with: `gfx900_56-2.0.0.cd.pdb.txt.gz`.
    pub fn of_file(path: &Path) -> Option<Device> {
        let name = path.file_name()?.to_str()?;
        let after =
            |from: usize, is: fn(&char) -> bool| from + name[from..].chars().take_while(is).count();
        let architecture = after(name.strip_prefix("gfx").map(|_| 3)?, char::is_ascii_hexdigit);
        let units = name[architecture..]
            .strip_prefix('_')
            .map(|_| after(architecture + 1, char::is_ascii_digit));
        let end = units.filter(|&u| u > architecture + 1).unwrap_or(architecture);
        Device::parse(&name[..end]).ok()
    }
}
