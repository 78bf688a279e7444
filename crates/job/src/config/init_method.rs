//! The meeting place of ranks, as a program names it by a URL; the forms and the name come from `torch.distributed`.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use unisono_communicator::{Error, Result};
use unisono_control::RANKS_MAX;

use super::Config;
use crate::environment::{Launcher, Placement};
use crate::meeting_store::MeetingStore;
use crate::rendezvous::split_store;

const FORMS: &str = "env://, tcp://host:port and file:///path are known";

/// A URL that says where ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
enum InitMethod {
    /// As the environment says.
    Environment,
    /// At rank 0's host, as `MASTER_ADDR` and `MASTER_PORT` say it.
    Tcp { host: String, port: u16 },
    /// Through a file that all ranks see.
    File(PathBuf),
}

impl FromStr for InitMethod {
    type Err = String;

    fn from_str(url: &str) -> Result<InitMethod, String> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| format!("{url:?} is no URL; {FORMS}"))?;
        match scheme {
            "env" if rest.is_empty() => Ok(InitMethod::Environment),
            "env" => Err(format!("{url:?}: nothing comes after env://")),
            "tcp" => {
                let rest = rest.strip_suffix('/').unwrap_or(rest);
                if rest.contains('?') {
                    return Err(format!("{url:?}: with_rank takes the rank and the size, the URL does not"));
                }
                let (host, port) = split_store(rest).map_err(|problem| format!("{url:?}: {problem}"))?;
                // The port above it is bound.
                if port == u16::MAX {
                    return Err(format!("{url:?}: the port above is bound, and there is none above {port}"));
                }
                Ok(InitMethod::Tcp { host: host.to_owned(), port })
            }
            "file" if rest.starts_with('/') && !rest.ends_with('/') => Ok(InitMethod::File(rest.into())),
            "file" => Err(format!("{url:?}: a whole path is needed, as in file:///home/me/meeting")),
            _ => Err(format!("{url:?}: there is no scheme {scheme:?}; {FORMS}")),
        }
    }
}

impl Config {
    /// Says where ranks meet, in place of the environment: `env://`, `tcp://host:port`, `file:///path`.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for another URL, and for a path at which no file can be.
    pub fn set_init_method(&mut self, url: &str) -> Result<()> {
        let refused = |problem| Error::invalid("init_method", problem);
        let method = url.parse().map_err(refused)?;
        if method == InitMethod::Environment {
            return Ok(());
        }
        self.meet_elsewhere();
        // A port and a path belong to one job at a time.
        match method {
            InitMethod::Environment => {}
            InitMethod::Tcp { host, port } => {
                self.job_key = Some(format!("MASTER_PORT={port}"));
                self.found_as.retain(|(name, _)| *name != "UNISONO_MASTER_ADDRESS");
                self.found_as.push(("UNISONO_MASTER_ADDRESS", "init_method".to_owned()));
                (self.master_address, self.master_port) = (Some(host), Some(port));
            }
            InitMethod::File(path) => {
                check_path(&path).map_err(|problem| refused(format!("{url:?}: {problem}")))?;
                self.job_key = Some(format!("the file {}", path.display()));
                self.meeting_file = Some(path);
            }
        }
        Ok(())
    }

    /// Says that ranks meet through a store that the program brings, in place of the environment.
    pub fn set_meeting(&mut self, store: Arc<dyn MeetingStore>) {
        self.meet_elsewhere();
        self.job_key = Some("the program's store".to_owned());
        self.meeting_store = Some(store);
    }

    /// Forgets the places where the ranks would meet.
    fn meet_elsewhere(&mut self) {
        self.store = None;
        self.meeting_file = None;
        self.meeting_store = None;
    }

