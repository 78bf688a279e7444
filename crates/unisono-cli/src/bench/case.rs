//! The call of one row: its buffers, and the output that is expected.

use std::sync::Arc;

use unisono::call::{Buffer, Counts, Descriptor, MemoryKind, OwnedBuffers, Place};
use unisono::extend::calls::{AlgorithmName, PreparedCall, Segments, lengths};
use unisono::{CallOptions, Collective, Communicator, DType, ReduceOp, Result};
use unisono_schedule::Admit;

use super::form::Form;
use super::operations::MeasuredOperation;
use super::values::{Values, count_wrong};

/// Contents of an output before a call that must write all of it.
const UNWRITTEN: u8 = 0x5a;

/// The call of one row of the bench, on this rank.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) operation: MeasuredOperation,
    pub(crate) form: Form,
    pub(crate) dtype: DType,
    /// For the operations that reduce.
    pub(crate) op: Option<ReduceOp>,
    /// Number of elements, as in [`Descriptor`].
    pub(crate) count: u64,
    /// Forced algorithm.
    pub(crate) algorithm: Option<AlgorithmName>,
    /// The plans of a prepared call, by root.
    pub(crate) prepared: Option<Arc<Vec<PreparedCall>>>,
    pub(crate) ranks: u32,
    pub(crate) rank: u32,
}

/// An expected output is computed in parts of at most this many bytes.
const EXPECTED_BYTES_MAX: usize = 64 << 10;

/// The memory of all calls on this rank, as much as the largest of them needs. It is allocated once, so that memory of
/// an earlier call is not still resident during a later one.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Empty when all calls are in place.
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    /// The buffers of asynchronous calls, which move in and come back: of a call with another rank as its root, or
    /// without a root, and of a call with this rank as its root.
    pub(super) owned: [Option<OwnedBuffers>; 2],
}

impl Memory {
    /// Memory for all `cases` with any root. Every page has been touched.
    pub(crate) fn new(comm: &dyn Communicator, cases: &[Case]) -> Memory {
        let roots = |case: &Case| 0..if case.operation.is_rooted() { case.ranks } else { 1 };
        let sizes = cases.iter().flat_map(|case| {
            roots(case).map(|root| case.bytes(comm, case.operation.is_rooted().then_some(root)))
        });
        let (input, output) = sizes.fold((0, 0), |most, (i, o)| (most.0.max(i), most.1.max(o)));
        Memory { input: vec![UNWRITTEN; input], output: vec![UNWRITTEN; output], owned: [None, None] }
    }

    /// The bytes of both buffers.
    pub(crate) fn bytes(&self) -> u64 {
        (self.input.len() + self.output.len()) as u64
    }
}

impl Case {
    /// The root of call `index`, counted from 0. Roots rotate, so that no call can run ahead of the call before. Scans
    /// have no root: consecutive scans overlap, and the time is the total of many in a row, divided by their number.
    pub(crate) fn root(&self, index: u64) -> Option<u32> {
        self.operation.is_rooted().then(|| (index % u64::from(self.ranks)) as u32)
    }

    /// The rank with which this one exchanges messages; `None` for the last rank of an odd number.
    pub(super) fn partner(&self) -> Option<u32> {
        if self.ranks == 1 { Some(0) } else { Some(self.rank ^ 1).filter(|&partner| partner < self.ranks) }
    }

    /// Whether one buffer is input and output: it is where the operation allows it, since most users do so. In a reduce
    /// only the root has an output.
    pub(super) fn in_place(&self, root: Option<u32>) -> bool {
        match self.operation.collective() {
            Some(Collective::AllReduce | Collective::Broadcast | Collective::Scan) => true,
            Some(Collective::Reduce) => root == Some(self.rank),
            _ => false,
        }
    }

    pub(super) fn descriptor(&self, collective: Collective, root: Option<u32>) -> Descriptor {
        let place = if self.in_place(root) { Place::InPlace } else { Place::Separate };
        let op = self.op.filter(|_| collective.reduces());
        Descriptor { op, root, place, ..Descriptor::new(collective, self.dtype, self.count) }
    }

