// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings that may change while MPI runs ([`Scope::Any`]). They are read at their point of use, with one relaxed
//! load. Fast paths and the engine have copies, which are updated when a flag shows that a setting [has
//! changed](is_stale).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::{ROWS, Range, Scope, Variable, VariableValues};

static LIVE: [AtomicU64; ROWS.len()] = {
    let mut all = [const { AtomicU64::new(0) }; ROWS.len()];
    let mut at = 0;
    while at < ROWS.len() {
        if let Range::Number { default, .. } = ROWS[at].range {
            all[at] = AtomicU64::new(default);
        }
        at += 1;
    }
    all
};

/// Whether copies of some values may be out of date.
static STALE: AtomicBool = AtomicBool::new(false);

/// The present value of a setting.
#[inline(always)]
pub(crate) fn live(variable: Variable) -> u64 {
    LIVE[variable as usize].load(Relaxed)
}

/// The present value of a setting whose range fits `u32`.
#[inline(always)]
pub(crate) fn live_u32(variable: Variable) -> u32 {
    u32::try_from(live(variable)).unwrap_or(u32::MAX)
}

/// Changes the value of a setting.
pub(crate) fn change(variable: Variable, value: u64) {
    LIVE[variable as usize].store(value, Relaxed);
}

/// Whether a value was written since the process last updated its copies.
#[inline(always)]
pub(crate) fn is_stale() -> bool {
    STALE.load(Relaxed)
}

/// Sets or clears the flag that copies may be out of date.
pub(crate) fn set_stale(stale: bool) {
    STALE.store(stale, Relaxed);
}

/// Sets the values of all settings that may change.
pub(super) fn hold(values: &VariableValues) {
    for row in ROWS.iter().filter(|row| row.scope == Scope::Any) {
        change(row.variable, values.get(row.variable));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changeable_settings_start_at_their_defaults() {
        let rows = ROWS.iter().filter(|row| row.scope == Scope::Any);
        for row in rows {
            let default = match row.range {
                Range::Number { default, .. } => default,
                Range::Words(_) => 0,
                _ => panic!("{} is neither a number nor an enumeration", row.name),
            };
            // Other tests of this process change the values of these settings, so these values are not checked.
            let is_tested = matches!(
                row.variable,
                Variable::SendsPerLook
                    | Variable::Spins
                    | Variable::SpinTime
                    | Variable::TasksPerCall
                    | Variable::ThreadSpins
                    | Variable::ShortSleep
            );
            assert!(is_tested || live(row.variable) == default, "{}", row.name);
        }
    }
}
