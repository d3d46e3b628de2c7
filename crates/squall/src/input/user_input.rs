//! Reads an input of a request: a model.onnx, a list of operator lines (kernels.ops), one operator
//! line such as `matmul m=64 n=64 k=64`, a workload's text (a tensor expression), or a kernel.toml
//! (a user's own kernel). Output: an [`Input`] with its distinct tasks (kernels to tune); of a
//! model also the assignment, which says what operators become one kernel. Every verb begins here.

use crate::base::error::Error;
use crate::base::files::{read, read_model};
use crate::input::arrays::NamedArray;
use crate::input::given;
use crate::input::precision::Precision;
use crate::target::target_request::TargetRequest;
use serde_json::{Value, json};
use squall_compiler::{cpu_makes_chain, gpu_makes_chain};
use squall_core::graph::Model;
use squall_core::tasks::Untuned;
use squall_core::{Task, TaskId, Workload};
use squall_frontend::miopen::is_problem;
use squall_frontend::{UserKernel, import_kernel, import_ops};
use squall_graph::Assignment;
use squall_graph::candidate::MakesChain;
use squall_graph::halves::Halves;
use squall_graph::simplify::simplify;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kind of an input, which decides whether tasks share a budget or each has its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A model, whose tasks share a budget.
    Model,
    /// Single kernels, each of which has the whole budget.
    Kernels,
}

/// An input that was read.
#[derive(Clone)]
pub enum Input {
    /// A model, whose tasks are the kernels that cover it.
    Model(Box<ModelInput>),
    /// Single kernels.
    Kernels(KernelsInput),
}

/// A model that was read.
#[derive(Clone)]
pub struct ModelInput {
    /// Its name, for reports.
    pub name: String,
    /// The distinct kernels, with counts.
    pub tasks: Vec<Task>,
    /// Operators that are not tuned, and why.
    pub untuned: Vec<Untuned>,
    /// The kernels that cover it, and the layouts of its values.
    pub graph: Assignment,
    /// Its file, which holds the weights.
    pub path: PathBuf,
    /// Values of inputs that decide shapes, which are constants of the model.
    pub bound: Vec<NamedArray>,
    /// In another precision: for tasks of the graph those that stand in their place.
    pub remade: HashMap<TaskId, TaskId>,
    /// What it was, where its file computes in floats of 16 bits.
    pub halves: Option<Halves>,
    /// In which format its kernels are to work.
    pub precision: Precision,
    /// Whether that is the format of its file, in which parts of it may not compute.
    pub is_own_precision: bool,
    /// Which operators one behind the other have a kernel where it is to run.
    pub(crate) makes_chain: MakesChain,
}

/// Single kernels that were read.
#[derive(Clone)]
pub struct KernelsInput {
    /// Their name, for reports.
    pub name: String,
    /// The distinct kernels.
    pub tasks: Vec<Task>,
    /// The kernels of a kernel.toml, one for each task.
    pub own: Vec<UserKernel>,
    /// In which format they are to work.
    pub precision: Precision,
}

impl From<ModelInput> for Input {
    fn from(model: ModelInput) -> Input {
        Input::Model(Box::new(model))
    }
}

/// What an input is read for, which decides what kernels a model may have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReadFor {
    /// Where it is to run.
    pub target: TargetRequest,
    /// The format that its kernels are to work in, where one is asked for.
    pub precision: Option<Precision>,
    /// Whether its extents are some of a range.
    pub is_over_range: bool,
}

impl ReadFor {
    /// The format of a model's kernels, and whether it is the file's own. Where none is asked for,
    /// GPUs compute a model whose file computes in 16 bits in those, as they have arithmetic for
    /// them.
    fn format(&self, halves: Option<&Halves>) -> (Precision, bool) {
        let own = halves.and_then(|h| Precision::of_half(h.format));
        let own = own.filter(|_| self.precision.is_none() && !self.target.is_cpu());
        (self.precision.or(own).unwrap_or_default(), own.is_some())
    }

