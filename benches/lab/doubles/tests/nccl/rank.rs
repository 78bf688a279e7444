//! Ranks as threads, each with a device, a communicator and a stream.

use std::thread;
use std::time::{Duration, Instant};

use crate::api::{Api, Config, UniqueId};

pub(crate) const I8: i32 = 0;
pub(crate) const I32: i32 = 2;
pub(crate) const F32: i32 = 7;
pub(crate) const SUM: i32 = 0;

/// How long a test waits for what must come.
const LIMIT: Duration = Duration::from_secs(30);

/// One rank.
#[derive(Clone, Copy)]
pub(crate) struct Rank<'a> {
    pub(crate) api: &'a Api,
    pub(crate) rank: usize,
    pub(crate) comm: usize,
    pub(crate) stream: usize,
}

pub(crate) fn new_id(api: &Api) -> UniqueId {
    let mut id = UniqueId([0; 128]);
    assert_eq!(api.unique_id(&mut id), 0);
    id
}

/// Makes the device of this number current.
pub(crate) fn enter(api: &Api, device: usize) {
    let mut context = 0;
    assert_eq!(api.retain(&mut context, device as i32), 0);
    assert_eq!(api.push(context), 0);
}

/// The opposite of [`enter`].
pub(crate) fn exit(api: &Api, device: usize) {
    assert_eq!(api.pop(&mut 0), 0);
    assert_eq!(api.release(device as i32), 0);
}

/// Waits until something holds.
pub(crate) fn await_that(what: &str, holds: impl Fn() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what} does not come");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `size` ranks, whose results are in order.
pub(crate) fn run<R: Send>(api: &Api, size: usize, body: impl Fn(Rank<'_>) -> R + Sync) -> Vec<R> {
    let id = new_id(api);
    let body = &body;
    thread::scope(|scope| {
        let one = |rank: usize| {
            enter(api, rank);
            let mut own = Rank { api, rank, comm: 0, stream: 0 };
            let code = api.init_rank(&mut own.comm, size as i32, id, rank as i32);
            assert_eq!(code, 0, "{}", api.text(api.last_error(0)));
            assert_eq!(api.stream_create(&mut own.stream, 1), 0);
            let result = body(own);
            assert_eq!(api.stream_destroy(own.stream), 0);
            exit(api, rank);
            result
        };
        let ranks: Vec<_> = (0..size).map(|rank| scope.spawn(move || one(rank))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// The same, and each destroys its communicator.
pub(crate) fn run_well<R: Send>(api: &Api, size: usize, body: impl Fn(Rank<'_>) -> R + Sync) -> Vec<R> {
    run(api, size, |rank| {
        let result = body(rank);
        assert_eq!(api.destroy(rank.comm), 0);
        result
    })
}

impl Rank<'_> {
    /// New memory with these bytes.
    pub(crate) fn put(&self, bytes: &[u8]) -> usize {
        let mut address = 0;
        assert_eq!(self.api.allocate(&mut address, bytes.len()), 0);
        assert_eq!(self.api.write(address, bytes.as_ptr(), bytes.len(), self.stream), 0);
        address
    }

    /// New memory.
    pub(crate) fn room(&self, bytes: usize) -> usize {
        let mut address = 0;
        assert_eq!(self.api.allocate(&mut address, bytes), 0);
        address
    }

    /// Waits for the stream, and takes the bytes away.
    pub(crate) fn take(&self, address: usize, bytes: usize) -> Vec<u8> {
        let mut result = vec![0; bytes];
        assert_eq!(self.api.read(result.as_mut_ptr(), address, bytes, self.stream), 0);
        assert_eq!(self.api.stream_synchronize(self.stream), 0);
        assert_eq!(self.api.free(address), 0);
        result
    }

    pub(crate) fn put_numbers(&self, numbers: &[i32]) -> usize {
        self.put(&numbers.iter().flat_map(|one| one.to_le_bytes()).collect::<Vec<_>>())
    }

    pub(crate) fn take_numbers(&self, address: usize, count: usize) -> Vec<i32> {
        let bytes = self.take(address, 4 * count);
        bytes.as_chunks().0.iter().map(|word| i32::from_le_bytes(*word)).collect()
    }

    pub(crate) fn async_error(&self) -> i32 {
        let mut code = -1;
        assert_eq!(self.api.async_error(self.comm, &mut code), 0);
        code
    }
}

/// Makes a communicator whose calls do not block; returns at once.
pub(crate) fn begin_init(api: &Api, size: usize, id: UniqueId, rank: usize) -> usize {
    let mut comm = 0;
    assert_eq!(api.init_rank_config(&mut comm, size as i32, id, rank as i32, &Config::new(0)), 7);
    comm
}
