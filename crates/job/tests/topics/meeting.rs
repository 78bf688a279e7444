//! Meetings through a store that the program brings: its content, the content that an earlier job leaves in it, and
//! stores that fail or lie.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use unisono_collectives::Collectives;
use unisono_communicator::{Error, ReduceOp, Result};
use unisono_control::secret::Secret;
use unisono_job::config::Config;
use unisono_job::secret::{SecretSource, create_secret_file};
use unisono_job::{Job, MeetingStore};

use crate::TRANSPORT;
use crate::support::TEST_TIME_MAX;

/// The dictionary of a program.
#[derive(Debug, Default)]
struct Dictionary {
    values: Mutex<HashMap<String, Vec<u8>>>,
    changed: Condvar,
}

impl MeetingStore for Dictionary {
    fn set(&self, key: &str, value: &[u8]) -> Result<(), Box<dyn StdError + Send + Sync>> {
        assert!(value.len() <= 128, "{} bytes", value.len());
        self.values.lock().unwrap().insert(key.to_owned(), value.to_owned());
        self.changed.notify_all();
        Ok(())
    }

    fn get(&self, key: &str, deadline: Instant) -> Result<Option<Vec<u8>>, Box<dyn StdError + Send + Sync>> {
        let left = deadline.saturating_duration_since(Instant::now());
        let is_absent = |values: &mut HashMap<String, Vec<u8>>| !values.contains_key(key);
        let (values, _) =
            self.changed.wait_timeout_while(self.values.lock().unwrap(), left, is_absent).unwrap();
        Ok(values.get(key).cloned())
    }
}

/// A store that fails in each call.
#[derive(Debug)]
struct Dead;

impl MeetingStore for Dead {
    fn set(&self, _: &str, _: &[u8]) -> Result<(), Box<dyn StdError + Send + Sync>> {
        Err("the store has ended".into())
    }

    fn get(&self, _: &str, _: Instant) -> Result<Option<Vec<u8>>, Box<dyn StdError + Send + Sync>> {
        Err("the store has ended".into())
    }
}

fn config(rank: u32, world_size: u32, store: Arc<dyn MeetingStore>, join_timeout: Duration) -> Config {
    let mut config = Config::from_lookup(&|_| None).unwrap();
    config.set_rank(rank, world_size).unwrap();
    config.set_meeting(store);
    config.join_timeout = join_timeout;
    config
}

/// Fails if the test takes too long.
fn watched(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel();
    thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    ended.recv_timeout(TEST_TIME_MAX).expect("it fails, or hangs");
}

const LONG: Duration = Duration::from_secs(60);

/// The sum over all ranks of their number and one, on each rank that joins.
fn join_and_sum(config: &Config) -> Result<u64> {
    let job = Job::join(config, &TRANSPORT)?;
    let mut sum = [u64::from(job.group().rank()) + 1];
    job.communicator()?.all_reduce(&mut sum, ReduceOp::Sum)?;
    Ok(sum[0])
}

/// The results of ranks with these settings, which join at the same time.
fn all(configs: Vec<Config>) -> Vec<Result<u64>> {
    let ranks: Vec<_> = configs.into_iter().map(|one| thread::spawn(move || join_and_sum(&one))).collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

/// Rows: A21
#[test]
fn ranks_meet_again_and_again_through_one_store_whatever_it_holds() {
    watched(|| {
        let store = Arc::new(Dictionary::default());
        let meet = || {
            let ranks = (0..3).map(|rank| config(rank, 3, store.clone(), LONG));
            for sum in all(ranks.collect()) {
                assert_eq!(sum.unwrap(), 6);
            }
        };
        meet();
        // The value of the first job is still there.
        let left = store.values.lock().unwrap().clone();
        assert_eq!(left.len(), 1, "{left:?}");
        meet();
        for value in store.values.lock().unwrap().values_mut() {
            *value = b"of another program".to_vec();
        }
        meet();
        *store.values.lock().unwrap() = left;
        meet();
    });
}

/// Rows: A21
#[test]
fn a_secret_of_the_settings_stays_out_of_the_store() {
    watched(|| {
        let directory = tempfile::tempdir().unwrap();
        let secret = Secret::random().unwrap();
        let path = directory.path().join("secret");
        create_secret_file(&secret, &path).unwrap();
        let with_secret = |mut config: Config| {
            config.secret = Some(SecretSource::File(path.clone()));
            config
        };
        let store = Arc::new(Dictionary::default());
        let ranks = (0..2).map(|rank| with_secret(config(rank, 2, store.clone(), LONG)));
        for sum in all(ranks.collect()) {
            assert_eq!(sum.unwrap(), 3);
        }
        let is_there =
            |value: &Vec<u8>| value.windows(secret.expose().len()).any(|part| part == secret.expose());
        assert!(!store.values.lock().unwrap().values().any(is_there));
        // Whether a rank has a secret is a matter of all ranks.
        let short = Duration::from_millis(300);
        for (has, text) in [(0, "but this rank has none: UNISONO_SECRET_FILE"), (1, "but this rank has one")]
        {
            let store = Arc::new(Dictionary::default());
            let ranks = (0..2).map(|rank| config(rank, 2, store.clone(), short));
            let ranks = ranks.enumerate().map(|(rank, one)| if rank == has { with_secret(one) } else { one });
            let ends = all(ranks.collect());
            let told = ends[1].as_ref().unwrap_err();
            assert!(matches!(told, Error::Refused { .. }) && told.to_string().contains(text), "{told}");
            assert!(matches!(ends[0], Err(Error::Rendezvous { .. })), "{ends:?}");
        }
    });
}

/// Rows: A21
#[test]
fn a_store_that_fails_or_stays_empty_is_named() {
    watched(|| {
        for (rank, function) in [(0, "set"), (1, "get")] {
            let error = join_and_sum(&config(rank, 2, Arc::new(Dead), LONG)).unwrap_err().to_string();
            let expected =
                format!("{function}(\"unisono/meeting\") of the program's store: the store has ended");
            assert!(error.contains(&expected), "{error}");
        }
        let alone = config(1, 2, Arc::new(Dictionary::default()), Duration::from_millis(300));
        let error = join_and_sum(&alone).unwrap_err();
        let Error::Rendezvous { missing, .. } = &error else { panic!("{error}") };
        assert_eq!(missing.iter().map(|rank| rank.get()).collect::<Vec<_>>(), [0]);
        assert!(error.to_string().contains("rank 0 has set no \"unisono/meeting\""), "{error}");
        let liar = Arc::new(Dictionary::default());
        liar.set("unisono/meeting", b"nonsense").unwrap();
        let error = join_and_sum(&config(1, 2, liar, Duration::from_millis(300))).unwrap_err().to_string();
        assert!(error.contains("is not from rank 0 of a job"), "{error}");
    });
}

/// Rows: A21
#[test]
fn a_person_may_interrupt_the_wait() {
    watched(|| {
        let _check = unisono_communicator::InterruptCheck::begin(|| true);
        let alone = config(0, 2, Arc::new(Dictionary::default()), LONG);
        let error = Job::join(&alone, &TRANSPORT).err().unwrap();
        assert!(matches!(error, Error::Aborted { .. }), "{error}");
    });
}
