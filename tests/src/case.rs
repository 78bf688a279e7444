//! One collective call of every form, as a value: its inputs, its call, and what must come of it.

use std::ops::Range;

use unisono_collectives::Collectives;
use unisono_communicator::{
    Buffer, BufferMut, Buffers, Call, CallOptions, Collective, Communicator, Counts, DType, Descriptor,
    Division, Error, MemoryKind, ParentCall, Place, ReduceOp, Result, UserFunction,
};
use unisono_schedule::{canonical_prefix_tree, canonical_tree};

use crate::sample::{AFFINE, Position, Sample, mix, normalised, op_of, reduced_of_first};
use crate::with_dtype;

/// How many elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The same everywhere; see [`Descriptor`] for what it counts.
    Even(usize),
    /// A share of each rank.
    PerRank(Vec<usize>),
    /// `pairs[i][j]` is what rank i has for rank j.
    PerPair(Vec<Vec<usize>>),
}

/// What the operands are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// Any order of reduction gives the same bits.
    Exact,
    /// The order shows; the canonical tree is expected.
    Rough,
}

/// A call.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is called.
    pub collective: Collective,
    /// On which elements.
    pub dtype: DType,
    /// Of the collectives that reduce.
    pub op: Option<ReduceOp>,
    /// How many.
    pub amount: Amount,
    /// Of the rooted collectives.
    pub root: u32,
    /// In place, on the ranks that can be; see `place_on`.
    pub place: Place,
    /// Cuts the buffers into lists at places that follow from this number.
    pub segments: Option<u64>,
    /// The caller's options.
    pub options: CallOptions,
    /// The name of the call that it is a part of, if it is made in a scope.
    pub part_of: Option<&'static str>,
    /// What the operands are like.
    pub operands: Operands,
    /// Of everything random in the data.
    pub seed: u64,
}

impl Case {
    /// The plainest call: separate and contiguous buffers, root 0, no options.
    pub fn new(collective: Collective, dtype: DType, count: usize) -> Case {
        Case {
            collective,
            dtype,
            op: collective.reduces().then_some(ReduceOp::Max),
            amount: Amount::Even(count),
            root: 0,
            place: Place::Separate,
            segments: None,
            options: CallOptions::new(),
            part_of: None,
            operands: Operands::Exact,
            seed: 1,
        }
    }

    /// Where the buffers of `rank` are: a broadcast has one buffer, a barrier none, only the root of a reduce has an
    /// output that could be its input, and rank 0 of an exscan has no output.
    fn place_on(&self, rank: u32) -> Place {
        match self.collective {
            Collective::Broadcast => Place::InPlace,
            Collective::Barrier => Place::Separate,
            Collective::Reduce if rank != self.root => Place::Separate,
            Collective::Exscan if rank == 0 => Place::Separate,
            _ => self.place,
        }
    }

