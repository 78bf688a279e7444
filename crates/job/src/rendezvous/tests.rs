//! Ranks that meet, or do not: threads over loopback, each test under a watchdog.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use unisono_communicator::{Error, JobRank};
use unisono_control::secret::SECRET_BYTES;

use super::*;
use crate::secret::create_secret_file;
use crate::secret::tests::TestDirectory;

const WATCHDOG: Duration = Duration::from_secs(60);
pub(super) const PATIENT: Duration = Duration::from_secs(30);
pub(super) const IMPATIENT: Duration = Duration::from_millis(400);
const HANDSHAKE: Duration = Duration::from_secs(5);

pub(super) fn watched<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    let body = thread::spawn(move || {
        let _ = done.send(body());
    });
    match result.recv_timeout(WATCHDOG) {
        Ok(value) => value,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(body.join().unwrap_err()),
    }
}

pub(super) fn secret() -> Secret {
    Secret::take(&mut [1; SECRET_BYTES])
}

pub(super) fn store(world_size: u32, listen: SocketAddr) -> StoreHost {
    let (job, secret) = (JobId::from_key("tests"), secret());
    StoreHost::start(StoreConfig { listen, world_size, secret, job, handshake_timeout: HANDSHAKE }).unwrap()
}

pub(super) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

/// An address on which nothing listens.
pub(super) fn vacant() -> SocketAddr {
    TcpListener::bind(loopback(0)).unwrap().local_addr().unwrap()
}

pub(super) fn config(store: SocketAddr, rank: u32, world_size: u32) -> JoinConfig {
    JoinConfig {
        store: store.to_string(),
        hosted_by: StoreProcess::default(),
        secret: secret(),
        job: JobId::from_key("tests"),
        rank,
        world_size,
        listen: loopback(1000 + rank as u16),
        host: HostClaim { id: [rank as u8 / 2; HOST_ID_BYTES], is_named: true, local_ranks: None },
        run: None,
        job_settings: vec![rank as u8; 3],
        backend: "tcp".to_owned(),
        timeout: PATIENT,
        handshake_timeout: HANDSHAKE,
        wait: wait(Voice::OneOfMany),
    }
}

fn wait(voice: Voice) -> WaitConfig {
    let (first, every, resolve) = (PATIENT, PATIENT, IMPATIENT);
    let (place, remedy) = ("meeting at the tests' store".into(), "fetch the others".into());
    WaitConfig {
        first,
        every,
        resolve,
        voice,
        place,
        remedy,
        variable: "UNISONO_STORE".to_owned(),
        value: String::new(),
    }
}

pub(super) fn join(config: &JoinConfig) -> Result<Membership> {
    Ok(TaskThread::start("test")?.wait_for(super::join(config))?.membership)
}

/// As [`rendezvous`].
pub(crate) fn meet(config: &Config, listen: SocketAddr, job_settings: Vec<u8>) -> Result<Membership> {
    let thread = TaskThread::start("test")?;
    Ok(thread.wait_for(rendezvous(config, listen, job_settings, &thread))?.membership)
}

/// Meets through the file at `path`.
fn meet_at(path: &Path, config: &JoinConfig) -> Result<Membership> {
    let thread = TaskThread::start("test")?;
    Ok(thread.wait_for(file::meet(path, Naming::Ours, config, &thread))?.membership)
}

pub(super) type Joining = thread::JoinHandle<Result<Membership>>;

pub(super) fn joining(config: JoinConfig) -> Joining {
    thread::spawn(move || join(&config))
}

/// Checks that all have met with the same result, and returns the id of the job.
fn all_met(joining: impl IntoIterator<Item = Joining>) -> JobId {
    let joining: Vec<Joining> = joining.into_iter().collect();
    let members: Vec<Membership> = joining.into_iter().map(|one| one.join().unwrap().unwrap()).collect();
    let world_size = members[0].world_size;
    let mut ranks: Vec<u32> = members.iter().map(|one| one.rank).collect();
    ranks.sort_unstable();
    assert_eq!(ranks, (0..world_size).collect::<Vec<_>>());
    for one in &members {
        assert_eq!((one.job, one.job_settings.as_slice()), (members[0].job, &[0, 0, 0][..]));
        let addresses: Vec<SocketAddr> = (0..world_size).map(|rank| loopback(1000 + rank as u16)).collect();
        assert_eq!(one.addresses, addresses);
        assert_eq!(one.hosts, (0..world_size).map(|rank| rank / 2).collect::<Vec<_>>());
    }
    members[0].job
}

pub(super) fn refused(joining: Joining, text: &str) {
    let error = joining.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Refused { .. }) && error.to_string().contains(text), "{error}");
}

