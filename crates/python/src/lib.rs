//! The extension module `squall._squall` of the Python package: functions over the crate `squall`,
//! without any policy of its own. The package's public names are defined in Python, in
//! `python/squall`; this module takes and gives plain values and JSON (docs/python.md).

mod interrupt;
mod network;
mod search;
mod tune;

use pyo3::prelude::*;

/// The functions and classes that the package's Python files use.
#[pymodule]
mod _squall {
    #[pymodule_export]
    use super::network::export;
    #[pymodule_export]
    use super::search::{AskTell, SearchSpace, strategies};
    #[pymodule_export]
    use super::tune::{choose, predict, tasks, trials, tune};

    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("Error", module.py().get_type::<super::exception::Error>())?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}

/// The exception goes by the name that users catch it by: `squall.Error`.
mod exception {
    pyo3::create_exception!(
        squall,
        Error,
        pyo3::exceptions::PyException,
        "What the user can mend: the message says what is wrong, `hint` what to do about it."
    );
}

/// The exception of an error: its hint stands behind its message and in `hint`.
fn raised(py: Python<'_>, error: &squall::Error) -> PyErr {
    let hint = error.hint();
    let text = match &hint {
        Some(hint) => format!("{error}\n  hint: {hint}"),
        None => error.to_string(),
    };
    let raised = exception::Error::new_err(text);
    match raised.value(py).setattr("hint", hint) {
        Ok(()) => raised,
        Err(other) => other,
    }
}
