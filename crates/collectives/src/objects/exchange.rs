//! The two calls that carry objects. In the first call each rank learns the sizes of all objects that matter to the
//! second call, with the first bytes of the objects it receives; so all ranks decide alike about the second call, which
//! carries the rest of the longer objects.

use bytes::Bytes;
use unisono_communicator::{
    Buffer, BufferMut, Call, CallOptions, Communicator, Counts, DType, Descriptor, Division, Error,
    GroupRank, ParentCall, Place, Result, Scope, Segments, check_request, zeroed,
};
use unisono_schedule::Collective;

use crate::arguments::rooted;
use crate::asynchronous::end_everywhere;
use crate::collectives::Collectives;
use crate::uneven::uneven;

/// The most bytes of an object.
pub const OBJECT_BYTES_MAX: u64 = 1 << 30;

/// The number of bytes of each object that the first call carries.
const FIRST_BYTES: usize = 1000;

const SIZE_BYTES: usize = size_of::<u64>();

/// One object in the first call: its size, and its first bytes.
const BLOCK_BYTES: usize = SIZE_BYTES + FIRST_BYTES;

/// Stands in place of a size when a rank could not encode its object.
const NOT_ENCODED: u64 = u64::MAX;

/// The bytes of both calls are the library's own, so a backend for memory of a device must not refuse them.
const OPTIONS: fn() -> CallOptions = || CallOptions::new().host_by_companion();

/// One operation on objects: the scope of its two calls.
struct Exchange {
    scope: Scope,
    /// The arguments of its parent call.
    descriptor: Descriptor,
}

impl Exchange {
    /// Checks the arguments, and takes the communicator's turn for both calls.
    #[track_caller]
    fn open<C: Communicator + ?Sized>(comm: &C, name: &str, descriptor: Descriptor) -> Result<Exchange> {
        let (parent, options) = (ParentCall::new(name, descriptor), OPTIONS());
        let checked = check_request(&descriptor, &options, comm.group());
        let opened = checked.and_then(|()| comm.scope(parent.clone(), &options));
        let scope = opened.map_err(|error| error.in_call(&parent.with_site()))?;
        Ok(Exchange { scope, descriptor })
    }

    fn ranks(&self) -> usize {
        self.scope.size() as usize
    }

    fn own_rank(&self) -> usize {
        self.scope.rank() as usize
    }

    /// An error that names the operation.
    fn invalid(&self, argument: &'static str, problem: impl Into<String>) -> Error {
        Error::invalid(argument, problem).in_call(&self.scope.parent().with_site())
    }

    /// Refuses an input on another rank than the root, and a root without one.
    fn check_input(&self, argument: &'static str, is_given: bool, root: u32) -> Result<()> {
        match (is_given, self.scope.rank() == root) {
            (true, true) | (false, false) => Ok(()),
            (false, true) => Err(self.invalid(argument, "missing on the root")),
            (true, false) => {
                Err(self.invalid(argument, format!("given, but only the root {root} gives one")))
            }
        }
    }

    /// Memory that this rank needs to take part. The others wait for it, so a lack of memory ends the calls of all.
    fn or_end<T>(&self, memory: Result<T>) -> Result<T> {
        memory.map_err(|shortage| end_everywhere(&self.scope, &self.descriptor, &OPTIONS(), shortage))
    }

    /// Checks sizes that all ranks know, each of them the same ones, before memory is taken for the objects.
    fn check_sizes(&self, sizes: impl IntoIterator<Item = (usize, u64)>) -> Result<()> {
        for (rank, size) in sizes {
            let rank = self.scope.group().job_rank(GroupRank::new(rank as u32));
            if size == NOT_ENCODED {
                return Err(self.invalid("object", format!("rank {rank} could not encode its object")));
            }
            if size > OBJECT_BYTES_MAX {
                let problem = format!("{size} bytes on rank {rank}, at most {OBJECT_BYTES_MAX}");
                return Err(self.invalid("object", problem));
            }
        }
        Ok(())
    }

    /// The second call's lists, of the bytes that the first call has not carried.
    fn issue_rest(
        &self,
        counts: Counts,
        count: usize,
        input: Buffer<'_>,
        output: BufferMut<'_>,
    ) -> Result<()> {
        let Descriptor { operation, root, .. } = self.descriptor;
        let descriptor = uneven(Descriptor { root, ..Descriptor::new(operation, DType::U8, count as u64) });
        self.scope.issue(Call { counts, ..Call::separate(descriptor, input, output) }).map(drop)
    }
}

