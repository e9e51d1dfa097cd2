// SPDX-License-Identifier: MIT OR Apache-2.0
//! One emulated machine: its folder, its emulator, the warden that ends both, and what it leaves to be read.
//!
//! The warden (`ci/softroce/warden`) is the emulator's parent and holds the other end of a pipe of ours. When we close it,
//! or end in any way, Ctrl-C and SIGKILL included, it kills the emulator and removes the folder.

use super::cache::{Cache, remove};
use super::guest::Guest;
use super::kernel::{self, LIBRARIES};
use super::streams::Output;
use crate::tree::{command, make_folder, root};
use std::env;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};

/// What the network card of a guest is connected with.
pub(super) enum Wire<'a> {
    /// There is none: two devices in one guest.
    None,
    /// Guest b, to which the other one connects.
    Listen,
    /// Guest a, and the guest b that is listening.
    Connect(&'a Machine),
}

/// A machine that runs, or ran.
pub(super) struct Machine {
    folder: PathBuf,
    warden: Option<Child>,
}

impl Machine {
    /// Boots it with a command.
    pub(super) fn start(
        cache: &Cache,
        guest: &Guest,
        wire: Wire<'_>,
        words: &[&str],
    ) -> Result<Self, String> {
        let mut machine = Self {
            folder: new_folder(&cache.runs())?,
            warden: None,
        };
        machine.write_files(cache, guest, wire.role(), words)?;
        let mut warden = command("sh");
        warden
            .arg(root().join("ci/softroce/warden"))
            .arg(&machine.folder)
            .arg(cache.qemu().join("usr/bin/qemu-system-x86_64"))
            .args(arguments(cache, guest, &wire)?)
            .env("LD_LIBRARY_PATH", cache.qemu().join(LIBRARIES));
        machine.spawn(warden)?;
        Ok(machine)
    }

    fn spawn(&mut self, mut warden: Command) -> Result<(), String> {
        warden
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C goes to our group alone.
            .process_group(0);
        let child = warden
            .spawn()
            .map_err(|why| format!("cannot start the warden of the emulator: {why}"))?;
        self.warden = Some(child);
        Ok(())
    }

    /// The folder as the guest's scripts expect it.
    fn write_files(
        &self,
        cache: &Cache,
        guest: &Guest,
        role: &str,
        words: &[&str],
    ) -> Result<(), String> {
        let scripts = root().join("ci/softroce");
        let vm = self.folder.join("vm");
        make_folder(&vm)?;
        let initramfs = kernel::initramfs(cache, &scripts.join("init"))?;
        let mut files = vec![
            (self.folder.join("initramfs"), initramfs),
            (vm.join("settings"), settings(guest, role).into_bytes()),
            (vm.join("command"), command_file(words).into_bytes()),
        ];
        for name in ["guest", "pair", "reach"] {
            let script = crate::tree::read(&scripts.join(name))?;
            files.push((vm.join(name), script.into_bytes()));
        }
        for (file, content) in files {
            fs::write(&file, content)
                .map_err(|why| format!("cannot write {}: {why}", file.display()))?;
        }
        Ok(())
    }

    /// The command's streams; can be had once.
    pub(super) fn output(&mut self) -> Output {
        let Some(warden) = &mut self.warden else {
            return [None, None];
        };
        let out = warden
            .stdout
            .take()
            .map(|end| Box::new(end) as Box<dyn Read + Send>);
        let err = warden
            .stderr
            .take()
            .map(|end| Box::new(end) as Box<dyn Read + Send>);
        [out, err]
    }

    /// The socket on which guest b listens.
    pub(super) fn wire(&self) -> PathBuf {
        self.folder.join("wire")
    }

    /// The command's code, once it has ended.
    pub(super) fn code(&self) -> Option<i32> {
        let text = fs::read_to_string(self.folder.join("vm/code")).ok()?;
        text.trim().parse().ok()
    }

    /// The kernel's messages.
    pub(super) fn console(&self) -> Vec<u8> {
        fs::read(self.folder.join("console")).unwrap_or_default()
    }

