// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a daemon's job from the user's request: finds and inspects programs, builds environments, sets CPUs.

use crate::affinity::{AffinityStrength, RankAffinity};
use crate::allocation::is_of_a_task;
use crate::cli::{App, JobRequest};
use crate::cpus::CpuList;
use crate::foreign_mpi::Needs;
use crate::job::{JobProgram, LaunchKeys, LaunchTimes, NodeJob, PlacedRank, RemoteSetup};
use crate::program::{self, NoProgram, cause};
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// File name of the MPI library that ranks load.
const LIBRARY: &str = "libmpi_abi.so.1";
/// Search path for programs if there is no `PATH`, as in `execvp`.
pub(crate) const DEFAULT_PATH: &str = "/bin:/usr/bin";
/// Variables that identify a rank. If `rmpiexec` runs inside another job, its values of these variables are not passed
/// to the ranks.
pub(crate) const OWN_VARIABLES: [&str; 6] = [
    wireup::BOOT_VARIABLE,
    "RMPI_RANK",
    "RMPI_SIZE",
    "RMPI_LOCAL_RANK",
    "RMPI_LOCAL_SIZE",
    crate::stats::VARIABLE,
];

/// Variables that describe a host or a session on it. In a job over hosts, ranks get the values of their own host, not
/// those of `rmpiexec`.
pub(crate) const OF_A_HOST: [&str; 10] = [
    "HOSTNAME",
    "HOST",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
    "XDG_SESSION_ID",
    "DBUS_SESSION_BUS_ADDRESS",
    "INVOCATION_ID",
];

/// Makes OpenMP threads sleep between parallel regions; not set if the user has set one of [`TEAM_WAITS`]. By default
/// the threads of a rank spin for longer than a time slice. They take CPU time from other ranks, for which this rank
/// may be waiting.
const CALM_TEAMS: (&str, &str) = ("OMP_WAIT_POLICY", "passive");
/// Variables of OpenMP and its libraries that control how a team waits.
const TEAM_WAITS: [&str; 4] = [
    "OMP_WAIT_POLICY",
    "GOMP_SPINCOUNT",
    "KMP_BLOCKTIME",
    "KMP_LIBRARY",
];

type Environment = BTreeMap<OsString, OsString>;

/// Makes the job for the daemon of this machine.
pub(crate) fn node_job(
    request: &JobRequest,
    cpus: &CpuList,
    places: &[RankAffinity],
    keys: LaunchKeys,
) -> Result<NodeJob, NoProgram> {
    let here = here(&request.apps)?;
    let size = request.size();
    let library = library_folder();
    let mut inherited = inherited();
    if share_cores(cpus, places) {
        calm_teams(&mut inherited, &request.apps);
    }
    let mut programs = Vec::with_capacity(request.apps.len());
    for app in &request.apps {
        programs.push(program(
            app,
            &here,
            inherited.clone(),
            library.as_deref(),
            size,
        )?);
    }
    Ok(NodeJob {
        keys,
        size,
        programs,
        ranks: ranks(&request.apps, places),
        cpus: cpus.clone(),
        input: request.stdin,
        prompts: request.output.is_none() && is_terminal(0) && is_terminal(1),
        hold: false,
        nodes: String::new(),
        crowded: false,
        report_phases: request.report,
        begun: LaunchTimes::default(),
        far: None,
    })
}

/// Whether ranks share cores: there are more ranks than CPUs, or some rank only prefers its CPU.
fn share_cores(cpus: &CpuList, places: &[RankAffinity]) -> bool {
    places.len() > cpus.count()
        || places
            .iter()
            .any(|place| place.strength == AffinityStrength::Preferred)
}

/// The variable that makes OpenMP teams sleep while they wait, to be added to an environment; `None` if the environment
/// has a variable that controls the waiting.
pub(crate) fn calm_variable(environment: &[CString]) -> Option<CString> {
    let sets = |set: &CString, name: &str| {
        let rest = set.as_bytes().strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.starts_with(b"="))
    };
    let is_set = |name: &str| environment.iter().any(|set| sets(set, name));
    let (name, value) = CALM_TEAMS;
    let text = (!TEAM_WAITS.into_iter().any(is_set)).then(|| format!("{name}={value}"));
    text.and_then(|text| CString::new(text).ok())
}