fn size_of_object(object: &Result<Bytes>) -> u64 {
    object.as_ref().map_or(NOT_ENCODED, |bytes| bytes.len() as u64)
}

/// The bytes of an object that the first call carries.
fn first_of(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(FIRST_BYTES)]
}

/// The bytes of an object that the second call carries.
fn rest_of(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.len().min(FIRST_BYTES)..]
}

fn rest_of_mut(bytes: &mut [u8]) -> &mut [u8] {
    let first = bytes.len().min(FIRST_BYTES);
    &mut bytes[first..]
}

fn rest_bytes(size: u64) -> u64 {
    size.saturating_sub(FIRST_BYTES as u64)
}

fn write_size(memory: &mut [u8], size: u64) {
    memory[..SIZE_BYTES].copy_from_slice(&size.to_le_bytes());
}

fn read_size(memory: &[u8]) -> u64 {
    let mut bytes = [0; SIZE_BYTES];
    bytes.copy_from_slice(&memory[..SIZE_BYTES]);
    u64::from_le_bytes(bytes)
}

/// Writes the first bytes of an object to the start of `memory`.
fn write_first(memory: &mut [u8], object: &Result<Bytes>) {
    if let Ok(bytes) = object {
        let first = first_of(bytes);
        memory[..first.len()].copy_from_slice(first);
    }
}

/// Memory for an object of `size` bytes that begins with these, which may be followed by others.
fn begun(size: u64, first: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = zeroed::<u8>(size as usize)?;
    let length = bytes.len().min(FIRST_BYTES);
    bytes[..length].copy_from_slice(&first[..length]);
    Ok(bytes)
}

/// The root's object on every rank. Only the root gives `own`.
///
/// # Errors
/// As [`crate::CollectivesOfObjects::broadcast_object`].
#[track_caller]
pub(super) fn broadcast<C: Communicator + ?Sized>(
    comm: &C,
    own: Option<Result<Bytes>>,
    root: u32,
) -> Result<Bytes> {
    let descriptor = rooted(Collective::Broadcast, DType::U8, BLOCK_BYTES, root);
    let descriptor = Descriptor { place: Place::InPlace, ..descriptor };
    let exchange = Exchange::open(comm, "broadcast_object", descriptor)?;
    exchange.check_input("object", own.is_some(), root)?;
    let mut block = [0; BLOCK_BYTES];
    if let Some(own) = &own {
        write_size(&mut block, size_of_object(own));
        write_first(&mut block[SIZE_BYTES..], own);
    }
    exchange.scope.broadcast(&mut block, root)?;
    let size = read_size(&block);
    let own = own.transpose().map_err(|error| error.in_call(&exchange.scope.parent().with_site()))?;
    exchange.check_sizes([(root as usize, size)])?;
    exchange.scope.note_size(size);
    if rest_bytes(size) == 0 {
        return match own {
            Some(own) => Ok(own),
            None => exchange.or_end(begun(size, &block[SIZE_BYTES..])).map(Bytes::from),
        };
    }
    let bytes = match own {
        // A broadcast is in place, so bytes that others see are copied.
        Some(own) if own.is_unique() => Ok(own.into()),
        Some(own) => Segments::One(&own).copied(),
        None => begun(size, &block[SIZE_BYTES..]),
    };
    let mut bytes = exchange.or_end(bytes)?;
    exchange.scope.broadcast(rest_of_mut(&mut bytes), root)?;
    Ok(bytes.into())
}

