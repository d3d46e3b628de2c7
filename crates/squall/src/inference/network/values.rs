//! Inputs and outputs of a network. Checks that the user's arrays fit the model's inputs (name,
//! type, shape), and turns the bytes that a run wrote into named arrays, also those whose extents
//! only the run knows.

use crate::base::error::Error;
use crate::input::arrays::NamedArray;
use squall_core::DType;
use squall_core::graph::infer::region::{GROWN, grown};
use squall_core::graph::{Model, ValueId};
use squall_frontend::npy::Array;
use squall_graph::Assignment;
use squall_graph::plan::Plan;

/// An input or an output.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkValue {
    /// Its name in the model.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Extents, outermost first; of an output of which only the run knows them, the largest, or
    /// one below 0 where nothing bounds it.
    pub shape: Vec<i64>,
}

impl NetworkValue {
    fn elements(&self) -> i64 {
        self.shape.iter().product()
    }
}

/// The inputs and the outputs of a model.
pub fn ends(graph: &Assignment) -> Result<[Vec<NetworkValue>; 2], String> {
    let model = graph.model();
    let one = |id: &ValueId| {
        let v = &model.values[*id];
        // The first node that has a problem says more than what came of it.
        let why = |what: &str| {
            let first = model.nodes.iter().find_map(|n| Some((n, n.problem.as_ref()?)));
            match first {
                Some((n, problem)) => format!("node `{}` ({}): {problem}", n.name, n.op),
                None => format!("the {what} of `{}` is not known", v.name),
            }
        };
        let dtype = v.dtype.ok_or_else(|| why("type"))?;
        let shape = v.shape.clone().ok_or_else(|| why("shape"))?;
        Ok(NetworkValue { name: v.name.clone(), dtype, shape })
    };
    let all = |ids: &[ValueId]| ids.iter().map(one).collect::<Result<Vec<_>, String>>();
    let [inputs, mut outputs] = [all(&model.inputs)?, all(&model.outputs)?];
    for (v, id) in outputs.iter_mut().zip(&model.outputs) {
        if let Some((dtype, extents)) = growing(model, *id) {
            (v.dtype, v.shape) = (dtype, extents.into_iter().map(|e| e.max(-1)).collect());
        }
    }
    Ok([inputs, outputs])
}

/// The type and the extents of a value whose memory grows in the run.
fn growing(model: &Model, id: ValueId) -> Option<(DType, Vec<i64>)> {
    let maker = model.nodes.iter().find(|n| n.outputs.contains(&id))?;
    let at = maker.outputs.iter().position(|o| *o == id)?;
    grown(maker).into_iter().nth(at)?
}

/// The extents and the elements of an output whose memory grew.
fn of_record(bytes: &[u8]) -> Option<(Vec<i64>, Vec<u8>)> {
    let (head, content) = bytes.split_at_checked(8 * GROWN as usize)?;
    let words: Vec<i64> = head.as_chunks::<8>().0.iter().map(|w| i64::from_ne_bytes(*w)).collect();
    let extents = words.get(3..)?.get(..usize::try_from(*words.get(2)?).ok()?)?.to_vec();
    Some((extents, content.to_vec()))
}

/// The arrays of a network's inputs, in its order: each is given once and fits. Values to which the
/// network was specialised must be the same.
pub fn fitting<'a>(
    model: &str,
    inputs: &[NetworkValue],
    bound: &[NamedArray],
    given: &'a [NamedArray],
) -> Result<Vec<&'a Array>, Error> {
    let fault = |message: String, hint: String| Error::Input { place: model.into(), message, hint };
    for (name, array) in bound {
        if given.iter().any(|(n, a)| n == name && a != array) {
            return Err(fault(
                format!("it was built for another value of `{name}`"),
                "shapes depend on this value: build the network again for the new one".into(),
            ));
        }
    }
    let one = |input: &NetworkValue| {
        let (name, dtype) = (&input.name, input.dtype);
        let Some((_, array)) = given.iter().find(|(n, _)| n == name) else {
            return Err(fault(
                format!("its input `{name}` ({} {:?}) is not given", dtype.name(), input.shape),
                format!("give it: --input {name}=X.npy"),
            ));
        };
        // NumPy has no bfloat16: its files hold the bits.
        let are_bits = (array.dtype, dtype) == (DType::U16, DType::Bf16);
        if array.dtype != dtype && !are_bits {
            return Err(fault(
                format!(
                    "input `{name}` is of {}, the given array of {}",
                    dtype.name(),
                    array.dtype.name()
                ),
                match dtype {
                    DType::Bf16 => "save its bits as uint16, or a tensor of ONNX (.pb)".into(),
                    _ => format!("save it with `.astype('{}')`", numpy_name(dtype)),
                },
            ));
        }
        if array.elements() as i64 != input.elements() {
            return Err(fault(
                format!(
                    "input `{name}` has shape {:?}, the given array {:?}",
                    input.shape, array.shape
                ),
                "give an array of the input's shape, or the batch with --dim".into(),
            ));
        }
        Ok(array)
    };
    inputs.iter().map(one).collect()
}