/// Adds the variable that makes OpenMP teams sleep while they wait, unless the environment or a program's own variables
/// control the waiting.
fn calm_teams(environment: &mut Environment, apps: &[App]) {
    let is_set = |name: &str| {
        let by_app = |app: &App| app.variables.iter().any(|(variable, _)| variable == name);
        environment.contains_key(OsStr::new(name)) || apps.iter().any(by_app)
    };
    if !TEAM_WAITS.into_iter().any(is_set) {
        environment.insert(CALM_TEAMS.0.into(), CALM_TEAMS.1.into());
    }
}

/// The current folder. If it has been removed, that is an error only if some program starts in it or in a relative
/// folder.
fn here(apps: &[App]) -> Result<PathBuf, NoProgram> {
    let elsewhere = |app: &App| {
        app.folder
            .as_ref()
            .is_some_and(|folder| folder.is_absolute())
    };
    std::env::current_dir().or_else(|error| {
        if apps.iter().all(elsewhere) {
            return Ok(PathBuf::from("/"));
        }
        let cause = cause(&error);
        Err(NoProgram {
            message: format!(
                "cannot determine the current folder: {cause}; go to one that exists, or name one with -wdir"
            ),
            code: 1,
        })
    })
}

fn ranks(apps: &[App], places: &[RankAffinity]) -> Vec<PlacedRank> {
    let app_of = (0..)
        .zip(apps)
        .flat_map(|(number, app)| (0..app.ranks).map(move |_| number));
    let placed = |(rank, (app, place)): (u32, (u32, &RankAffinity))| PlacedRank {
        rank,
        app,
        cpus: (place.strength != AffinityStrength::Free).then(|| CpuList::new(place.cpus.clone())),
        preferred: place.strength == AffinityStrength::Preferred,
    };
    (0..).zip(app_of.zip(places)).map(placed).collect()
}

/// A rank whose CPUs the daemon chooses.
pub(crate) fn placed_later(rank: u32, app: u32) -> PlacedRank {
    PlacedRank {
        rank,
        app,
        cpus: None,
        preferred: false,
    }
}

/// A node's part of a job over hosts, still without ranks and programs.
pub(crate) fn far_job(request: &JobRequest, keys: LaunchKeys, far: RemoteSetup) -> NodeJob {
    NodeJob {
        keys,
        size: request.size(),
        programs: Vec::new(),
        ranks: Vec::new(),
        cpus: CpuList::default(),
        input: request.stdin,
        prompts: request.output.is_none() && is_terminal(0) && is_terminal(1),
        hold: false,
        nodes: String::new(),
        crowded: false,
        report_phases: request.report,
        begun: LaunchTimes::default(),
        far: Some(far),
    }
}

/// The programs of a job over hosts. This function searches this machine for a program only if `runs_here` returns
/// `true` for the program's index. Each daemon searches its own host for the programs of its ranks.
pub(crate) fn far_programs(
    request: &JobRequest,
    runs_here: impl Fn(usize) -> bool,
) -> Result<Vec<JobProgram>, NoProgram> {
    let here = here(&request.apps)?;
    let prefix = request.prefix.as_ref().map(|prefix| prefix.join("lib"));
    let library = prefix.or_else(library_folder);
    let mut inherited = inherited();
    inherited.retain(|name, _| OF_A_HOST.iter().all(|own| name != own));
    let program = |(number, app): (usize, &App)| {
        let environment = inherited.clone();
        if runs_here(number) {
            let found = program(app, &here, environment, library.as_deref(), 2)?;
            let folder = text(&[here.as_os_str().as_bytes()])?;
            return Ok(JobProgram {
                folder: Some(found.folder.unwrap_or(folder)),
                ..found
            });
        }
        let environment = completed(app, environment, library.as_deref());
        let folder = app.folder.as_deref().unwrap_or_else(|| Path::new(""));
        let folder = program::inside(&here, folder);
        let path = match app.program.as_bytes().contains(&b'/') {
            true => program::inside(&folder, Path::new(&app.program)).into_os_string(),
            false => app.program.clone(),
        };
        in_bytes(app, &path, environment, Some(&folder))
    };
    request.apps.iter().enumerate().map(program).collect()
}