/// The objects of all ranks, on every rank or only on `root`; `None` on the other ranks.
///
/// The counts of a gather are the same list on every rank, so the first call is an all-gather in both cases.
///
/// # Errors
/// As [`crate::CollectivesOfObjects::all_gather_object`].
#[track_caller]
pub(super) fn gather<C: Communicator + ?Sized>(
    comm: &C,
    own: Result<Bytes>,
    root: Option<u32>,
) -> Result<Option<Vec<Bytes>>> {
    let (name, collective) = match root {
        None => ("all_gather_object", Collective::AllGather),
        Some(_) => ("gather_object", Collective::Gather),
    };
    let descriptor = Descriptor { root, ..Descriptor::new(collective, DType::U8, BLOCK_BYTES as u64) };
    let exchange = Exchange::open(comm, name, descriptor)?;
    let mut block = [0; BLOCK_BYTES];
    write_size(&mut block, size_of_object(&own));
    write_first(&mut block[SIZE_BYTES..], &own);
    let mut blocks = exchange.or_end(zeroed::<u8>(exchange.ranks() * BLOCK_BYTES))?;
    exchange.scope.all_gather(&block, &mut blocks)?;
    let own = own.map_err(|error| error.in_call(&exchange.scope.parent().with_site()))?;
    let sizes: Vec<u64> = blocks.chunks_exact(BLOCK_BYTES).map(read_size).collect();
    exchange.check_sizes(sizes.iter().copied().enumerate())?;
    exchange.scope.note_size(sizes.iter().sum());

    let is_receiver = root.is_none_or(|root| root == comm.rank());
    let firsts = blocks.chunks_exact(BLOCK_BYTES).map(|block| &block[SIZE_BYTES..]);
    let mut objects = Vec::new();
    if is_receiver {
        let all: Result<Vec<Vec<u8>>> =
            sizes.iter().zip(firsts).map(|(size, first)| begun(*size, first)).collect();
        objects = exchange.or_end(all)?;
    }
    let rests: Vec<u64> = sizes.iter().map(|size| rest_bytes(*size)).collect();
    if rests.iter().any(|rest| *rest > 0) {
        let parts = objects.iter_mut().map(|object| rest_of_mut(object));
        let output = BufferMut::of_list(parts, Division::Shares);
        let rest = rest_of(&own);
        exchange.issue_rest(Counts::PerRank(rests), rest.len(), Buffer::of(rest), output)?;
    }
    Ok(is_receiver.then(|| objects.into_iter().map(Bytes::from).collect()))
}

/// The object that the root has for this rank. Only the root gives `objects`, one for each rank.
///
/// Each block holds the sizes of all objects, so that all ranks know the counts of the second call.
///
/// # Errors
/// As [`crate::CollectivesOfObjects::scatter_object`].
#[track_caller]
pub(super) fn scatter<C: Communicator + ?Sized>(
    comm: &C,
    objects: Option<Vec<Result<Bytes>>>,
    root: u32,
) -> Result<Bytes> {
    let table_bytes = comm.size() as usize * SIZE_BYTES;
    let block_bytes = table_bytes + FIRST_BYTES;
    let descriptor = rooted(Collective::Scatter, DType::U8, block_bytes, root);
    let exchange = Exchange::open(comm, "scatter_object", descriptor)?;
    exchange.check_input("objects", objects.is_some(), root)?;
    let (objects, ranks) = (objects.unwrap_or_default(), exchange.ranks());
    let blocks = if comm.rank() == root {
        if objects.len() != ranks {
            return Err(exchange.invalid("objects", format!("{} objects for {ranks} ranks", objects.len())));
        }
        exchange.or_end(scatter_blocks(&objects, block_bytes))?
    } else {
        Vec::new()
    };
    let mut block = exchange.or_end(zeroed::<u8>(block_bytes))?;
    exchange.scope.scatter(Some(&blocks), &mut block, root)?;
    let (table, first) = block.split_at(table_bytes);
    let objects: Result<Vec<Bytes>> = objects.into_iter().collect();
    let objects = objects.map_err(|error| error.in_call(&exchange.scope.parent().with_site()))?;
    let sizes: Vec<u64> = table.chunks_exact(SIZE_BYTES).map(read_size).collect();
    exchange.check_sizes(sizes.iter().map(|size| (root as usize, *size)))?;
    exchange.scope.note_size(sizes.iter().sum());

    let mut own = exchange.or_end(begun(sizes[exchange.own_rank()], first))?;
    let rests: Vec<u64> = sizes.iter().map(|size| rest_bytes(*size)).collect();
    if rests.iter().any(|rest| *rest > 0) {
        let parts: Vec<&[u8]> = objects.iter().map(|object| rest_of(object)).collect();
        let (input, rest) = (Buffer::of_list(&parts, Division::Shares), rest_of_mut(&mut own));
        exchange.issue_rest(Counts::PerRank(rests), rest.len(), input, BufferMut::of(rest))?;
    }
    Ok(own.into())
}

/// The root's input to the first call of a scatter.
fn scatter_blocks(objects: &[Result<Bytes>], block_bytes: usize) -> Result<Vec<u8>> {
    let mut blocks = zeroed::<u8>(objects.len() * block_bytes)?;
    for (block, object) in blocks.chunks_exact_mut(block_bytes).zip(objects) {
        let (table, first) = block.split_at_mut(objects.len() * SIZE_BYTES);
        for (entry, object) in table.chunks_exact_mut(SIZE_BYTES).zip(objects) {
            write_size(entry, size_of_object(object));
        }
        write_first(first, object);
    }
    Ok(blocks)
}
