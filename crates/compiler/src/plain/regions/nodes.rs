//! Nodes of a region (nodes with extents that only the run knows, as one C function, `mod.rs`) that
//! become calls of routines of `values.c`: operators such as `Shape`, `Reshape`, `Concat`, `Slice`,
//! which move data or compute extents that only the run knows. Input: a node; output: a C line such
//! as `v_shape(v + 4, v + 2, 0, 64)`.

use super::{Level, Writer, list};
use crate::plain::program::{long, number};
use squall_core::DType;
use squall_core::graph::{Attribute, Constant, Node, ValueId};
use squall_core::text::shown;

/// The arguments of a routine's call.
struct Called<'n> {
    node: &'n Node,
    /// The first operand, and the first result.
    x: String,
    to: String,
    /// Bytes of an element of the result.
    size: u64,
}

impl<'n> Called<'n> {
    fn of(level: &Level<'_>, node: &'n Node) -> Result<Called<'n>, String> {
        let (to, size) = (level.v(node.outputs[0]), level.size(node.outputs[0])?);
        let first = node.inputs.first().copied().flatten();
        let x = first.map_or("0".into(), |id| level.v(id));
        Ok(Called { node, x, to, size })
    }

    fn need(&self, i: usize) -> Result<ValueId, String> {
        let operand = self.node.inputs.get(i).copied().flatten();
        operand.ok_or_else(|| format!("input {i} is missing"))
    }
}

impl Writer {
    /// Writes a node as the call of its routine; false where it has none.
    pub(super) fn routine(&mut self, level: &Level<'_>, n: &Node) -> Result<bool, String> {
        if !matches!(n.domain.as_str(), "" | "ai.onnx") || n.outputs.is_empty() {
            return Ok(false);
        }
        let c = Called::of(level, n)?;
        let int = |name, default| n.int_or(name, default);
        let Called { x, to, size, .. } = &c;
        match n.op.as_str() {
            "Identity" | "Dropout" => self.does(&format!("v_copy({to}, {x}, {size})")),
            "Shape" => {
                let (start, end) = (int("start", 0), int("end", 64));
                self.does(&format!("v_shape({to}, {x}, {}, {})", long(start), long(end)));
            }
            "Size" => {
                self.does(&format!("v_new({to}, 0, 0, 8)"));
                self.line(&format!("  *(long long *){to}->data = {x}->count;"));
            }
            "Reshape" => {
                let shape =
                    self.whole(level, n, Some(1), "shape")?.ok_or("its shape is missing")?;
                let zeros = int("allowzero", 0) != 0;
                self.does(&format!("v_reshape({to}, {x}, {shape}, {}, {size})", i64::from(zeros)));
            }
            "Flatten" => {
                let axis = long(int("axis", 1));
                self.line(&format!(
                    "  {{ long d[2] = {{1, 1}}, a = {axis}; if (a < 0) a += {x}->rank;\n  if (a < \
                     0 || a > {x}->rank) goto failed;\n  for (long i = 0; i < {x}->rank; i++) d[i \
                     >= a] *= {x}->dims[i];\n  if (v_as({to}, {x}, 2, d, {size})) goto failed; }}"
                ));
            }
            "Squeeze" | "Unsqueeze" => {
                let axes = self.whole(level, n, (self.opset >= 13).then_some(1), "axes")?;
                let name = n.op.to_lowercase();
                let axes = axes.unwrap_or_else(|| "0".into());
                self.does(&format!("v_{name}({to}, {x}, {axes}, {size})"));
            }
            "Expand" => {
                let shape =
                    self.whole(level, n, Some(1), "shape")?.ok_or("its shape is missing")?;
                self.does(&format!("v_expand({to}, {x}, {shape}, {size})"));
            }
            "Tile" => {
                let l =
                    self.whole(level, n, Some(1), "repeats")?.ok_or("its repeats are missing")?;
                self.does(&format!("v_tile({to}, {x}, {l}, {size})"));
            }
            "Slice" => {
                let by = |i: usize| (self.opset >= 10).then_some(i);
                let (by1, by2, by3, by4) = (by(1), by(2), by(3), by(4));
                let starts =
                    self.whole(level, n, by1, "starts")?.ok_or("its starts are missing")?;
                let ends = self.whole(level, n, by2, "ends")?.ok_or("its ends are missing")?;
                let axes = self.whole(level, n, by3, "axes")?.unwrap_or_else(|| "0".into());
                let steps = self.whole(level, n, by4, "steps")?.unwrap_or_else(|| "0".into());
                self.does(&format!(
                    "v_slice({to}, {x}, {starts}, {ends}, {axes}, {steps}, {size})"
                ));
            }
            _ => return self.made(level, n),
        }
        Ok(true)
    }