    /// Says who this process is, in place of the environment: its rank, from 0, and the number of ranks.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a number out of range.
    pub fn set_rank(&mut self, rank: u32, world_size: u32) -> Result<()> {
        if !(1..=RANKS_MAX).contains(&world_size) {
            let problem = format!("{world_size} is not in 1..={RANKS_MAX}");
            return Err(Error::invalid("world_size", problem));
        }
        if rank >= world_size {
            return Err(Error::invalid("rank", format!("{rank} is not in 0..{world_size}")));
        }
        let known = self.placement;
        // Variables about this host hold for a world of that size only.
        let (local_rank, local_world_size) = match known {
            Placement::Ranked { local_rank, local_world_size, .. } if known.world_size() == world_size => {
                (local_rank, local_world_size)
            }
            Placement::Ranked { .. } | Placement::Solo => (None, None),
        };
        let launcher = Launcher::Named;
        self.placement = Placement::Ranked { rank, world_size, local_rank, local_world_size, launcher };
        // Whether one launcher has started all these ranks is unknown.
        self.launcher_run = None;
        Ok(())
    }
}

/// Looks whether a file can be there.
fn check_path(path: &Path) -> Result<(), String> {
    if path.is_dir() {
        return Err("it is a folder; the path of a file is needed".to_owned());
    }
    let parent = path.parent().unwrap_or(Path::new("/"));
    match parent.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(format!("{} is no folder", parent.display())),
        Err(error) => Err(format!("its folder {}: {error}", parent.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::tests::TestDirectory;

    #[test]
    fn a18_urls_are_understood_or_refused_with_the_forms() {
        let tcp = |host: &str, port| Ok(InitMethod::Tcp { host: host.to_owned(), port });
        assert_eq!("env://".parse(), Ok(InitMethod::Environment));
        assert_eq!("tcp://node7:29500".parse(), tcp("node7", 29_500));
        assert_eq!("tcp://[::1]:80/".parse(), tcp("::1", 80));
        assert_eq!("file:///a/b".parse(), Ok(InitMethod::File("/a/b".into())));
        for (url, part) in [
            ("node7:29500", "is no URL"),
            ("http://node7:29500", "there is no scheme \"http\""),
            ("tcp://node7", "the form is host:port"),
            ("tcp://node7:0", "the form is host:port"),
            ("tcp://node7:65535", "there is none above 65535"),
            ("tcp://node7:1?rank=0", "with_rank"),
            ("file://a/b", "a whole path"),
            ("file:///a/", "a whole path"),
            ("file://", "a whole path"),
            ("env://x", "nothing comes after"),
        ] {
            let problem = url.parse::<InitMethod>().unwrap_err();
            assert!(problem.contains(part) && problem.contains(url), "{problem}");
        }
    }

    #[test]
    fn a18_a_path_where_no_file_can_be_is_refused() {
        let mut config = Config::from_lookup(&|_| None).unwrap();
        let directory = TestDirectory::new();
        let folder = directory.0.display();
        std::fs::write(directory.0.join("file"), "").unwrap();
        for (url, part) in [
            (format!("file://{folder}"), "it is a folder"),
            (format!("file://{folder}/none/file"), "No such file"),
            (format!("file://{folder}/file/below"), "is no folder"),
        ] {
            let text = config.set_init_method(&url).unwrap_err().to_string();
            assert!(text.contains("init_method") && text.contains(part), "{text}");
        }
        assert_eq!(config.meeting_file, None);
    }

    #[test]
    fn a2_rank_and_size_are_checked_and_win_over_the_environment() {
        let variables = [("RANK", "3"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")];
        let lookup =
            |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
        let mut config = Config::from_lookup(&lookup).unwrap();
        config.set_rank(2, 4).unwrap();
        assert_eq!((config.placement.rank(), config.placement.local_rank()), (2, Some(1)));
        config.set_rank(0, 2).unwrap();
        assert_eq!((config.placement.world_size(), config.placement.local_rank()), (2, None));
        for (rank, size, argument) in [(2, 2, "rank"), (0, 0, "world_size"), (0, RANKS_MAX + 1, "world_size")]
        {
            let error = config.set_rank(rank, size).unwrap_err();
            assert!(matches!(error, Error::InvalidArgument { argument: named, .. } if named == argument));
        }
    }
}