    /// Why there is no code though the machine is gone.
    pub(super) fn why_lost(&self) -> String {
        let file = |name| fs::read(self.folder.join(name)).unwrap_or_default();
        let text = |name| String::from_utf8_lossy(&file(name)).into_owned();
        let reason = text("vm/error");
        if !reason.is_empty() {
            return format!("the guest gave up: {}", reason.trim());
        }
        let (said, console) = (text("said"), text("console"));
        let mut why = String::from("the guest died before the command ended");
        if !said.trim().is_empty() {
            why += &format!("\nthe emulator said: {}", said.trim());
        }
        // The report of a panic is long: first the lines that name it.
        let lines: Vec<&str> = console.lines().collect();
        let naming = |line: &&&str| NAMING.iter().any(|words| line.contains(words));
        let last = &lines[lines.len().saturating_sub(LAST_SHOWN)..];
        let shown = lines.iter().filter(naming).take(NAMING_SHOWN);
        for line in shown.chain([&"..."]).chain(last) {
            why += &format!("\n  {}", line.trim_end());
        }
        why + "\n(all messages: --log FILE)"
    }

    /// Ends the machine, if it has not ended, and removes its folder.
    pub(super) fn stop(self) {
        drop(self);
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(mut warden) = self.warden.take() {
            // `wait` closes the pipe first; the warden does the rest.
            let _ = warden.wait();
        }
        let _ = remove(&self.folder);
    }
}

impl Wire<'_> {
    fn role(&self) -> &'static str {
        match self {
            Self::None => "one",
            Self::Connect(_) => "a",
            Self::Listen => "b",
        }
    }

    /// The network card. The path of a socket may be 107 bytes long, so it is relative to the folder of the machine.
    fn card(&self, mtu_bytes: u32) -> Vec<String> {
        let (server, path, mac) = match self {
            Self::None => return Vec::new(),
            Self::Listen => ("on", "wire".to_string(), 2),
            Self::Connect(peer) => {
                let name = peer.folder.file_name().unwrap_or_default();
                ("off", format!("../{}/wire", name.to_string_lossy()), 1)
            }
        };
        vec![
            "-netdev".into(),
            format!("stream,id=wire,server={server},addr.type=unix,addr.path={path}"),
            "-device".into(),
            format!(
                "virtio-net-pci,netdev=wire,mac=52:54:00:77:00:{mac:02},romfile=,host_mtu={mtu_bytes}"
            ),
        ]
    }
}

/// The emulator's command line. It works in the machine's folder.
fn arguments(cache: &Cache, guest: &Guest, wire: &Wire<'_>) -> Result<Vec<OsString>, String> {
    let kernel = cache.kernel();
    let version = kernel::version(&kernel)?;
    let processors = guest.processors.unwrap_or(match wire {
        Wire::None => 2,
        // Two guests that poll on four virtual processors wait for each other's slices of time.
        _ => 1,
    });
    // Where a machine can never have a second processor, the emulator (7.2 at least) leaves the guest's memory barriers out.
    // Those of the drivers are for the emulator's own threads, though: sooner or later the network card misses a notification
    // and is dead from then on.
    let most_processors = processors.max(2);
    let processors = format!("{processors},maxcpus={most_processors}");
    let memory = guest.memory_mib.to_string();
    // In software, always: where the machine is itself a virtual one, /dev/kvm may be there and hang the guest.
    let board = if guest.has_cards {
        WITH_CARDS
    } else {
        "-machine pc"
    };
    let fixed = "-cpu max -accel tcg,thread=multi -nodefaults -no-user-config -display none -no-reboot \
                 -initrd initramfs -serial file:console -device virtio-serial-pci,max_ports=3 \
                 -chardev file,id=out,path=/dev/fd/4 -device virtserialport,nr=1,chardev=out \
                 -chardev file,id=err,path=/dev/fd/5 -device virtserialport,nr=2,chardev=err";
    let words = board.split_whitespace().chain(fixed.split_whitespace());
    let mut all: Vec<OsString> = words.map(OsString::from).collect();
    all.extend(["-smp", &processors, "-m", &memory].map(OsString::from));
    // A panic ends the emulator: it asks for a reboot, which -no-reboot refuses.
    let iommu = if guest.has_cards {
        " intel_iommu=on"
    } else {
        ""
    };
    let line = format!("{KERNEL_LINE}{iommu}");
    all.extend(["-append", &line].map(OsString::from));
    all.extend([
        "-kernel".into(),
        kernel.join(format!("boot/vmlinuz-{version}")).into(),
    ]);
    for firmware in ["qemu", "seabios"] {
        all.extend([
            "-L".into(),
            cache.qemu().join("usr/share").join(firmware).into(),
        ]);
    }
    all.extend(shares(cache, guest, kernel).into_iter().map(OsString::from));
    all.extend(wire.card(guest.mtu_bytes).into_iter().map(OsString::from));
    Ok(all)
}

