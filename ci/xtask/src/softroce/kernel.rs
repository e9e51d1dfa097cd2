// SPDX-License-Identifier: MIT OR Apache-2.0
//! Debian's kernels, their modules, and the initramfs of a guest.

use super::apt::output;
use super::cache::Cache;
use crate::stage::unknown;
use crate::tree::{command, make_folder, read};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel of Debian 12 that has `rdma_rxe`, which the kernels for clouds do not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum KernelSeries {
    /// Debian 12's own kernel: rxe works in tasklets, so its speed varies less.
    #[default]
    V6_1,
    /// A newer kernel from Debian's updates, whose rxe behaves as in current kernels.
    V6_12,
}

impl KernelSeries {
    /// The series of this name.
    pub(crate) fn named(name: &str) -> Result<Self, String> {
        let all = [Self::V6_1, Self::V6_12];
        all.into_iter()
            .find(|series| series.name() == name)
            .ok_or_else(|| {
                let names = all.iter().map(|series| series.name());
                unknown("kernel", name, names, "cargo xtask softroce --help")
            })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }

    /// The metapackage. Its name stays the same, whereas the name of the kernel's package changes every few weeks.
    pub(super) fn package(self) -> &'static str {
        match self {
            Self::V6_1 => "linux-image-amd64",
            Self::V6_12 => "linux-image-6.12-amd64",
        }
    }
}

/// Completes an unpacked kernel in `new` so that it boots: the list of dependencies between modules, and the modules
/// that are needed to mount the root.
pub(super) fn prepare(cache: &Cache, new: &Path) -> Result<(), String> {
    let root = new.join("root");
    let version = version(&root)?;
    let modules = root.join("lib/modules").join(&version);
    if !modules.join("kernel/drivers/infiniband/sw/rxe").is_dir() {
        return Err(format!("the kernel {version} has no rdma_rxe"));
    }
    let mut depmod = tool(cache, "kmod");
    depmod.arg0("depmod").arg("-b").arg(&root).arg(&version);
    output(depmod, "depmod")?;

    let early = new.join("early");
    make_folder(&early)?;
    let dependencies = read(&modules.join("modules.dep"))?;
    let builtin = read(&modules.join("modules.builtin"))?;
    for (turn, module) in in_order(&dependencies, &builtin, EARLY)?.iter().enumerate() {
        let name = stem(module);
        unpack(
            cache,
            &modules.join(module),
            &early.join(format!("{turn:02}-{name}.ko")),
        )?;
    }
    Ok(())
}

/// The version of the one kernel in a root.
pub(super) fn version(root: &Path) -> Result<String, String> {
    let boot = root.join("boot");
    let files =
        fs::read_dir(&boot).map_err(|why| format!("cannot read {}: {why}", boot.display()))?;
    let mut names = files
        .flatten()
        .filter_map(|file| file.file_name().into_string().ok());
    names
        .find_map(|name| name.strip_prefix("vmlinuz-").map(String::from))
        .ok_or_else(|| format!("{} holds no vmlinuz", boot.display()))
}

/// The initramfs (cpio, "newc"): busybox, `init` and the early modules.
pub(super) fn initramfs(cache: &Cache, init: &Path) -> Result<Vec<u8>, String> {
    let early = cache.early();
    let files =
        fs::read_dir(&early).map_err(|why| format!("cannot read {}: {why}", early.display()))?;
    let mut modules: Vec<PathBuf> = files.flatten().map(|file| file.path()).collect();
    modules.sort();
    let mut archive = Archive::default();
    for folder in ["bin", "dev", "modules"] {
        archive.add(folder, FOLDER, &[]);
    }
    archive.add("bin/busybox", PROGRAM, &bytes(&busybox(cache))?);
    archive.add("init", PROGRAM, &bytes(init)?);
    for module in &modules {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive.add(&format!("modules/{name}"), PROGRAM, &bytes(module)?);
    }
    Ok(archive.end())
}

/// A cpio archive in memory.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: usize,
}