/// The environment of a program's ranks: `environment` with the program's own variables, and with the folder of the MPI
/// library in the loader's search path.
fn completed(app: &App, mut environment: Environment, library: Option<&Path>) -> Environment {
    environment.extend(app.variables.iter().cloned());
    if let Some(library) = library {
        put_first(&mut environment, library);
    }
    environment
}

fn program(
    app: &App,
    here: &Path,
    environment: Environment,
    library: Option<&Path>,
    size: u32,
) -> Result<JobProgram, NoProgram> {
    let folder = app
        .folder
        .as_ref()
        .map(|folder| program::inside(here, folder));
    let environment = completed(app, environment, library);
    let default = OsString::from(DEFAULT_PATH);
    let search = environment.get(OsStr::new("PATH")).unwrap_or(&default);
    let start = folder.as_deref().unwrap_or(here);
    if let Some(problem) = folder.as_deref().and_then(unusable_folder) {
        return Err(problem);
    }
    let path = program::find(&app.program, start, search)?;
    if size > 1 {
        refuse_foreign(&path, library, &environment)?;
    }
    in_bytes(app, path.as_os_str(), environment, folder.as_deref())
}

fn in_bytes(
    app: &App,
    path: &OsStr,
    environment: Environment,
    folder: Option<&Path>,
) -> Result<JobProgram, NoProgram> {
    let message = std::iter::once(&app.program).chain(&app.arguments);
    let variable =
        |(name, value): (OsString, OsString)| text(&[name.as_bytes(), b"=", value.as_bytes()]);
    Ok(JobProgram {
        path: text(&[path.as_bytes()])?,
        arguments: message
            .map(|argument| text(&[argument.as_bytes()]))
            .collect::<Result<_, _>>()?,
        environment: environment
            .into_iter()
            .map(variable)
            .collect::<Result<_, _>>()?,
        folder: folder
            .map(|folder| text(&[folder.as_os_str().as_bytes()]))
            .transpose()?,
    })
}

pub(crate) fn unusable_folder(folder: &Path) -> Option<NoProgram> {
    let problem = match nix::unistd::eaccess(folder, nix::unistd::AccessFlags::X_OK) {
        Ok(()) if folder.is_dir() => return None,
        Err(error) if !folder.is_file() => error.desc().to_lowercase(),
        _ => "it is not a folder".to_owned(),
    };
    Some(NoProgram {
        message: format!("cannot start ranks in {}: {problem}", folder.display()),
        code: 1,
    })
}

/// Rejects a program that would not use this launcher's MPI library; the message has a remedy.
fn refuse_foreign(
    path: &Path,
    library: Option<&Path>,
    environment: &Environment,
) -> Result<(), NoProgram> {
    let Some(needs) = Needs::of(path) else {
        return Ok(());
    };
    let program = path.display();
    if let Some((name, maker)) = needs.foreign() {
        return Err(NoProgram {
            message: format!(
                "{program} needs {name}, a library of {maker}, which does not know this launcher: each process would be \
                 rank 0 of 1. Build the program with rmpicc, or start it with the mpiexec of {maker}"
            ),
            code: 1,
        });
    }
    let preloaded = environment.get(OsStr::new("LD_PRELOAD"));
    if preloaded.is_some_and(|list| list.to_string_lossy().contains("libmpi_abi.so")) {
        return Ok(());
    }
    let Some(library) = library else {
        return Ok(());
    };
    let Some(found) = needs.shadowing(library) else {
        return Ok(());
    };
    let (found, ours) = (found.display(), library.join(LIBRARY));
    Err(NoProgram {
        message: format!(
            "{program} would load {found} instead of this launcher's library, because it was linked with DT_RPATH: each \
             process would be rank 0 of 1. Relink it with -Wl,--enable-new-dtags, or add -x LD_PRELOAD={}",
            ours.display()
        ),
        code: 1,
    })
}