    /// What the backend says to a call that it cannot do; `None` where it can. The call is made then, and must be
    /// refused in the same words before anything has happened. All ranks must be refused: else the next call is a
    /// mismatch.
    ///
    /// # Panics
    /// When the call is not refused as announced, or has changed a buffer.
    #[track_caller]
    pub fn refusal(&self, comm: &dyn Communicator) -> Option<Error> {
        let descriptor = self.descriptor(comm.group().rank(), comm.group().size());
        let refusal = comm.supports(&descriptor, &self.options, MemoryKind::Host).err()?;
        let refused = with_dtype!(self.dtype, T => self.call::<T>(comm).map(drop));
        let error = refused.expect_err(&format!("{self:?} was announced as refused: {refusal}"));
        // The error of a call names the call besides.
        let (told, announced) = (error.to_string(), refusal.to_string());
        let rest = told.strip_prefix(&announced);
        assert!(rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(", in ")), "{told}; {announced}");
        assert!(error.is_before_start(), "{self:?}: {error}");
        Some(refusal)
    }

    /// Makes the call on this rank and compares the result with the reference. A call that the backend does not support
    /// must be refused; see [`Case::refusal`].
    ///
    /// # Errors
    /// The call's.
    ///
    /// # Panics
    /// When the result is wrong, or an input was written to.
    #[track_caller]
    pub fn check(&self, comm: &dyn Communicator) -> Result<()> {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        if matches!(self.refusal(comm), Some(Error::Unsupported { .. })) {
            return Ok(());
        }
        with_dtype!(self.dtype, T => {
            let got = self.call::<T>(comm)?;
            let expected = self.output::<T>(rank, ranks);
            assert_same(&got, &expected, &format!("{self:?} on rank {rank} of {ranks}"));
        });
        Ok(())
    }

    /// Makes the call on this rank and gives the bytes of its result.
    ///
    /// # Errors
    /// The call's.
    #[track_caller]
    pub fn result(&self, comm: &dyn Communicator) -> Result<Vec<u8>> {
        with_dtype!(self.dtype, T => Ok(bytemuck::cast_slice(&self.call::<T>(comm)?).to_vec()))
    }

    #[track_caller]
    fn call<T: Sample>(&self, comm: &dyn Communicator) -> Result<Vec<T>> {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let input: Vec<T> = self.input(rank, ranks);
        let output_len = self.output_len(rank, ranks);
        if self.place_on(rank) == Place::Separate {
            let mut output = self.garbage::<T>(rank, output_len);
            let (given, before) = (input.clone(), output.clone());
            let buffers =
                Buffers::Separate { input: self.buffer(&given), output: self.buffer_mut(&mut output) };
            let result = self.execute::<T>(comm, buffers);
            assert_eq!(bytes(&given), bytes(&input), "{self:?} wrote to its input on rank {rank}");
            self.assert_left_alone(&result, bytes(&output) == bytes(&before));
            return result.map(|()| output);
        }
        let (at, result_at) = self.places(rank);
        let mut buffer = self.garbage::<T>(rank, input.len().max(output_len));
        buffer[at..at + input.len()].copy_from_slice(&input);
        let before = buffer.clone();
        let result = self.execute::<T>(comm, Buffers::InOut(self.buffer_mut(&mut buffer)));
        self.assert_left_alone(&result, bytes(&buffer) == bytes(&before));
        result?;
        let is_left_alone =
            matches!(self.collective, Collective::Reduce | Collective::Gather) && rank != self.root;
        if is_left_alone {
            assert_eq!(bytes(&buffer), bytes(&input), "{self:?} wrote to a buffer without result");
        }
        Ok(buffer[result_at..result_at + output_len].to_vec())
    }

    /// The elements of an output before the call: no result, and no neutral element that could become a result.
    fn garbage<T: Sample>(&self, rank: u32, length: usize) -> Vec<T> {
        let few: [T; 7] =
            std::array::from_fn(|at| T::any(mix(!self.seed ^ mix(u64::from(rank) << 3 | at as u64))));
        few.into_iter().cycle().take(length).collect()
    }

    fn assert_left_alone(&self, result: &Result<()>, is_left: bool) {
        let is_refused = result.as_ref().is_err_and(Error::is_before_start);
        assert!(is_left || !is_refused, "{self:?} was refused, and has changed a buffer");
    }

    /// Where this rank's input and output start in its buffer, in place.
    fn places(&self, rank: u32) -> (usize, usize) {
        let before: usize = (0..rank).map(|other| self.share(other)).sum();
        let at_root = rank == self.root;
        match self.collective {
            Collective::ReduceScatter => (0, before),
            Collective::AllGather => (before, 0),
            Collective::Gather if at_root => (before, 0),
            Collective::Scatter if at_root => (0, before),
            _ => (0, 0),
        }
    }

    fn share(&self, rank: u32) -> usize {
        match &self.amount {
            Amount::Even(count) => *count,
            Amount::PerRank(list) => list[rank as usize],
            Amount::PerPair(pairs) => pairs[rank as usize].iter().sum(),
        }
    }

    fn pair(&self, from: u32, to: u32) -> usize {
        match &self.amount {
            Amount::PerPair(pairs) => pairs[from as usize][to as usize],
            _ => self.share(to),
        }
    }

    fn all(&self, ranks: u32) -> usize {
        (0..ranks).map(|rank| self.share(rank)).sum()
    }

    /// What `rank` puts in.
    fn input<T: Sample>(&self, rank: u32, ranks: u32) -> Vec<T> {
        let count = self.share(rank);
        let length = match self.collective {
            Collective::AllReduce | Collective::Reduce | Collective::Broadcast => count,
            Collective::Scan | Collective::Exscan => count,
            Collective::ReduceScatter => self.all(ranks),
            Collective::AllGather | Collective::Gather => count,
            Collective::Scatter if rank == self.root => self.all(ranks),
            Collective::AllToAll => (0..ranks).map(|to| self.pair(rank, to)).sum(),
            _ => 0,
        };
        self.input_at(rank, ranks, 0..length)
    }

    /// A part of what `rank` puts in.
    fn input_at<T: Sample>(&self, rank: u32, ranks: u32, part: Range<usize>) -> Vec<T> {
        part.map(|index| self.element(&self.position(rank, ranks, index as u64))).collect()
    }

    fn position(&self, rank: u32, ranks: u32, index: u64) -> Position {
        Position { seed: self.seed, ranks, rank, index }
    }

    fn element<T: Sample>(&self, position: &Position) -> T {
        match (self.op, self.operands) {
            (None, _) => T::any(position.random()),
            (Some(op), Operands::Exact) => T::operand(op, position),
            (Some(_), Operands::Rough) => T::rough(position.random()),
        }
    }

    /// What `rank` must get.
    fn output<T: Sample>(&self, rank: u32, ranks: u32) -> Vec<T> {
        let before: usize = (0..rank).map(|other| self.share(other)).sum();
        let tree = canonical_tree(ranks).sums;
        let reduced = |range: Range<usize>| -> Vec<T> {
            range.map(|index| self.reduced((ranks, ranks), index as u64, &tree)).collect()
        };
        let prefix = |first: u32| -> Vec<T> {
            let tree = canonical_prefix_tree(first).sums;
            (0..self.share(rank)).map(|index| self.reduced((first, ranks), index as u64, &tree)).collect()
        };
        let everything = || (0..ranks).flat_map(|from| self.input::<T>(from, ranks)).collect();
        let at_root = rank == self.root;
        match self.collective {
            Collective::AllReduce => reduced(0..self.share(rank)),
            Collective::Reduce if at_root => reduced(0..self.share(rank)),
            Collective::ReduceScatter => reduced(before..before + self.share(rank)),
            Collective::Scan => prefix(rank + 1),
            Collective::Exscan if rank > 0 => prefix(rank),
            Collective::AllGather => everything(),
            Collective::Gather if at_root => everything(),
            Collective::Broadcast => self.input(self.root, ranks),
            Collective::Scatter => self.input_at(self.root, ranks, before..before + self.share(rank)),
            Collective::AllToAll => (0..ranks).flat_map(|from| self.part::<T>(from, rank, ranks)).collect(),
            _ => Vec::new(),
        }
    }

    fn part<T: Sample>(&self, from: u32, to: u32, ranks: u32) -> Vec<T> {
        let before: usize = (0..to).map(|other| self.pair(from, other)).sum();
        self.input_at(from, ranks, before..before + self.pair(from, to))
    }

    /// How many elements [`Case::output`] has.
    fn output_len(&self, rank: u32, ranks: u32) -> usize {
        let at_root = rank == self.root;
        match self.collective {
            Collective::AllReduce | Collective::ReduceScatter | Collective::Scatter => self.share(rank),
            Collective::Reduce if at_root => self.share(rank),
            Collective::Scan => self.share(rank),
            Collective::Exscan if rank > 0 => self.share(rank),
            Collective::AllGather => self.all(ranks),
            Collective::Gather if at_root => self.all(ranks),
            Collective::Broadcast => self.share(self.root),
            Collective::AllToAll => (0..ranks).map(|from| self.pair(from, rank)).sum(),
            _ => 0,
        }
    }

    /// The reduction of the contributions of the first ranks of all.
    fn reduced<T: Sample>(&self, (first, ranks): (u32, u32), index: u64, tree: &[(u32, u32)]) -> T {
        let op = self.op.unwrap_or(ReduceOp::Sum);
        let position = self.position(0, ranks, index);
        if self.operands == Operands::Exact {
            return reduced_of_first(op, &position, first);
        }
        let operand = |rank| self.element::<T>(&Position { rank, ..position });
        let mut values: Vec<T> = (0..first).map(operand).collect();
        for (left, right) in tree {
            values.push(T::combine(op, values[*left as usize], values[*right as usize]));
        }
        values[values.len() - 1]
    }

    /// What `rank` of `ranks` calls.
    pub fn descriptor(&self, rank: u32, ranks: u32) -> Descriptor {
        let count = match (&self.amount, self.collective) {
            (Amount::Even(count), _) => *count,
            (_, Collective::AllToAll) => (0..ranks).map(|to| self.pair(rank, to)).sum(),
            _ => self.share(rank),
        };
        // A barrier has no data, so no type of data either.
        let is_barrier = self.collective == Collective::Barrier;
        let (dtype, count) = if is_barrier { (DType::U8, 0) } else { (self.dtype, count) };
        Descriptor {
            op: self.op.map(|op| op_of(op, rank)),
            root: self.collective.is_rooted().then_some(self.root),
            place: self.place_on(rank),
            label: self.options.label,
            uneven: !matches!(self.amount, Amount::Even(_)),
            ..Descriptor::new(self.collective, dtype, count as u64)
        }
    }

    fn counts(&self, rank: u32, ranks: u32) -> Counts {
        let wide = |list: &mut dyn Iterator<Item = usize>| list.map(|count| count as u64).collect();
        match &self.amount {
            Amount::Even(_) => Counts::Even,
            Amount::PerRank(list) => Counts::PerRank(wide(&mut list.iter().copied())),
            Amount::PerPair(_) => Counts::PerPair {
                send: wide(&mut (0..ranks).map(|to| self.pair(rank, to))),
                receive: wide(&mut (0..ranks).map(|from| self.pair(from, rank))),
            },
        }
    }

    #[track_caller]
    fn execute<T: Sample>(&self, comm: &dyn Communicator, buffers: Buffers<'_>) -> Result<()> {
        let (rank, ranks) = (comm.group().rank(), comm.group().size());
        let combine: UserFunction = std::sync::Arc::new(combine_bytes::<T>);
        let call = Call {
            counts: self.counts(rank, ranks),
            options: self.options,
            user_function: matches!(self.op, Some(ReduceOp::User(_))).then_some(combine),
            ..Call::new(self.descriptor(rank, ranks), buffers)
        };
        match self.part_of {
            None => comm.issue(call).map(|_| ()),
            Some(name) => {
                // All ranks give the same parent, whatever they call in the scope.
                let parent =
                    ParentCall::new(name, Descriptor::new(Collective::Barrier, DType::U8, self.seed));
                comm.scope(parent, &CallOptions::new())?.issue(call).map(|_| ())
            }
        }
    }

    /// Where the list is cut: from none to a few places, some of them the same.
    fn cuts(&self, length: usize) -> Vec<usize> {
        let Some(seed) = self.segments else { return Vec::new() };
        let random = |index| mix(seed ^ mix(index)) as usize;
        let mut cuts: Vec<usize> =
            (0..random(0) % 5).map(|cut| random(cut as u64 + 1) % (length + 1)).collect();
        cuts.sort_unstable();
        cuts
    }

    fn buffer<'a, T: Sample>(&self, slice: &'a [T]) -> Buffer<'a> {
        if self.segments.is_none() {
            return Buffer::of(slice);
        }
        let (mut list, mut start) = (Vec::new(), 0);
        for cut in self.cuts(slice.len()) {
            list.push(&slice[start..cut]);
            start = cut;
        }
        list.push(&slice[start..]);
        Buffer::of_list(&list, Division::Anywhere)
    }

    fn buffer_mut<'a, T: Sample>(&self, mut slice: &'a mut [T]) -> BufferMut<'a> {
        if self.segments.is_none() {
            return BufferMut::of(slice);
        }
        let (mut list, mut start) = (Vec::new(), 0);
        for cut in self.cuts(slice.len()) {
            let (head, tail) = slice.split_at_mut(cut - start);
            list.push(head);
            (slice, start) = (tail, cut);
        }
        list.push(slice);
        BufferMut::of_list(list, Division::Anywhere)
    }
}

