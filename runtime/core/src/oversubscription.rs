// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detects whether ranks must share cores. The sources are the launcher's data, the affinity masks of the node's ranks,
//! the CPU quota of the control group, and the time during which this process was runnable but had no core.

use std::time::{Duration, Instant};

use transport::wait::CoreTimes;
use transport::{Fabric, wait};

use crate::var::Variable;
use crate::var::live::live;

/// Whether this process shares its core, as far as that can be detected.
#[derive(Debug)]
pub(crate) struct Crowding {
    crowded: bool,
    rationed: bool,
    fixed: bool,
    sleepless: bool,
    local_size: u32,
    /// Number of ranks of other jobs or launchers that share this host's CPUs.
    other_ranks: u32,
    /// Whether processes other than ranks of this job need the core.
    by_others: bool,
    launch_cpus: u32,
    /// Time of the last check of the affinity masks.
    masks_checked: Option<Instant>,
    pressure: Pressure,
    link_checked: Option<Instant>,
    /// Time until which yields are assumed to take long.
    busy_until: Option<Instant>,
}

/// Detects whether other processes permanently need the core, from the time during which this process was runnable but
/// had no core. That time is measured in windows. A daemon that runs from time to time delays this process for a
/// quarter of a window, but only in a few windows. A process that permanently needs the core delays it in each window,
/// for about half of the time in which this process needs the core.
#[derive(Debug, Default)]
struct Pressure {
    /// Start of the present window, and the counts at that time.
    began: Option<(Instant, CoreTimes)>,
    /// Number of consecutive windows in which the delay was above the threshold.
    over: u32,
    /// Time until which a positive result holds.
    until: Option<Instant>,
}

impl Pressure {
    /// To be called with the present counts. `true`: other processes need the core. That is so if in several
    /// consecutive windows this process was delayed for more than `percent` of the time in which it needed a core, and
    /// for at least a few percent of the window. The result stays `true` for the time `holds` after that.
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
            masks_checked: None,
            pressure: Pressure::default(),
            link_checked: None,
            busy_until: None,
        }
    }

    /// Changes the policy.
    pub(crate) fn follow(&mut self, policy: u64) {
        (self.fixed, self.sleepless) = (policy != 0, policy == 1);
        // With a fixed policy no later check resets this field.
        self.by_others = false;
        self.crowded = match policy {
            0 => self.outnumbers_cores(),
            other => other == 2,
        };
        self.masks_checked = None;
    }

    /// Sets the launcher's data: the number of ranks on this node, the number of ranks of other launchers on this host,
    /// and the mask of the CPUs that all these ranks may use. An empty mask stands for the CPUs of this process.
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

    /// Whether the quota of a control group is less than the time of the CPUs. Then spinning uses up time that the job
    /// needs.
    pub(crate) fn is_rationed(&self) -> bool {
        self.rationed
    }

    /// Whether the result of a yield shows if the core is shared. It does if only ranks of this job are known to need
    /// the core. Other processes might not run during a yield: the scheduler may first divide cores among sessions
    /// (`sched_autogroup_enabled`) or control groups, and a yield then only runs processes of this session or group.
    pub(crate) fn yield_reveals_others(&self) -> bool {
        self.other_ranks == 0 && !self.by_others
    }

    /// Whether the policy is to poll without end.
    pub(crate) fn is_sleepless(&self) -> bool {
        self.sleepless
    }

    /// If the last check is long enough ago: checks again whether cores are shared. `true`: the result has changed.
    pub(crate) fn assess(&mut self, now: Instant, fabric: &Fabric) -> bool {
        if self.fixed
            || self
                .masks_checked
                .is_some_and(|last| now - last < SAMPLE_EVERY)
        {
            return false;
        }
        self.masks_checked = Some(now);
        let before = (self.crowded, self.by_others);
        let own = self.ranks_outnumber_cores(fabric);
        self.by_others = !own && self.is_core_contended(now);
        self.crowded = own || self.by_others;
        before != (self.crowded, self.by_others)
    }

    /// Records the end of a yield that began at `start`. If the yield was long, another process computes on the core
    /// for whole time slices. Then it is better to sleep, because a sleeping process gets the core when it is woken.
    #[inline]
    pub(crate) fn note_yield(&mut self, start: Instant) {
        let now = Instant::now();
        if now - start > LONG_YIELD {
            self.busy_until = Some(now + BUSY_TIME);
        }
    }

    /// Whether another process computes on this core, according to recent yields.
    #[inline]
    pub(crate) fn is_core_busy(&self, now: Instant) -> bool {
        self.busy_until.is_some_and(|until| now < until)
    }

    /// Whether to check the connection to the daemon now. Returns `true` at most twice a second.
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
/// A yield longer than this is long. If all ranks of a crowded node only forward messages, one turn of each of them
/// takes less time.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// Time after a long yield for which yields are not tried again.
const BUSY_TIME: Duration = Duration::from_millis(100);
/// Delays of less than this percentage of a window are ignored.
const LEAST_PERCENT: u128 = 5;
const WINDOW: Duration = Duration::from_millis(40);
const WINDOWS_IN_A_ROW: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// The counts of a process that has polled all the time. It was delayed for `delayed_ns` of the time `all`, and ran
    /// for the rest.
    fn polling(delayed_ns: u64, all: Duration) -> CoreTimes {
        let all_ns = u64::try_from(all.as_nanos()).unwrap();
        CoreTimes {
            ran_ns: all_ns.saturating_sub(delayed_ns),
            delayed_ns,
        }
    }

    /// Takes a sample of a process that polls, every 20 ms. `delays_ms`: its delay in each of these intervals, in ms.
    /// Returns the index of the sample at which it is detected that other processes need the core; `None`: at none.
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
    fn pressure_is_delay_relative_to_running_time() {
        // For each 20 ms: time on a core, delay, and whether it is detected that other processes need the core.
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
    fn a_shared_core_is_detected_within_200_ms() {
        let found = pressed_after(&mut Pressure::default(), Instant::now(), &[10; 50]);
        assert!(found.is_some_and(|samples| samples <= 10), "{found:?}");
    }

    #[test]
    fn an_occasionally_running_daemon_is_no_pressure() {
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
    fn detected_pressure_holds_for_a_while_and_then_ends() {
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
    fn a_changed_wait_policy_resets_pressure_by_others() {
        let mut crowding = Crowding::new(0);
        (crowding.crowded, crowding.by_others) = (true, true);
        assert!(!crowding.yield_reveals_others());
        crowding.follow(2);
        assert!(
            crowding.is_crowded() && crowding.yield_reveals_others() && !crowding.is_by_others()
        );
    }

    #[test]
    fn after_a_long_yield_the_core_counts_as_busy_for_a_while() {
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
    fn crowd_settings_set_threshold_and_duration_of_pressure() {
        for (percent, holds_ms, pressed) in [(25, 1000, true), (75, 1000, false), (25, 50, false)] {
            let (mut pressure, start) = (Pressure::default(), Instant::now());
            let holds = Duration::from_millis(holds_ms);
            let mut delayed_ns = 0;
            // The process waits for its core half of the time.
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
