//! Options that several commands share, each defined once.

use crate::failure::Failure;
use crate::terminal::note;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use squall::frontend::npy::Array;
use squall::network::{Network, accepts};
use squall::{Aim, Aimed, Channels, Input, Store};
use std::path::PathBuf;

/// What to work on.
#[derive(Args)]
pub struct InputArgs {
    /// A model.onnx, a list.ops of operator lines, a kernel.toml, a file.workload, or one operator
    /// line in quotes
    #[arg(value_name = "INPUT")]
    pub input: String,
    /// Extent of a symbolic dimension of the model, for instance N=1; may be repeated
    #[arg(long = "dim", value_name = "NAME=EXTENT", value_parser = dimension)]
    pub dims: Vec<(String, i64)>,
    /// Where images that only a model's kernels see have their channels: `first`, as in the model,
    /// or `last` [default: last on a CPU; whole models are run as their tuned kernels are fastest
    /// together]
    #[arg(long, value_name = "ORDER", value_parser = channels())]
    pub channels: Option<Channels>,
    /// Cover a model by the kernels and layouts of this file: an assignment as `squall explain
    /// --stage assignment` prints it
    #[arg(long, value_name = "FILE", conflicts_with = "channels")]
    pub assignment: Option<PathBuf>,
}

impl InputArgs {
    /// Reads it, as it is to be tuned for a target.
    pub fn load(&self, target: Aim) -> Result<Input, Failure> {
        let input = Input::load(&self.input, &self.dims)?;
        if let Some(file) = &self.assignment {
            return Ok(input.with_assignment_file(file)?);
        }
        Ok(input.with_channels(self.channels.unwrap_or(Channels::usual(target))))
    }

    /// Reads it, as it is to be run or shipped: unless the user says where channels are, each image
    /// is as the kernels that the store has are fastest together.
    pub fn load_tuned(
        &self,
        store: Option<&Store>,
        target: Aim,
        threads: u16,
    ) -> Result<Input, Failure> {
        let input = Input::load(&self.input, &self.dims)?;
        if let Some(file) = &self.assignment {
            return Ok(input.with_assignment_file(file)?);
        }
        if let Some(channels) = self.channels {
            return Ok(input.with_channels(channels));
        }
        match store {
            Some(s) if input.graph.is_some() => {
                Ok(input.with_fastest_layout(s, &Aimed::at(target, threads.into())?)?)
            }
            _ => Ok(input),
        }
    }
}

fn channels() -> impl TypedValueParser<Value = Channels> {
    let named =
        |text: String| Channels::ALL.iter().find(|(_, name)| *name == text).map(|(c, _)| *c);
    PossibleValuesParser::new(Channels::ALL.iter().map(|(_, name)| *name))
        .try_map(move |text| named(text).ok_or("no such order"))
}

fn dimension(text: &str) -> Result<(String, i64), String> {
    let (name, extent) = text.split_once('=').ok_or("expected NAME=EXTENT, for instance N=1")?;
    let n: i64 = extent.trim().parse().map_err(|_| format!("`{extent}` is not a whole number"))?;
    if n < 1 || name.trim().is_empty() {
        return Err("expected a name and an extent of at least 1, for instance N=1".into());
    }
    Ok((name.trim().into(), n))
}

/// Where records are kept.
#[derive(Args)]
pub struct StoreArgs {
    /// The store of records
    #[arg(long, value_name = "FILE", env = "SQUALL_STORE", default_value = "tuned.squall")]
    pub store: PathBuf,
}

/// How many threads a kernel may use.
#[derive(Args)]
pub struct ThreadArgs {
    /// Threads that a kernel may use; records of different numbers do not mix
    #[arg(long, value_name = "T", env = "SQUALL_THREADS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: u16,
}

/// What kernels are tuned for.
#[derive(Args)]
pub struct TargetArgs {
    /// What kernels are for: `cpu`, a CUDA device as `cuda` or `cuda:N`, or all of one model as
    /// `cuda:all`
    #[arg(long, value_name = "TARGET", env = "SQUALL_TARGET", default_value = "cpu")]
    pub target: Aim,
}

impl TargetArgs {
    /// Refuses GPUs, on which whole models are not run.
    pub fn only_cpu(&self) -> Result<(), Failure> {
        match self.target {
            Aim::Cpu => Ok(()),
            _ => Err(Failure::usage(
                "whole models are run on the CPU only",
                "`squall tune` and `squall export` make their kernels for a GPU; here say \
                 `--target cpu`",
            )),
        }
    }
}

/// How a model is run as a whole.
#[derive(Args)]
pub struct NetworkArgs {
    /// Use the tuned kernels of this store; without it all loops are plain
    #[arg(long, value_name = "FILE", env = "SQUALL_STORE")]
    pub store: Option<PathBuf>,
    #[command(flatten)]
    pub target: TargetArgs,
    #[command(flatten)]
    pub threads: ThreadArgs,
    /// Keep the program that runs the network here; what did not change is not compiled again
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

impl NetworkArgs {
    /// Builds a model for an input, and says what its kernels and weights are.
    pub fn build(&self, model: &InputArgs, x: Option<&Array>) -> Result<Network, Failure> {
        self.target.only_cpu()?;
        let store = self.store.as_ref().map(Store::open_read_only).transpose()?;
        let model = model.load_tuned(store.as_ref(), self.target.target, self.threads.threads)?;
        x.map_or(Ok(()), |x| accepts(&model, x))?;
        let network = Network::build(
            &model,
            store.as_ref(),
            self.threads.threads as usize,
            self.keep.as_deref(),
        )?;
        let (kernels, tuned) = network.kernels();
        if tuned < kernels {
            note(format_args!("note: {} of {kernels} kernels are not tuned", kernels - tuned));
        }
        match network.random_weights() {
            [] => {}
            [first, ..] => {
                let n = network.random_weights().len();
                note(format_args!(
                    "warning: {n} weights are not in the file, for instance `{first}`: they are \
                     random"
                ));
            }
        }
        Ok(network)
    }
}

/// How output is written.
#[derive(Args)]
pub struct JsonArgs {
    /// Print JSON on stdout and everything else on stderr
    #[arg(long)]
    pub json: bool,
}