fn bytes<T: Sample>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

/// [`AFFINE`] over bytes.
fn combine_bytes<T: Sample>(left: &[u8], right: &[u8], out: &mut [u8]) {
    let (op, size) = (ReduceOp::User(AFFINE), size_of::<T>());
    let element = |bytes: &[u8]| bytemuck::pod_read_unaligned::<T>(bytes);
    let pairs = left.chunks_exact(size).zip(right.chunks_exact(size));
    for ((left, right), out) in pairs.zip(out.chunks_exact_mut(size)) {
        out.copy_from_slice(bytemuck::bytes_of(&T::combine(op, element(left), element(right))));
    }
}

/// Compares element by element and names the first that differs.
///
/// # Panics
/// When they differ.
pub fn assert_same<T: Sample>(got: &[T], expected: &[T], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}: length");
    if bytes(got) == bytes(expected) || normalised(got) == normalised(expected) {
        return;
    }
    let differs = |(a, b): (&T, &T)| normalised(&[*a]) != normalised(&[*b]);
    let first = got.iter().zip(expected).position(differs).unwrap_or(0);
    let wrong = got.iter().zip(expected).filter(|&pair| differs(pair)).count();
    panic!(
        "{what}: {wrong} of {} elements are wrong, the first is {first}: {:?} instead of {:?}",
        got.len(),
        got[first],
        expected[first]
    );
}

#[cfg(test)]
#[path = "case_tests.rs"]
mod tests;
