//! The libraries that can be timed beside Squall ([`Library`]: ONNX Runtime, OpenVINO), and the
//! result of timing one ([`Peer`]). To add a library, add a variant here and a branch in `peer.py`.

/// A library that runs ONNX models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// ONNX Runtime's CPU provider.
    OnnxRuntime,
    /// OpenVINO's CPU plugin.
    OpenVino,
}

impl Library {
    /// All of them.
    pub const ALL: [Library; 2] = [Library::OnnxRuntime, Library::OpenVino];

    /// The name on the command line and in reports, which is that of its Python package.
    pub fn name(self) -> &'static str {
        match self {
            Library::OnnxRuntime => "onnxruntime",
            Library::OpenVino => "openvino",
        }
    }
}

impl std::str::FromStr for Library {
    type Err = String;
    fn from_str(text: &str) -> Result<Library, String> {
        let named = Library::ALL.into_iter().find(|l| l.name() == text);
        named.ok_or_else(|| "expected `onnxruntime` or `openvino`".into())
    }
}

/// The result of a library beside Squall's.
#[derive(Clone, Debug, PartialEq)]
pub struct Peer {
    /// Which.
    pub library: Library,
    /// Its times, or why there are none.
    pub times: Result<PeerTimes, String>,
}

/// A library's times of whole inferences.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerTimes {
    /// Its version.
    pub version: String,
    /// The fastest inference.
    pub best_ns: u64,
    /// The median.
    pub median_ns: u64,
    /// How many were timed.
    pub inferences: u64,
    /// The greatest difference between its first output and ours, over the greatest element;
    /// `None` where their shapes differ.
    pub error: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_have_names() {
        for l in Library::ALL {
            assert_eq!(l.name().parse(), Ok(l));
        }
        assert!("tvm".parse::<Library>().is_err());
    }
}
