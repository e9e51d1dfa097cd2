// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects whether ranks must share cores: from the launcher's data, the affinity masks of the node's ranks, the
//! control group's quota, and the time that this process spent runnable without a core.

use std::time::{Duration, Instant};

use transport::wait::CoreTimes;
use transport::{Fabric, wait};

use crate::var::Variable;
use crate::var::live::live;

/// Whether this process has a core of its own, as far as it can be detected.
#[derive(Debug)]
pub(crate) struct Crowding {
    crowded: bool,
    rationed: bool,
    fixed: bool,
    sleepless: bool,
    local_size: u32,
    /// Ranks of other jobs or launchers that share this host's CPUs.
    other_ranks: u32,
    /// Processes other than ranks of this job need the core.
    by_others: bool,
    launch_cpus: u32,
    /// Time of the last check of the masks.
    looked: Option<Instant>,
    pressure: Pressure,
    link_checked: Option<Instant>,
    /// Time until which a yield is assumed to last long.
    busy_until: Option<Instant>,
}

/// Detects from the time spent runnable without a core whether other processes need it all the time. A daemon that
/// runs now and then takes a quarter of a window once in a while; a process that shares the core permanently takes
/// half of each, or, if this process sleeps much, half of the rest.
#[derive(Debug, Default)]
struct Pressure {
    /// Start of the present window: its time, and the counts at that time.
    began: Option<(Instant, CoreTimes)>,
    /// Consecutive windows above the threshold.
    over: u32,
    /// Time until which the result holds.
    until: Option<Instant>,
}

impl Pressure {
    /// Takes the present counts; returns whether other processes need the core: in several consecutive windows this
    /// process was delayed for more than `percent` of the time in which it needed one, and that time was not short. A
    /// positive result holds for `holds`.
    fn note(&mut self, now: Instant, total: CoreTimes, percent: u64, holds: Duration) -> bool {
        let (then, before) = *self.began.get_or_insert((now, total));
        let elapsed = now - then;
        if elapsed >= WINDOW {
            let delayed = u128::from(total.delayed_ns.saturating_sub(before.delayed_ns));
            let ran = u128::from(total.ran_ns.saturating_sub(before.ran_ns));
            let is_much = delayed * 100 > (delayed + ran) * u128::from(percent);
            let over = is_much && delayed * 100 > elapsed.as_nanos() * LEAST_PERCENT;
            self.over = if over { self.over + 1 } else { 0 };
            self.began = Some((now, total));
            if self.over >= WINDOWS_IN_A_ROW {
                self.until = Some(now + holds);
            }
        }
        self.until.is_some_and(|until| now < until)
    }
}

impl Crowding {
    /// `policy`: index of the value of RMPI_WAIT.
    pub(crate) fn new(policy: u64) -> Self {
        Self {
            crowded: policy == 2,
            rationed: false,
            fixed: policy != 0,
            sleepless: policy == 1,
            local_size: 1,
            other_ranks: 0,
            by_others: false,
            launch_cpus: u32::MAX,
            looked: None,
            pressure: Pressure::default(),
            link_checked: None,
            busy_until: None,
        }
    }

    /// Changes the policy.
    pub(crate) fn follow(&mut self, policy: u64) {
        (self.fixed, self.sleepless) = (policy != 0, policy == 1);
        // With a fixed policy no check resets this.
        self.by_others = false;
        self.crowded = match policy {
            0 => self.outnumbers_cores(),
            other => other == 2,
        };
        self.looked = None;
    }

    /// Sets the launcher's data: ranks on this node, ranks of other launchers on this host, and the CPUs that all of
    /// these.
    pub(crate) fn set_launch(&mut self, local_size: u32, other_ranks: u32, mask: &[u64]) {
        (self.local_size, self.other_ranks) = (local_size, other_ranks);
        let mine = count(&wait::allowed_cpus());
        self.launch_cpus = if mask.is_empty() { mine } else { count(mask) };
        self.rationed = self.cores(self.launch_cpus) < self.launch_cpus;
        if !self.fixed {
            self.crowded = self.outnumbers_cores();
        }
    }

    #[inline(always)]
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Whether processes other than ranks of this job need the core.
    pub(crate) fn is_by_others(&self) -> bool {
        self.by_others
    }

    /// Whether a control group grants less time than the CPUs have: time spent spinning is lost to the job.
    pub(crate) fn is_rationed(&self) -> bool {
        self.rationed
    }