    /// Which operators one behind the other have a kernel there. Kernels of GPUs for them compute
    /// in 32-bit floats.
    fn makes_chain(&self, precision: Precision) -> MakesChain {
        match self.target.is_cpu() {
            true => cpu_makes_chain,
            false if precision == Precision::F32 => gpu_makes_chain,
            false => |_| false,
        }
    }
}

impl Input {
    /// An input of single kernels that are made by rule.
    fn of_tasks(name: String, tasks: Vec<Task>) -> Input {
        let (own, precision) = (Vec::new(), Precision::F32);
        Input::Kernels(KernelsInput { name, tasks, own, precision })
    }

    /// What it is.
    pub fn kind(&self) -> InputKind {
        match self {
            Input::Model(_) => InputKind::Model,
            Input::Kernels(_) => InputKind::Kernels,
        }
    }

    /// Its name, for reports.
    pub fn name(&self) -> &str {
        match self {
            Input::Model(model) => &model.name,
            Input::Kernels(kernels) => &kernels.name,
        }
    }

    /// The distinct kernels, with counts.
    pub fn tasks(&self) -> &[Task] {
        match self {
            Input::Model(model) => &model.tasks,
            Input::Kernels(kernels) => &kernels.tasks,
        }
    }

    /// Operators of a model that are not tuned, and why.
    pub fn untuned(&self) -> &[Untuned] {
        match self {
            Input::Model(model) => &model.untuned,
            Input::Kernels(_) => &[],
        }
    }

    /// The user's own kernels among its tasks.
    pub fn own(&self) -> &[UserKernel] {
        match self {
            Input::Model(_) => &[],
            Input::Kernels(kernels) => &kernels.own,
        }
    }

    /// In which format its kernels are to work.
    pub fn precision(&self) -> Precision {
        match self {
            Input::Model(model) => model.precision,
            Input::Kernels(kernels) => kernels.precision,
        }
    }

    /// The model, if it is one.
    pub fn model(&self) -> Option<&ModelInput> {
        match self {
            Input::Model(model) => Some(model),
            Input::Kernels(_) => None,
        }
    }

    /// The model; where it is none, the error says so in these words.
    pub(crate) fn model_or(&self, fault: &str) -> Result<&ModelInput, Error> {
        self.model().ok_or_else(|| Error::Input {
            place: self.name().into(),
            message: fault.into(),
            hint: "give a model.onnx".into(),
        })
    }

    /// The kernels that cover a model, and the layouts of its values.
    pub fn graph(&self) -> Option<&Assignment> {
        self.model().map(|model| &model.graph)
    }

    /// The input with its model changed; single kernels stay as they are.
    pub(crate) fn map_model(self, by: impl FnOnce(ModelInput) -> ModelInput) -> Input {
        match self {
            Input::Model(model) => by(*model).into(),
            kernels => kernels,
        }
    }

    /// The same where that may fail.
    pub(crate) fn try_model(
        self,
        by: impl FnOnce(ModelInput) -> Result<ModelInput, Error>,
    ) -> Result<Input, Error> {
        Ok(match self {
            Input::Model(model) => by(*model)?.into(),
            kernels => kernels,
        })
    }

    /// Its tasks, and the operators that are not tuned.
    pub fn json(&self) -> Value {
        let task = |t: &Task| {
            json!({
                "id": t.id.to_string(),
                "name": t.name,
                "kind": t.workload.kind,
                "count": t.count,
                "flop": t.workload.flop(), "bytes": t.workload.bytes().0, "nodes": t.nodes,
            })
        };
        let untuned_json = |u: &Untuned| json!({"node": u.node, "op": u.op, "reason": u.reason});
        let tasks: Vec<Value> = self.tasks().iter().map(task).collect();
        let untuned: Vec<Value> = self.untuned().iter().map(untuned_json).collect();
        let floats: Vec<Value> = self.floats_beside_bytes().iter().map(untuned_json).collect();
        let mut all = json!({"tasks": tasks, "untuned": untuned});
        // Of a model over bytes alone.
        if !floats.is_empty() {
            all["floats"] = floats.into();
        }
        all
    }

