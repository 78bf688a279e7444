//! The typed calls on memory of the device, one after the other on a stream, for the types that NCCL adds.

#![expect(unsafe_code, reason = "memory of a device, by its address")]

use std::marker::PhantomData;

use unisono_collectives::CollectivesOnDevice;
use unisono_communicator::{Communicator, DType, DeviceSlice, DeviceSliceMut, Outcome, ReduceOp, Result};
use unisono_offload_nccl::{Nccl, NcclCommunicator};
use unisono_tests::case::assert_same;
use unisono_tests::on_device::moved::{DeviceBytes, OnDevice};
use unisono_tests::sample::{Position, Sample, reduced};
use unisono_tests::with_dtype;

/// The types whose sums NCCL makes.
pub(crate) const DTYPES: [DType; 10] = [
    DType::I8,
    DType::U8,
    DType::I32,
    DType::U32,
    DType::I64,
    DType::U64,
    DType::F16,
    DType::BF16,
    DType::F32,
    DType::F64,
];

/// Elements of each rank.
const COUNT: usize = 301;

/// A vector on the device.
pub(crate) struct Vector<'a, T> {
    bytes: DeviceBytes<'a>,
    elements: usize,
    device: u32,
    of: PhantomData<T>,
}

impl<'a, T: Sample> Vector<'a, T> {
    pub(crate) fn new(place: &'a OnDevice<Nccl>, elements: &[T]) -> Result<Vector<'a, T>> {
        let bytes: Vec<u8> = elements.iter().flat_map(|one| bytes_of(one).to_vec()).collect();
        let bytes = DeviceBytes::new(place.device(), place.stream(), &bytes)?;
        Ok(Vector { bytes, elements: elements.len(), device: place.device().ordinal(), of: PhantomData })
    }

    fn address(&self) -> usize {
        self.bytes.pointer().expose_provenance()
    }

    fn read(&self) -> Result<DeviceSlice<'_, T>> {
        // SAFETY: it lives until its calls have ended: each is waited for.
        unsafe { DeviceSlice::from_raw(self.address(), self.elements, self.device) }
    }

    pub(crate) fn write(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        // SAFETY: as above.
        unsafe { DeviceSliceMut::from_raw(self.address(), self.elements, self.device) }
    }

    /// Waits for the work on its stream.
    pub(crate) fn await_stream(&self) -> Result<()> {
        self.bytes.read().map(drop)
    }

    /// Whether these elements are there.
    pub(crate) fn compare(&self, expected: &[T], what: &str) -> Result<()> {
        let bytes = self.bytes.read()?;
        let found: Vec<T> = bytes.chunks_exact(size_of::<T>()).map(element_of).collect();
        assert_same(&found, expected, what);
        Ok(())
    }
}

fn bytes_of<T: Sample>(element: &T) -> &[u8] {
    bytemuck::bytes_of(element)
}

fn element_of<T: Sample>(bytes: &[u8]) -> T {
    bytemuck::pod_read_unaligned(bytes)
}

/// All typed calls on elements of one type.
pub(crate) fn check(
    comm: &NcclCommunicator,
    place: &OnDevice<Nccl>,
    dtype: DType,
) -> std::result::Result<(), String> {
    let checked = with_dtype!(dtype, T => {
        reductions::<T>(comm, place).and_then(|()| moves::<T>(comm, place)).and_then(|()| rooted::<T>(comm, place))
    });
    checked.map_err(|error| error.to_string())
}

/// What a rank contributes to a reduction of so many elements.
fn operands<T: Sample>(comm: &dyn Communicator, op: ReduceOp, count: usize) -> Vec<T> {
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    let position = |index| Position { seed: 3, ranks, rank, index };
    (0..count as u64).map(|index| T::operand(op, &position(index))).collect()
}

fn results<T: Sample>(comm: &dyn Communicator, op: ReduceOp, count: usize) -> Vec<T> {
    let position = |index| Position { seed: 3, ranks: comm.group().size(), rank: 0, index };
    (0..count as u64).map(|index| reduced(op, &position(index))).collect()
}