    /// Bytes read and written on this rank when `root` is the root.
    pub(super) fn bytes(&self, comm: &dyn Communicator, root: Option<u32>) -> (usize, usize) {
        let elements = match self.operation {
            MeasuredOperation::Collective(collective) => {
                let lengths = lengths(&self.descriptor(collective, root), &Counts::Even, comm.group());
                (lengths.input, lengths.output)
            }
            MeasuredOperation::SendRecv if self.partner().is_some() => (self.count, self.count),
            MeasuredOperation::SendRecv => (0, 0),
        };
        let bytes = |elements: u64| elements as usize * self.dtype.bytes();
        if self.in_place(root) {
            (0, bytes(elements.0.max(elements.1)))
        } else {
            (bytes(elements.0), bytes(elements.1))
        }
    }

    /// The case with its plans, if it is one of prepared calls.
    pub(crate) fn prepared(&self, comm: &dyn Communicator) -> Result<Case> {
        let (Form::Prepared, Some(collective)) = (self.form, self.operation.collective()) else {
            return Ok(self.clone());
        };
        let roots = if self.operation.is_rooted() { u64::from(self.ranks) } else { 1 };
        let plan = |index| {
            let descriptor = self.descriptor(collective, self.root(index));
            comm.life().prepare(comm.group(), &descriptor, &self.options(), MemoryKind::Host)
        };
        let plans = (0..roots).map(plan).collect::<Result<Vec<_>>>()?;
        Ok(Case { prepared: Some(Arc::new(plans)), ..self.clone() })
    }

    /// The messages of one call that wait for each other: a round trip is two.
    pub(crate) fn messages_in_turn(&self) -> f64 {
        match (self.operation, self.form) {
            (MeasuredOperation::SendRecv, Form::Exchange) | (MeasuredOperation::Collective(_), _) => 1.0,
            (MeasuredOperation::SendRecv, _) => 2.0,
        }
    }

    /// The place of the buffers of an asynchronous call with this root.
    pub(super) fn place_of_owned(&self, root: Option<u32>) -> usize {
        usize::from(root == Some(self.rank))
    }

    pub(super) fn options(&self) -> CallOptions {
        let mut options = CallOptions::new();
        options.algorithm = self.algorithm;
        options
    }

    /// The requirements of this call for its algorithm; the same on every rank.
    pub(crate) fn admit(&self) -> Admit {
        let commutative_operator = self.op.is_none_or(ReduceOp::is_commutative);
        Admit { commutative_operator, in_place: self.in_place(None), ..Admit::ANY }
    }

