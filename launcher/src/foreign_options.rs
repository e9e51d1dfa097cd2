// SPDX-License-Identifier: MIT OR Apache-2.0
//! Advice about options of other launchers that `rmpiexec` does not have: the meaning of the option in the other
//! launcher and the replacement in `rmpiexec`. Option names are spelled as in MPICH, Open MPI, Intel MPI and the MPI
//! standard (section 11.5), without dashes.

/// The advice for an option that was typed as `given`; `None` if no launcher in the table has it.
pub(crate) fn advice(given: &str) -> Option<String> {
    let name = given.trim_start_matches('-');
    let known = |(names, _): &&(&[&str], &str)| names.contains(&name);
    let (_, message) = OPTIONS.iter().find(known)?;
    Some(format!("option {given} of other launchers: {message}"))
}

const OPTIONS: &[(&[&str], &str)] = &[
    (
        &[
            "hostlist",
            "machines",
            "default-hostfile",
            "add-host",
            "add-hostfile",
        ],
        "type --host NAME:SLOTS,... or --hostfile FILE",
    ),
    (
        &["bootstrap", "bootstrap-exec", "rsh", "plm-agent"],
        "ssh reaches other hosts; for another command type --launcher COMMAND",
    ),
    (
        &["nolocal", "iface", "dvm"],
        "ranks are started where --host or --hostfile says. Leave it out",
    ),
    (
        &["preload-binary", "preload-files"],
        "files are not copied to other hosts. Leave it out, and put them where all hosts see them",
    ),
    (&["pernode"], "type --ranks-per-node 1"),
    (
        &["npersocket", "persocket"],
        "type -n and the number of all ranks, and --map-by socket",
    ),
    (&["c"], "type -n and the number of ranks"),
    (&["bynode"], "type --map-by node"),
    (&["bind-to-core"], "type --bind-to core"),
    (&["bind-to-none"], "type --bind-to none"),
    (
        &[
            "rank-by",
            "bycore",
            "byslot",
            "bysocket",
            "byboard",
            "byhwthread",
            "bind-to-socket",
            "bind-to-board",
            "cpus-per-proc",
            "cpus-per-rank",
            "cpu-set",
            "cpu-list",
            "rankfile",
            "rf",
            "rr",
            "grr",
            "membind",
            "mem-bind",
            "use-hwthread-cpus",
            "binding",
            "order-nodes",
            "pin",
            "ranks-per-proc",
        ],
        "ranks get an even share of the CPUs that the shell may use. Leave it out; or type --map-by core, numa or socket, \
         --bind-to none, core, hwthread, numa or socket, and taskset for the CPUs of all",
    ),
    (
        &[
            "display-map",
            "display-allocation",
            "display",
            "print-rank-map",
            "show-progress",
            "display-topo",
            "display-devel-map",
        ],
        "type --report-bindings, or --dry-run to start nothing; -v shows the process of each rank",
    ),
    (
        &["nooversubscribe", "no-oversubscribe"],
        "type --map-by slot:NOOVERSUBSCRIBE",
    ),
    (
        &[
            "output-filename",
            "outfile-pattern",
            "errfile-pattern",
            "outfile",
            "errfile",
            "xml",
            "timestamp-output",
            "merge-stderr-to-stdout",
            "stream-buffering",
            "output-proctable",
        ],
        "output goes where rmpiexec's own goes. -l shows which rank wrote a line; for a file each, type --output FOLDER",
    ),
    (
        &[
            "envnone", "genvnone", "envlist", "genvlist", "envexcl", "genvexcl",
        ],
        "the ranks get the whole environment. Leave it out, or clear what they must not get: env -u NAME rmpiexec ...",
    ),
    (
        &[
            "mca",
            "gmca",
            "omca",
            "gomca",
            "pmixmca",
            "gpmixmca",
            "prtemca",
            "gprtemca",
            "am",
            "tune",
            "personality",
            "ofi",
            "mpi-args",
        ],
        "it sets variables of another MPI. Leave it out; what can be set here are environment variables that begin with \
         RMPI_",
    ),
    (
        &[
            "gdba",
            "tv",
            "tva",
            "debug",
            "debugger",
            "ddd",
            "valgrind",
            "enable-x",
            "check_mpi",
            "trace",
        ],
        "type the tool as the program, for example: rmpiexec -n 2 xterm -e gdb ./a.out",
    ),
    (
        &["configfile", "app", "file", "p4pg"],
        "type its lines here, with a colon between programs: rmpiexec -n 1 ./a : -n 4 ./b",
    ),
    (
        &["path"],
        "type the program with its folder, or add -x PATH=FOLDER:$PATH",
    ),
    (
        &["soft", "arch"],
        "leave it out; the number of ranks is what -n says",
    ),
    (
        &[
            "disable-auto-cleanup",
            "enable-recovery",
            "continuous",
            "max-restarts",
            "recoverable",
            "cleanup",
        ],
        "a rank that fails ends the job, always. Leave it out",
    ),
    (
        &[
            "d",
            "leave-session-attached",
            "report-pid",
            "report-uri",
            "info",
            "print-all-exitcodes",
        ],
        "leave it out; rmpiexec says nothing unless something is wrong, and -v more",
    ),
    (
        &[
            "usize",
            "universe-size",
            "ompi-server",
            "nameserver",
            "do-not-launch",
            "do-not-resolve",
        ],
        "this version has nothing of the kind. Leave it out",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn foreign_option_names_are_unique_and_without_dashes() {
        let mut seen = HashSet::new();
        for name in OPTIONS.iter().flat_map(|(names, _)| *names) {
            assert!(seen.insert(name), "{name}");
            assert!(!name.starts_with('-'), "{name}");
        }
    }

    #[test]
    fn advice_names_the_option_as_typed() {
        let message = advice("--add-host").unwrap();
        assert!(
            message.starts_with("option --add-host of other launchers: type --host NAME:SLOTS"),
            "{message}"
        );
        assert_eq!(advice("--nonsense"), None);
    }
}
