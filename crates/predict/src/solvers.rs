//! Trains the models of all solvers beside each other: solvers are dealt out to threads, the
//! largest first, and a large one has several. The thread that asked for the training alone has the
//! checkpoint, hears of every epoch, and says whether to go on; no result depends on how the others
//! take turns.

use crate::checkpoint::{Checkpoint, NetworkId};
use crate::error::PredictError;
use crate::model::{Model, RowCount, Score, count, scores};
use crate::options::Options;
use crate::parallel;
use crate::ranker::RankerSizes;
use crate::train::State;
use crate::trainer::{Progress, Seen, Trainer, TrainingData};
use squall_core::forecast::{Example, Family, Part, Problem, Split};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// The data and the options of a training.
#[derive(Clone, Copy)]
pub struct TrainingRequest<'a> {
    /// The families; one without examples is passed over.
    pub families: &'a [Arc<Family>],
    /// Problems of all families with the values that tuning found.
    pub examples: &'a [Example],
    /// The split by which test rows are held out; they are scored. Without it all examples that are
    /// not for validation are learned.
    pub split: Option<Split>,
    /// The kind of model and the options of its training.
    pub options: &'a Options,
}

/// A trained model, and what is known of its examples.
pub(crate) struct Trained {
    pub rows: Vec<RowCount>,
    pub scores: Vec<Score>,
    pub model: Model,
}

/// A solver with its examples.
struct Job<'a> {
    family: &'a Arc<Family>,
    examples: Vec<&'a Example>,
    work: usize,
    threads: usize,
}

/// What a thread says that trains a solver's model.
enum Message<'a> {
    /// The state of one of the solver's networks, and whether its training is finished.
    State { solver: &'a str, network: String, member: usize, state: Box<State>, finished: bool },
    /// How far it is; it waits for an answer, whether to go on.
    Progress(Progress<'a>, Sender<bool>),
}

/// Trains the models of all families that have examples, in the order of the families. See
/// [`Predictor::resume`](crate::Predictor::resume).
pub(crate) fn train_all<'a>(
    request: TrainingRequest<'a>,
    part: &(dyn Fn(&Problem) -> Part + Sync),
    checkpoint: &mut Checkpoint,
    keep: &mut dyn FnMut(&Checkpoint),
    progress: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Vec<Trained>, PredictError> {
    let jobs = jobs(&request);
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(jobs[i].work));
    let begun = checkpoint.clone();
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done: Mutex<Vec<(usize, Result<Trained, PredictError>)>> = Mutex::new(Vec::new());
    let (say, heard) = channel::<Message<'a>>();
    let run = |say: Sender<Message<'a>>| {
        while let Some(&i) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let result = train(&jobs[i], request.options, part, &begun, &say);
            stop.fetch_or(result.is_err(), Ordering::Relaxed);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((i, result));
        }
    };
    std::thread::scope(|scope| {
        let run = &run;
        for _ in 0..request.options.threads.clamp(1, jobs.len().max(1)) {
            let say = say.clone();
            scope.spawn(move || run(say));
        }
        drop(say);
        for word in heard {
            match word {
                Message::State { solver, network, member, state, finished } => {
                    checkpoint.keep(
                        NetworkId { solver, network: &network, member },
                        &state,
                        finished,
                    );
                    if !finished {
                        keep(checkpoint);
                    }
                }
                Message::Progress(p, answer) => {
                    let on = !stop.load(Ordering::Relaxed) && progress(&p);
                    stop.fetch_or(!on, Ordering::Relaxed);
                    // A thread that no longer listens has failed, and says so by its result.
                    let _ = answer.send(on);
                }
            }
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(i, _)| *i);
    let (trained, failed): (Vec<_>, Vec<_>) =
        done.into_iter().map(|(_, r)| r).partition(Result::is_ok);
    // What was ended because another failed is not the reason.
    let mut reasons: Vec<PredictError> = failed.into_iter().filter_map(Result::err).collect();
    reasons.sort_by_key(|e| matches!(e, PredictError::Cancelled));
    match reasons.into_iter().next() {
        Some(reason) => Err(reason),
        None if stop.load(Ordering::Relaxed) => Err(PredictError::Cancelled),
        None => Ok(trained.into_iter().flatten().collect()),
    }
}

/// The families that have examples. Threads are shared out by the work that each is, each of them
/// twice: small solvers soon leave theirs to the others, and a network does not always use its own.
fn jobs<'a>(request: &TrainingRequest<'a>) -> Vec<Job<'a>> {
    let examples_of = |family: &Family| -> Vec<&'a Example> {
        request.examples.iter().filter(|e| e.problem.solver == family.solver()).collect()
    };
    let job = |family: &'a Arc<Family>| {
        let examples = examples_of(family);
        Job { family, work: work(family, &examples), examples, threads: 1 }
    };
    let mut jobs: Vec<Job> = request.families.iter().map(job).collect();
    jobs.retain(|j| !j.examples.is_empty());
    let total: usize = jobs.iter().map(|j| j.work).sum();
    for j in &mut jobs {
        let all = request.options.threads;
        j.threads = (2 * all * j.work).div_ceil(total.max(1)).clamp(1, all.max(1));
    }
    jobs
}

