// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compiles the modules `mpi` and `mpi_f08`, once for each compiler.
//!
//! A module file can be read only by the Fortran compiler that wrote it, often only by the same version of that
//! compiler. So the sources of the modules are installed. A folder of compiled modules is made when it is first needed:
//! in the installed tree or, if that is not writable, in the user's cache. The name of the folder consists of the
//! compiler, its version, and a hash of the sources and the compiler's options.
//!
//! A folder is complete or absent: it is built under a temporary name and renamed. A build holds a lock: in a parallel
//! make, one wrapper builds and the others wait.

use std::env;
use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output};
use std::time::Duration;

use crate::language::MODULE_LIBRARY;
use crate::place::InstallTree;

/// The modules for one compiler.
#[derive(Debug)]
pub(crate) struct Modules {
    compiler: Vec<OsString>,
    /// The compiler's version line.
    version: String,
    sources: PathBuf,
    /// The name of the folder.
    name: String,
    /// Candidate parent folders, best first.
    places: Vec<PathBuf>,
}

/// The sources, in order of dependency. The first must compile. The second is optional, because some compilers are too
/// old for it.
const SOURCES: [&str; 2] = ["mpi", "mpi_f08"];

impl Modules {
    /// The modules of a compiler. Runs the compiler to get its version.
    pub(crate) fn of(compiler: &[OsString], place: &InstallTree) -> Result<Self, String> {
        let version = version(compiler)?;
        let sources = place.module_sources();
        let name = format!("{}-{:08x}", id(&version), fingerprint(&sources, compiler)?);
        let mut places = vec![place.modules()];
        places.extend(cache());
        Ok(Self {
            compiler: compiler.to_vec(),
            version,
            sources,
            name,
            places,
        })
    }

    /// The folder of the compiled modules. If there is none, builds it, after a message to `report`.
    pub(crate) fn find_or_make(&self, report: impl Fn(&str)) -> Result<PathBuf, String> {
        if let Some(found) = self.found() {
            return Ok(found);
        }
        let mut refused = Vec::new();
        for place in &self.places {
            match self.make(place, &report) {
                Ok(folder) => return Ok(folder),
                Err(ModuleFailure::Compiler(why)) => return Err(why),
                Err(ModuleFailure::Place(why)) => refused.push(why),
            }
        }
        Err(format!(
            "the Fortran modules for {} can be kept nowhere ({}); set XDG_CACHE_HOME to a folder that can be written to",
            self.version,
            refused.join("; ")
        ))
    }

    /// The option with which gfortran accepts calls of one procedure with arguments of different types, as in programs
    /// with `mpif.h`. gfortran needs it since version 10. `None` for older versions and other compilers.
    pub(crate) fn leniency(&self) -> Option<&'static str> {
        let id = id(&self.version);
        let (major, _) = id.strip_prefix("gfortran-")?.split_once('.')?;
        let refuses = major.parse::<u32>().is_ok_and(|major| major >= 10);
        refuses.then_some(LENIENCY)
    }

    fn found(&self) -> Option<PathBuf> {
        let mut folders = self.places.iter().map(|place| place.join(&self.name));
        folders.find(|folder| folder.is_dir())
    }

    fn make(&self, place: &Path, report: &impl Fn(&str)) -> Result<PathBuf, ModuleFailure> {
        let whole = place.join(&self.name);
        fs::create_dir_all(place).map_err(|why| ModuleFailure::at(place, &why))?;
        // The lock is released when the file is closed. On a file system without locks two builds may run at the same
        // time; that only wastes time.
        let lock =
            File::create(place.join(".lock")).map_err(|why| ModuleFailure::at(place, &why))?;
        let _ = lock.lock();
        if whole.is_dir() {
            return Ok(whole);
        }
        sweep(place);
        let draft = place.join(format!(".{}.{}", self.name, process::id()));
        fs::create_dir_all(&draft).map_err(|why| ModuleFailure::at(&draft, &why))?;
        report(&format!(
            "compiling the modules `mpi` and `mpi_f08` for {}, once, into {}",
            self.version,
            whole.display()
        ));
        let built = self.build(&draft, report).and_then(|()| {
            let renamed = fs::rename(&draft, &whole);
            // The rename fails if another build was first; then its folder is used.
            let renamed = renamed.or_else(|why| if whole.is_dir() { Ok(()) } else { Err(why) });
            renamed.map_err(|why| ModuleFailure::at(&whole, &why))
        });
        // After a success the draft does not exist any more.
        let _ = fs::remove_dir_all(&draft);
        built.map(|()| whole)
    }

    /// Compiles all sources in `draft`, and removes temporary files; the result is readable by all users.
    fn build(&self, draft: &Path, report: &impl Fn(&str)) -> Result<(), ModuleFailure> {
        let mut objects = Vec::new();
        for source in SOURCES {
            let object = format!("{source}.o");
            let done = self
                .compile(source, draft)
                .map_err(ModuleFailure::Compiler)?;
            if done.status.success() {
                objects.push(object);
                continue;
            }
            room(draft)?;
            let why = first_error(&done);
            if objects.is_empty() || done.status.code().is_none() {
                return Err(ModuleFailure::Compiler(format!(
                    "{} cannot compile the module `{source}`: {why}; programs that include mpif.h need no module",
                    self.version
                )));
            }
            report(&format!(
                "{} cannot compile the module `{source}`: {why}; the module `mpi` is there",
                self.version
            ));
        }
        archive(draft, &objects)?;
        for object in &objects {
            fs::remove_file(draft.join(object)).map_err(|why| ModuleFailure::at(draft, &why))?;
        }
        open_to_all(draft).map_err(|why| ModuleFailure::at(draft, &why))
    }

    fn compile(&self, source: &str, draft: &Path) -> Result<Output, String> {
        let (program, first) = self.compiler.split_first().ok_or("no compiler is named")?;
        let mut compile = Command::new(program);
        compile.args(first).args(["-c", "-O2", "-fPIC", "-o"]);
        compile.arg(format!("{source}.o"));
        compile.arg(self.sources.join(format!("{source}.f90")));
        // Every compiler writes module files into its working directory.
        let done = compile.current_dir(draft).output();
        done.map_err(|why| format!("cannot start {}: {why}", Path::new(program).display()))
    }
}