/// Any elements of a rank.
fn content<T: Sample>(rank: u32, count: usize) -> Vec<T> {
    let position = |index| Position { seed: 4, ranks: 1, rank, index };
    (0..count as u64).map(|index| T::any(position(index).random())).collect()
}

fn reductions<T: Sample>(comm: &NcclCommunicator, place: &OnDevice<Nccl>) -> Result<()> {
    let on = comm.on(place.device_stream());
    let end = |enqueued: Result<Outcome>| on.wait(enqueued?).map(drop);
    let (rank, ranks) = (comm.group().rank() as usize, comm.group().size() as usize);
    for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max] {
        let (input, expected) = (operands(comm, op, COUNT), results::<T>(comm, op, COUNT));
        let (mut vector, mut output) =
            (Vector::new(place, &input)?, Vector::new(place, &[T::zeroed(); COUNT])?);
        end(on.all_reduce_into(&vector.read()?, &mut output.write()?, op))?;
        output.compare(&expected, "all_reduce_into")?;
        end(on.all_reduce(&mut vector.write()?, op))?;
        vector.compare(&expected, "all_reduce")?;
        let (input, expected) = (operands(comm, op, ranks * COUNT), results::<T>(comm, op, ranks * COUNT));
        let (input, mut output) = (Vector::new(place, &input)?, Vector::new(place, &[T::zeroed(); COUNT])?);
        end(on.reduce_scatter(&input.read()?, &mut output.write()?, op))?;
        output.compare(&expected[rank * COUNT..(rank + 1) * COUNT], "reduce_scatter")?;
        for root in 0..ranks {
            let mut output = Vector::new(place, &vec![T::zeroed(); ranks * COUNT])?;
            let to = if rank == root { Some(output.write()?) } else { None };
            end(on.reduce(&input.read()?, to, op, root as u32))?;
            if rank == root {
                output.compare(&expected, "reduce")?;
            }
        }
    }
    Ok(())
}

fn moves<T: Sample>(comm: &NcclCommunicator, place: &OnDevice<Nccl>) -> Result<()> {
    let on = comm.on(place.device_stream());
    let end = |enqueued: Result<Outcome>| on.wait(enqueued?).map(drop);
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    let all = ranks as usize * COUNT;
    let (input, mut output) =
        (Vector::new(place, &content::<T>(rank, COUNT))?, Vector::new(place, &vec![T::zeroed(); all])?);
    end(on.all_gather(&input.read()?, &mut output.write()?))?;
    let everything: Vec<T> = (0..ranks).flat_map(|from| content(from, COUNT)).collect();
    output.compare(&everything, "all_gather")?;
    let input = Vector::new(place, &content::<T>(rank, all))?;
    end(on.all_to_all(&input.read()?, &mut output.write()?))?;
    let own = rank as usize * COUNT..(rank as usize + 1) * COUNT;
    let turned: Vec<T> = (0..ranks).flat_map(|from| content::<T>(from, all)[own.clone()].to_vec()).collect();
    output.compare(&turned, "all_to_all")?;
    end(on.barrier())
}

fn rooted<T: Sample>(comm: &NcclCommunicator, place: &OnDevice<Nccl>) -> Result<()> {
    let on = comm.on(place.device_stream());
    let end = |enqueued: Result<Outcome>| on.wait(enqueued?).map(drop);
    let (rank, ranks) = (comm.group().rank(), comm.group().size());
    let everything: Vec<T> = (0..ranks).flat_map(|from| content(from, COUNT)).collect();
    for root in 0..ranks {
        let mut own = Vector::new(place, &content::<T>(rank, COUNT))?;
        let mut gathered = Vector::new(place, &vec![T::zeroed(); everything.len()])?;
        let to = if rank == root { Some(gathered.write()?) } else { None };
        end(on.gather(&own.read()?, to, root))?;
        if rank == root {
            gathered.compare(&everything, "gather")?;
        }
        end(on.broadcast(&mut own.write()?, root))?;
        own.compare(&content::<T>(root, COUNT), "broadcast")?;
        let from = if rank == root { Some(gathered.read()?) } else { None };
        end(on.scatter(from, &mut own.write()?, root))?;
        own.compare(&content::<T>(rank, COUNT), "scatter")?;
    }
    Ok(())
}