    /// Reads an input: the path of a `.onnx`, `.ops`, `.workload` or `.toml` file, an operator
    /// line, or a problem of MIOpen's, as a command of MIOpenDriver or a key of its databases.
    /// `dims` gives symbolic dimensions of models their extents. It is read for this CPU.
    pub fn load(text: &str, dims: &[(String, i64)]) -> Result<Input, Error> {
        Input::load_for(text, dims, &[], ReadFor::default())
    }

    /// The same for a target, where a model is to be run with these arrays: their extents bind
    /// dimensions that it leaves open, and values that decide shapes become constants of it.
    pub fn load_for(
        text: &str,
        dims: &[(String, i64)],
        given: &[NamedArray],
        read_for: ReadFor,
    ) -> Result<Input, Error> {
        let mut input = Input::read(text, dims, given, read_for)?;
        if let Input::Kernels(kernels) = &mut input {
            kernels.precision = read_for.format(None).0;
        }
        Ok(input)
    }

    fn read(
        text: &str,
        dims: &[(String, i64)],
        given: &[NamedArray],
        read_for: ReadFor,
    ) -> Result<Input, Error> {
        let path = Path::new(text);
        let extension =
            path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
        let is_file = path.is_file();
        if !is_file && is_operator_line(text) {
            return Input::kernels(text, "operator line", "operator".into());
        }
        if !is_file
            && !matches!(extension.as_str(), "onnx" | "ops" | "workload" | "toml")
            && !path.exists()
        {
            return Err(Error::Input {
                place: text.into(),
                message: "there is no such file, and it is no operator line".into(),
                hint: "an input is a model.onnx, a list.ops, a kernel.toml, or one operator in \
                       quotes: 'matmul m=64 n=64 k=64', or 'MIOpenDriver conv -n 1 ..'"
                    .into(),
            });
        }
        let bytes = if extension == "onnx" { read_model(path)? } else { read(path)? };
        let name =
            path.file_stem().map_or_else(|| text.into(), |s| s.to_string_lossy().into_owned());
        match extension.as_str() {
            "onnx" => {
                let made = given::read(&bytes, text, &name, dims, given, read_for.is_over_range)?;
                Input::of_model(made, path, name, read_for)
            }
            "toml" => Input::own_kernels(&utf8(bytes, path)?, path),
            "ops" => Input::kernels(&utf8(bytes, path)?, text, name),
            "workload" => {
                let fail = |e: squall_core::workload::WorkloadError| Error::Input {
                    place: text.into(),
                    message: e.to_string(),
                    hint: "`squall explain INPUT --stage expression` prints workloads as they are \
                           written"
                        .into(),
                };
                let workload = Workload::parse(&utf8(bytes, path)?).map_err(fail)?;
                let tasks = vec![Task::new(name.clone(), workload)];
                Ok(Input::of_tasks(name, tasks))
            }
            other => Err(Error::Input {
                place: text.into(),
                message: format!("files `.{other}` are not read"),
                hint: "name the file .onnx (a model), .ops (operator lines), .toml (a kernel of \
                       your own) or .workload (a workload's text)"
                    .into(),
            }),
        }
    }

    fn of_model(
        made: given::Specialised,
        path: &Path,
        name: String,
        read_for: ReadFor,
    ) -> Result<Input, Error> {
        let simple = simplify(made.model);
        let (precision, is_own_precision) = read_for.format(made.halves.as_ref());
        let makes_chain = read_for.makes_chain(precision);
        let graph =
            Assignment::of(Arc::new(simple), makes_chain).map_err(|message| Error::Input {
                place: path.display().to_string(),
                message,
                hint: "please report this: it is a fault of Squall's".into(),
            })?;
        let (tasks, untuned) = (graph.tasks().to_vec(), graph.untuned());
        let model = ModelInput {
            name,
            tasks,
            untuned,
            graph,
            path: path.into(),
            bound: made.bound,
            remade: HashMap::new(),
            halves: made.halves,
            precision,
            is_own_precision,
            makes_chain,
        };
        Ok(model.into())
    }