const LENIENCY: &str = "-fallow-argument-mismatch";

/// Why modules were not made.
#[derive(Debug)]
enum ModuleFailure {
    /// This parent folder did not work, but another may.
    Place(String),
    /// The compiler failed.
    Compiler(String),
}

impl ModuleFailure {
    fn at(path: &Path, why: &io::Error) -> Self {
        Self::Place(format!("{}: {why}", path.display()))
    }
}

/// The user's cache folder.
fn cache() -> Option<PathBuf> {
    let named = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    // By the XDG specification relative paths are ignored.
    let named = named.filter(|path| path.is_absolute());
    let home_cache = || Some(PathBuf::from(env::var_os("HOME")?).join(".cache"));
    Some(named.or_else(home_cache)?.join("rmpi/fortran"))
}

/// The first non-empty line of the compiler's `--version`.
fn version(compiler: &[OsString]) -> Result<String, String> {
    let (program, first) = compiler.split_first().ok_or("no compiler is named")?;
    let done = Command::new(program).args(first).arg("--version").output();
    let done =
        done.map_err(|why| format!("cannot start {}: {why}", Path::new(program).display()))?;
    let text = [done.stdout, done.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty());
    line.map(str::to_owned).ok_or_else(|| {
        format!(
            "{} prints nothing for --version",
            Path::new(program).display()
        )
    })
}

/// Makes a folder name of a version line: `gfortran-12.2.0` of `GNU Fortran (Debian 12.2.0-14) 12.2.0`.
fn id(version: &str) -> String {
    let known = FAMILIES.iter().find(|(name, _)| version.contains(name));
    let is_number =
        |field: &&str| field.contains('.') && field.starts_with(|c: char| c.is_ascii_digit());
    // The version number of the distribution's package comes first, in brackets: it is skipped.
    let mut fields = version
        .split_whitespace()
        .filter(|field| !field.ends_with(')'));
    let raw = match (known, fields.find(is_number)) {
        (Some((_, family)), Some(number)) => format!("{family}-{number}"),
        _ => version.to_owned(),
    };
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || ".+-_".contains(c) {
            c
        } else {
            '-'
        }
    };
    let name: String = raw.chars().map(plain).take(LONGEST_ID).collect();
    // Names that begin with a dot are reserved for drafts.
    name.trim_start_matches('.').to_owned()
}

/// Compilers' names in version lines, and their names in folder names.
const FAMILIES: [(&str, &str); 5] = [
    ("GNU Fortran", "gfortran"),
    ("flang", "flang"),
    ("ifx", "ifx"),
    ("ifort", "ifort"),
    ("nvfortran", "nvfortran"),
];
const LONGEST_ID: usize = 80;

