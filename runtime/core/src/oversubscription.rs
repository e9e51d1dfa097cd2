// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out whether ranks must share cores: from the launcher's words, the affinity masks of the node's ranks, the
//! control group's quota, and the time that this process had to wait for a core.

use std::time::{Duration, Instant};

use transport::{Fabric, wait};

use crate::var::Variable;
use crate::var::live::live;

/// Whether this process has a core to itself, as far as it knows.
#[derive(Debug)]
pub(crate) struct Crowding {
    crowded: bool,
    rationed: bool,
    fixed: bool,
    sleepless: bool,
    local_size: u32,
    launch_cpus: u32,
    /// Time of the last look at the masks.
    looked: Option<Instant>,
    pressure: Pressure,
    link_checked: Option<Instant>,
    /// Until when a yield is taken to last long.
    beside_work: Option<Instant>,
}

/// Finds out from the time that this process had to wait for a core whether others want it all the time. A daemon that
/// runs now and then takes a quarter of a window once in a while; who shares the core for good takes half of each.
#[derive(Debug, Default)]
struct Pressure {
    /// Where the present window began: time, and run delay in ns until then.
    began: Option<(Instant, u64)>,
    /// Windows in a row that were over the mark.
    over: u32,
    /// Until when the finding holds.
    until: Option<Instant>,
}

impl Pressure {
    /// Takes in the run delay so far; answers whether others want the core: it was delayed for more than so many percent of some
    /// windows in a row, and the finding holds for so long.
    fn note(&mut self, now: Instant, total_ns: u64, percent: u64, holds: Duration) -> bool {
        let (then, before) = *self.began.get_or_insert((now, total_ns));
        let elapsed = now - then;
        if elapsed >= WINDOW {
            let delayed = u128::from(total_ns.saturating_sub(before));
            let over = delayed * 100 > elapsed.as_nanos() * u128::from(percent);
            self.over = if over { self.over + 1 } else { 0 };
            self.began = Some((now, total_ns));
            if self.over >= WINDOWS_IN_A_ROW {
                self.until = Some(now + holds);
            }
        }
        self.until.is_some_and(|until| now < until)
    }
}

impl Crowding {
    /// `policy`: the place of the word in the variable RMPI_WAIT.
    pub(crate) fn new(policy: u64) -> Self {
        Self {
            crowded: policy == 2,
            rationed: false,
            fixed: policy != 0,
            sleepless: policy == 1,
            local_size: 1,
            launch_cpus: u32::MAX,
            looked: None,
            pressure: Pressure::default(),
            link_checked: None,
            beside_work: None,
        }
    }

    /// Another policy holds from now on.
    pub(crate) fn follow(&mut self, policy: u64) {
        (self.fixed, self.sleepless) = (policy != 0, policy == 1);
        self.crowded = match policy {
            0 => self.local_size > self.cores(self.launch_cpus),
            other => other == 2,
        };
        self.looked = None;
    }

    /// What the launcher said: ranks on this node and the CPUs that they share.
    pub(crate) fn set_launch(&mut self, local_size: u32, mask: &[u64]) {
        self.local_size = local_size;
        let mine = count(&wait::allowed_cpus());
        self.launch_cpus = if mask.is_empty() { mine } else { count(mask) };
        self.rationed = self.cores(self.launch_cpus) < self.launch_cpus;
        if !self.fixed {
            self.crowded = local_size > self.cores(self.launch_cpus);
        }
    }

    #[inline(always)]
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Whether a control group grants less time than the CPUs have: time that is spent on waiting is taken from the job's work.
    pub(crate) fn is_rationed(&self) -> bool {
        self.rationed
    }

    /// Whether this process polls for ever, as it was told.
    pub(crate) fn is_sleepless(&self) -> bool {
        self.sleepless
    }

