//! The pacemaker: a kernel of the same task that is timed right before and after every measured
//! kernel, so that slow moments of a shared machine can be told from slow kernels. Input: the
//! measured time and the pacemaker's times around it; output: the time corrected by the pacemaker's
//! slowness.
//!
//! A slow moment does not affect all kernels alike. Where a neighbour takes bandwidth, a kernel
//! that waits for memory loses half of its speed, and one that multiplies all the time loses
//! nothing. The share of the pacemaker's slowness that other kernels have is learned from kernels
//! that were measured twice (docs/decisions/0023).

use squall_core::{Measurement, Nanos};
use squall_runtime::HostPlan;
use std::sync::Arc;

/// The most nanoseconds of a pacemaker: a slower kernel would be most of a trial's cost, and would
/// last longer than the moments that it should tell apart.
const SLOWEST: f64 = 5e6;

/// A kernel that is faster than the pacemaker by this factor replaces it, because two similar
/// kernels timed side by side say more about each other.
const BETTER: f64 = 1.4;

/// The factor by which a pacemaker, timed beside a kernel, was slower than at its best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slowness {
    factor: f64,
    /// The pacemaker's number.
    of: u32,
}

/// The pacemaker of a task, and what was learned from it so far.
pub(super) struct Pacemaker {
    /// How many pacemakers the task had before it.
    number: u32,
    /// Its plan.
    pub plan: Arc<HostPlan>,
    /// The least that it took in any moment, in ns.
    fastest: f64,
    sharing: Sharing,
}

/// How the logarithm of kernels' times goes with that of the pacemaker's: a line through the
/// origin, fitted to the differences between two measurements of one kernel.
#[derive(Clone, Copy)]
struct Sharing {
    xx: f64,
    xy: f64,
}

impl Sharing {
    /// The prior: a share of a half, as firm as one pair of measurements between which the
    /// pacemaker changed by a seventh.
    const PRIOR: Sharing = Sharing { xx: 0.02, xy: 0.01 };

    /// The share of the pacemaker's slowness that others have, from 0 to 1.
    fn share(self) -> f64 {
        (self.xy / self.xx).clamp(0.0, 1.0)
    }

    fn learn(&mut self, pacemaker: f64, kernel: f64) {
        // Beyond a factor of two something else happened.
        let (x, y) = (pacemaker.clamp(-0.7, 0.7), kernel.clamp(-0.7, 0.7));
        self.xx += x * x;
        self.xy += x * y;
    }

    /// For another pacemaker: the same share, no firmer than the prior.
    fn for_another(self) -> Sharing {
        Sharing { xx: Sharing::PRIOR.xx, xy: self.share() * Sharing::PRIOR.xx }
    }
}

impl Pacemaker {
    /// Replaces the present pacemaker by a kernel that took `nanos`, if that serves better.
    fn propose(present: &mut Option<Pacemaker>, plan: &Arc<HostPlan>, nanos: f64) {
        let worthy = present.as_ref().is_none_or(|p| nanos * BETTER < p.fastest);
        if worthy && nanos > 0.0 && nanos <= SLOWEST {
            let (number, sharing) = present
                .as_ref()
                .map_or((0, Sharing::PRIOR), |p| (p.number + 1, p.sharing.for_another()));
            *present = Some(Pacemaker { number, plan: Arc::clone(plan), fastest: nanos, sharing });
        }
    }

    /// Times a kernel beside the present pacemaker, if there is one and it took `nanos`: takes the
    /// moment's slowness out of its samples. A kernel that `may_lead` is proposed by what the clock
    /// said of it: with times that were corrected each pacemaker would seem slower than it ever
    /// was, and the next one's correction larger, without end.
    pub fn beside(
        present: &mut Option<Pacemaker>,
        plan: &Arc<HostPlan>,
        may_lead: bool,
        m: &mut Measurement,
        nanos: Option<f64>,
    ) -> Option<Slowness> {
        let clock = m.median().0;
        let mut slowness = None;
        if let (Some(p), Some(nanos)) = (present.as_mut(), nanos) {
            slowness = p.slowness(nanos);
            slowness.into_iter().for_each(|slowness| p.correct(m, slowness));
        }
        if may_lead {
            Pacemaker::propose(present, plan, clock);
        }
        slowness
    }

    /// The moment's slowness, by what the pacemaker took in it.
    fn slowness(&mut self, nanos: f64) -> Option<Slowness> {
        if nanos.is_nan() || nanos <= 0.0 {
            return None;
        }
        self.fastest = self.fastest.min(nanos);
        Some(Slowness { factor: nanos / self.fastest, of: self.number })
    }

    /// Takes the moment's slowness out of a kernel's samples, as far as its share is known now. A
    /// slowness by another pacemaker is left in.
    pub fn correct(&self, m: &mut Measurement, slowness: Slowness) {
        if slowness.of != self.number {
            return;
        }
        let pace = slowness.factor.powf(self.sharing.share());
        let before = m.pace.replace(pace).unwrap_or(1.0);
        m.samples.iter_mut().for_each(|s| *s = Nanos(s.0 * before / pace));
    }

