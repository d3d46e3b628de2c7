//! The general predictor inside the binary, and the choice of predictors for a request: a request
//! may name a file, either of a predictor that was trained on records of this device or of another
//! general one; otherwise the shipped one is asked.

use super::file::GeneralPredictor;
use crate::base::error::Error;
use crate::predict::forecast::load;
use squall_predict::Predictor;
use std::path::Path;
use std::sync::{Arc, LazyLock};

/// The file that ships; `docs/general-predictor.md` says how it is made.
const FILE: &[u8] = include_bytes!("../../../assets/general.predictor");

/// The predictor that ships inside the binary; none if it was trained for kernels that this build
/// no longer generates (a test fails then).
pub fn shipped() -> Option<Arc<GeneralPredictor>> {
    static SHIPPED: LazyLock<Option<Arc<GeneralPredictor>>> = LazyLock::new(|| {
        GeneralPredictor::from_bytes("the general predictor inside squall", FILE).ok().map(Arc::new)
    });
    SHIPPED.clone()
}

/// The predictors that are asked for tasks without records.
pub(crate) struct Predictors {
    /// A predictor that was trained on records of this device.
    pub learned: Option<Predictor>,
    /// A general predictor: the request's, or else the shipped one.
    pub general: Option<Arc<GeneralPredictor>>,
}

impl Predictors {
    /// The predictors of a request, which may name a file of either kind.
    pub fn of(path: Option<&Path>) -> Result<Predictors, Error> {
        let Some(path) = path else { return Ok(Predictors { learned: None, general: shipped() }) };
        Ok(match GeneralPredictor::at(path)? {
            Some(general) => Predictors { learned: None, general: Some(Arc::new(general)) },
            None => Predictors { learned: Some(load(path)?), general: shipped() },
        })
    }
}
