// SPDX-License-Identifier: MIT OR Apache-2.0
//! An emulated machine: its folder, its emulator, the warden that ends both, and the files that it leaves.
//!
//! The warden (`ci/softroce/warden`) is the emulator's parent and reads a pipe whose other end this process holds. When
//! this process closes the pipe or ends for any reason, Ctrl-C and SIGKILL included, the warden kills the emulator and
//! removes the folder.

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

/// What a guest's network card is connected to.
pub(super) enum Wire<'a> {
    /// Nothing: there is one guest, with two devices.
    None,
    /// This is guest b, which listens for guest a.
    Listen,
    /// This is guest a, which connects to this guest b.
    Connect(&'a Machine),
}

/// A machine that runs or has run.
pub(super) struct Machine {
    folder: PathBuf,
    warden: Option<Child>,
}

impl Machine {
    /// Boots a machine that runs a command.
    pub(super) fn start(
        cache: &Cache,
        guest: &Guest,
        wire: Wire<'_>,
        args: &[&str],
    ) -> Result<Self, String> {
        let mut machine = Self {
            folder: new_folder(&cache.runs())?,
            warden: None,
        };
        machine.write_files(cache, guest, wire.role(), args)?;
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
            // Ctrl-C goes to this process's group; in its own group, the emulator does not get it.
            .process_group(0);
        let child = warden
            .spawn()
            .map_err(|why| format!("cannot start the warden of the emulator: {why}"))?;
        self.warden = Some(child);
        Ok(())
    }