    /// Bytes of the larger of a rank's two buffers.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.count * self.operation.shares(self.ranks) * self.dtype.bytes() as u64
    }

    fn values(&self, seed: u64) -> Values {
        Values { seed, ranks: self.ranks, dtype: self.dtype, op: self.op }
    }

    /// Sets the memory up for a call with `root`.
    pub(crate) fn fill(&self, comm: &dyn Communicator, root: Option<u32>, seed: u64, memory: &mut Memory) {
        let (input, output) = self.bytes(comm, root);
        memory.output[..output].fill(UNWRITTEN);
        memory.owned = [None, None];
        let input =
            if self.in_place(root) { &mut memory.output[..output] } else { &mut memory.input[..input] };
        self.values(seed).fill(self.rank, 0, input);
    }

    /// The part of the memory that a call with `root` will read; for dumps.
    pub(crate) fn input<'a>(
        &self,
        comm: &dyn Communicator,
        root: Option<u32>,
        memory: &'a Memory,
    ) -> &'a [u8] {
        let (input, output) = self.bytes(comm, root);
        if self.in_place(root) { &memory.output[..output] } else { &memory.input[..input] }
    }

    /// The part of the memory that a call with `root` writes.
    pub(crate) fn output<'a>(
        &self,
        comm: &dyn Communicator,
        root: Option<u32>,
        memory: &'a Memory,
    ) -> &'a [u8] {
        let written = match &memory.owned[self.place_of_owned(root)] {
            Some(OwnedBuffers::InOut(buffer) | OwnedBuffers::Separate { output: buffer, .. }) => {
                buffer.borrow()
            }
            Some(OwnedBuffers::None) | None => Buffer::empty(),
        };
        match written {
            Buffer::Host(Segments::One(written)) if !written.is_empty() => written,
            _ => &memory.output[..self.bytes(comm, root).1],
        }
    }

    /// The number of wrong elements of the output, if every rank has called [`Case::fill`] with `seed`. It compares
    /// part by part: an expected output as large as the output itself would count as memory of this rank.
    pub(crate) fn wrong(&self, root: Option<u32>, seed: u64, output: &[u8]) -> u64 {
        let element_bytes = self.dtype.bytes();
        let share_bytes = match self.operation.collective() {
            Some(Collective::AllGather | Collective::Gather | Collective::AllToAll) => {
                self.count as usize * element_bytes
            }
            _ => output.len(),
        };
        let part_bytes = EXPECTED_BYTES_MAX / element_bytes * element_bytes;
        let mut expected = vec![0; part_bytes.min(share_bytes)];
        let mut wrong = 0;
        for (share, found) in (0..).zip(output.chunks(share_bytes.max(1))) {
            for (part, found) in (0..).zip(found.chunks(part_bytes)) {
                let expected = &mut expected[..found.len()];
                self.expect(root, seed, (share, part * (part_bytes / element_bytes) as u64), expected);
                wrong += count_wrong(self.dtype, found, expected);
            }
        }
        wrong
    }

    /// The expected output from element `first` of share `share` on, for operations whose output has one share from
    /// each rank; from element `first` on, for the others.
    fn expect(&self, root: Option<u32>, seed: u64, (share, first): (u32, u64), into: &mut [u8]) {
        let values = self.values(seed);
        let own_share = u64::from(self.rank) * self.count + first;
        let collective = match (self.operation, self.partner()) {
            (MeasuredOperation::Collective(collective), _) => collective,
            (MeasuredOperation::SendRecv, Some(partner)) => return values.fill(partner, first, into),
            (MeasuredOperation::SendRecv, None) => return,
        };
        match collective {
            Collective::AllReduce | Collective::Reduce => values.fill_reduced(first, into),
            Collective::ReduceScatter => values.fill_reduced(own_share, into),
            Collective::Broadcast => values.fill(root.unwrap_or(0), first, into),
            Collective::Scatter => values.fill(root.unwrap_or(0), own_share, into),
            Collective::AllGather | Collective::Gather => values.fill(share, first, into),
            Collective::AllToAll => values.fill(share, own_share, into),
            Collective::Scan => values.fill_prefix(self.rank + 1, first, into),
            Collective::Exscan => values.fill_prefix(self.rank, first, into),
            Collective::Barrier => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use unisono::Solo;

    use super::*;

    fn case(operation: MeasuredOperation, ranks: u32, rank: u32) -> Case {
        let op = operation.reduces().then_some(ReduceOp::Sum);
        let (form, dtype) = (Form::Plain, DType::F32);
        Case { operation, form, dtype, op, count: 5, algorithm: None, prepared: None, ranks, rank }
    }

    /// Rows: J2
    #[test]
    fn every_operation_is_right_on_one_rank_and_a_flipped_bit_is_seen() {
        let comm = Solo::new();
        // The only rank of an exscan has no output.
        let has_output = |operation: &MeasuredOperation| {
            operation.has_size() && operation.collective() != Some(Collective::Exscan)
        };
        for operation in MeasuredOperation::all().filter(has_output) {
            let case = case(operation, 1, 0);
            let mut memory = Memory::new(&comm, std::slice::from_ref(&case));
            let root = case.root(9);
            case.fill(&comm, root, 3, &mut memory);
            case.call(&comm, root, &mut memory).unwrap();
            assert_eq!(case.input(&comm, root, &memory).len(), 20);
            assert_eq!(case.output(&comm, root, &memory).len(), 20);
            assert_eq!(case.wrong(root, 3, &memory.output), 0, "{operation}");
            assert_eq!(case.wrong(root, 4, &memory.output), 5, "{operation}: another call's data");
            memory.output[7] ^= 1;
            assert_eq!(case.wrong(root, 3, &memory.output), 1, "{operation}");
        }
    }

    #[test]
    fn every_form_of_an_operation_is_right_on_one_rank() {
        let comm = Solo::new();
        for operation in MeasuredOperation::all().filter(|operation| operation.has_size()) {
            for form in Form::ALL.into_iter().filter(|form| form.fits(operation)) {
                let case = Case { form, ..case(operation, 1, 0) }.prepared(&comm).unwrap();
                let mut memory = Memory::new(&comm, std::slice::from_ref(&case));
                let root = case.root(9);
                case.fill(&comm, root, 3, &mut memory);
                case.call(&comm, root, &mut memory).unwrap();
                let output = case.output(&comm, root, &memory);
                assert_eq!(case.wrong(root, 3, output), 0, "{}", form.of(operation));
            }
        }
    }

    /// The definitions of the operations again, written out for two ranks.
    ///
    /// Rows: J2
    #[test]
    fn expectations_follow_the_definitions() {
        let expected = |name: &str, rank: u32, root: Option<u32>| {
            let case = case(name.parse().unwrap(), 2, rank);
            let elements = match name {
                "all_gather" | "gather" | "all_to_all" => 10,
                _ => 5,
            };
            let mut bytes = vec![0; elements * 4];
            // One share of each rank, or the whole output.
            for (share, bytes) in (0..).zip(bytes.chunks_mut(20)) {
                case.expect(root, 1, (share, 0), bytes);
            }
            bytes
                .chunks_exact(4)
                .map(bytemuck::pod_read_unaligned::<f32>)
                .map(f32::to_bits)
                .collect::<Vec<_>>()
        };
        let input = |rank: u32, op: Option<ReduceOp>| {
            let mut bytes = vec![0; 40];
            Values { seed: 1, ranks: 2, dtype: DType::F32, op }.fill(rank, 0, &mut bytes);
            bytes
                .chunks_exact(4)
                .map(bytemuck::pod_read_unaligned::<f32>)
                .map(f32::to_bits)
                .collect::<Vec<_>>()
        };
        let (a, b) = (input(0, None), input(1, None));
        let (x, y) = (input(0, Some(ReduceOp::Sum)), input(1, Some(ReduceOp::Sum)));
        let sum: Vec<u32> =
            x.iter().zip(&y).map(|(x, y)| (f32::from_bits(*x) + f32::from_bits(*y)).to_bits()).collect();
        assert_eq!(expected("all_reduce", 1, None), sum[..5]);
        assert_eq!(expected("reduce_scatter", 1, None), sum[5..]);
        assert_eq!(expected("reduce", 1, Some(1)), sum[..5]);
        assert_eq!([expected("scan", 0, None), expected("scan", 1, None)], [&x[..5], &sum[..5]]);
        assert_eq!(expected("exscan", 1, None), x[..5]);
        assert_eq!(expected("all_gather", 0, None), [&a[..5], &b[..5]].concat());
        assert_eq!(expected("gather", 1, Some(1)), [&a[..5], &b[..5]].concat());
        assert_eq!(expected("all_to_all", 1, None), [&a[5..], &b[5..]].concat());
        assert_eq!(expected("broadcast", 1, Some(0)), a[..5]);
        assert_eq!(expected("scatter", 0, Some(1)), b[..5]);
        assert_eq!(expected("scatter", 1, Some(0)), a[5..]);
        assert_eq!(expected("sendrecv", 0, None), b[..5]);
    }

    /// More than one part, and a shorter one at the end.
    #[test]
    fn a_large_output_is_judged_to_its_end() {
        let comm = Solo::new();
        for name in ["all_reduce", "all_gather", "all_to_all", "broadcast", "reduce_scatter"] {
            let case = Case { count: 40_000, ..case(name.parse().unwrap(), 1, 0) };
            let mut memory = Memory::new(&comm, std::slice::from_ref(&case));
            case.fill(&comm, None, 3, &mut memory);
            case.call(&comm, case.root(0), &mut memory).unwrap();
            assert_eq!(case.wrong(case.root(0), 3, &memory.output), 0, "{name}");
            assert_eq!(case.wrong(case.root(0), 4, &memory.output), 40_000, "{name}");
            *memory.output.last_mut().unwrap() ^= 1;
            memory.output[70_000] ^= 1;
            assert_eq!(case.wrong(case.root(0), 3, &memory.output), 2, "{name}");
        }
    }

    #[test]
    fn the_odd_rank_out_has_no_partner() {
        let partner = |ranks, rank| case(MeasuredOperation::SendRecv, ranks, rank).partner();
        assert_eq!(
            [partner(3, 0), partner(3, 1), partner(3, 2), partner(1, 0)],
            [Some(1), Some(0), None, Some(0)]
        );
    }
}
