//! Symbolic values: trees of sums of the ranks' contributions, each tree stored once.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use crate::ReductionTree;

/// The value of memory that was never written.
pub(super) const UNWRITTEN: u32 = 0;

/// All trees so far. Equal numbers are equal trees, with the same order of operands.
pub(super) struct TreeTable {
    ranks: u32,
    words: usize,
    /// The operands of each tree; leaves and [`UNWRITTEN`] have none.
    operands: Vec<(u32, u32)>,
    /// The set of ranks in each tree, `words` words each.
    sets: Vec<u64>,
    /// The number of ranks in each tree.
    sizes: Vec<u32>,
    /// The first and last rank of each tree whose leaves are consecutive ranks in order.
    spans: Vec<Option<(u32, u32)>>,
    known: HashMap<(u32, u32), u32, BuildHasherDefault<PairHasher>>,
}

impl TreeTable {
    /// A table of the leaves: tree r + 1 is the contribution of rank r.
    pub(super) fn new(ranks: u32) -> Self {
        let words = (ranks as usize).div_ceil(64);
        let mut made = Self {
            ranks,
            words,
            operands: vec![(UNWRITTEN, UNWRITTEN); ranks as usize + 1],
            sets: vec![0; words * (ranks as usize + 1)],
            sizes: vec![1; ranks as usize + 1],
            spans: std::iter::once(None).chain((0..ranks).map(|rank| Some((rank, rank)))).collect(),
            known: HashMap::default(),
        };
        made.sizes[0] = 0;
        for rank in 0..ranks as usize {
            made.sets[(rank + 1) * words + rank / 64] = 1 << (rank % 64);
        }
        made
    }

    pub(super) fn leaf(rank: u32) -> u32 {
        rank + 1
    }

    fn set(&self, tree: u32) -> &[u64] {
        &self.sets[tree as usize * self.words..(tree as usize + 1) * self.words]
    }

    /// The tree `left + right`, or the ranks that both trees contain.
    pub(super) fn sum(&mut self, left: u32, right: u32) -> Result<u32, Vec<u32>> {
        if let Some(tree) = self.known.get(&(left, right)) {
            return Ok(*tree);
        }
        let double = self.ranks_where(|word| self.set(left)[word] & self.set(right)[word]);
        if !double.is_empty() {
            return Err(double);
        }
        let tree = self.operands.len() as u32;
        for word in 0..self.words {
            let both = self.set(left)[word] | self.set(right)[word];
            self.sets.push(both);
        }
        self.operands.push((left, right));
        self.sizes.push(self.sizes[left as usize] + self.sizes[right as usize]);
        let span = match (self.spans[left as usize], self.spans[right as usize]) {
            (Some((first, end)), Some((start, last))) if end + 1 == start => Some((first, last)),
            _ => None,
        };
        self.spans.push(span);
        self.known.insert((left, right), tree);
        Ok(tree)
    }

    /// Whether the tree contains every rank's contribution.
    pub(super) fn is_full(&self, tree: u32) -> bool {
        self.sizes[tree as usize] == self.ranks
    }

    /// Whether the leaves, from left to right, are consecutive ranks in order.
    pub(super) fn keeps_order(&self, tree: u32) -> bool {
        self.spans[tree as usize].is_some()
    }

    fn ranks_where(&self, bits: impl Fn(usize) -> u64) -> Vec<u32> {
        (0..self.ranks).filter(|rank| bits(*rank as usize / 64) >> (rank % 64) & 1 == 1).collect()
    }

    /// Whether the tree contains the contributions of these ranks, and no other.
    pub(super) fn is_of(&self, tree: u32, ranks: &Range<u32>) -> bool {
        let is_whole = ranks.len() == self.ranks as usize;
        let holds_all = || ranks.clone().all(|rank| self.holds(tree, rank));
        self.sizes[tree as usize] as usize == ranks.len() && (is_whole || holds_all())
    }

    fn holds(&self, tree: u32, rank: u32) -> bool {
        self.set(tree)[rank as usize / 64] >> (rank % 64) & 1 == 1
    }

    /// Compares `tree` with the ranks that it should contain. Returns the missing ranks and the surplus ranks.
    pub(super) fn compare(&self, tree: u32, wanted: &Range<u32>) -> (Vec<u32>, Vec<u32>) {
        let missing = wanted.clone().filter(|rank| !self.holds(tree, *rank)).collect();
        let is_surplus = |rank: &u32| !wanted.contains(rank) && self.holds(tree, *rank);
        (missing, (0..self.ranks).filter(is_surplus).collect())
    }

    /// The value of each operand of `tree`: of the ranks, then of the sums.
    pub(super) fn values(&mut self, tree: &ReductionTree) -> Vec<u32> {
        let mut values: Vec<u32> = (0..tree.ranks).map(Self::leaf).collect();
        for (left, right) in &tree.sums {
            let sum = self.sum(values[*left as usize], values[*right as usize]);
            #[expect(clippy::expect_used, reason = "a tested canonical tree contains every rank once")]
            values.push(sum.expect("the canonical tree adds nothing twice"));
        }
        values
    }

    /// The tree as a sum with parentheses. Inner parts of a large tree are left out.
    pub(super) fn text(&self, tree: u32) -> String {
        self.text_to(tree, 6)
    }

    fn text_to(&self, tree: u32, depth: u32) -> String {
        match self.operands[tree as usize] {
            (UNWRITTEN, _) if tree == UNWRITTEN => "nothing".to_owned(),
            (UNWRITTEN, _) => (tree - 1).to_string(),
            _ if depth == 0 => format!("[{} ranks]", self.sizes[tree as usize]),
            (left, right) => {
                format!("({} + {})", self.text_to(left, depth - 1), self.text_to(right, depth - 1))
            }
        }
    }
}

/// Mixes a pair of tree numbers. The numbers come from this file, so no attacker can choose colliding ones.
#[derive(Default)]
struct PairHasher(u64);

impl Hasher for PairHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }

    fn write_u32(&mut self, number: u32) {
        self.0 = (self.0.rotate_left(29) ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}