    /// Writes nodes that join, cut, fill or make values of lengths that the run computes.
    fn made(&mut self, level: &Level<'_>, n: &Node) -> Result<bool, String> {
        let c = Called::of(level, n)?;
        let (need, int) = (|i| c.need(i), |name, default| n.int_or(name, default));
        let Called { x, to, size, .. } = &c;
        match n.op.as_str() {
            "Concat" => {
                let rank = level.extents(need(0)?)?.len();
                let axis = squall_core::graph::infer::axis_of(int("axis", 1), rank)?;
                let all: Vec<String> = n.inputs.iter().flatten().map(|id| level.v(*id)).collect();
                self.line(&format!(
                    "  {{ const squall_v *x[] = {{{}}}; if (v_concat({to}, {}, x, {axis}, {size})) \
                     goto failed; }}",
                    all.join(", "),
                    all.len()
                ));
            }
            "Split" => self.split(level, n, need(0)?)?,
            "Range" => self.range(level, n, [need(0)?, need(1)?, need(2)?])?,
            "ConstantOfShape" => {
                let shape =
                    self.whole(level, n, Some(0), "shape")?.ok_or("its shape is missing")?;
                let value = match n.attributes.get("value") {
                    Some(Attribute::Tensor(t)) => t.constant.as_ref().map(first).unwrap_or(0.0),
                    _ => 0.0,
                };
                let ty = c_type(level.dtype(n.outputs[0])?)?;
                let value = number(value);
                self.line(&format!(
                    "  {{ const {ty} value = ({ty}){value}; if (v_fill({to}, {shape}, &value, \
                     {size})) goto failed; }}"
                ));
            }
            "Pad" if self.opset >= 11 => self.pad(level, n, need(0)?)?,
            "OneHot" => {
                let kind = |id: ValueId| match level.dtype(id)? {
                    DType::I64 => Ok(0),
                    DType::I32 => Ok(1),
                    DType::F32 => Ok(2),
                    d => Err(format!("its indices are of {}", d.name())),
                };
                let rank = level.extents(need(0)?)?.len() + 1;
                let axis = squall_core::graph::infer::axis_of(int("axis", -1), rank)?;
                let (depth, values) = (need(1)?, need(2)?);
                self.does(&format!(
                    "v_one_hot({to}, {x}, {}, {}, {}, {}, {axis}, {size})",
                    kind(need(0)?)?,
                    level.v(depth),
                    kind(depth)?,
                    level.v(values)
                ));
            }
            "Resize" if self.opset >= 11 => return self.resize(level, n, need(0)?),
            op if op.starts_with("Reduce") => match n.inputs.get(1).copied().flatten() {
                Some(axes) if self.known(level, axes).is_none() => self.reduce(level, n)?,
                None if level.is_of_any_rank(need(0)?) => self.reduce(level, n)?,
                _ => return Ok(false),
            },
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Writes a reduction along axes that only the run knows: kept axes are moved first, and each
    /// row of the other axes becomes one number.
    fn reduce(&mut self, level: &Level<'_>, n: &Node) -> Result<(), String> {
        let c = Called::of(level, n)?;
        let axes = self.whole(level, n, Some(1), "axes")?;
        let axes = axes.unwrap_or_else(|| "&(squall_list){0, {0}}".into());
        let (keeps, none) =
            (n.int_or("keepdims", 1) != 0, n.int_or("noop_with_empty_axes", 0) != 0);
        let dtype = level.dtype(c.need(0)?)?;
        let rows = self.rows(&n.op, dtype)?;
        let room = self.slots;
        self.slots += 1;
        let Called { x, to, size, .. } = &c;
        self.line(&format!(
            "  {{ long e[2]; if (v_rows(v + {room}, {to}, {x}, {axes}, {}, {}, e, {size})) goto \
             failed;",
            i64::from(keeps),
            i64::from(none),
        ));
        let ins = [format!("(v + {room})->data"), "e".into()];
        self.run(&rows.0, &ins, &[format!("{to}->data")], "", &rows.1);
        self.line(&format!("  v_drop(v + {room}); }}"));
        Ok(())
    }

    /// A resize along all axes, by scales or to sizes that the run computes.
    fn resize(&mut self, level: &Level<'_>, n: &Node, x: ValueId) -> Result<bool, String> {
        let text = |name: &str, default: &'static str| match n.attributes.get(name) {
            Some(Attribute::String(s)) => s.clone(),
            _ => default.to_string(),
        };
        let place = |word: String, all: &[&str]| all.iter().position(|w| *w == word);
        let modes = [
            place(text("mode", "nearest"), &["nearest", "linear", "cubic"]),
            place(
                text("coordinate_transformation_mode", "half_pixel"),
                &["half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners"],
            ),
            place(
                text("nearest_mode", "round_prefer_floor"),
                &["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"],
            ),
        ];
        let [Some(mode), Some(coordinates), Some(rounding)] = modes else { return Ok(false) };
        let is_set = |name: &str| n.int_or(name, 0) == 1;
        let other = is_set("antialias") || is_set("exclude_outside");
        let policy = text("keep_aspect_ratio_policy", "stretch") != "stretch";
        let is_float = level.dtype(x)? == DType::F32;
        if other || policy || n.attributes.contains_key("axes") || mode > 0 && !is_float {
            return Ok(false);
        }
        let a = match n.attributes.get("cubic_coeff_a") {
            Some(Attribute::Float(a)) => f64::from(*a),
            _ => -0.75,
        };
        let operand = |i: usize| n.inputs.get(i).copied().flatten();
        let scales = operand(2).filter(|id| level.extents(*id).is_ok_and(|e| e != [0]));
        let (scales, sizes) = match (scales, operand(3)) {
            (Some(id), None) if level.dtype(id)? == DType::F32 => (level.v(id), "0".to_string()),
            (None, Some(_)) => {
                let sizes = self.whole(level, n, Some(3), "sizes")?;
                ("0".to_string(), sizes.ok_or("its sizes are missing")?)
            }
            _ => return Ok(false),
        };
        self.does(&format!(
            "v_resize({}, {}, {scales}, {sizes}, (const int[]){{{mode}, {coordinates}, \
             {rounding}}}, (float){}, {})",
            level.v(n.outputs[0]),
            level.v(x),
            number(a),
            level.size(x)?
        ));
        Ok(true)
    }

    /// A list of whole numbers: of an operand, or of an attribute where that is none's place.
    fn whole(
        &mut self,
        level: &Level<'_>,
        n: &Node,
        place: Option<usize>,
        name: &str,
    ) -> Result<Option<String>, String> {
        let operand = place.and_then(|i| n.inputs.get(i).copied().flatten());
        let Some(id) = operand else {
            return Ok(match n.attributes.get(name) {
                Some(Attribute::Ints(l)) => {
                    Some(format!("&(squall_list){{{}, {{{}}}}}", l.len(), list(l)))
                }
                _ => None,
            });
        };
        let d = level.dtype(id)?;
        if !super::calls::is_list(d) {
            return Err(format!("its {name} are of {}", d.name()));
        }
        let at = self.lists;
        self.lists += 1;
        self.does(&format!("v_list(lists + {at}, {}, {})", level.v(id), d.bytes()));
        Ok(Some(format!("lists + {at}")))
    }

    fn split(&mut self, level: &Level<'_>, n: &Node, x: ValueId) -> Result<(), String> {
        let rank = level.extents(x)?.len();
        let axis = squall_core::graph::infer::axis_of(n.int_or("axis", 0), rank)?;
        let sizes = self.whole(level, n, (self.opset >= 13).then_some(1), "split")?;
        let (v, size) = (level.v(x), level.size(x)?);
        let parts = n.outputs.len();
        if let Some(l) = &sizes {
            self.does(&format!("({l})->count != {parts}"));
        }
        let at = self.lists;
        self.lists += 1;
        self.line(&format!("  lists[{at}].at[0] = 0;"));
        for (k, &o) in n.outputs.iter().enumerate() {
            let each = format!("(({v}->dims[{axis}] + {parts} - 1) / {parts})");
            let count = match &sizes {
                Some(l) => format!("({l})->at[{k}]"),
                None => format!(
                    "(lists[{at}].at[0] + {each} > {v}->dims[{axis}] ? {v}->dims[{axis}] - \
                     lists[{at}].at[0] : {each})"
                ),
            };
            self.line(&format!("  lists[{at}].at[1] = {count};"));
            self.does(&format!(
                "v_piece({}, {v}, {axis}, lists[{at}].at[0], lists[{at}].at[1], {size})",
                level.v(o)
            ));
            self.line(&format!("  lists[{at}].at[0] += lists[{at}].at[1];"));
        }
        Ok(())
    }

    fn range(
        &mut self,
        level: &Level<'_>,
        n: &Node,
        [a, b, c]: [ValueId; 3],
    ) -> Result<(), String> {
        let d = level.dtype(a)?;
        let ty = c_type(d)?;
        let real = matches!(d, DType::F32 | DType::F64);
        let count = match real {
            true => "const double wide = ceil(((double)last - (double)first) / (double)step); \
                     const long n = wide > 0 ? wide < 1e12 ? (long)wide : -1 : 0;"
                .to_string(),
            // Differences of 64 bits are taken without a sign.
            false => "const unsigned long long wide = step > 0 ? (last > first ? (unsigned long \
                      long)last - (unsigned long long)first : 0) : (first > last ? (unsigned long \
                      long)first - (unsigned long long)last : 0), by = step > 0 ? (unsigned long \
                      long)step : 0 - (unsigned long long)step; const long n = (long)((wide / \
                      by) + (wide % by != 0));"
                .into(),
        };
        let to = level.v(n.outputs[0]);
        let value = match real {
            true => format!("({ty})(first + ({ty})i * step)"),
            false => {
                format!(
                    "({ty})((unsigned long long)first + (unsigned long long)i * (unsigned long \
                     long)step)"
                )
            }
        };
        self.line(&format!(
            "  {{ const {ty} first = *(const {ty} *){}->data, last = *(const {ty} *){}->data, \
             step = *(const {ty} *){}->data;\n  if (step == 0) goto failed;\n  {count}\n  if \
             (v_new({to}, 1, &n, {})) goto failed;\n  for (long i = 0; i < n; i++) (({ty} \
             *){to}->data)[i] = {value}; \
             }}",
            level.v(a),
            level.v(b),
            level.v(c),
            d.bytes()
        ));
        Ok(())
    }

    fn pad(&mut self, level: &Level<'_>, n: &Node, x: ValueId) -> Result<(), String> {
        let mode = match n.attributes.get("mode") {
            Some(Attribute::String(s)) => s.as_str(),
            _ => "constant",
        };
        let mode = match mode {
            "constant" => 0,
            "edge" => 1,
            "reflect" => 2,
            "wrap" => 3,
            other => return Err(format!("attribute `mode` is `{}`", shown(other))),
        };
        let pads = self.whole(level, n, Some(1), "pads")?.ok_or("its pads are missing")?;
        let axes = self.whole(level, n, Some(3), "axes")?.unwrap_or_else(|| "0".into());
        let value = match n.inputs.get(2).copied().flatten() {
            Some(id) => format!("{}->data", level.v(id)),
            None => "zero".into(),
        };
        let (to, v, size) = (level.v(n.outputs[0]), level.v(x), level.size(x)?);
        self.line(&format!(
            "  {{ const unsigned char zero[8] = {{0}}; (void)zero; if (v_pad({to}, {v}, {pads}, \
             {axes}, {mode}, {value}, {size})) goto failed; }}"
        ));
        Ok(())
    }
}

/// The first element of a constant.
fn first(c: &Constant) -> f64 {
    match c {
        Constant::F32 { data, .. } => data.first().map_or(0.0, |v| f64::from(*v)),
        Constant::F64 { data, .. } => data.first().copied().unwrap_or(0.0),
        Constant::I64 { data, .. } => data.first().map_or(0.0, |v| *v as f64),
        Constant::Bool { data, .. } => f64::from(u8::from(data.first() == Some(&true))),
    }
}

/// The type of elements in C.
fn c_type(d: DType) -> Result<&'static str, String> {
    crate::plain::program::c_type(d)
}