/// Folders that the guest sees.
fn shares(cache: &Cache, guest: &Guest, kernel: PathBuf) -> Vec<String> {
    let mut all = Vec::new();
    let mut shares = vec![
        ("machine", PathBuf::from("/"), ",readonly=on"),
        ("tools", cache.tools(), ",readonly=on"),
        ("kernel", kernel, ",readonly=on"),
        ("vm", PathBuf::from("vm"), ""),
    ];
    shares.extend(guest.share.clone().map(|dir| ("share", dir, "")));
    for (tag, dir, more) in shares {
        let dir = dir.to_string_lossy().replace(',', ",,");
        let place = format!("local,id={tag},path={dir},security_model=none,multidevs=remap{more}");
        let device = format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}");
        all.extend(["-fsdev".into(), place, "-device".into(), device]);
    }
    all
}

/// What `guest` reads first.
fn settings(guest: &Guest, role: &str) -> String {
    let share = guest.share.as_deref().unwrap_or_else(|| Path::new(""));
    let here = env::current_dir().unwrap_or_else(|_| "/".into());
    format!(
        "VM_ROLE={role}\nVM_MTU={}\nVM_NETEM={}\nVM_SHARE={}\nVM_FOLDER={}\n",
        guest.mtu_bytes,
        quoted(&guest.netem),
        quoted(&share.to_string_lossy()),
        quoted(&here.to_string_lossy()),
    )
}

/// The command, with the variables of ours that it gets.
fn command_file(words: &[&str]) -> String {
    let mut text = String::new();
    for name in ["PATH", "HOME", "LANG"] {
        if let Some(value) = env::var_os(name) {
            text += &format!("export {name}={}\n", quoted(&value.to_string_lossy()));
        }
    }
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    text + &words.join(" ") + "\n"
}

