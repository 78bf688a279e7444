//! Elements that are not finite: one error on all ranks, and nothing has changed.

use std::sync::Arc;

use crate::common::{bits, codecs, input, owed, state};
use unisono_communicator::{Error, ReduceOp};
use unisono_compression::{Bf16, Codec, CompressedCollectives, Int4, Int8, SignL1};
use unisono_engine::in_process;

const RANKS: u32 = 3;

/// A rank, the place of its bad element, and the element.
type Bad = (u32, usize, f32);

/// A clean call, a bad one, and a clean one, which must give the results of two clean calls. Returns the report of the
/// ranks: the rank, the block, and the elements of a block.
fn reported(codec: &Arc<dyn Codec>, elements: usize, bad: &[Bad]) -> (u32, u64, u64) {
    let reports = in_process::run(RANKS, |comm| {
        let rank = comm.group().rank();
        let (mut state, mut clean) = (state(&*comm, codec, elements), state(&*comm, codec, elements));
        let call = |number, bad: &[Bad], state: &mut _| {
            let mut vector = input(rank, number, elements);
            for (_, at, value) in bad.iter().filter(|(on, ..)| *on == rank) {
                vector[*at] = *value;
            }
            let given = vector.clone();
            let result = comm.compressed_all_reduce(&mut vector, ReduceOp::Sum, state);
            (result, given, vector)
        };
        for state in [&mut state, &mut clean] {
            call(0, &[], state).0.unwrap();
        }
        let before = owed(&state);
        let (result, given, vector) = call(1, bad, &mut state);
        assert_eq!((bits(&given), before), (bits(&vector), owed(&state)), "{codec:?}: nothing changes");
        assert_eq!(state.calls(), 1);
        let [left, right] = [&mut state, &mut clean].map(|state| {
            let (result, _, vector) = call(2, &[], state);
            result.unwrap();
            (bits(&vector), owed(state))
        });
        assert_eq!(left, right, "{codec:?}: as without the bad call");
        let error = result.unwrap_err();
        assert!(error.is_before_start() && error.root_cause().to_string() == error.to_string());
        let Error::NonFinite { rank, block, block_elements, call } = error else { panic!("{error}") };
        assert!(call.to_string().contains(&codec.tag()), "{call}");
        (rank.get(), block, block_elements)
    });
    assert!(reports.iter().all(|report| *report == reports[0]), "{codec:?}: {reports:?}");
    reports[0]
}

fn block(codec: &Arc<dyn Codec>, at: usize) -> u64 {
    (at / codec.block()) as u64
}

/// The first and the last element of every share, of blocks, of the first piece and of others.
///
/// Rows: G7
#[test]
fn wherever_it_is_it_is_named() {
    for codec in codecs() {
        // Several pieces, and a last block that is not whole.
        let elements = 60_017;
        let share = elements / RANKS as usize;
        let places = [0, 63, 64, 1023, 1024, share - 2, share + 1100, 16 * 1024 + 5, 2 * share, elements - 1];
        for (number, at) in places.into_iter().enumerate() {
            let rank = number as u32 % RANKS;
            let value = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -f32::NAN][number % 4];
            let seen = reported(&codec, elements, &[(rank, at, value)]);
            assert_eq!(seen, (rank, block(&codec, at), codec.block() as u64), "{codec:?}, element {at}");
        }
    }
}

/// The lowest block is reported, and of two ranks in one block the lower.
#[test]
fn several_at_once_are_reported_as_one() {
    for codec in codecs() {
        let elements = 5000;
        let (low, high) = (700, 4900);
        let bad = [(2, low, f32::NAN), (1, high, f32::INFINITY)];
        assert_eq!(reported(&codec, elements, &bad).0, 2, "{codec:?}");
        let bad = [(2, low, f32::NAN), (1, low + 1, f32::INFINITY), (0, high, f32::NAN)];
        let seen = reported(&codec, elements, &bad);
        assert_eq!((seen.0, seen.1), (1, block(&codec, low)), "{codec:?}");
        for elements in [1, 2, 3] {
            let all: Vec<Bad> = (0..RANKS).map(|rank| (rank, elements - 1, f32::NAN)).collect();
            assert_eq!(reported(&codec, elements, &all).0, 0, "{codec:?}");
        }
    }
}

/// Every rank's numbers are finite, their sum is not: the rank that sums is named.
#[test]
fn a_sum_that_is_too_large_is_the_owners() {
    let codecs: [Arc<dyn Codec>; 4] =
        [Arc::new(SignL1::default()), Arc::new(Int8::default()), Arc::new(Int4::default()), Arc::new(Bf16)];
    for codec in codecs {
        let elements = 4096;
        let at = 2048;
        let mut bad: Vec<Bad> = Vec::new();
        for rank in 0..RANKS {
            bad.extend((at..at + 1024).map(|index| (rank, index, 1.3e38)));
        }
        let seen = in_process::run(RANKS, |comm| {
            let rank = comm.group().rank();
            let mut state = state(&*comm, &codec, elements);
            let mut vector = vec![0.0f32; elements];
            bad.iter().filter(|(on, ..)| *on == rank).for_each(|(_, at, value)| vector[*at] = *value);
            let owned = state.owned();
            let error = comm.compressed_all_reduce(&mut vector, ReduceOp::Avg, &mut state).err();
            (error, owned, rank)
        });
        let owner = seen.iter().find(|(_, owned, _)| owned.contains(&at)).unwrap().2;
        for (error, ..) in &seen {
            let Some(Error::NonFinite { rank, block: named, .. }) = error else {
                panic!("{codec:?}: {error:?}")
            };
            // A sum of magnitudes can be too large for the rank itself.
            let is_own = rank.get() == owner || codec.name() == "sign" && rank.get() == 0;
            assert!(is_own, "{codec:?}: rank {rank}");
            let first = block(&codec, at);
            assert_eq!(*named, first, "{codec:?}");
        }
    }
}
