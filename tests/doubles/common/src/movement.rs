//! Collectives as one exchange: which bytes go to which rank, and what becomes of those that come.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::element::{Element, Reduction, reduce, scale};
use crate::memory::{self, Part};
use crate::mesh::{Broken, Mesh};

/// The collectives whose parts are all of one size. A root is a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Collective {
    /// Each rank has the sum of all.
    AllReduce,
    /// Each rank has the root's.
    Broadcast(u32),
    /// The root has the sum of all.
    Reduce(u32),
    /// Each rank has all.
    AllGather,
    /// Each rank has the sum of its part of all.
    ReduceScatter,
    /// Each rank has its part of all.
    AllToAll,
    /// The root has all.
    Gather(u32),
    /// Each rank has its part of the root's.
    Scatter(u32),
}

/// What one rank does in a collective.
#[derive(Clone, Debug)]
pub struct Movement {
    /// The same on all ranks, if their calls go together.
    pub descriptor: u64,
    /// What goes to each rank.
    pub outgoing: Vec<Option<Part>>,
    /// Where that of each rank goes. With a reduction all of them are the same.
    pub incoming: Vec<Option<Part>>,
    /// How what comes is made one.
    pub reduction: Option<(Element, Reduction)>,
    /// What the own elements are multiplied by before they go.
    pub factor: Option<Factor>,
}

/// An element.
#[derive(Clone, Debug)]
pub enum Factor {
    /// Its bytes.
    Value(Vec<u8>),
    /// Memory that is read when the work is done.
    Memory(Part),
}

/// A number for what must be the same on all ranks.
pub fn descriptor(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl Movement {
    /// A collective whose parts have `bytes` bytes. `send` and `recv` are where the buffers begin; `reduction` is
    /// used by those that reduce, and compared by all.
    pub fn new(
        collective: Collective,
        (rank, size): (u32, u32),
        [send, recv]: [usize; 2],
        bytes: usize,
        element: Element,
        reduction: Option<Reduction>,
    ) -> Movement {
        let whole = |address: usize| Part::new(address, bytes);
        let part = |address: usize, of: u32| Part::new(address.wrapping_add(of as usize * bytes), bytes);
        let all = |make: &dyn Fn(u32) -> Option<Part>| -> Vec<Option<Part>> { (0..size).map(make).collect() };
        let to_root = |root: u32| all(&|peer| (peer == root).then(|| whole(send)));
        let from_root = |root: u32| all(&|peer| (peer == root).then(|| whole(recv)));
        let at_root = |root: u32, make: &dyn Fn(u32) -> Part| all(&|peer| (rank == root).then(|| make(peer)));
        let (outgoing, incoming) = match collective {
            Collective::AllReduce => (all(&|_| Some(whole(send))), all(&|_| Some(whole(recv)))),
            Collective::Broadcast(root) => (at_root(root, &|_| whole(send)), from_root(root)),
            Collective::Reduce(root) => (to_root(root), at_root(root, &|_| whole(recv))),
            Collective::AllGather => (all(&|_| Some(whole(send))), all(&|peer| Some(part(recv, peer)))),
            Collective::ReduceScatter => (all(&|peer| Some(part(send, peer))), all(&|_| Some(whole(recv)))),
            Collective::AllToAll => {
                (all(&|peer| Some(part(send, peer))), all(&|peer| Some(part(recv, peer))))
            }
            Collective::Gather(root) => (to_root(root), at_root(root, &|peer| part(recv, peer))),
            Collective::Scatter(root) => (at_root(root, &|peer| part(send, peer)), from_root(root)),
        };
        Movement {
            descriptor: descriptor((collective, bytes, element, &reduction)),
            outgoing,
            incoming,
            reduction: reduction.map(|reduction| (element, reduction)),
            factor: None,
        }
    }

    /// What is read.
    pub fn inputs(&self) -> Vec<Part> {
        self.outgoing.iter().flatten().copied().collect()
    }

    /// What is written.
    pub fn outputs(&self) -> Vec<Part> {
        let mut outputs: Vec<Part> = self.incoming.iter().flatten().copied().collect();
        outputs.dedup();
        outputs
    }

    /// Moves the bytes.
    ///
    /// # Errors
    /// See [`Broken`].
    pub fn run(&self, mesh: &Mesh, number: u64) -> Result<(), Broken> {
        let read =
            |part: &Option<Part>| part.map(|part| memory::read(part).ok_or(Broken::Memory)).transpose();
        let mut outgoing: Vec<Option<Vec<u8>>> = self.outgoing.iter().map(read).collect::<Result<_, _>>()?;
        if let (Some(factor), Some((element, _))) = (&self.factor, &self.reduction) {
            let factor = match factor {
                Factor::Value(bytes) => bytes.clone(),
                Factor::Memory(part) => memory::read(*part).ok_or(Broken::Memory)?,
            };
            outgoing.iter_mut().flatten().for_each(|bytes| scale(*element, bytes, &factor));
        }
        let sizes: Vec<_> = self.incoming.iter().map(|part| part.map(|part| part.bytes)).collect();
        let incoming = mesh.exchange(number, self.descriptor, outgoing, &sizes)?;
        let mut results: Vec<(Part, Vec<u8>)> = self
            .incoming
            .iter()
            .copied()
            .zip(incoming)
            .filter_map(|(part, bytes)| Some((part?, bytes?)))
            .collect();
        if let Some((element, reduction)) = &self.reduction
            && let Some(part) = results.first().map(|(part, _)| *part)
        {
            let inputs: Vec<Vec<u8>> = results.into_iter().map(|(_, bytes)| bytes).collect();
            results = vec![(part, reduce(*element, reduction, &inputs))];
        }
        let is_written = results.iter().all(|(part, bytes)| memory::write(part.address, bytes));
        if is_written { Ok(()) } else { Err(Broken::Memory) }
    }
}