    /// Whether a yield reveals the processes that share the core. It may not reveal those other than ranks of this
    /// node: the scheduler may divide cores among sessions (`sched_autogroup_enabled`) or control groups first, and
    /// then a yield only runs processes of the same one.
    pub(crate) fn yield_reveals_others(&self) -> bool {
        self.other_ranks == 0 && !self.by_others
    }

    /// Whether the policy is to poll without end.
    pub(crate) fn is_sleepless(&self) -> bool {
        self.sleepless
    }

    /// Checks again if the last check is long ago; `true` if the result has changed.
    pub(crate) fn assess(&mut self, now: Instant, fabric: &Fabric) -> bool {
        if self.fixed || self.looked.is_some_and(|last| now - last < SAMPLE_EVERY) {
            return false;
        }
        self.looked = Some(now);
        let before = (self.crowded, self.by_others);
        let own = self.ranks_outnumber_cores(fabric);
        self.by_others = !own && self.is_core_contended(now);
        self.crowded = own || self.by_others;
        before != (self.crowded, self.by_others)
    }

    /// Records the end of a yield that began at `start`. If it was long, another process computes on the core for
    /// whole time slices: a process that sleeps instead gets the core when it is woken.
    #[inline]
    pub(crate) fn note_yield(&mut self, start: Instant) {
        let now = Instant::now();
        if now - start > LONG_YIELD {
            self.busy_until = Some(now + BUSY_TIME);
        }
    }

    /// Whether another process computes on this core, according to the last yields.
    #[inline]
    pub(crate) fn is_core_busy(&self, now: Instant) -> bool {
        self.busy_until.is_some_and(|until| now < until)
    }

    /// Whether a check is due: once a second at most.
    pub(crate) fn is_time_to_check(&mut self) -> bool {
        let now = Instant::now();
        let due = self
            .link_checked
            .is_none_or(|last| now - last > Duration::from_millis(500));
        if due {
            self.link_checked = Some(now);
        }
        due
    }

    fn ranks_outnumber_cores(&mut self, fabric: &Fabric) -> bool {
        let mine = wait::allowed_cpus();
        let (mut known, mut sharing, mut all) = (1_u32, 1_u32, mine);
        for mask in fabric.neighbours_cpus() {
            let is_inside_mine = mask
                .iter()
                .zip(mine)
                .all(|(other, mine)| other & !mine == 0);
            known += 1;
            sharing += u32::from(is_inside_mine);
            all = std::array::from_fn(|i| all[i] | mask[i]);
        }
        self.rationed = self.cores(count(&all)) < count(&all);
        known > self.cores(count(&all))
            || sharing > self.cores(count(&mine))
            || self.outnumbers_cores()
    }

    /// Whether the launcher's data show more ranks than cores.
    fn outnumbers_cores(&self) -> bool {
        self.local_size.saturating_add(self.other_ranks) > self.cores(self.launch_cpus)
    }

    /// Whether another job, the application's threads, a quota or a hypervisor takes the core.
    fn is_core_contended(&mut self, now: Instant) -> bool {
        let (percent, holds) = (live(Variable::CrowdDelay), live(Variable::CrowdHold));
        let holds = Duration::from_millis(holds);
        wait::core_times().is_some_and(|total| self.pressure.note(now, total, percent, holds))
    }

    fn cores(&self, cpus: u32) -> u32 {
        match wait::core_quota() {
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a small positive number"
            )]
            Some(quota) => cpus.min((quota.floor() as u32).max(1)),
            None => cpus,
        }
    }
}

fn count(mask: &[u64]) -> u32 {
    mask.iter().map(|word| word.count_ones()).sum()
}

