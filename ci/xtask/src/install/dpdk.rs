// SPDX-License-Identifier: MIT OR Apache-2.0
//! `librmpi_dpdk.so`, through which ranks use DPDK (crate `dpdk-sys`), and `librmpi_dpdk_xdp.so`, which also has the
//! driver for AF_XDP. They are built if the system has DPDK with its static libraries.

use std::path::{Path, PathBuf};

use super::rename;
use crate::process::{quiet, show};
use crate::tree::{command, find_program, make_folder, root};
use std::time::Duration;

const SOURCES: &[&str] = &["rmpi_dpdk.c", "turnstile.c", "lent.c", "pair.c", "crc.c"];

/// Drivers of devices and buses, which register themselves when the plug-in is loaded; those of virtual devices first.
/// Drivers for adapters of Mellanox and Broadcom are left out: they need further libraries, and these adapters have
/// RDMA (provider `verbs`).
const DRIVERS: &[&str] = &[
    "net_af_packet",
    "net_memif",
    "net_ring",
    "net_tap",
    "net_virtio",
    "net_e1000",
    "net_ixgbe",
    "net_i40e",
    "net_iavf",
    "net_ice",
    "net_ena",
    "net_vmxnet3",
    "bus_vdev",
    "bus_pci",
    "mempool",
    "mempool_ring",
    "mempool_stack",
];

/// The libraries of DPDK that the drivers need.
const LIBRARIES: &[&str] = &[
    "ethdev",
    "mbuf",
    "ring",
    "stack",
    "eal",
    "kvargs",
    "telemetry",
    "log",
    "argparse",
    "net",
    "meter",
    "hash",
    "rcu",
    "pci",
    "gso",
    "ip_frag",
    "bpf",
    "security",
    "cryptodev",
    "common_iavf",
    "timer",
];

/// System libraries that the drivers and DPDK may need; each is linked only if it is installed and needed.
const OF_THE_SYSTEM: &[&str] = &["numa", "bsd", "fdt", "m", "dl", "pthread", "atomic"];

/// How a plug-in is built.
struct PluginBuild {
    file: &'static str,
    /// A driver in addition to [`DRIVERS`].
    driver: Option<&'static str>,
    /// Shared libraries that `driver` needs; the macro `define` makes the C shim use them.
    libraries: &'static [&'static str],
    define: Option<&'static str>,
}

const PLANS: [PluginBuild; 2] = [
    PluginBuild {
        file: "librmpi_dpdk.so",
        driver: None,
        libraries: &[],
        define: None,
    },
    // The driver for AF_XDP is in a separate plug-in, which can be loaded only if these shared libraries are installed.
    // Other devices do not need them.
    PluginBuild {
        file: "librmpi_dpdk_xdp.so",
        driver: Some("net_af_xdp"),
        libraries: &["xdp", "bpf"],
        define: Some("-DRMPI_XDP"),
    },
];

/// Builds and installs the plug-ins if DPDK is installed.
pub(super) fn install(prefix: &Path) -> Result<(), String> {
    let Some(folder) = libraries() else {
        println!("without DPDK: `pkg-config libdpdk` finds none (package libdpdk-dev)");
        return Ok(());
    };
    let to = prefix.join("lib/rmpi");
    make_folder(&to)?;
    for plan in &PLANS {
        if found(plan.libraries).len() == plan.libraries.len() {
            let fresh = to.join(format!(".{}.new", plan.file));
            build(&folder, plan, &fresh)?;
            rename(&fresh, &to.join(plan.file))?;
        } else {
            let missing = plan.libraries.join(" or lib");
            println!("without {}: lib{missing} is missing", plan.file);
        }
    }
    Ok(())
}

fn build(folder: &Path, plan: &PluginBuild, to: &Path) -> Result<(), String> {
    let shim = root().join("transport/dpdk-sys/shim");
    let drivers: Vec<&str> = DRIVERS.iter().copied().chain(plan.driver).collect();
    let mut build = command("cc");
    build.args("-std=gnu11 -O2 -Wall -Wextra -shared -fPIC -fvisibility=hidden -s".split(' '));
    build.args(plan.define);
    build.args(pkg_config(&["--cflags", "libdpdk"])?.split_whitespace());
    build.args(SOURCES.iter().map(|name| shim.join(name)));
    build.arg("-o").arg(to);
    build.args([
        "-Wl,--wrap=getpid",
        "-Wl,--wrap=rte_intr_callback_register",
        "-Wl,--wrap=rte_intr_callback_unregister",
        "-Wl,--wrap=rte_intr_callback_unregister_sync",
        "-Wl,--wrap=rte_intr_callback_unregister_pending",
        "-Wl,-Bsymbolic",
        "-Wl,--exclude-libs,ALL",
        "-Wl,-z,defs",
        "-Wl,-z,noexecstack",
    ]);
    build
        .arg("-Wl,--whole-archive")
        .args(archives(folder, &drivers));
    build
        .args(["-Wl,--no-whole-archive", "-Wl,--start-group"])
        .args(archives(folder, LIBRARIES));
    build
        .args(["-Wl,--end-group", "-Wl,--as-needed"])
        .args(found(plan.libraries))
        .args(found(OF_THE_SYSTEM));
    show(build)
}

/// The folder of DPDK's static libraries; `None` if there are none.
fn libraries() -> Option<PathBuf> {
    find_program("pkg-config")?;
    let folder = PathBuf::from(pkg_config(&["--variable=libdir", "libdpdk"]).ok()?.trim());
    folder.join("librte_eal.a").exists().then_some(folder)
}

/// The output of `pkg-config`.
fn pkg_config(args: &[&str]) -> Result<String, String> {
    let mut query = command("pkg-config");
    query.args(args);
    quiet(query, Duration::from_secs(10))
}

/// The archives of the libraries `names` that exist. Not all exist in each release of DPDK, because releases divide it
/// into different libraries.
fn archives(folder: &Path, names: &[&str]) -> Vec<PathBuf> {
    let files = names
        .iter()
        .map(|name| folder.join(format!("librte_{name}.a")));
    files.filter(|file| file.exists()).collect()
}

/// The linker options for the libraries `names`, without those that the compiler does not find.
fn found(names: &[&str]) -> Vec<String> {
    let is_there = |name: &&&str| {
        let mut cc = command("cc");
        cc.arg(format!("-print-file-name=lib{name}.so"));
        // `cc` prints the path of the library, or the bare name if there is none.
        quiet(cc, Duration::from_secs(10)).is_ok_and(|answer| answer.contains('/'))
    };
    let found = names.iter().filter(is_there);
    found.map(|name| format!("-l{name}")).collect()
}
