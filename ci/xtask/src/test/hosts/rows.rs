// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks of the stage `hosts` that are scripts.

/// One check.
pub(super) struct Row {
    /// A function of the script; with blanks for `_` what people read.
    pub(super) name: &'static str,
    pub(super) hosts: usize,
    /// Much more than it takes: on a machine with other work it must do.
    pub(super) seconds: u64,
}

impl Row {
    pub(super) fn title(&self) -> String {
        self.name.replace('_', " ")
    }
}

const fn row(name: &'static str, hosts: usize, seconds: u64) -> Row {
    Row {
        name,
        hosts,
        seconds,
    }
}

/// The world itself: `ci/hosts/checks`.
pub(super) const WORLD: &[Row] = &[
    row("names_resolve", 2, 30),
    row("hosts_reach_each_other", 2, 30),
    row("codes_come_back", 2, 30),
    row("each_host_has_its_own", 2, 30),
    row("folders_that_are_kept", 2, 30),
    row("the_shell_is_as_ssh", 2, 30),
    row("ssh_between_hosts", 2, 30),
    row("cut_and_mend", 2, 60),
    row("drop_and_mend", 2, 60),
    row("a_killed_host_hangs_up", 2, 30),
    row("a_host_without_power_is_silent", 2, 30),
    row("freeze_and_thaw", 2, 30),
    row("what_is_left_is_told", 2, 30),
    row("orphans_are_collected", 2, 30),
    row("many_hosts", 64, 120),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn functions(script: &str) -> Vec<&str> {
        script
            .lines()
            .filter_map(|line| line.strip_suffix("() {"))
            .collect()
    }

    #[test]
    fn each_row_has_a_function() {
        let script = include_str!("../../../../hosts/checks");
        for row in WORLD {
            assert!(functions(script).contains(&row.name), "{}", row.name);
        }
    }
}
