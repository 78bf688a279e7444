//! Tests of cases: the reference is consistent, and a wrong result is found.

use super::*;
use unisono_collectives::Solo;
use unisono_communicator::{Executor, Life, Outcome, OwnedCall, SegmentsMut, Work};

/// Flips a bit of every result.
struct Wrong(Solo);

impl Executor for Wrong {
    fn group(&self) -> &unisono_communicator::Group {
        self.0.group()
    }

    fn execute(&self, call: &mut Call<'_>) -> Result<Outcome> {
        let (Buffers::InOut(output) | Buffers::Separate { output, .. }) = &mut call.buffers;
        if let BufferMut::Host(SegmentsMut::One(bytes)) = output
            && let Some(last) = bytes.last_mut()
        {
            *last ^= 1;
        }
        Ok(Outcome::done(0, "wrong"))
    }

    fn submit(&self, call: OwnedCall) -> Work {
        self.0.submit(call)
    }

    fn life(&self) -> &dyn Life {
        self
    }
}

impl Life for Wrong {
    fn backend(&self) -> &'static str {
        "wrong"
    }
}

#[test]
fn a_correct_communicator_passes() {
    for collective in Collective::ALL {
        for (place, segments) in [(Place::Separate, None), (Place::InPlace, Some(5))] {
            Case { place, segments, ..Case::new(collective, DType::F32, 9) }.check(&Solo::new()).unwrap();
        }
    }
}

#[test]
fn outputs_are_as_long_as_they_are_said_to_be() {
    let pairs = (0..3usize).map(|from| (0..3).map(|to| 2 * from + to).collect()).collect();
    for amount in [Amount::Even(5), Amount::PerRank(vec![3, 0, 7]), Amount::PerPair(pairs)] {
        for collective in Collective::ALL {
            let is_all_to_all = collective == Collective::AllToAll;
            if matches!(amount, Amount::PerPair(_)) != is_all_to_all && amount != Amount::Even(5) {
                continue;
            }
            let op = collective.reduces().then_some(ReduceOp::Sum);
            let case = Case { op, root: 1, amount: amount.clone(), ..Case::new(collective, DType::U8, 5) };
            for rank in 0..3 {
                assert_eq!(case.output_len(rank, 3), case.output::<u8>(rank, 3).len(), "{case:?} {rank}");
            }
        }
    }
}

#[test]
fn a_wrong_result_is_found() {
    for collective in Collective::ALL {
        // The only rank of an exscan has no output.
        if !matches!(collective, Collective::Barrier | Collective::Exscan) {
            let case = Case::new(collective, DType::U8, 9);
            let checked = std::panic::catch_unwind(|| case.check(&Wrong(Solo::new())));
            assert!(checked.is_err(), "{collective}");
        }
    }
}
