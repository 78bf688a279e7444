//! A second copy of a vector on each host.

use std::sync::Arc;

use crate::common::{bits, noises};
use unisono_communicator::{Communicator, Error};
use unisono_compression::{CompressedCollectives, CompressionState, Int8, SecondaryCopy};
use unisono_engine::in_process::{self, EngineOptions};

fn on<R: Send>(hosts: &[u32], body: impl Fn(Arc<dyn Communicator>) -> R + Sync) -> Vec<R> {
    in_process::run_on_hosts(hosts, &EngineOptions::default(), |_, links| links, body)
}

/// Weights that came quantised over the network come again from the own host, with the same bits, step after step.
///
/// Rows: H6
#[test]
fn the_second_gather_stays_on_the_host_and_equals_the_first() {
    for hosts in [&[0, 0, 1, 1][..], &[0, 1, 0, 1, 0], &[3, 3, 3], &[0, 1], &[9]] {
        for share in [0, 1, 1000] {
            on(hosts, |comm| {
                let (rank, ranks) = (comm.group().rank(), comm.group().size());
                let whole = share * ranks as usize;
                let mut state = CompressionState::all_gather::<f32>(
                    &*comm,
                    Arc::new(Int8::default()),
                    &vec![share; ranks as usize],
                )
                .unwrap();
                let mut copy = SecondaryCopy::new(&*comm, whole).unwrap();
                let own_host = hosts[rank as usize];
                assert!(copy.host().group().hosts().iter().all(|host| *host == own_host));
                for step in 0..3 {
                    let weights = noises(u64::from(rank) * 10 + step, share);
                    let mut forward = vec![f32::NAN; whole];
                    comm.compressed_all_gather(&weights, &mut forward, &mut state).unwrap();
                    copy.keep(&forward).unwrap();
                    let mut backward = vec![f32::NAN; whole];
                    copy.gather(&mut backward).unwrap();
                    assert_eq!(bits(&backward), bits(&forward), "{hosts:?}, step {step}");
                }
            });
        }
    }
}

#[test]
fn what_is_not_kept_cannot_be_gathered() {
    on(&[0, 0], |comm| {
        let mut copy = SecondaryCopy::<f32>::new(&*comm, 3).unwrap();
        let invalid = |result: unisono_communicator::Result<()>, text: &str| {
            let error = result.unwrap_err();
            assert!(
                matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains(text),
                "{error}"
            );
        };
        invalid(copy.gather(&mut [0.0; 3]), "keep()");
        invalid(copy.keep(&[0.0; 4]), "4 elements");
        copy.keep(&[1.0, 2.0, 3.0]).unwrap();
        invalid(copy.gather(&mut [0.0; 2]), "2 elements");
        copy.forget();
        invalid(copy.gather(&mut [0.0; 3]), "keep()");
    });
}