    /// Joins two measurements of one kernel, and learns from them about the share.
    pub fn join(
        &mut self,
        first: (&mut Measurement, Slowness),
        mut second: (Measurement, Slowness),
    ) {
        let clock = |m: &Measurement| m.median().0 * m.pace.unwrap_or(1.0);
        if first.1.of == second.1.of && first.1.of == self.number {
            let (pacemaker, kernel) =
                (second.1.factor / first.1.factor, clock(&second.0) / clock(first.0));
            self.sharing.learn(pacemaker.ln(), kernel.ln());
        }
        self.correct(first.0, first.1);
        self.correct(&mut second.0, second.1);
        first.0.samples.extend(second.0.samples);
        first.0.pace = first.0.pace.zip(second.0.pace).map(|(a, b)| (a * b).sqrt());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_runtime::plan::{Region, Role};

    /// A plan that is told from others by a name.
    fn kernel(name: &str) -> Arc<HostPlan> {
        let region = Region { role: Role::Constant, bytes: 0, file: Some((name.into(), 0)) };
        Arc::new(HostPlan { regions: vec![region], ..HostPlan::default() })
    }

    fn clock(nanos: f64) -> Measurement {
        Measurement { samples: vec![Nanos(nanos); 3], calls: 1, error: 0.0, gpu: None, pace: None }
    }

    /// A pacemaker that has learned from kernels measured twice, which take 1 us and have `share`
    /// of the pacemaker's slowness.
    fn learned(share: f64) -> Pacemaker {
        let mut p = None;
        Pacemaker::propose(&mut p, &kernel("k"), 2000.0);
        let mut p = p.unwrap();
        for moments in [(1.0, 1.4), (1.3, 1.05), (1.5, 1.0), (1.2, 1.2)] {
            let mut look = |moment: f64| {
                let slowness = p.slowness(2000.0 * moment).unwrap();
                let mut m = clock(1000.0 * moment.powf(share));
                p.correct(&mut m, slowness);
                (m, slowness)
            };
            let ((mut first, a), second) = (look(moments.0), look(moments.1));
            p.join((&mut first, a), second);
            assert_eq!(first.samples.len(), 6);
        }
        p
    }

    #[test]
    fn a_kernel_that_does_not_suffer_is_not_flattered() {
        for share in [0.0, 0.3, 1.0] {
            let p = learned(share);
            let mut m = clock(1000.0 * 1.45_f64.powf(share));
            p.correct(&mut m, Slowness { factor: 1.45, of: 0 });
            assert!((m.median().0 / 1000.0 - 1.0).abs() < 0.02, "share {share}: {:?}", m.median());
            // What the clock said can be had back.
            assert!(
                (m.median().0 * m.pace.unwrap() / (1000.0 * 1.45_f64.powf(share)) - 1.0).abs()
                    < 1e-9
            );
        }
    }

    #[test]
    fn nothing_known_is_half() {
        let p = learned(0.0);
        let fresh = Sharing::PRIOR;
        assert_eq!(fresh.share(), 0.5);
        assert!(p.sharing.share() < 0.05);
        let mut next = Some(p);
        Pacemaker::propose(&mut next, &kernel("slower"), 1900.0);
        assert_eq!(next.as_ref().unwrap().plan, kernel("k"));
        Pacemaker::propose(&mut next, &kernel("faster"), 1000.0);
        let next = next.unwrap();
        assert_eq!((&next.plan, next.sharing.xx), (&kernel("faster"), fresh.xx));
        assert!(next.sharing.share() < 0.05, "what was learned goes on");
        let mut m = clock(1000.0);
        next.correct(&mut m, Slowness { factor: 1.5, of: 0 });
        assert_eq!(m, clock(1000.0), "another pacemaker's word");
    }

    #[test]
    fn pacemakers_do_not_outrun_the_clock() {
        // Kernels that take 1 ms in every moment, though pacemakers take up to 2.4 times as long:
        // what was learned of others flatters them, but not more from one to the next.
        let (plan, sharing) = (kernel("k"), learned(1.0).sharing);
        let mut present = Some(Pacemaker { number: 0, plan, fastest: 1e6, sharing });
        for i in 0..200 {
            let mut m = clock(1e6);
            let moment = 1.0 + 0.2 * f64::from(i * 5 % 8);
            let plan = kernel(&format!("k{i}"));
            Pacemaker::beside(&mut present, &plan, true, &mut m, Some(1e6 * moment));
            assert!(m.median().0 > 0.99e6 / 2.4, "{i}: {:?}", m.median());
        }
        assert_eq!(present.map(|p| p.number), Some(0), "none is faster");
    }

    #[test]
    fn too_slow_ones_make_no_pace() {
        let mut p = None;
        Pacemaker::propose(&mut p, &kernel("k"), 6e6);
        Pacemaker::propose(&mut p, &kernel("k"), 0.0);
        assert!(p.is_none());
    }
}