    /// Writes the files that the guest's scripts expect.
    fn write_files(
        &self,
        cache: &Cache,
        guest: &Guest,
        role: &str,
        args: &[&str],
    ) -> Result<(), String> {
        let scripts = root().join("ci/softroce");
        let vm = self.folder.join("vm");
        make_folder(&vm)?;
        let initramfs = kernel::initramfs(cache, &scripts.join("init"))?;
        let mut files = vec![
            (self.folder.join("initramfs"), initramfs),
            (vm.join("settings"), settings(guest, role).into_bytes()),
            (vm.join("command"), command_file(args).into_bytes()),
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

    /// The command's output streams; only the first call returns them.
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

    /// The command's exit code; `None` before it has ended.
    pub(super) fn code(&self) -> Option<i32> {
        let text = fs::read_to_string(self.folder.join("vm/code")).ok()?;
        text.trim().parse().ok()
    }

    /// The kernel's messages.
    pub(super) fn console(&self) -> Vec<u8> {
        fs::read(self.folder.join("console")).unwrap_or_default()
    }

    /// Why the machine ended before the command did.
    pub(super) fn why_lost(&self) -> String {
        let file = |name| fs::read(self.folder.join(name)).unwrap_or_default();
        let text = |name| String::from_utf8_lossy(&file(name)).into_owned();
        let reason = text("vm/error");
        if !reason.is_empty() {
            return format!("the guest gave up: {}", reason.trim());
        }
        let (output, console) = (text("emulator-output"), text("console"));
        let mut why = String::from("the guest died before the command ended");
        if !output.trim().is_empty() {
            why += &format!("\nthe emulator printed: {}", output.trim());
        }
        // The report of a panic is long: show the lines that name it first.
        let lines: Vec<&str> = console.lines().collect();
        let naming = |line: &&&str| NAMING.iter().any(|text| line.contains(text));
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
            // `wait` closes the pipe first; the warden then ends everything.
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

    /// The options for the network card. The socket's path is relative to the machine's folder, because it may have at
    /// most 107 bytes.
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

/// The emulator's arguments. Its working directory is the machine's folder.
fn arguments(cache: &Cache, guest: &Guest, wire: &Wire<'_>) -> Result<Vec<OsString>, String> {
    let kernel = cache.kernel();
    let version = kernel::version(&kernel)?;
    let processors = guest.processors.unwrap_or(match wire {
        Wire::None => 2,
        // Each of two guests has one processor: with two each, polling guests would keep more emulated processors busy
        // than small machines have CPUs.
        _ => 1,
    });
    // The machine can always get a second processor (`maxcpus`). Otherwise the emulator (QEMU 7.2 at least) would leave
    // out the guest's memory barriers. Drivers need these barriers towards the emulator's own threads: without them,
    // the network card would sooner or later miss a notification and stop for good.
    let most_processors = processors.max(2);
    let processors = format!("{processors},maxcpus={most_processors}");
    let memory = guest.memory_mib.to_string();
    let board = if guest.has_cards {
        WITH_CARDS
    } else {
        "-machine pc"
    };
    // `-accel tcg`: the guest is always emulated in software, because on a machine that is itself virtual, /dev/kvm may
    // exist and hang the guest. `-no-reboot`: after a panic the kernel reboots, and this option makes that end the
    // emulator.
    let fixed = "-cpu max -accel tcg,thread=multi -nodefaults -no-user-config -display none -no-reboot \
                 -initrd initramfs -serial file:console -device virtio-serial-pci,max_ports=3 \
                 -chardev file,id=out,path=/dev/fd/4 -device virtserialport,nr=1,chardev=out \
                 -chardev file,id=err,path=/dev/fd/5 -device virtserialport,nr=2,chardev=err";
    let args = board.split_whitespace().chain(fixed.split_whitespace());
    let mut all: Vec<OsString> = args.map(OsString::from).collect();
    all.extend(["-smp", &processors, "-m", &memory].map(OsString::from));
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

/// The options for the folders that the guest sees.
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

/// The settings that the script `guest` reads first.
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

/// The command, with the variables of this environment that it receives.
fn command_file(args: &[&str]) -> String {
    let mut text = String::new();
    for name in ["PATH", "HOME", "LANG"] {
        if let Some(value) = env::var_os(name) {
            text += &format!("export {name}={}\n", quoted(&value.to_string_lossy()));
        }
    }
    let args: Vec<String> = args.iter().map(|arg| quoted(arg)).collect();
    text + &args.join(" ") + "\n"
}

/// An argument quoted for the shell.
fn quoted(arg: &str) -> String {
    format!("'{}'", arg.replace('\'', r"'\''"))
}

/// Creates a folder below `runs`, and removes folders of processes that have ended.
fn new_folder(runs: &Path) -> Result<PathBuf, String> {
    let wrong = |why| format!("cannot create a folder in {}: {why}", runs.display());
    for left in fs::read_dir(runs).map_err(wrong)?.flatten() {
        let name = left.file_name().to_string_lossy().into_owned();
        let pid = name.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(pid).exists() {
            // This may fail, because a warden may be removing the folder at the same time.
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

/// `no_timer_check`: on a busy machine the kernel's test of the timer may fail, which would stop the boot.
const KERNEL_LINE: &str =
    "console=ttyS0 quiet no_timer_check mitigations=off nokaslr panic=-1 random.trust_cpu=on";
/// A board with an IOMMU for 48-bit addresses, as processes have; and two network cards, connected with each other.
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

    /// A machine with a shell command as its emulator.
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
    fn the_emulator_has_both_streams_and_a_file_for_its_own_output() {
        let mut machine = machine(
            "streams",
            "echo out >&4; echo err >&5; echo own; echo 3 > vm/code",
        );
        let [out, err] = machine.output();
        assert_eq!((text(out), text(err)), ("out\n".into(), "err\n".into()));
        assert_eq!(machine.code(), Some(3));
        assert!(machine.why_lost().contains("the emulator printed: own"));
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
    fn the_warden_ends_the_machine_when_the_pipe_is_closed() {
        let mut machine = machine("tie", "exec sleep 1000");
        let mut warden = machine.warden.take().unwrap();
        // This closes the pipe, as the kernel does if the process that holds it is killed.
        drop(warden.stdin.take());
        assert!(soon(|| !machine.folder.exists()));
        warden.wait().unwrap();
    }

    #[test]
    fn why_a_guest_gave_up_or_panicked_is_reported() {
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
    fn arguments_reach_the_shell_unchanged() {
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
    fn folders_of_ended_processes_are_removed() {
        let runs = env::temp_dir().join(format!("rmpi-runs-{}", process::id()));
        make_folder(&runs.join("0-0")).unwrap();
        let first = new_folder(&runs).unwrap();
        let second = new_folder(&runs).unwrap();
        assert!(first != second && first.exists() && !runs.join("0-0").exists());
        remove(&runs).unwrap();
    }
}