fn inherited() -> Environment {
    let foreign = |name: &OsString| {
        let is_own = OWN_VARIABLES.iter().any(|own| name == own);
        !is_own && !is_of_a_task(name.as_bytes())
    };
    std::env::vars_os()
        .filter(|(name, _)| foreign(name))
        .collect()
}

/// The folder `lib` beside the folder of this program; `None` if the MPI library is not installed there.
fn library_folder() -> Option<PathBuf> {
    library(LIBRARY)?.parent().map(Path::to_owned)
}

/// Path of a library that is installed with this program; `None` if it is not installed.
pub(crate) fn library(name: &str) -> Option<PathBuf> {
    let own = std::fs::canonicalize("/proc/self/exe").ok()?;
    let path = own.parent()?.parent()?.join("lib").join(name);
    path.exists().then_some(path)
}

/// Command for a program that is installed with this one: the program's name if `PATH` leads to it, otherwise its path.
/// `None` if it is not installed.
pub(crate) fn command(name: &str) -> Option<String> {
    let own = std::fs::canonicalize("/proc/self/exe").ok()?;
    let path = own.parent()?.join(name);
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = program::find(OsStr::new(name), Path::new("/"), &search);
    if found
        .is_ok_and(|found| std::fs::canonicalize(found).ok() == std::fs::canonicalize(&path).ok())
    {
        return Some(name.to_owned());
    }
    path.exists().then(|| path.display().to_string())
}

/// Path of a program that is installed with this one; `None` if it is not installed.
pub(crate) fn installed_program(name: &str) -> Option<PathBuf> {
    let own = std::fs::canonicalize("/proc/self/exe").ok()?;
    let path = own.parent()?.join(name);
    path.exists().then_some(path)
}

/// Path of a file that is installed with this program below `share`; `None` if it is not installed.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let own = std::fs::canonicalize("/proc/self/exe").ok()?;
    let path = own.parent()?.parent()?.join("share").join(name);
    path.exists().then_some(path)
}

