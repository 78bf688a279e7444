//! A second copy of a vector that is divided among all ranks: whole on each host, so that it can be gathered again
//! without the network.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use unisono_collectives::CollectivesUneven;
use unisono_communicator::{Communicator, Element, Error, Result, zeroed};

/// A copy of a whole vector on each host, divided among the ranks of the host: the secondary partition of ZeRO++ (hpZ;
/// Wang et al. 2023, section 4.2).
///
/// Weights that are divided among all ranks are gathered twice in each step of a training. The first time, in the
/// forward pass, they come over the network, perhaps quantised
/// ([`crate::CompressedCollectives::compressed_all_gather`]); each rank then keeps a part of them. The second time, in
/// the backward pass, they come from the ranks of the own host, with the same bits. Memory: n / (ranks of the host)
/// elements on each rank.
///
/// ```
/// # mod unisono { pub use unisono_engine::in_process; pub use unisono_compression as compression; }
/// use unisono::in_process;
/// use unisono::compression::SecondaryCopy;
///
/// in_process::run(2, |comm| {
///     let mut copy = SecondaryCopy::new(&comm, 5).unwrap();
///     copy.keep(&[0.1f32, 0.2, 0.3, 0.4, 0.5]).unwrap();
///     let mut again = [0.0; 5];
///     copy.gather(&mut again).unwrap();
///     assert_eq!(again, [0.1, 0.2, 0.3, 0.4, 0.5]);
/// });
/// ```
pub struct SecondaryCopy<T> {
    host: Arc<dyn Communicator>,
    elements: usize,
    /// Elements of each rank of the host.
    counts: Vec<usize>,
    /// The elements of this rank.
    own: Range<usize>,
    kept: Option<Vec<T>>,
}

impl<T: Element> SecondaryCopy<T> {
    /// A copy of a vector of `elements` elements, which has none of them yet. Collective over `comm`: it makes a
    /// communicator of the ranks of each host.
    ///
    /// # Errors
    /// The errors of [`Communicator::subgroup`].
    pub fn new(comm: &(impl Communicator + ?Sized), elements: usize) -> Result<SecondaryCopy<T>> {
        let group = comm.group();
        let mut hosts: Vec<u32> = group.hosts().to_vec();
        hosts.sort_unstable();
        hosts.dedup();
        let mut own_host = None;
        // All ranks make all groups, in the same order.
        for host in hosts {
            let ranks = (0..group.size()).filter(|rank| group.hosts()[*rank as usize] == host);
            let made = comm.subgroup(&ranks.collect::<Vec<u32>>())?;
            own_host = own_host.or(made);
        }
        #[expect(clippy::expect_used, reason = "every rank has a host")]
        let host = own_host.expect("this rank is among those of its host");
        let (ranks, rank) = (host.group().size() as usize, host.group().rank() as usize);
        let at = |rank: usize| (elements as u128 * rank as u128 / ranks as u128) as usize;
        let counts = (0..ranks).map(|rank| at(rank + 1) - at(rank)).collect();
        Ok(SecondaryCopy { host, elements, counts, own: at(rank)..at(rank + 1), kept: None })
    }

    /// Keeps this rank's part of the whole vector, which is the same on all ranks. No communication.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a vector of another length; [`Error::System`] when there is no memory.
    pub fn keep(&mut self, whole: &[T]) -> Result<()> {
        self.check("whole", whole.len())?;
        let mut kept = match self.kept.take() {
            Some(kept) => kept,
            None => zeroed(self.own.len())?,
        };
        kept.copy_from_slice(&whole[self.own.clone()]);
        self.kept = Some(kept);
        Ok(())
    }

    /// The vector that was kept, from the ranks of this host. Collective over them.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a vector of another length, and when nothing is kept; errors of the all-gather.
    #[track_caller]
    pub fn gather(&self, whole: &mut [T]) -> Result<()> {
        self.check("whole", whole.len())?;
        let Some(kept) = &self.kept else {
            return Err(Error::invalid("copy", "nothing is kept yet; keep() comes first"));
        };
        self.host.all_gather_v(kept, whole, &self.counts)
    }

    /// Forgets the kept elements, and frees their memory.
    pub fn forget(&mut self) {
        self.kept = None;
    }

    /// The communicator of the ranks of this host, which serves other calls too.
    pub fn host(&self) -> &Arc<dyn Communicator> {
        &self.host
    }

    fn check(&self, argument: &'static str, elements: usize) -> Result<()> {
        if elements != self.elements {
            let problem = format!("has {elements} elements, the copy is of {}", self.elements);
            return Err(Error::invalid(argument, problem));
        }
        Ok(())
    }
}

impl<T> fmt::Debug for SecondaryCopy<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SecondaryCopy { elements, own, kept, .. } = self;
        let kept = if kept.is_some() { "kept" } else { "nothing kept" };
        write!(f, "SecondaryCopy(elements {own:?} of {elements}, {kept})")
    }
}