/// A hash (FNV-1a) of the sources and of the compiler's options.
fn fingerprint(sources: &Path, compiler: &[OsString]) -> Result<u32, String> {
    let mut hash = 0x811c_9dc5_u32;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    for source in SOURCES {
        let file = sources.join(format!("{source}.f90"));
        let mut text = Vec::new();
        File::open(&file)
            .and_then(|mut file| file.read_to_end(&mut text))
            .map_err(|why| {
                format!(
                    "cannot read {}: {why}; install rmpi again (cargo xtask install --prefix DIR)",
                    file.display()
                )
            })?;
        add(&text);
    }
    let options = compiler
        .iter()
        .skip(1)
        .map(|option| option.as_encoded_bytes());
    options
        .filter(|option| option.starts_with(b"-"))
        .for_each(&mut add);
    Ok(hash)
}

/// The first line of the compiler's error output that contains "error", or its last line.
fn first_error(done: &Output) -> String {
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let error = lines
        .clone()
        .find(|line| line.to_lowercase().contains("error"));
    match error.or_else(|| lines.next_back()) {
        Some(line) => line.to_owned(),
        None => done.status.to_string(),
    }
}

/// Checks that there is disk space left, after a compilation has failed. If there is none, the failure is that of the
/// folder, not that of the compiler.
fn room(draft: &Path) -> Result<(), ModuleFailure> {
    let probe = draft.join("probe");
    let wrote = fs::write(&probe, vec![0; PROBE_BYTES]);
    // The file may have been written in part.
    let _ = fs::remove_file(&probe);
    wrote.map_err(|why| ModuleFailure::at(draft, &why))
}

const PROBE_BYTES: usize = 1 << 22;

fn archive(draft: &Path, objects: &[String]) -> Result<(), ModuleFailure> {
    let mut ar = Command::new("ar");
    ar.arg("crs").arg(format!("lib{MODULE_LIBRARY}.a"));
    let done = ar.args(objects).current_dir(draft).output();
    let done = done.map_err(|why| ModuleFailure::Compiler(format!("cannot start ar: {why}")))?;
    if done.status.success() {
        return Ok(());
    }
    Err(ModuleFailure::Place(format!(
        "{}: ar: {}",
        draft.display(),
        first_error(&done)
    )))
}

/// Makes a folder and its files readable for all users, independent of the umask.
fn open_to_all(folder: &Path) -> io::Result<()> {
    for file in fs::read_dir(folder)? {
        fs::set_permissions(file?.path(), Permissions::from_mode(0o644))?;
    }
    fs::set_permissions(folder, Permissions::from_mode(0o755))
}