/// A type as NumPy calls it.
fn numpy_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 | DType::Tf32 | DType::U8x4 | DType::I8x4 | DType::Bf16x2 | DType::I16x2 => {
            "float32"
        }
        DType::F64 => "float64",
        DType::F16 | DType::Bf16 => "float16",
        DType::I8 => "int8",
        DType::I16 => "int16",
        DType::I32 => "int32",
        DType::I64 => "int64",
        DType::U8 => "uint8",
        DType::U16 => "uint16",
        DType::U32 => "uint32",
        DType::U64 => "uint64",
        DType::Bool => "bool",
    }
}

/// The outputs of a run, of which `raw` are the bytes in the plan's order: where only the run knows
/// their extents, these stand behind all outputs.
pub fn outputs(
    plan: &Plan,
    outputs: &[NetworkValue],
    raw: &[Vec<u8>],
) -> Result<Vec<NamedArray>, String> {
    let mut list = Vec::new();
    for (i, v) in outputs.iter().enumerate() {
        let mut bytes = raw.get(i).cloned().unwrap_or_default();
        let mut shape = v.shape.clone();
        if shape.iter().any(|e| *e < 0) {
            let read = of_record(&bytes);
            (shape, bytes) = read.ok_or_else(|| format!("output `{}` was not written", v.name))?;
        }
        if let Some(at) = plan.bounded.iter().position(|b| b.output == i) {
            let b = &plan.bounded[at];
            let said = raw.get(outputs.len() + at).map_or(&[][..], Vec::as_slice);
            let said: Vec<i64> =
                said.as_chunks::<8>().0.iter().map(|w| i64::from_ne_bytes(*w)).collect();
            let said = said.get(b.before..b.before + b.rank).unwrap_or_default();
            let fits = said.len() == shape.len()
                && said.iter().zip(&shape).all(|(n, most)| (0..=*most).contains(n));
            if !fits {
                return Err(format!(
                    "output `{}` says that its extents are {said:?}, at most {shape:?} are \
                     possible: please report this, it is a fault of Squall's",
                    v.name
                ));
            }
            shape = said.to_vec();
        }
        let size = shape.iter().product::<i64>() as usize * v.dtype.bytes() as usize;
        if bytes.len() < size {
            return Err(format!("output `{}` was not written", v.name));
        }
        bytes.truncate(size);
        list.push((v.name.clone(), Array { dtype: v.dtype, shape, bytes }));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_must_fit() {
        let inputs = [NetworkValue { name: "ids".into(), dtype: DType::I64, shape: vec![1, 2] }];
        let ids = Array { dtype: DType::I64, shape: vec![2], bytes: vec![0; 16] };
        let given = [("ids".to_string(), ids.clone())];
        assert_eq!(fitting("m", &inputs, &[], &given).unwrap(), [&ids]);
        let says = |given: &[NamedArray], bound: &[NamedArray], what: &str| {
            let e = fitting("m", &inputs, bound, given).unwrap_err().to_string();
            assert!(e.contains(what), "{e}");
        };
        says(&[], &[], "`ids` (i64 [1, 2]) is not given");
        says(&[("ids".into(), Array::floats(vec![1, 2], &[0.0; 2]))], &[], "is of i64");
        let long = Array { shape: vec![3], bytes: vec![0; 24], ..ids.clone() };
        says(&[("ids".into(), long)], &[], "the given array [3]");
        let other = Array { bytes: vec![1; 16], ..ids };
        let both = [given[0].clone(), ("k".to_string(), other.clone())];
        says(&both, &[("k".into(), given[0].1.clone())], "another value of `k`");
        assert!(fitting("m", &inputs, &[("k".into(), other)], &both).is_ok());
    }
}
