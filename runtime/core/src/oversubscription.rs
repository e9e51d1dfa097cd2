// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds out whether ranks must share cores: from the launcher's words, the affinity masks of the node's ranks, the
//! control group's quota, and the time that this process had to wait for a core.

use std::time::{Duration, Instant};

use transport::{Fabric, wait};

/// Whether this process has a core to itself, as far as it knows.
#[derive(Debug)]
pub(crate) struct Crowding {
    crowded: bool,
    fixed: bool,
    sleepless: bool,
    local_size: u32,
    launch_cpus: u32,
    /// Time of the last look at the masks.
    looked: Option<Instant>,
    /// Time and run delay of the last look at the scheduler's count.
    delay: Option<(Instant, u64)>,
    /// Until when others were seen to want the core.
    pressed_until: Option<Instant>,
    link_checked: Option<Instant>,
}

impl Crowding {
    /// `policy`: the place of the word in the variable RMPI_WAIT.
    pub(crate) fn new(policy: u64) -> Self {
        Self {
            crowded: policy == 2,
            fixed: policy != 0,
            sleepless: policy == 1,
            local_size: 1,
            launch_cpus: u32::MAX,
            looked: None,
            delay: None,
            pressed_until: None,
            link_checked: None,
        }
    }

    /// What the launcher said: ranks on this node and the CPUs that they share.
    pub(crate) fn set_launch(&mut self, local_size: u32, mask: &[u64]) {
        self.local_size = local_size;
        let mine = count(&wait::allowed_cpus());
        self.launch_cpus = if mask.is_empty() { mine } else { count(mask) };
        if !self.fixed {
            self.crowded = local_size > self.cores(self.launch_cpus);
        }
    }

    #[inline(always)]
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowded
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

    fn ranks_outnumber_cores(&self, fabric: &Fabric) -> bool {
        let mine = wait::allowed_cpus();
        let others = fabric.neighbours_cpus();
        let known = u32::try_from(others.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let all = others
            .iter()
            .fold(mine, |all, mask| std::array::from_fn(|i| all[i] | mask[i]));
        let inside_mine = others
            .iter()
            .filter(|mask| mask.iter().zip(mine).all(|(o, m)| o & !m == 0));
        let sharing = u32::try_from(inside_mine.count())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        known > self.cores(count(&all))
            || sharing > self.cores(count(&mine))
            || self.local_size > self.cores(self.launch_cpus)
    }

    /// Whether this process waited for a core more than a twentieth of the time since the last look: another job, the
    /// application's threads, a quota, a hypervisor.
    fn others_want_the_core(&mut self, now: Instant) -> bool {
        if let Some(total) = wait::run_delay_ns()
            && let Some((then, before)) = self.delay.replace((now, total))
            && u128::from(total.saturating_sub(before)) * 20 > (now - then).as_nanos()
        {
            self.pressed_until = Some(now + PRESSED_FOR);
        }
        self.pressed_until.is_some_and(|until| now < until)
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
const PRESSED_FOR: Duration = Duration::from_secs(1);