/// Removes drafts older than [`STALE`]: their builds are assumed to have been killed, here or on another machine.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let is_draft = entry.file_name().as_encoded_bytes().starts_with(b".");
        let age = entry.metadata().and_then(|data| data.modified());
        let age = age.ok().and_then(|time| time.elapsed().ok());
        if is_draft && age.is_some_and(|age| age > STALE) {
            // The lock file stays, because this removes only folders.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// If a draft is older than this, its build is assumed to have ended.
const STALE: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compiler_ids_come_from_the_version_output() {
        for (version, wanted) in [
            ("GNU Fortran (Debian 12.2.0-14) 12.2.0", "gfortran-12.2.0"),
            (
                "flang-new version 19.1.7 (++20250114103253)",
                "flang-19.1.7",
            ),
            ("ifx (IFX) 2024.0.0 20231017", "ifx-2024.0.0"),
            (
                "nvfortran 23.9-0 64-bit target on x86-64",
                "nvfortran-23.9-0",
            ),
            ("Strange/Fortran, 7", "Strange-Fortran--7"),
            ("../x", "-x"),
        ] {
            assert_eq!(id(version), wanted);
        }
    }

    #[test]
    fn only_gfortran_10_or_newer_gets_the_leniency_option() {
        for (version, has_option) in [
            ("GNU Fortran (Debian 12.2.0-14) 12.2.0", true),
            ("GNU Fortran (GCC) 10.1.0", true),
            ("GNU Fortran (Ubuntu 9.4.0-1ubuntu1~20.04.2) 9.4.0", false),
            ("GNU Fortran (GCC) 4.8.5 20150623 (Red Hat 4.8.5-44)", false),
            ("GNU Fortran without a number", false),
            ("flang-new version 19.1.7 (++20250114103253)", false),
        ] {
            let modules = Modules {
                compiler: Vec::new(),
                version: version.to_owned(),
                sources: PathBuf::new(),
                name: String::new(),
                places: Vec::new(),
            };
            assert_eq!(modules.leniency().is_some(), has_option, "{version}");
        }
    }

    /// Makes an installed tree with sources, and a shell script as the compiler. The script runs `body` in the draft
    /// folder.
    fn set_up(name: &str, body: &str) -> (PathBuf, Modules) {
        let prefix = env::temp_dir().join(format!("modules-{name}-{}", process::id()));
        let place = InstallTree::at(&prefix);
        fs::create_dir_all(place.module_sources()).unwrap();
        for source in SOURCES {
            let file = place.module_sources().join(format!("{source}.f90"));
            fs::write(file, "module").unwrap();
        }
        let script = prefix.join("fc");
        let version = "test \"$1\" = --version && echo flang version 1.0 && exit";
        fs::write(&script, format!("#!/bin/sh\n{version}\n{body}\n")).unwrap();
        fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        // The compiler is `sh` with an argument.
        let compiler = ["sh".into(), script.into_os_string()];
        let mut modules = Modules::of(&compiler, &place).unwrap();
        modules.places.truncate(1);
        modules.places.push(prefix.join("cache"));
        (prefix, modules)
    }

    /// A script that writes the output of a compiler: the object file after `-o`, and a module file.
    const GOOD: &str = "echo x > \"$5\"; echo x > \"${5%.o}.mod\"";

    fn names(folder: &Path) -> Vec<String> {
        let files = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<String> = files
            .map(|file| file.file_name().to_string_lossy().into_owned())
            .filter(|name| name != ".lock")
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_module_folder_is_built_once_with_archive() {
        let (prefix, modules) = set_up("once", GOOD);
        let reports = std::cell::Cell::new(0);
        let report = |_: &str| reports.set(reports.get() + 1);
        let folder = modules.find_or_make(report).unwrap();
        assert_eq!(modules.find_or_make(report), Ok(folder.clone()));
        assert_eq!(reports.get(), 1);
        assert_eq!(
            names(&folder),
            ["librmpi_modules.a", "mpi.mod", "mpi_f08.mod"]
        );
        assert_eq!(
            names(&prefix.join("lib/rmpi/fortran")),
            [modules.name.as_str()]
        );
        fs::remove_dir_all(prefix).unwrap();
    }

    #[test]
    fn a_failing_compiler_leaves_no_folder_and_its_errors_are_reported() {
        let (prefix, modules) = set_up("fails", "echo 'Error: no' >&2; exit 1");
        let why = modules.find_or_make(|_| ()).unwrap_err();
        assert!(why.contains("Error: no") && why.contains("mpif.h"), "{why}");
        assert!(names(&prefix.join("lib/rmpi/fortran")).is_empty());
        fs::remove_dir_all(prefix).unwrap();
    }

    #[test]
    fn a_compiler_too_old_for_mpi_f08_still_gets_mpi() {
        let body = format!("case $5 in *f08*) echo Error >&2; exit 1;; esac; {GOOD}");
        let (prefix, modules) = set_up("old", &body);
        let folder = modules.find_or_make(|_| ()).unwrap();
        assert_eq!(names(&folder), ["librmpi_modules.a", "mpi.mod"]);
        fs::remove_dir_all(prefix).unwrap();
    }

    #[test]
    fn a_killed_compiler_is_an_error_not_an_old_version() {
        let body = format!("case $5 in *f08*) kill -9 $$;; esac; {GOOD}");
        let (prefix, modules) = set_up("killed", &body);
        assert!(modules.find_or_make(|_| ()).is_err());
        assert!(names(&prefix.join("lib/rmpi/fortran")).is_empty());
        fs::remove_dir_all(prefix).unwrap();
    }

    #[test]
    fn an_unwritable_tree_falls_back_to_the_cache() {
        let (prefix, modules) = set_up("cache", GOOD);
        fs::create_dir_all(prefix.join("lib/rmpi")).unwrap();
        // A file in place of the folder is an error even for root.
        fs::write(prefix.join("lib/rmpi/fortran"), "").unwrap();
        let folder = modules.find_or_make(|_| ()).unwrap();
        assert_eq!(folder, prefix.join("cache").join(&modules.name));
        fs::remove_dir_all(&prefix).unwrap();
    }

    #[test]
    fn concurrent_wrappers_build_one_module_folder() {
        let (prefix, modules) = set_up("many", &format!("sleep 0.05; {GOOD}"));
        let reports = std::sync::Mutex::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let count = |_: &str| *reports.lock().unwrap() += 1;
                    modules.find_or_make(count).unwrap();
                });
            }
        });
        assert_eq!(reports.into_inner().unwrap(), 1);
        assert_eq!(
            names(&prefix.join("lib/rmpi/fortran")),
            [modules.name.as_str()]
        );
        fs::remove_dir_all(prefix).unwrap();
    }
}