const SAMPLE_EVERY: Duration = Duration::from_millis(20);
/// Longer than all ranks of a crowded node need for one turn each, if they only pass on messages.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// Time for which yields are not tried again.
const BUSY_TIME: Duration = Duration::from_millis(100);
/// Delays of less than this share of the time are ignored.
const LEAST_PERCENT: u128 = 5;
const WINDOW: Duration = Duration::from_millis(40);
const WINDOWS_IN_A_ROW: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts of a process that polls all the time, and was delayed for so long of `all`.
    fn polling(delayed_ns: u64, all: Duration) -> CoreTimes {
        let all_ns = u64::try_from(all.as_nanos()).unwrap();
        CoreTimes {
            ran_ns: all_ns.saturating_sub(delayed_ns),
            delayed_ns,
        }
    }

    /// Samples every 20 ms a process that polls and is delayed by `delays_ms` in each; returns the sample at which
    /// pressure is detected.
    fn pressed_after(pressure: &mut Pressure, start: Instant, delays_ms: &[u64]) -> Option<usize> {
        let mut delayed_ns = 0;
        (0..delays_ms.len()).find(|at| {
            delayed_ns += delays_ms[*at] * 1_000_000;
            let passed = SAMPLE_EVERY * u32::try_from(*at).unwrap();
            let total = polling(delayed_ns, passed + SAMPLE_EVERY);
            pressure.note(start + passed, total, 25, Duration::from_secs(1))
        })
    }

    #[test]
    fn a_process_that_sleeps_much_is_pressed_by_its_part_of_the_rest() {
        // Of each 20 ms: on a core, delayed.
        for (ran_us, delayed_us, pressed) in
            [(3000, 3000, true), (6000, 1500, false), (500, 500, false)]
        {
            let (mut pressure, start) = (Pressure::default(), Instant::now());
            let mut total = CoreTimes::default();
            let found = (0..50_u32).any(|sample| {
                total.ran_ns += ran_us * 1000;
                total.delayed_ns += delayed_us * 1000;
                pressure.note(
                    start + SAMPLE_EVERY * sample,
                    total,
                    25,
                    Duration::from_secs(1),
                )
            });
            assert_eq!(found, pressed, "{ran_us} {delayed_us}");
        }
    }

    #[test]
    fn a_process_that_shares_its_core_is_pressed_within_a_fifth_of_a_second() {
        let found = pressed_after(&mut Pressure::default(), Instant::now(), &[10; 50]);
        assert!(found.is_some_and(|looks| looks <= 10), "{found:?}");
    }

    #[test]
    fn a_daemon_that_runs_now_and_then_presses_nobody() {
        let mut delays = [0; 500];
        for burst in delays.chunks_mut(10) {
            (burst[0], burst[1], burst[2]) = (15, 15, 10);
        }
        assert_eq!(
            pressed_after(&mut Pressure::default(), Instant::now(), &delays),
            None
        );
    }

    #[test]
    fn the_finding_holds_for_a_while_and_then_is_made_anew() {
        let (mut pressure, start) = (Pressure::default(), Instant::now());
        assert!(pressed_after(&mut pressure, start, &[20; 20]).is_some());
        let hold = Duration::from_secs(1);
        for (passed_ms, holds) in [(900, true), (2400, false)] {
            let passed = Duration::from_millis(passed_ms);
            let total = polling(20 * 20 * 1_000_000, passed);
            assert_eq!(pressure.note(start + passed, total, 25, hold), holds);
        }
    }

    #[test]
    fn what_others_want_is_forgotten_with_another_policy() {
        let mut crowding = Crowding::new(0);
        (crowding.crowded, crowding.by_others) = (true, true);
        assert!(!crowding.yield_reveals_others());
        crowding.follow(2);
        assert!(
            crowding.is_crowded() && crowding.yield_reveals_others() && !crowding.is_by_others()
        );
    }

    #[test]
    fn after_a_long_yield_it_is_not_tried_again_for_a_while() {
        let mut crowding = Crowding::new(2);
        let start = Instant::now();
        crowding.note_yield(start);
        assert!(!crowding.is_core_busy(start));
        crowding.note_yield(start.checked_sub(2 * LONG_YIELD).unwrap());
        let now = Instant::now();
        assert!(crowding.is_core_busy(now));
        assert!(!crowding.is_core_busy(now + BUSY_TIME));
    }

    #[test]
    fn what_presses_and_for_how_long_is_as_the_settings_say() {
        for (percent, holds_ms, pressed) in [(25, 1000, true), (75, 1000, false), (25, 50, false)] {
            let (mut pressure, start) = (Pressure::default(), Instant::now());
            let holds = Duration::from_millis(holds_ms);
            let mut delayed_ns = 0;
            // Half of the time it waits for its core.
            for sample in 0..20 {
                let total = polling(delayed_ns, SAMPLE_EVERY * sample);
                pressure.note(start + SAMPLE_EVERY * sample, total, percent, holds);
                delayed_ns += 10_000_000;
            }
            let later = SAMPLE_EVERY * 19 + Duration::from_millis(300);
            let total = polling(delayed_ns, later);
            assert_eq!(pressure.note(start + later, total, percent, holds), pressed);
        }
    }
}