    /// A quantised model with its operators over bytes, for which CPUs have kernels; any other
    /// input as it is.
    pub fn in_bytes(self) -> Input {
        self.map_model(ModelInput::in_bytes)
    }

    /// Reads operator lines that are not in a file.
    pub fn lines(lines: &str, name: &str) -> Result<Input, Error> {
        Input::kernels(lines, name, name.into())
    }

    /// Reads the kernels of a kernel.toml, whose sources lie beside it.
    fn own_kernels(contents: &str, path: &Path) -> Result<Input, Error> {
        let read = |file: &str| {
            read(&path.with_file_name("").join(file)).map_err(|e| match e {
                Error::Read { source, .. } => source.to_string(),
                other => other.to_string(),
            })
        };
        let own =
            import_kernel(contents, &path.display().to_string(), &read).map_err(Error::Kernel)?;
        let tasks: Vec<Task> = own.iter().map(|k| k.task.clone()).collect();
        let name = match tasks.as_slice() {
            [only] => only.name.clone(),
            _ => path.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned()),
        };
        let precision = Precision::F32;
        Ok(Input::Kernels(KernelsInput { name, tasks, own, precision }))
    }

    fn kernels(lines: &str, place: &str, name: String) -> Result<Input, Error> {
        let import = import_ops(lines, &name)
            .map_err(|source| Error::Import { place: place.into(), source })?;
        // An input of one kernel has the kernel's name, which says more than the file's.
        let name = match import.tasks.as_slice() {
            [only] => only.name.clone(),
            _ => name,
        };
        Ok(Input::of_tasks(name, import.tasks))
    }

    /// The tasks whose name or id matches; an error where none does.
    pub fn select(&self, only: Option<&str>) -> Result<Vec<&Task>, Error> {
        let chosen: Vec<&Task> = match only {
            None => self.tasks().iter().collect(),
            Some(p) => self
                .tasks()
                .iter()
                .filter(|t| name_matches(p, &t.name) || t.id.to_string().starts_with(p))
                .collect(),
        };
        if chosen.is_empty() {
            return Err(match only {
                Some(p) => Error::Input {
                    place: self.name().into(),
                    message: format!("no task matches `{p}`"),
                    hint: format!(
                        "its tasks: {}",
                        listed(self.tasks().iter().map(|t| t.name.as_str()))
                    ),
                },
                None => Error::Nothing(format!(
                    "`{}` has no kernel to tune{}",
                    self.name(),
                    self.why_nothing()
                )),
            });
        }
        Ok(chosen)
    }

    fn why_nothing(&self) -> String {
        match self.untuned().first() {
            Some(u) => format!("; for instance `{}` ({}): {}", u.node, u.op, u.reason),
            None => String::new(),
        }
    }
}

impl ModelInput {
    /// The same model, covered by the kernels of another assignment.
    pub fn with_graph(self, graph: Assignment) -> ModelInput {
        let (tasks, untuned) = (graph.tasks().to_vec(), graph.untuned());
        ModelInput { graph, tasks, untuned, remade: HashMap::new(), ..self }
    }

    /// A quantised model with its operators over bytes, for which CPUs have kernels; any other as
    /// it is.
    pub(crate) fn in_bytes(self) -> ModelInput {
        self.rewritten(&squall_graph::bytes::in_bytes)
    }

    /// A model whose channels are shuffled with them read where they are; any other as it is.
    pub(crate) fn in_ranges(self) -> ModelInput {
        self.rewritten(&squall_graph::ranges::in_ranges)
    }

    /// The model rewritten; as it is where nothing is made of it, or no assignment fits what is.
    fn rewritten(self, by: &dyn Fn(&Model) -> Option<Model>) -> ModelInput {
        let made = by(self.graph.model());
        match made.map(|model| Assignment::of(Arc::new(model), self.makes_chain)) {
            Some(Ok(made)) => self.with_graph(made),
            _ => self,
        }
    }
}

