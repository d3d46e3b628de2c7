//! TunaNet, the network that MIOpen ships for choosing solvers: read from its own files
//! (frugally-deep JSON and metadata), checked on its test vectors, and asked as MIOpen asks it. The
//! study in `mod.rs` compares it with Squall's chooser.

use serde_json::Value;
use squall_core::find::{ChannelOrder, FindProblem, PRECISIONS};
use std::path::Path;

/// Why a network's files cannot be used.
#[derive(Debug)]
pub struct TunaNetError(pub String);

impl std::fmt::Display for TunaNetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; give the folder of MIOpen's *.tn.model files", self.0)
    }
}

impl std::error::Error for TunaNetError {}

/// A layer; its inputs are places of layers before it.
#[derive(Clone)]
enum Layer {
    Input,
    Dense { from: usize, units: usize, weights: Vec<f32>, bias: Vec<f32> },
    Relu(usize),
    Add(usize, usize),
}

/// A network with what its metadata says.
#[derive(Clone)]
pub struct Network {
    /// `gfx942-2024-09`.
    pub name: String,
    layers: Vec<Layer>,
    features: Vec<String>,
    means: Vec<f64>,
    deviations: Vec<f64>,
    directions: [f64; 3],
    /// By place in [`PRECISIONS`].
    precisions: [Option<f64>; 4],
    layouts: [Option<f64>; 2],
    /// By place among the outputs; before them stand outputs that are no solvers.
    solvers: Vec<String>,
    skipped: usize,
    /// Whether it is the oldest form, which takes square filters of dilation 1 without groups.
    old: bool,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Little-endian floats in base64.
fn floats(text: &str) -> Option<Vec<f32>> {
    let mut bytes = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut have) = (0u32, 0);
    for c in text.bytes().filter(|c| *c != b'=') {
        let six = match c {
            b'A'..=b'Z' => c - b'A',
            b'a'..=b'z' => c - b'a' + 26,
            b'0'..=b'9' => c - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(six);
        have += 6;
        if have >= 8 {
            have -= 8;
            bytes.push((bits >> have) as u8);
            bits &= (1 << have) - 1;
        }
    }
    Some(bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

/// A list of texts in base64, one after another.
fn all_floats(parts: &Value) -> Option<Vec<f32>> {
    let lists = parts.as_array()?.iter().map(|p| floats(p.as_str()?));
    Some(lists.collect::<Option<Vec<_>>>()?.concat())
}

fn layers(model: &Value) -> Option<Vec<Layer>> {
    let list = model["architecture"]["config"]["layers"].as_array()?;
    let name = |l: &Value| l["name"].as_str().unwrap_or_default().to_string();
    let names: Vec<String> = list.iter().map(name).collect();
    let mut out: Vec<Layer> = Vec::new();
    for (i, l) in list.iter().enumerate() {
        let from = |k: usize| {
            let node = l["inbound_nodes"][0][k][0].as_str()?;
            names[..i].iter().position(|n| n == node)
        };
        out.push(match l["class_name"].as_str()? {
            "InputLayer" => Layer::Input,
            "ReLU" => Layer::Relu(from(0)?),
            "Add" => Layer::Add(from(0)?, from(1)?),
            "Dense" => {
                let units = l["config"]["units"].as_u64()? as usize;
                let p = &model["trainable_params"][&names[i]];
                let (weights, bias) = (all_floats(&p["weights"])?, all_floats(&p["bias"])?);
                if units == 0 || bias.len() != units || weights.len() % units != 0 {
                    return None;
                }
                Layer::Dense { from: from(0)?, units, weights, bias }
            }
            _ => return None,
        });
    }
    Some(out)
}

impl Network {
    /// Reads all networks of a folder, each checked on its test vectors.
    pub fn read_all(folder: &Path) -> Result<Vec<Network>, TunaNetError> {
        let fault = |e: std::io::Error| TunaNetError(format!("{}: {e}", folder.display()));
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .map_err(fault)?
            .filter_map(|f| f.ok()?.file_name().into_string().ok())
            .filter_map(|n| n.strip_suffix(".tn.model").map(String::from))
            .filter(|n| !n.ends_with("_metadata"))
            .collect();
        names.sort();
        if names.is_empty() {
            return Err(TunaNetError(format!("{}: no network is there", folder.display())));
        }
        names.iter().map(|n| Network::read(folder, n)).collect()
    }

    fn read(folder: &Path, name: &str) -> Result<Network, TunaNetError> {
        let json = |file: String| -> Result<Value, TunaNetError> {
            let path = folder.join(file);
            let fault = |e: String| TunaNetError(format!("{}: {e}", path.display()));
            let text = squall::files::read_text(&path).map_err(|e| fault(e.to_string()))?;
            serde_json::from_str(&text).map_err(|e| fault(e.to_string()))
        };
        let model = json(format!("{name}.tn.model"))?;
        let about = json(format!("{name}_metadata.tn.model"))?;
        let network = Network::of(name, &model, &about).ok_or_else(|| {
            TunaNetError(format!("{name}: this is no TunaNet of a form that is known"))
        })?;
        network.check(&model)?;
        Ok(network)
    }

    fn of(name: &str, model: &Value, about: &Value) -> Option<Network> {
        let features: Vec<String> = about["conv_params_used_as_features"]
            .as_array()?
            .iter()
            .map(|f| f.as_str().map(String::from))
            .collect::<Option<_>>()?;
        // MIOpen normalises the MI300's by the statistics of the test rows.
        let stats = if name.starts_with("gfx942") { "test" } else { "overall" };
        let list = |what: &str| -> Option<Vec<f64>> {
            let of = &about["stats"][stats]["features"][what];
            features.iter().map(|f| of[f].as_f64()).collect()
        };
        let codes = &about["encodings"];
        let code = |kind: &str, word: &str| codes[kind][word].as_f64();
        let mut solvers: Vec<(u64, String)> = codes["solver"]
            .as_object()?
            .iter()
            .map(|(s, n)| Some((n.as_u64()?, s.clone())))
            .collect::<Option<_>>()?;
        solvers.sort();
        let outputs = about["num_outputs"].as_u64()? as usize;
        Some(Network {
            name: name.into(),
            layers: layers(model)?,
            means: list("mean")?,
            deviations: list("std")?,
            directions: [code("Direction", "F")?, code("Direction", "B")?, code("Direction", "W")?],
            precisions: PRECISIONS.map(|p| code("Precision", p)),
            layouts: [code("Layout", "NCHW"), code("Layout", "NHWC")],
            skipped: outputs.checked_sub(solvers.len())?,
            solvers: solvers.into_iter().map(|s| s.1).collect(),
            old: features.iter().any(|f| f == "InChannels"),
            features,
        })
    }

    /// Holds the network against the vectors that its file gives.
    fn check(&self, model: &Value) -> Result<(), TunaNetError> {
        for test in model["tests"].as_array().unwrap_or(&Vec::new()) {
            let of = |what: &str| all_floats(&test[what][0]["values"]);
            let (Some(x), Some(y)) = (of("inputs"), of("outputs")) else { continue };
            let given = self.forward(&x).unwrap_or_default();
            let off = given.iter().zip(&y).map(|(a, b)| (a - b).abs() / (1.0 + b.abs()));
            let off = off.fold(0.0, f32::max);
            if given.len() != y.len() || off > 1e-4 {
                return Err(TunaNetError(format!(
                    "{}: its test vector gives other values than its file says ({off:.1e})",
                    self.name
                )));
            }
        }
        Ok(())
    }

    fn forward(&self, x: &[f32]) -> Option<Vec<f32>> {
        let mut values: Vec<Vec<f32>> = Vec::new();
        for l in &self.layers {
            values.push(match l {
                Layer::Input => x.to_vec(),
                Layer::Relu(i) => values[*i].iter().map(|v| v.max(0.0)).collect(),
                Layer::Add(i, j) => {
                    values[*i].iter().zip(&values[*j]).map(|(a, b)| a + b).collect()
                }
                Layer::Dense { from, units, weights, bias } => {
                    let x = &values[*from];
                    if x.len() * units != weights.len() {
                        return None;
                    }
                    let mut out = bias.clone();
                    for (x, row) in x.iter().zip(weights.chunks_exact(*units)) {
                        out.iter_mut().zip(row).for_each(|(o, w)| *o += x * w);
                    }
                    out
                }
            });
        }
        values.pop()
    }

    /// Whether MIOpen asks it for a GPU.
    pub fn serves(&self, device: &str) -> bool {
        let architecture = self.name.split('-').next().unwrap_or("");
        device.split('_').next() == Some(architecture)
    }

    /// The network's solvers, best first; nothing where MIOpen does not ask it.
    pub fn order(&self, p: &FindProblem) -> Option<Vec<&str>> {
        let s = |at: usize| p.sizes[at];
        let layout = match p.order {
            ChannelOrder::First => self.layouts[0]?,
            ChannelOrder::Last => self.layouts[1]?,
            ChannelOrder::Mixed => return None,
        };
        let precision = self.precisions[usize::from(p.precision)]?;
        let even = s(16) == s(17) && s(19) == s(20);
        let plain = s(21) == 1 && s(10) == s(11) && s(13) == s(14) && s(19) == 1;
        if p.deep || !even || self.old && !plain {
            return None;
        }
        let number = |name: &String| -> Option<f64> {
            Some(match name.as_str() {
                "Inp_0" | "InChannels" => s(0).into(),
                "Inp_2" | "InHeight" => s(2).into(),
                "Inp_3" | "InWidth" => s(3).into(),
                "Out_0" | "OutChannels" => s(4).into(),
                "Out_2" | "OutHeight" => s(6).into(),
                "Out_3" | "OutWidth" => s(7).into(),
                "Fil_1" | "FilterDim1" => s(10).into(),
                "Fil_2" | "FilterDim2" => s(11).into(),
                "Pad_1" | "Padding1" => s(13).into(),
                "Pad_2" | "Padding2" => s(14).into(),
                "Str_1" | "Stride1" => s(16).into(),
                "Str_2" | "Stride2" => s(17).into(),
                "Dil_1" | "Dilation1" => s(19).into(),
                "Dil_2" | "Dilation2" => s(20).into(),
                // Depth, and its pad and stride, are 1.
                "InDepth" | "OutDepth" | "FilterDim0" | "Padding0" | "Stride0" => 1.0,
                "BatchSize" => s(8).into(),
                "Layout" => layout,
                "Precision" => precision,
                "Direction" => self.directions[usize::from(p.direction)],
                "GroupSize" => s(21).into(),
                _ => return None,
            })
        };
        let x: Vec<f32> = self
            .features
            .iter()
            .zip(self.means.iter().zip(&self.deviations))
            .map(|(f, (mean, deviation))| Some(((number(f)? - mean) / deviation.max(1e-12)) as f32))
            .collect::<Option<_>>()?;
        let y = self.forward(&x)?;
        let y = y.get(self.skipped..)?;
        let mut order: Vec<usize> = (0..self.solvers.len().min(y.len())).collect();
        order.sort_by(|&a, &b| y[b].total_cmp(&y[a]));
        let names = order.into_iter().map(|i| self.solvers[i].as_str());
        Some(names.filter(|n| is_of(n, p.direction)).collect())
    }
}

/// Whether a solver's name does not say another direction; MIOpen skips what does not apply.
fn is_of(name: &str, direction: u8) -> bool {
    let lower = name.to_lowercase();
    let (weights, backward) = (lower.contains("wrw"), lower.contains("bwd"));
    let forward = lower.contains("fwd");
    match direction {
        0 => !weights && !backward,
        1 => !weights && !forward,
        _ => weights || !backward && !forward,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_gives_floats() {
        assert_eq!(floats("AACAPwAAAEA=").unwrap(), [1.0, 2.0]);
        assert!(floats("AA CA").is_none());
    }

    #[test]
    fn names_say_directions() {
        assert!(is_of("GemmFwd1x1_0_1", 0) && !is_of("GemmFwd1x1_0_1", 1));
        assert!(is_of("ConvOclBwdWrW2<16>", 2) && !is_of("ConvOclBwdWrW2<16>", 1));
        assert!(is_of("ConvBinWinogradRxSf2x3", 2) && is_of("fft", 0));
    }
}