/// How much work a job is, compared with others: most of it is to score the candidates that are
/// drawn for each example.
fn work(family: &Family, examples: &[&Example]) -> usize {
    const ASKED: usize = 8;
    let (all, drawn) = (examples.len(), RankerSizes::default().negatives);
    let candidates = |e: &&Example| family.instance(&e.problem).map(|i| i.candidates().len());
    let some = examples.iter().step_by(all / ASKED + 1);
    let (sum, asked) = some
        .filter_map(|e| candidates(e).ok())
        .fold((0, 0), |(sum, asked), n| (sum + n.min(drawn), asked + 1));
    // What an example costs beside its candidates is worth about a third of those.
    all * (sum / asked.max(1) + drawn / 3)
}

/// Trains one solver's model, and scores it on its test rows.
fn train<'a>(
    job: &Job<'a>,
    options: &Options,
    part: &(dyn Fn(&Problem) -> Part + Sync),
    begun: &Checkpoint,
    say: &Sender<Message<'a>>,
) -> Result<Trained, PredictError> {
    let (family, all) = (job.family, &job.examples);
    let options = &Options { threads: job.threads, ..options.clone() };
    let is_inside = |e: &&Example, _: &mut ()| {
        family.instance(&e.problem).is_ok_and(|i| i.is_candidate(&e.values))
    };
    let inside = parallel::map(options.threads, all, is_inside);
    let rows = count(all, &inside, part);
    let known: Vec<&Example> =
        all.iter().zip(&inside).filter(|(_, i)| **i).map(|(e, _)| *e).collect();
    if !known.iter().any(|e| part(&e.problem) == Part::Train) {
        return Err(PredictError::Nothing(family.solver().to_owned()));
    }
    let mut on = true;
    let mut ask = |p: &Progress| {
        let p = Progress { solver: family.solver(), ..*p };
        // Where the other end is gone, so is this sender, and the answer is no.
        let (answer, answers) = channel();
        on = on && say.send(Message::Progress(p, answer)).is_ok() && answers.recv() == Ok(true);
        on
    };
    let mut put = |id: NetworkId, state: &State, finished: bool| {
        let (network, state) = (id.network.to_owned(), Box::new(state.clone()));
        let member = id.member;
        // The other end is there until all threads have ended.
        let solver = family.solver();
        let _ = say.send(Message::State { solver, network, member, state, finished });
    };
    let data = TrainingData { family: family.clone(), examples: &known, part, options };
    let mut trainer = Trainer { begun, put: &mut put, first: 0 };
    let model = Model::train(&data, &mut trainer, &mut ask)?;
    let Some(mut model) = model.filter(|_| on) else { return Err(PredictError::Cancelled) };
    *model.seen() = Seen::of(all);
    let is_test =
        |e: &&&Example| part(&e.problem) == Part::Test && family.instance(&e.problem).is_ok();
    let test: Vec<&Example> = all.iter().filter(is_test).copied().collect();
    let scores = scores(&model, &test, options.threads)?;
    Ok(Trained { rows, scores, model })
}