/// The first few names.
fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.collect();
    if all.len() > 8 {
        format!("{}, .. ({} in all)", all[..8].join(", "), all.len())
    } else {
        all.join(", ")
    }
}

fn is_operator_line(text: &str) -> bool {
    text.contains('=') && text.trim().contains(char::is_whitespace) || is_problem(text)
}

fn utf8(bytes: Vec<u8>, path: &Path) -> Result<String, Error> {
    String::from_utf8(bytes).map_err(|e| Error::Input {
        place: path.display().to_string(),
        message: format!("it is not text: byte {} is not UTF-8", e.utf8_error().valid_up_to()),
        hint: "operator lines and workloads are plain text".into(),
    })
}

/// Whether a name fits a pattern: with `*` or `?` the pattern stands for the whole name, without
/// them it may stand anywhere in it. The store's queries mean the same.
pub fn name_matches(pattern: &str, name: &str) -> bool {
    if !pattern.contains(['*', '?']) {
        return name.contains(pattern);
    }
    let (p, n): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    // The place of the last star in the pattern, and the end of the part of the name it stands for.
    let (mut i, mut j, mut star) = (0, 0, None);
    while j < n.len() {
        if i < p.len() && p[i] == '*' {
            star = Some((i, j));
            i += 1;
        } else if i < p.len() && (p[i] == '?' || p[i] == n[j]) {
            i += 1;
            j += 1;
        } else if let Some((at, taken)) = star {
            star = Some((at, taken + 1));
            i = at + 1;
            j = taken + 1;
        } else {
            return false;
        }
    }
    p[i..].iter().all(|c| *c == '*')
}

/// Whether a tunable's name, or one that it had before, fits a pattern as [`name_matches`] says.
pub fn tunable_matches(pattern: &str, tunable: &str) -> bool {
    squall_core::tunable_names(tunable).any(|name| name_matches(pattern, name))
}

/// A path in another file's folder; the name may hold any characters.
pub fn beside(file: &Path, name: &str) -> PathBuf {
    let clean: String = name
        .chars()
        .map(|c| if c.is_alphanumeric() || "._-+".contains(c) { c } else { '_' })
        .take(100)
        .collect();
    file.with_file_name(clean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (p, n, yes) in [
            ("conv", "my_conv2", true),
            ("conv*", "my_conv2", false),
            ("*conv*", "my_conv2", true),
            ("*c?nv2", "my_conv2", true),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "aXbYbZ", false),
        ] {
            assert_eq!(name_matches(p, n), yes, "{p} {n}");
        }
    }

    #[test]
    fn former_names_of_tunables_fit_patterns() {
        for (pattern, tunable, yes) in [
            ("gpu_group", "gpu_warpgroup", true),
            ("gpu_gr*", "gpu_warpgroup", true),
            ("gpu_warp*", "gpu_warpgroup", true),
            ("warpgroup", "gpu_warpgroup", true),
            ("gpu_group", "gpu_tile", false),
            ("gpu_warpgroup", "gpu_group", false),
        ] {
            assert_eq!(tunable_matches(pattern, tunable), yes, "{pattern} {tunable}");
        }
    }

    #[test]
    fn what_is_no_input_says_so() {
        let Err(e) = Input::load("/no/such/thing", &[]) else { panic!("it loads") };
        assert!(
            e.to_string().contains("no such file")
                && e.hint().is_some_and(|h| h.contains("matmul"))
        );
        let Err(e) = Input::load("/no/such/model.onnx", &[]) else { panic!("it loads") };
        assert!(matches!(e, Error::Read { .. }));
    }

    #[test]
    fn names_of_files_stay_in_their_folder() {
        assert_eq!(beside(Path::new("a/b.squall"), "../x y"), Path::new("a/.._x_y"));
    }
}
