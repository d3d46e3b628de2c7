//! Reads an ONNX file without its large weights: seeks past their bytes and turns them into weights
//! with a place, which lies in the model's own file. Input: a file; output: the bytes of a small
//! model, or nothing where the file is not as it should be (it is then read as a whole).
//! `squall/src/base/files.rs` opens models by it.

use super::external::External;
use super::proto::{StringStringEntryProto, TensorProto};
use super::stored::Stored;
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint};
use squall_core::graph::{MOST_CONSTANT_ELEMENTS, elements};
use std::io::{self, Read, Seek, SeekFrom};

/// The location that stands for the model's own file where the place of a weight is named.
const OWN: &str = "\0own";

/// The longest part of a model that is looked at.
const LONGEST: u64 = 1 << 31;

impl External {
    /// Whether it lies in the model's own file.
    pub fn is_own(&self) -> bool {
        self.location == OWN
    }
}

const GRAPH: u64 = 7;
const INITIALIZER: u64 = 5;
const RAW_DATA: u64 = 9;
const EXTERNAL_DATA: u32 = 13;
const DATA_LOCATION: u32 = 14;

/// The most elements of a weight that an outline holds.
const MOST_OUTLINE_ELEMENTS: i64 = 16;

/// The bytes of a model of `size` bytes, in which weights with more elements than a model holds lie
/// where they are in the file. None where the file is not as it should be, or is so small that it
/// holds no such weight: it is read as a whole then.
pub fn read_thin(file: &mut (impl Read + Seek), size: u64) -> io::Result<Option<Vec<u8>>> {
    // Two elements may share a byte.
    let is_small = size <= MOST_CONSTANT_ELEMENTS as u64 / 2;
    if is_small { Ok(None) } else { without(file, size, MOST_CONSTANT_ELEMENTS) }
}

/// The outline of a model: its bytes, in which all weights but the smallest lie where they are in
/// the file. It is enough for names and shapes ([`super::signature`], [`crate::read_weights`]).
pub fn read_outline(file: &mut (impl Read + Seek), size: u64) -> io::Result<Option<Vec<u8>>> {
    without(file, size, MOST_OUTLINE_ELEMENTS)
}

/// As [`read_thin`], for weights with more elements than `most`.
fn without(file: &mut (impl Read + Seek), size: u64, most: i64) -> io::Result<Option<Vec<u8>>> {
    let mut walk = Walk { file, at: 0, size, most, graphs: 0, out: Vec::new() };
    match walk.message(size, Level::Model) {
        Ok(is_known) => Ok((is_known && walk.graphs == 1).then_some(walk.out)),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(e) => Err(e),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Model,
    Graph,
}

struct Walk<'f, F> {
    file: &'f mut F,
    at: u64,
    size: u64,
    most: i64,
    graphs: usize,
    /// The model that is made.
    out: Vec<u8>,
}

/// A field of a message: its number, and of one with a length its bytes; of others the bytes that
/// stand behind its key.
enum Field {
    Long(u64, u64),
    Short(u64, WireType, Vec<u8>),
}