fn put_first(environment: &mut Environment, folder: &Path) {
    let name = OsString::from("LD_LIBRARY_PATH");
    let mut path = folder.as_os_str().to_owned();
    if let Some(rest) = environment.get(&name).filter(|rest| !rest.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    environment.insert(name, path);
}

fn text(parts: &[&[u8]]) -> Result<CString, NoProgram> {
    CString::new(parts.concat()).map_err(|_| NoProgram {
        message: "a word of the command or the environment has a zero byte in it".to_owned(),
        code: 2,
    })
}

fn is_terminal(descriptor: u8) -> bool {
    use std::io::IsTerminal;
    match descriptor {
        0 => std::io::stdin().is_terminal(),
        _ => std::io::stdout().is_terminal(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::{Binding, Mapping};
    use crate::cli::StdinTarget;

    fn job(request: &JobRequest) -> Result<NodeJob, NoProgram> {
        let place = RankAffinity {
            cpus: vec![0],
            strength: AffinityStrength::Preferred,
        };
        let places = vec![place; request.size() as usize];
        let keys = LaunchKeys {
            job: 7,
            network: 8,
            stream: 9,
        };
        node_job(request, &CpuList::new(vec![0, 1]), &places, keys)
    }

    fn app(ranks: u32, program: &str) -> App {
        App {
            ranks,
            program: program.into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            folder: None,
        }
    }

    fn request(apps: Vec<App>) -> JobRequest {
        JobRequest {
            apps,
            tag_output: false,
            timeout: None,
            binding: Binding::Auto,
            mapping: Mapping::Slot,
            report_bindings: false,
            dry_run: false,
            topology: None,
            output: None,
            stdin: StdinTarget::Rank(0),
            keep_going: false,
            report: false,
            stats: None,
            stats_calls: false,
            stats_plot: None,
            verbose: false,
            gdb: Vec::new(),
            quiet: false,
            hosts: None,
            launcher: None,
            prefix: None,
            heartbeat: crate::hosts::Heartbeat::default(),
            remarks: Vec::new(),
            allocation: None,
        }
    }

    fn variables(program: &JobProgram, name: &str) -> Vec<String> {
        let all = program
            .environment
            .iter()
            .map(|text| text.to_string_lossy().into_owned());
        all.filter(|text| text.starts_with(name)).collect()
    }

    #[test]
    fn ranks_are_numbered_across_all_programs() {
        let request = request(vec![app(2, "/bin/true"), app(1, "/bin/false")]);
        let job = job(&request).unwrap();
        let placed: Vec<(u32, u32)> = job
            .ranks
            .iter()
            .map(|placed| (placed.rank, placed.app))
            .collect();
        assert_eq!(placed, [(0, 0), (1, 0), (2, 1)]);
        assert!(
            job.ranks
                .iter()
                .all(|placed| placed.preferred && placed.cpus.is_some())
        );
    }

    #[test]
    fn a_later_variable_replaces_an_earlier_one() {
        let pair = |value: &str| ("RMPI_TEST_X".into(), value.into());
        let one = App {
            variables: vec![pair("1"), pair("2")],
            ..app(1, "/bin/true")
        };
        let job = job(&request(vec![one])).unwrap();
        assert_eq!(
            variables(&job.programs[0], "RMPI_TEST_X"),
            ["RMPI_TEST_X=2"]
        );
    }

    #[test]
    fn openmp_waits_passively_where_ranks_share_cores() {
        let policy = |ranks: u32, variable: &[(&str, &str)]| {
            let one = App {
                variables: variable.iter().map(|(a, b)| (a.into(), b.into())).collect(),
                ..app(ranks, "/bin/true")
            };
            let strength = AffinityStrength::Bound;
            let places = vec![
                RankAffinity {
                    cpus: vec![0],
                    strength
                };
                ranks as usize
            ];
            let keys = LaunchKeys {
                job: 7,
                network: 8,
                stream: 9,
            };
            let cpus = CpuList::new(vec![0, 1]);
            let job = node_job(&request(vec![one]), &cpus, &places, keys).unwrap();
            variables(&job.programs[0], "OMP_WAIT_POLICY")
        };
        assert_eq!(policy(3, &[]), ["OMP_WAIT_POLICY=passive"]);
        assert!(policy(2, &[]).is_empty());
        assert!(policy(3, &[("KMP_BLOCKTIME", "1")]).is_empty());
        let active = ("OMP_WAIT_POLICY", "active");
        assert_eq!(policy(3, &[active]), ["OMP_WAIT_POLICY=active"]);
    }

    #[test]
    fn our_library_precedes_the_users_library_path() {
        let mut environment = Environment::new();
        put_first(&mut environment, Path::new("/p/lib"));
        put_first(&mut environment, Path::new("/q/lib"));
        assert_eq!(environment[OsStr::new("LD_LIBRARY_PATH")], "/q/lib:/p/lib");
    }

    #[test]
    fn an_invalid_working_folder_is_refused() {
        let at = |folder: &str| {
            let app = App {
                folder: Some(folder.into()),
                ..app(1, "/bin/true")
            };
            job(&request(vec![app])).unwrap_err().message
        };
        assert_eq!(
            at("/no/where"),
            "cannot start ranks in /no/where: no such file or directory"
        );
        assert_eq!(
            at("/etc/passwd"),
            "cannot start ranks in /etc/passwd: it is not a folder"
        );
        assert_eq!(
            at("/bin/true"),
            "cannot start ranks in /bin/true: it is not a folder"
        );
    }
}
