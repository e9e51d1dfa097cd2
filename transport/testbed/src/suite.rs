// SPDX-License-Identifier: MIT OR Apache-2.0
//! The list of worlds in which a suite of behaviours must pass: `self`, `shm` (ranks taking turns in one thread, in
//! threads, in processes), `sim` (hundreds of seeds), `tcp` (over real connections within this host and over fake
//! streams, polling and sleeping), `roce` (over UDP within this host, polling and sleeping, and over a network with
//! faults), `verbs` and TCP together (over fake networks), and `verbs` alone (over fake devices and over real ones,
//! polling and sleeping; real devices only on request).

/// Makes a test of every behaviour in every world. Each entry has the name, the number of ranks, and the number of
/// seeds on the simulated network; the fake networks use fewer seeds.
#[macro_export]
macro_rules! behaviours {
    ($($name:ident: $path:path, $ranks:literal ranks, $seeds:literal seeds;)*) => {
        mod provider_self {
            use super::*;
            $(#[test] fn $name() { $crate::world::alone($path); })*
        }
        mod provider_shm_in_turn {
            use super::*;
            $(#[test] fn $name() { $crate::world::shm($ranks, $path); })*
        }
        mod provider_shm_in_threads {
            use super::*;
            $(#[test] fn $name() { $crate::world::shm_threads($ranks, $path); })*
        }
        mod provider_shm_in_processes {
            use super::*;
            $(#[test] fn $name() { $crate::world::shm_processes($ranks, stringify!($name)); })*
        }
        mod provider_sim {
            use super::*;
            $(#[test] fn $name() { $crate::world::sim($ranks, $seeds, $path); })*
        }

        mod provider_tcp {
            use super::*;
            $(#[test] fn $name() { $crate::world::tcp($ranks, $path); })*
        }
        mod provider_tcp_faked {
            use super::*;
            $(#[test] fn $name() { $crate::world::streams($ranks, ($seeds / 16).max(4), false, $path); })*
        }
        mod provider_tcp_faked_asleep {
            use super::*;
            $(#[test] fn $name() { $crate::world::streams($ranks, ($seeds / 32).max(4), true, $path); })*
        }
        mod provider_tcp_faked_on_rails {
            use super::*;
            $(#[test] fn $name() { $crate::world::streams_on_rails($ranks, ($seeds / 32).max(4), $path); })*
        }
        mod provider_tcp_asleep {
            use super::*;
            $(#[test] fn $name() { $crate::world::tcp_asleep($ranks, $path); })*
        }

        mod provider_roce {
            use super::*;
            $(#[test] fn $name() { $crate::world::roce($ranks, $path); })*
        }
        mod provider_roce_asleep {
            use super::*;
            $(#[test] fn $name() { $crate::world::roce_asleep($ranks, $path); })*
        }
        mod provider_roce_with_faults {
            use super::*;
            $(#[test] fn $name() { $crate::world::packets($ranks, ($seeds / 16).max(4), $path); })*
        }

        mod provider_verbs_and_tcp_faked {
            use super::*;
            $(#[test] fn $name() { $crate::world::mixed($ranks, ($seeds / 16).max(4), false, $path); })*
        }
        mod provider_verbs_and_tcp_faked_asleep {
            use super::*;
            $(#[test] fn $name() { $crate::world::mixed($ranks, ($seeds / 32).max(4), true, $path); })*
        }

        mod provider_verbs_faked {
            use super::*;
            $(#[test] fn $name() { $crate::world::fake($ranks, $seeds / 2, $path); })*
        }
        mod provider_verbs_faked_asleep {
            use super::*;
            $(#[test] fn $name() { $crate::world::fake_asleep($ranks, $seeds / 4, $path); })*
        }

        mod provider_verbs {
            use super::*;
            $(
                #[test]
                #[ignore = "needs RDMA devices: cargo xtask test softroce"]
                fn $name() { $crate::hosts::devices(stringify!($name), $ranks, false, $path); }
            )*
        }
        mod provider_verbs_asleep {
            use super::*;
            $(
                #[test]
                #[ignore = "needs RDMA devices: cargo xtask test softroce"]
                fn $name() { $crate::hosts::devices(stringify!($name), $ranks, true, $path); }
            )*
        }
        mod provider_verbs_faked_on_rails {
            use super::*;
            $(#[test] fn $name() { $crate::world::fake_on_rails($ranks, $seeds / 4, $path); })*
        }
        mod provider_verbs_faked_without_reads {
            use super::*;
            $(#[test] fn $name() { $crate::world::fake_without_reads($ranks, ($seeds / 8).max(3), $path); })*
        }

        /// Entry point of the processes that the tests with ranks in processes start; does nothing in the suite's own
        /// process.
        #[test]
        fn child_rank() {
            let Some((name, mut rank)) = $crate::world::child() else { return };
            match name.as_str() {
                $(stringify!($name) => $crate::world::run(&mut rank, $path),)*
                _ => panic!("no behaviour is called {name}"),
            }
        }
    };
}
