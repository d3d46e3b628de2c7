//! The general predictor inside the binary, and the predictors that a request names.

use super::file::GeneralPredictor;
use crate::base::error::Error;
use crate::predict::forecast::load;
use squall_predict::Predictor;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// The file that ships; `docs/general-predictor.md` says how it is made.
const FILE: &[u8] = include_bytes!("../../../assets/general.predictor");

/// The predictor that ships inside the binary; nothing where it was made for other kernels than
/// this build generates, which a test tells.
pub fn shipped() -> Option<Arc<GeneralPredictor>> {
    static SHIPPED: LazyLock<Option<Arc<GeneralPredictor>>> = LazyLock::new(|| {
        GeneralPredictor::from_bytes("the general predictor inside squall", FILE).ok().map(Arc::new)
    });
    SHIPPED.clone()
}

/// What is asked for tasks of which nothing is known.
pub(crate) struct Predictors {
    /// One that was trained on records of this device.
    pub learned: Option<Predictor>,
    /// One for all tasks and CPUs: the request's, or else the one that ships.
    pub general: Option<Arc<GeneralPredictor>>,
}

impl Predictors {
    /// Those of a request, which may name a file of either kind.
    pub fn of(path: Option<&Path>) -> Result<Predictors, Error> {
        let Some(path) = path else { return Ok(Predictors { learned: None, general: shipped() }) };
        Ok(match GeneralPredictor::at(path)? {
            Some(general) => Predictors { learned: None, general: Some(Arc::new(general)) },
            None => Predictors { learned: Some(load(path)?), general: shipped() },
        })
    }
}
