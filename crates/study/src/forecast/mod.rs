//! The study of predictors of tuned parameters: [`evaluate`] scores a predictor on examples that
//! were held out, [`compare`] trains models here and scores them, [`published`] has the numbers
//! that the paper reports (Mahmood, Khan, Afzal), and [`page`] shows all of it. `squall evaluate`
//! calls it.

mod evaluate;
mod page;
mod tables;

pub use evaluate::{
    AT, Asked, Evaluation, METHODS, RowReport, Study, Timing, compare, evaluate, pooled, time,
};
pub use page::{About, page};
pub use squall::forecast::MODELS;
pub use squall_predict::metrics::Share;
pub use tables::{Published, ROWS, published};