    /// Looks again, if the last look is long ago; `true` if the answer has changed.
    pub(crate) fn assess(&mut self, now: Instant, fabric: &Fabric) -> bool {
        if self.fixed || self.looked.is_some_and(|last| now - last < LOOK_EVERY) {
            return false;
        }
        self.looked = Some(now);
        let crowded = self.ranks_outnumber_cores(fabric) || self.others_want_the_core(now);
        std::mem::replace(&mut self.crowded, crowded) != crowded
    }

    /// A yield that began at `start` is over. If it was long, whoever has the core computes, and takes it for whole slices of time: who
    /// sleeps instead is given the core when it is woken.
    #[inline]
    pub(crate) fn note_yield(&mut self, start: Instant) {
        let now = Instant::now();
        if now - start > LONG_YIELD {
            self.beside_work = Some(now + BESIDE_WORK);
        }
    }

    /// Whether somebody computes on this core, as far as the last yields have shown.
    #[inline]
    pub(crate) fn is_beside_work(&self, now: Instant) -> bool {
        self.beside_work.is_some_and(|until| now < until)
    }

    /// Once a second at most.
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
            || self.local_size > self.cores(self.launch_cpus)
    }

    /// Another job, the application's threads, a quota, a hypervisor.
    fn others_want_the_core(&mut self, now: Instant) -> bool {
        let (percent, holds) = (live(Variable::CrowdDelay), live(Variable::CrowdHold));
        let holds = Duration::from_millis(holds);
        wait::run_delay_ns().is_some_and(|total| self.pressure.note(now, total, percent, holds))
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

const LOOK_EVERY: Duration = Duration::from_millis(20);
/// All ranks of a crowded node that only hand messages on have had their turn by then.
const LONG_YIELD: Duration = Duration::from_millis(1);
/// For so long yields are not tried again.
const BESIDE_WORK: Duration = Duration::from_millis(100);
const WINDOW: Duration = Duration::from_millis(40);
const WINDOWS_IN_A_ROW: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks every 20 ms at a process that is delayed by `delays_ms` in each; answers after how many looks it was pressed.
    fn pressed_after(pressure: &mut Pressure, start: Instant, delays_ms: &[u64]) -> Option<usize> {
        let mut total = 0;
        (0..delays_ms.len()).find(|at| {
            total += delays_ms[*at] * 1_000_000;
            let now = start + LOOK_EVERY * u32::try_from(*at).unwrap();
            pressure.note(now, total, 25, Duration::from_secs(1))
        })
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
        let total = 20 * 20 * 1_000_000;
        let hold = Duration::from_secs(1);
        assert!(pressure.note(start + Duration::from_millis(900), total, 25, hold));
        assert!(!pressure.note(start + Duration::from_millis(2400), total, 25, hold));
    }

    #[test]
    fn after_a_long_yield_it_is_not_tried_again_for_a_while() {
        let mut crowding = Crowding::new(2);
        let start = Instant::now();
        crowding.note_yield(start);
        assert!(!crowding.is_beside_work(start));
        crowding.note_yield(start.checked_sub(2 * LONG_YIELD).unwrap());
        let now = Instant::now();
        assert!(crowding.is_beside_work(now));
        assert!(!crowding.is_beside_work(now + BESIDE_WORK));
    }

    #[test]
    fn what_presses_and_for_how_long_is_as_the_settings_say() {
        for (percent, holds_ms, pressed) in [(25, 1000, true), (75, 1000, false), (25, 50, false)] {
            let (mut pressure, start) = (Pressure::default(), Instant::now());
            let holds = Duration::from_millis(holds_ms);
            let mut total = 0;
            // Half of the time it waits for its core.
            for look in 0..20 {
                pressure.note(start + LOOK_EVERY * look, total, percent, holds);
                total += 10_000_000;
            }
            let later = start + LOOK_EVERY * 19 + Duration::from_millis(300);
            assert_eq!(pressure.note(later, total, percent, holds), pressed);
        }
    }
}
