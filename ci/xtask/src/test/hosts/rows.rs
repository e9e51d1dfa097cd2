// SPDX-License-Identifier: MIT OR Apache-2.0
//! The checks of the stage `hosts` that are scripts.

/// A check.
pub(super) struct Row {
    /// The name of the script's function; its title has blanks for `_`.
    pub(super) name: &'static str,
    pub(super) hosts: usize,
    /// The limit, much more than the check takes, so that it is enough on a busy machine.
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
    row("codes_are_returned", 2, 30),
    row("each_host_has_its_own", 2, 30),
    row("folders_that_are_kept", 2, 30),
    row("the_remote_shell_behaves_like_ssh", 2, 30),
    row("lab_rsh_behaves_like_ssh", 2, 30),
    row("ssh_between_hosts", 2, 30),
    row("cut_and_mend", 2, 60),
    row("drop_and_mend", 2, 60),
    row("a_killed_host_closes_its_connections", 2, 30),
    row("a_host_without_power_is_silent", 2, 30),
    row("freeze_and_thaw", 2, 30),
    row("what_is_left_is_listed", 2, 30),
    row("orphans_are_reaped", 2, 30),
    row("many_hosts", 64, 120),
];

/// Jobs over several hosts: `ci/hosts/jobs`.
pub(super) const JOBS: &[Row] = &[
    row("hello", 2, 60),
    row("one_name_for_each_family", 2, 60),
    row("hosts_with_ipv6_alone", 2, 60),
    row("large_messages_go_over_both_networks", 2, 90),
    row("collectives_go_by_node", 2, 90),
    row("roce_over_udp", 2, 90),
    row("roce_over_a_link_with_a_smaller_mtu", 2, 90),
    row("roce_over_dpdk", 2, 90),
    row("suites_over_dpdk", 1, 180),
    row("roce_over_memif", 2, 60),
    row("roce_over_tap", 2, 60),
    row("roce_over_af_xdp", 2, 60),
    row("payloads_stay_in_place", 2, 120),
    row("payloads_stay_in_place_in_huge_pages", 2, 120),
    row("networks_in_one_job", 3, 90),
    row("a_suspended_job_goes_on", 2, 60),
    row("full_folders_of_hosts_do_no_harm", 2, 60),
    row("exit_code_of_a_remote_rank", 2, 60),
    row("an_unknown_host_is_named", 2, 60),
    row("all_unreachable_hosts_are_named", 4, 60),
    row("a_missing_program_is_named", 2, 60),
    row("interrupt", 2, 60),
    row("kill_of_the_launcher", 2, 60),
    row("kill_of_a_daemon", 2, 60),
    row("kill_of_the_remote_shell", 2, 60),
    row("kill_of_a_remote_rank", 2, 60),
    row("a_frozen_host_is_dead_after_the_heartbeat", 2, 60),
    row("a_host_without_power_is_dead_after_the_heartbeat", 2, 60),
    row("a_cut_host_ends_its_ranks_itself", 2, 60),
    row("which_ranks_wait_for_which", 2, 120),
    row("sixteen_hosts", 16, 90),
    row("flux_executes_on_all_hosts", 3, 60),
    row("this_host_and_another", 2, 60),
    row("started_from_one_of_the_hosts", 2, 60),
    row("output_of_a_login_does_no_harm", 2, 60),
    row("a_refused_login_is_reported", 2, 60),
    row("a_long_folder_for_temporary_files", 2, 60),
    row("output_arrives_whole", 4, 90),
    row("standard_input_reaches_rank_0", 2, 60),
    row("environment_and_folder", 2, 60),
    row("arguments_arrive_unchanged", 2, 60),
    row("many_arguments", 2, 60),
    row("large_environment", 2, 60),
];

/// Jobs in allocations of Slurm: `ci/hosts/under-slurm`.
pub(super) const UNDER_SLURM: &[Row] = &[
    row("ranks_and_slots", 4, 90),
    row("a_batch_script_runs_on_its_first_host", 4, 90),
    row("one_step_starts_all", 4, 90),
    row("ends_leave_nothing", 4, 180),
    row("starts_are_measured", 4, 60),
    row("a_job_that_is_over_is_reported", 4, 60),
    row("srun_starts_ranks", 4, 120),
    row("debuggers_and_statistics_find_all_hosts", 4, 120),
    row("queues_of_ranks_that_srun_has_started", 4, 90),
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
        let scripts = [
            (WORLD, include_str!("../../../../hosts/checks")),
            (JOBS, include_str!("../../../../hosts/jobs")),
            (UNDER_SLURM, include_str!("../../../../hosts/under-slurm")),
        ];
        for (rows, script) in scripts {
            for row in rows {
                assert!(functions(script).contains(&row.name), "{}", row.name);
            }
        }
    }
}