#[test]
fn all_ranks_meet_in_every_round() {
    watched(|| {
        for world_size in [1, 2, 3, 17] {
            let store = store(world_size, loopback(0));
            let meet =
                || all_met((0..world_size).map(|rank| joining(config(store.address(), rank, world_size))));
            assert_ne!(meet(), meet(), "each meeting has a name of its own");
        }
    });
}

#[test]
fn missing_ranks_are_named_exactly_to_everyone_who_came() {
    watched(|| {
        let store = store(5, loopback(0));
        let patience = |rank| if rank == 2 { IMPATIENT } else { PATIENT };
        let came = |rank| joining(JoinConfig { timeout: patience(rank), ..config(store.address(), rank, 5) });
        for one in [0, 2, 3].map(came) {
            match one.join().unwrap() {
                Err(Error::Rendezvous { missing, problem }) => {
                    assert_eq!(missing, [1, 4].map(JobRank::new));
                    assert!(problem.contains("rank 2 has waited"), "{problem}");
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn a_rank_that_ended_before_it_joined_is_waited_for_by_nobody() {
    watched(|| {
        let store = store(3, loopback(0));
        let joining = |rank| joining(config(store.address(), rank, 3));
        let without = |rank: u32, how: &str, waiting: Joining| match waiting.join().unwrap() {
            Err(Error::Rendezvous { missing, problem }) => {
                assert_eq!(missing, [JobRank::new(rank)]);
                assert_eq!(problem, format!("rank {rank} ended before it had joined: it {how}"));
            }
            other => panic!("{other:?}"),
        };
        assert_ne!(all_met((0..3).map(joining)), all_met((0..3).map(joining)), "a job may meet again");
        let early = joining(0);
        store.rank_ended(1, "exited with status 0");
        for waiting in [early, joining(2), joining(0)] {
            without(1, "exited with status 0", waiting);
        }
        // A process that it has left behind joins for it.
        let rest = joining(1);
        store.rank_ended(2, "exited with status 7");
        without(2, "exited with status 7", rest);
    });
}

/// Checks that all of these were told of one conflict, in the same words.
fn told_of_conflict(waiting: impl IntoIterator<Item = Joining>, parts: &[&str]) {
    let mut texts: Vec<String> = waiting
        .into_iter()
        .map(|one| match one.join().unwrap() {
            Err(Error::Rendezvous { missing, problem }) if missing.is_empty() => problem,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(parts.iter().all(|part| texts[0].contains(part)), "{}", texts[0]);
    texts.dedup();
    assert_eq!(texts.len(), 1, "{texts:?}");
}

#[test]
fn two_processes_with_one_rank_are_told_and_all_others_too() {
    watched(|| {
        let store = store(3, loopback(0));
        let one = |port| JoinConfig { listen: loopback(port), ..config(store.address(), 1, 3) };
        let all = [config(store.address(), 0, 3), one(1001), one(2001)].map(joining);
        let own = own_process().process.to_string();
        told_of_conflict(all, &["two processes say that they are rank 1: ", &own, "UNISONO_JOB"]);
    });
}

#[test]
fn who_counts_differently_ends_the_wait_of_all() {
    watched(|| {
        let store = store(3, loopback(0));
        let fine = |rank| config(store.address(), rank, 3);
        let all = [fine(0), fine(1), JoinConfig { world_size: 4, ..fine(2) }].map(joining);
        told_of_conflict(all, &["the world sizes differ: ", "set the same WORLD_SIZE on all ranks"]);
    });
}

#[test]
fn who_has_another_backend_ends_the_wait_of_all() {
    watched(|| {
        let store = store(3, loopback(0));
        let fine = |rank| config(store.address(), rank, 3);
        let all = [fine(0), fine(1), JoinConfig { backend: "auto".to_owned(), ..fine(2) }].map(joining);
        told_of_conflict(
            all,
            &["the backends differ: ", "UNISONO_BACKEND=auto", "=tcp; set the same on all ranks"],
        );
    });
}

#[test]
fn a_stranger_is_refused_with_the_reason_and_the_others_meet() {
    watched(|| {
        let store = store(3, loopback(0));
        let fine = |rank| config(store.address(), rank, 3);
        let waiting = [0, 1].map(|rank| joining(fine(rank)));
        refused(joining(JoinConfig { job: JobId::from_key("other"), ..fine(2) }), "different jobs");
        let other_secret = Secret::take(&mut [2; SECRET_BYTES]);
        let stranger = joining(JoinConfig { secret: other_secret, ..fine(2) });
        refused(stranger, &format!("at {} (UNISONO_STORE); another job or program may", store.address()));
        refused(joining(fine(3)), "rank 3 may not dial");
        let too_long = join(&JoinConfig { job_settings: vec![0; JOB_SETTINGS_BYTES_MAX + 1], ..fine(2) });
        assert!(matches!(too_long, Err(Error::InvalidArgument { argument: "job_settings", .. })));
        all_met(waiting.into_iter().chain([joining(fine(2))]));
    });
}

#[test]
fn unauthenticated_and_half_open_handshakes_delay_nobody() {
    watched(|| {
        let store = store(2, loopback(0));
        let dial = || TcpStream::connect(store.address()).unwrap();
        // More than may be within their handshake at once, so that the oldest are closed.
        let mut unauthenticated: Vec<TcpStream> = (0..300).map(|_| dial()).collect();
        for (index, connection) in unauthenticated.iter_mut().enumerate() {
            // Some say nothing, some one byte that could be right, some junk; a closed one cannot be written to.
            let _ = match index % 3 {
                0 => Ok(()),
                1 => connection.write_all(&[0x9b]),
                _ => connection.write_all(&[index as u8; 200]),
            };
        }
        let begin = Instant::now();
        all_met([0, 1].map(|rank| joining(config(store.address(), rank, 2))));
        assert!(begin.elapsed() < PATIENT, "they met at their first attempt or a later one, not at the end");
    });
}

#[test]
fn a_host_that_never_comes_comes_late_or_goes_is_told_apart() {
    watched(|| {
        let address = vacant();
        let never =
            join(&JoinConfig { timeout: IMPATIENT, ..config(address, 0, 2) }).unwrap_err().to_string();
        assert!(never.contains("the store's host never came"), "{never}");

        let address = vacant();
        let early = [0, 1].map(|rank| joining(config(address, rank, 2)));
        thread::sleep(Duration::from_millis(50));
        let late = store(2, address);
        all_met(early);
        drop(late);

        let gone = store(2, loopback(0));
        let alone = joining(JoinConfig { timeout: 4 * IMPATIENT, ..config(gone.address(), 0, 2) });
        thread::sleep(IMPATIENT);
        drop(gone);
        let text = alone.join().unwrap().unwrap_err().to_string();
        assert!(text.contains("did not answer within"), "{text}");
    });
}

#[test]
fn a_listener_that_says_nothing_or_something_else_is_no_store() {
    watched(|| {
        let silent = TcpListener::bind(loopback(0)).unwrap();
        let brief = Duration::from_millis(50);
        let config =
            |address| JoinConfig { timeout: IMPATIENT, handshake_timeout: brief, ..config(address, 0, 2) };
        let text = join(&config(silent.local_addr().unwrap())).unwrap_err().to_string();
        assert!(
            text.contains("did not answer within") && text.contains("the handshake did not finish in time"),
            "{text}"
        );

        let other = TcpListener::bind(loopback(0)).unwrap();
        let address = other.local_addr().unwrap();
        let speaks = thread::spawn(move || {
            let (mut stream, _) = other.accept()?;
            stream.write_all(b"220 mail.example\r\n").map(|()| stream)
        });
        refused(
            joining(JoinConfig { handshake_timeout: HANDSHAKE, ..config(address) }),
            "does not speak this protocol",
        );
        // Closed only now: closing a socket with unread bytes could discard the sent ones.
        drop(speaks.join().unwrap().unwrap());
    });
}

/// A stopped process looks like this: its kernel takes connections as before.
#[test]
fn a_handshake_ends_with_the_wait_that_it_is_part_of() {
    watched(|| {
        let silent = TcpListener::bind(loopback(0)).unwrap();
        let address = silent.local_addr().unwrap();
        let begin = Instant::now();
        let brief = JoinConfig { timeout: IMPATIENT, handshake_timeout: PATIENT, ..config(address, 0, 2) };
        let text = join(&brief).unwrap_err().to_string();
        assert!(text.contains("did not answer within") && begin.elapsed() < PATIENT, "{text}");
    });
}

#[test]
fn joining_from_within_a_runtime_works() {
    watched(|| {
        let store = store(1, loopback(0));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async { join(&config(store.address(), 0, 1)) }).unwrap();
    });
}

fn through_file(path: &Path, world_size: u32) -> JobId {
    let meeting = |rank| {
        let path = path.to_owned();
        thread::spawn(move || meet_at(&path, &config(loopback(0), rank, world_size)))
    };
    let job = all_met((0..world_size).map(meeting));
    assert!(!path.exists(), "the host takes its file away");
    job
}

#[test]
fn ranks_of_one_host_meet_through_a_file_fresh_stale_or_broken() {
    watched(|| {
        let directory = TestDirectory::new();
        let path = directory.0.join("store");
        assert_ne!(through_file(&path, 4), through_file(&path, 4));

        let leave = |content: &[u8]| {
            std::fs::write(&path, content).unwrap();
            let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&path, private).unwrap();
        };
        leave(b"half a noti");
        through_file(&path, 3);
        // The rest of a killed host: a genuine notice of a store that is gone, or whose port belongs to another process
        // by now.
        let another = store(4, loopback(0));
        for address in [vacant(), another.address()] {
            leave(&file::tests::notice(Secret::random().unwrap(), address));
            through_file(&path, 4);
        }
    });
}

#[test]
fn a_rank_that_counts_differently_ends_the_wait_through_the_file_too() {
    watched(|| {
        let directory = TestDirectory::new();
        let path = directory.0.join("store");
        let meeting = |rank, world_size| {
            let path = path.clone();
            thread::spawn(move || meet_at(&path, &config(loopback(0), rank, world_size)))
        };
        let first = meeting(0, 2);
        while !path.exists() || std::fs::metadata(&path).unwrap().len() == 0 {
            thread::sleep(Duration::from_millis(1));
        }
        told_of_conflict(
            [first, meeting(1, 3)],
            &["the world sizes differ: rank 1, ", " has 3; ", " has 2; "],
        );
        all_met([meeting(0, 2), meeting(1, 2)]);
    });
}

#[test]
fn the_settings_lead_to_the_same_meeting() {
    watched(|| {
        let directory = TestDirectory::new();
        let secret_file = directory.0.join("secret");
        create_secret_file(&secret(), &secret_file).unwrap();
        let secret_file = secret_file.to_str().unwrap();
        let master_port = (vacant().port() - 1).to_string();
        let host = store_at_launcher();
        let launched = host.address().to_string();
        let ways: [&[(&str, &str)]; 3] = [
            &[("UNISONO_STORE", &launched), ("UNISONO_SECRET_FILE", secret_file)],
            &[("UNISONO_JOB", "ways")],
            &[
                ("LOCAL_WORLD_SIZE", "1"),
                ("MASTER_ADDR", "127.0.0.1"),
                ("MASTER_PORT", &master_port),
                ("UNISONO_SECRET_FILE", secret_file),
            ],
        ];
        for way in ways {
            thread::scope(|scope| {
                let ranks = ["1", "0"].map(|rank| {
                    let runtime = directory.0.to_str().unwrap();
                    let own = [("RANK", rank), ("WORLD_SIZE", "2"), ("XDG_RUNTIME_DIR", runtime)];
                    let variables = [way, &own].concat();
                    scope.spawn(move || by_settings(&variables))
                });
                let [one, zero] = ranks.map(|rank| rank.join().unwrap());
                assert_eq!((one.rank, zero.rank, one.job), (1, 0, zero.job), "{way:?}");
                // A launcher that has started one rank here is not the only one.
                let hosts = if way.contains(&("LOCAL_WORLD_SIZE", "1")) { vec![0, 1] } else { vec![0, 0] };
                assert_eq!((&one.addresses, &one.hosts), (&zero.addresses, &hosts));
                assert_eq!(one.job_settings, b"of rank 0");
                assert_eq!(one.secret.expose(), zero.secret.expose());
            });
        }
    });
}

#[test]
fn the_secret_may_come_through_pipes() {
    watched(|| {
        let host = store_at_launcher();
        let ranks = ["0", "1"].map(|rank| {
            let (reader, mut writer) = std::io::pipe().unwrap();
            writer.write_all(secret().expose()).unwrap();
            let store = host.address().to_string();
            thread::spawn(move || {
                let descriptor = reader.as_raw_fd().to_string();
                let (own, world) = (("RANK", rank), ("WORLD_SIZE", "2"));
                by_settings(&[own, world, ("UNISONO_STORE", &store), ("UNISONO_SECRET_FD", &descriptor)])
            })
        });
        let [zero, one] = ranks.map(|rank| rank.join().unwrap());
        assert_eq!((zero.job, zero.processes), (one.job, vec![own_process(); 2]));
    });
}

fn store_at_launcher() -> StoreHost {
    let reserved = vacant();
    let job = store_job(&reserved.to_string());
    let (world_size, secret) = (2, secret());
    StoreHost::start(StoreConfig { listen: reserved, world_size, secret, job, handshake_timeout: HANDSHAKE })
        .unwrap()
}

fn by_settings(variables: &[(&str, &str)]) -> Membership {
    let lookup = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string());
    meet_as_a_world_would(&Config::from_lookup(&lookup).unwrap())
}

pub(super) fn meet_as_a_world_would(config: &Config) -> Membership {
    let listener = TcpListener::bind((listen_address(config).unwrap(), 0)).unwrap();
    let listen = listener.local_addr().unwrap();
    let job_settings = format!("of rank {}", config.placement.rank()).into_bytes();
    let membership = meet(config, listen, job_settings).unwrap();
    assert_eq!(membership.addresses[membership.rank as usize], listen);
    membership
}