/// A word that the shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A new folder below `runs`; folders of processes that are gone are removed.
fn new_folder(runs: &Path) -> Result<PathBuf, String> {
    let wrong = |why| format!("cannot create a folder in {}: {why}", runs.display());
    for left in fs::read_dir(runs).map_err(wrong)?.flatten() {
        let name = left.file_name().to_string_lossy().into_owned();
        let pid = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(pid).exists() {
            // A warden may be at it too.
            let _ = remove(&left.path());
        }
    }
    let mut count = 0;
    loop {
        let folder = runs.join(format!("{}-{count}", process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(why) if why.kind() == std::io::ErrorKind::AlreadyExists => count += 1,
            Err(why) => return Err(wrong(why)),
        }
    }
}

/// `no_timer_check`: under load the test of the timer may fail and stop the boot.
const KERNEL_LINE: &str =
    "console=ttyS0 quiet no_timer_check mitigations=off nokaslr panic=-1 random.trust_cpu=on";
/// A board with an IOMMU, which other devices come behind, for addresses as long as a process's; and two cards on a wire of their own.
const WITH_CARDS: &str = "-machine q35,kernel-irqchip=split -device intel-iommu,caching-mode=on,intremap=off,aw-bits=48 \
                          -netdev hubport,id=wire0,hubid=0 -device e1000e,netdev=wire0,addr=0x10,romfile= \
                          -netdev hubport,id=wire1,hubid=0 -device e1000e,netdev=wire1,addr=0x11,romfile=";
const NAMING: &[&str] = &["Kernel panic", "BUG:", "Oops", "Out of memory", "guest:"];
const NAMING_SHOWN: usize = 5;
const LAST_SHOWN: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    /// A machine whose emulator is a line of shell.
    fn machine(name: &str, line: &str) -> Machine {
        let runs = env::temp_dir().join(format!("rmpi-machine-{name}-{}", process::id()));
        make_folder(&runs).unwrap();
        let mut machine = Machine {
            folder: new_folder(&runs).unwrap(),
            warden: None,
        };
        make_folder(&machine.folder.join("vm")).unwrap();
        let mut warden = Command::new("sh");
        warden.arg(root().join("ci/softroce/warden"));
        warden.arg(&machine.folder).args(["sh", "-c", line]);
        machine.spawn(warden).unwrap();
        machine
    }

    fn text(end: Option<Box<dyn Read + Send>>) -> String {
        let mut text = String::new();
        end.unwrap().read_to_string(&mut text).unwrap();
        text
    }

    fn soon(happened: impl Fn() -> bool) -> bool {
        (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            happened()
        })
    }

    #[test]
    fn the_emulator_has_both_streams_and_a_place_for_its_own_words() {
        let mut machine = machine(
            "streams",
            "echo out >&4; echo err >&5; echo own; echo 3 > vm/code",
        );
        let [out, err] = machine.output();
        assert_eq!((text(out), text(err)), ("out\n".into(), "err\n".into()));
        assert_eq!(machine.code(), Some(3));
        assert!(machine.why_lost().contains("the emulator said: own"));
        let folder = machine.folder.clone();
        machine.stop();
        assert!(!folder.exists());
    }

    #[test]
    fn stopping_kills_what_runs_and_removes_its_folder() {
        let mut machine = machine("stop", "echo $$ >&4; exec sleep 1000");
        let [out, _err] = machine.output();
        let mut first = [0; 32];
        let count = out.unwrap().read(&mut first).unwrap();
        let pid = String::from_utf8_lossy(&first[..count]).trim().to_string();
        let folder = machine.folder.clone();
        assert!(Path::new("/proc").join(&pid).exists());
        machine.stop();
        assert!(!Path::new("/proc").join(&pid).exists() && !folder.exists());
    }

    #[test]
    fn the_warden_needs_nobody_to_tell_it() {
        let mut machine = machine("tie", "exec sleep 1000");
        let mut warden = machine.warden.take().unwrap();
        // As when the process that holds the pipe is killed.
        drop(warden.stdin.take());
        assert!(soon(|| !machine.folder.exists()));
        warden.wait().unwrap();
    }

    #[test]
    fn a_guest_that_gave_up_or_panicked_says_why() {
        let machine = machine("lost", "exec sleep 1000");
        let console = "a\nKernel panic - not syncing\n".to_string() + &"x\n".repeat(20);
        fs::write(machine.folder.join("console"), console).unwrap();
        let why = machine.why_lost();
        assert!(
            why.contains("\n  Kernel panic - not syncing\n  ...\n  x\n"),
            "{why}"
        );
        assert_eq!(why.matches("  x").count(), LAST_SHOWN);
        fs::write(machine.folder.join("vm/error"), "no veth\n").unwrap();
        assert_eq!(machine.why_lost(), "the guest gave up: no veth");
        assert_eq!(machine.code(), None);
    }

    #[test]
    fn words_reach_the_shell_as_they_are() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
        let file = command_file(&["echo", "a b"]);
        assert!(file.ends_with("\n'echo' 'a b'\n"), "{file}");
        let guest = Guest::new().netem("loss 1%").share(Path::new("/a b"));
        let text = settings(&guest, "one");
        assert!(
            text.contains("VM_NETEM='loss 1%'\nVM_SHARE='/a b'\n"),
            "{text}"
        );
    }

    #[test]
    fn folders_of_the_dead_are_removed() {
        let runs = env::temp_dir().join(format!("rmpi-runs-{}", process::id()));
        make_folder(&runs.join("0-0")).unwrap();
        let first = new_folder(&runs).unwrap();
        let second = new_folder(&runs).unwrap();
        assert!(first != second && first.exists() && !runs.join("0-0").exists());
        remove(&runs).unwrap();
    }
}