impl Archive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let (inode, length, name_length) = (self.entries, content.len(), name.len() + 1);
        // Magic, inode, mode, uid, gid, links, time, length, four numbers of devices, length of the name, no sum.
        let head = format!(
            "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{1:08x}{0:08x}{length:08x}{0:08x}{0:08x}{0:08x}{0:08x}{name_length:08x}{0:08x}",
            0, 1
        );
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    fn end(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The paths of the modules `names` and of all modules they need, in the order of loading. Built-in modules are left
/// out.
fn in_order<'a>(
    dependencies: &'a str,
    builtin: &str,
    names: &[&str],
) -> Result<Vec<&'a str>, String> {
    // `a.ko: b.ko c.ko`: a needs b and c, and c is loaded before b.
    let table: BTreeMap<String, Vec<&str>> = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, needs)| {
            let mut order: Vec<&str> = needs.split_whitespace().rev().collect();
            order.push(path);
            (stem(path), order)
        })
        .collect();
    let mut all = Vec::new();
    for name in names {
        match table.get(*name) {
            Some(order) => all.extend(order),
            None if builtin.lines().any(|path| stem(path) == *name) => {}
            None => return Err(format!("the kernel has no module {name}")),
        }
    }
    let mut seen = Vec::new();
    all.retain(|path| {
        !seen.contains(path) && {
            seen.push(*path);
            true
        }
    });
    Ok(all)
}

/// `kernel/fs/9p/9p.ko.xz` is `9p`.
fn stem(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split(".ko").next().unwrap_or(file).replace('-', "_")
}

fn unpack(cache: &Cache, module: &Path, to: &Path) -> Result<(), String> {
    let packed = module.extension().is_some_and(|kind| kind == "xz");
    let content = if packed {
        let mut unxz = Command::new(busybox(cache));
        unxz.args(["unxz", "-c"]).arg(module);
        let done = unxz
            .output()
            .map_err(|why| format!("cannot start busybox: {why}"))?;
        if !done.status.success() {
            return Err(format!("busybox cannot unpack {}", module.display()));
        }
        done.stdout
    } else {
        bytes(module)?
    };
    fs::write(to, content).map_err(|why| format!("cannot write {}: {why}", to.display()))
}

fn busybox(cache: &Cache) -> PathBuf {
    cache.host().join("bin/busybox")
}

/// A program of the group `host`, with its libraries.
fn tool(cache: &Cache, name: &str) -> Command {
    let mut tool = command(cache.host().join("bin").join(name));
    tool.env("LD_LIBRARY_PATH", cache.host().join(LIBRARIES));
    tool
}

fn bytes(file: &Path) -> Result<Vec<u8>, String> {
    fs::read(file).map_err(|why| format!("cannot read {}: {why}", file.display()))
}

/// The folder of the libraries in Debian's packages.
pub(super) const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// The modules that are needed to mount the root from the initramfs.
const EARLY: &[&str] = &[
    "virtio_pci",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
];
const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_module_needs_is_loaded_before_it_and_once() {
        let table =
            "k/9p.ko: k/9pnet.ko k/netfs.ko\nk/9pnet.ko:\nk/netfs.ko.xz:\nk/a-b.ko: k/9pnet.ko\n";
        let order = in_order(table, "k/virtio_pci.ko\n", &["virtio_pci", "a_b", "9p"]).unwrap();
        assert_eq!(order, ["k/9pnet.ko", "k/a-b.ko", "k/netfs.ko", "k/9p.ko"]);
        let why = in_order(table, "", &["virtio_pci"]).unwrap_err();
        assert_eq!(why, "the kernel has no module virtio_pci");
    }

    #[test]
    fn the_archive_has_the_form_that_the_kernel_reads() {
        let mut archive = Archive::default();
        archive.add("init", PROGRAM, b"hello");
        let bytes = archive.end();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("07070100000001000081ed"), "{text}");
        assert_eq!(&text[54..62], "00000005");
        assert_eq!(&text[94..102], "00000005");
        assert_eq!(&text[110..114], "init");
        // Name and content begin at multiples of four.
        assert_eq!(&text[116..121], "hello");
        assert_eq!(&text[124..130], "070701");
        assert!(text.contains("TRAILER!!!"));
    }

    #[test]
    fn kernels_have_names() {
        assert_eq!(KernelSeries::named("6.12"), Ok(KernelSeries::V6_12));
        let why = KernelSeries::named("5.10").unwrap_err();
        assert!(why.contains("unknown kernel `5.10`"), "{why}");
    }
}