impl<F: Read + Seek> Walk<'_, F> {
    /// Reads the next bytes of the file behind those in `to`. A count of a damaged file is larger
    /// than the file: no more is asked for than there is.
    fn read(&mut self, count: u64, to: &mut Vec<u8>) -> io::Result<()> {
        if self.size.checked_sub(self.at).is_none_or(|there| there < count) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.reserve(count as usize);
        let read = self.file.take(count).read_to_end(to)? as u64;
        self.at += read;
        if read == count { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn bytes(&mut self, count: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.read(count, &mut bytes)?;
        Ok(bytes)
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.bytes(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }

    /// The next field before `end`; none where it is of a kind that is not known.
    fn field(&mut self, end: u64) -> io::Result<Option<Field>> {
        let key = self.varint()?;
        let number = key >> 3;
        let made = match key & 7 {
            0 => {
                let mut bytes = Vec::new();
                encode_varint(self.varint()?, &mut bytes);
                Field::Short(number, WireType::Varint, bytes)
            }
            1 => Field::Short(number, WireType::SixtyFourBit, self.bytes(8)?),
            5 => Field::Short(number, WireType::ThirtyTwoBit, self.bytes(4)?),
            2 => Field::Long(number, self.varint()?),
            _ => return Ok(None),
        };
        let length = if let Field::Long(_, n) = made { n } else { 0 };
        let fits = length < LONGEST && self.at.checked_add(length).is_some_and(|to| to <= end);
        Ok(Some(made).filter(|_| fits && number > 0 && number < 1 << 29))
    }

    /// Appends the next bytes of the file to the model.
    fn append(&mut self, count: u64) -> io::Result<()> {
        let mut out = std::mem::take(&mut self.out);
        let read = self.read(count, &mut out);
        self.out = out;
        read
    }

    /// Appends a message that ends at `end`; false where a field of it is of no known kind.
    fn message(&mut self, end: u64, level: Level) -> io::Result<bool> {
        while self.at < end {
            let Some(field) = self.field(end)? else { return Ok(false) };
            let (number, length) = match field {
                Field::Short(number, wire, bytes) => {
                    encode_key(number as u32, wire, &mut self.out);
                    self.out.extend(bytes);
                    continue;
                }
                Field::Long(number, length) => (number, length),
            };
            let within = self.at + length;
            encode_key(number as u32, WireType::LengthDelimited, &mut self.out);
            let is_known = match (level, number) {
                (Level::Model, GRAPH) => {
                    self.graphs += 1;
                    self.graph(within)?
                }
                (Level::Graph, INITIALIZER) => self.tensor(within)?,
                _ => {
                    encode_varint(length, &mut self.out);
                    self.append(length)?;
                    true
                }
            };
            if !is_known {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Appends a graph that ends at `end`, behind its length. The length is known only at the end,
    /// so it is written into room for the longest one: ten bytes, the first nine with the bit that
    /// says that another byte follows.
    fn graph(&mut self, end: u64) -> io::Result<bool> {
        const ROOM: usize = 10;
        let begin = self.out.len();
        self.out.resize(begin + ROOM, 0x80);
        let is_known = self.message(end, Level::Graph)?;
        let mut length = (self.out.len() - begin - ROOM) as u64;
        for byte in &mut self.out[begin..begin + ROOM - 1] {
            *byte = 0x80 | (length & 0x7f) as u8;
            length >>= 7;
        }
        self.out[begin + ROOM - 1] = 0;
        Ok(is_known)
    }

    /// Appends a tensor that ends at `end`, behind its length and without its bytes if there are
    /// many.
    fn tensor(&mut self, end: u64) -> io::Result<bool> {
        let begin = self.at;
        let (mut out, mut raw) = (Vec::new(), None);
        while self.at < end {
            let Some(field) = self.field(end)? else { return Ok(false) };
            match field {
                Field::Short(number, wire, bytes) => {
                    encode_key(number as u32, wire, &mut out);
                    out.extend(bytes);
                }
                Field::Long(RAW_DATA, length) if raw.is_none() => {
                    raw = Some((self.at, length));
                    self.to(self.at + length)?;
                }
                Field::Long(RAW_DATA, _) => return Ok(false),
                Field::Long(number, length) => {
                    let bytes = self.bytes(length)?;
                    put(&mut out, number as u32, &bytes);
                }
            }
        }
        if let Some((offset, length)) = raw
            && TensorProto::decode(&out[..]).is_ok_and(|t| is_large(&t, length, self.most))
        {
            let entries = [("location", OWN.to_string()), ("offset", offset.to_string())];
            for (key, value) in entries {
                let entry = StringStringEntryProto { key: key.into(), value }.encode_to_vec();
                put(&mut out, EXTERNAL_DATA, &entry);
            }
            encode_key(DATA_LOCATION, WireType::Varint, &mut out);
            encode_varint(1, &mut out);
            encode_varint(out.len() as u64, &mut self.out);
            self.out.append(&mut out);
            return Ok(true);
        }
        self.to(begin)?;
        encode_varint(end - begin, &mut self.out);
        self.append(end - begin)?;
        Ok(true)
    }

    fn to(&mut self, at: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(at))?;
        self.at = at;
        Ok(())
    }
}

/// Whether a tensor whose raw data are `bytes` long has more elements than `most`, and as many as
/// its shape says.
fn is_large(t: &TensorProto, bytes: u64, most: i64) -> bool {
    let Ok(count) = elements(&t.dims) else { return false };
    let whole = Stored::of(t.data_type).is_some_and(|s| s.bytes(count as u64) == bytes);
    whole && count > most && t.data_location == 0 && t.external_data.is_empty()
}

fn put(out: &mut Vec<u8>, field: u32, payload: &[u8]) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(payload.len() as u64, out);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::super::external::external_weights;
    use super::super::proto::{GraphProto, ModelProto, NodeProto};
    use super::*;
    use std::io::Cursor;

    fn tensor(name: &str, data: &[f32]) -> TensorProto {
        TensorProto {
            name: name.into(),
            dims: vec![data.len() as i64],
            data_type: 1,
            raw_data: data.iter().flat_map(|x| x.to_le_bytes()).collect(),
            ..TensorProto::default()
        }
    }

    fn model(initializer: Vec<TensorProto>) -> Vec<u8> {
        let node = vec![NodeProto { op_type: "Add".into(), ..NodeProto::default() }];
        let graph = Some(GraphProto { node, initializer, ..GraphProto::default() });
        ModelProto { ir_version: 8, graph, ..ModelProto::default() }.encode_to_vec()
    }

    fn thin(bytes: &[u8]) -> Option<Vec<u8>> {
        without(&mut Cursor::new(bytes), bytes.len() as u64, 4).unwrap()
    }

    #[test]
    fn large_weights_stay_in_the_file_and_all_else_is_read() {
        let (small, large) = (tensor("s", &[1.0; 4]), tensor("l", &[0.5, 1.5, 2.5, 3.5, 4.5]));
        let bytes = model(vec![small.clone(), large.clone()]);
        let made = thin(&bytes).unwrap();
        let [place] = &external_weights(&made, "m").unwrap()[..] else { panic!() };
        assert!(place.is_own() && place.name == "l" && place.length == 20);
        let at = place.offset as usize;
        assert_eq!(bytes[at..at + 20], large.raw_data);
        let read = ModelProto::decode(&made[..]).unwrap();
        let was = ModelProto::decode(&bytes[..]).unwrap();
        let graphs = (read.graph.unwrap(), was.graph.unwrap());
        assert_eq!((graphs.0.node, &graphs.0.initializer[0]), (graphs.1.node, &small));
    }

    #[test]
    fn what_is_not_as_it_should_be_is_left_to_the_reader() {
        let large = tensor("l", &[0.5; 9]);
        let bytes = model(vec![large.clone()]);
        // Cut anywhere, nothing is made of it; nor of bytes that are too few for their shape.
        for n in 0..bytes.len() {
            assert_eq!(thin(&bytes[..n]), None, "{n}");
        }
        // Weights with another number of bytes than their shape says, or of no known type, stay.
        for t in [
            TensorProto { dims: vec![10], ..large.clone() },
            TensorProto { data_type: 77, ..large.clone() },
            tensor("s", &[1.0; 4]),
        ] {
            let bytes = model(vec![t]);
            let read = thin(&bytes).and_then(|b| ModelProto::decode(&b[..]).ok());
            assert_eq!(read, ModelProto::decode(&bytes[..]).ok());
        }
        // A graph that stands in two parts.
        assert_eq!(thin(&[bytes.clone(), bytes].concat()), None);
    }
}
