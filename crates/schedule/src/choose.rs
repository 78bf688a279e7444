//! Chooses the algorithm of a call from tables of break points, which are computed once per group, on first use.

use std::sync::{Arc, OnceLock};

use crate::cost_model::bends;
use crate::{Algorithm, Collective, Cost, CostModel, Registry, Shape};

/// Break points are searched up to this size; above, the last algorithm is used.
const BYTES_MAX: u64 = 1 << 40;

/// A call's demands on its algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Admit {
    /// Whether reductions must use the canonical tree ([`crate::canonical_tree`]).
    pub canonical_only: bool,
    /// Whether the operator commutes, so that ranks may be summed in any order.
    pub commutative_operator: bool,
    /// Whether extents differ in length by more than one element.
    pub uneven: bool,
    /// Whether input and output are the same bytes.
    pub in_place: bool,
}

impl Admit {
    /// A call that any algorithm can serve: even counts, out of place, an operator that commutes, any tree.
    pub const ANY: Self =
        Self { canonical_only: false, commutative_operator: true, uneven: false, in_place: false };

    /// Why `algorithm` cannot serve such a call; `None` if it can. The algorithm must support the group. `canonical`
    /// says whether it sums in the group's canonical tree.
    ///
    /// Tree and operator matter to reductions only.
    ///
    /// ```
    /// use unisono_schedule::{Admit, find_by_name};
    /// let canonical = Admit { canonical_only: true, ..Admit::ANY };
    /// let ring = find_by_name("all_reduce/ring").unwrap();
    /// assert_eq!(canonical.refusal(ring, false), Some("its summation tree is not the canonical one"));
    /// ```
    pub fn refusal(&self, algorithm: &Algorithm, canonical: bool) -> Option<&'static str> {
        let (requires, reduces) = (&algorithm.requires, algorithm.collective.reduces());
        if reduces && self.canonical_only && !canonical {
            Some("its summation tree is not the canonical one")
        } else if reduces && requires.commutative && !self.commutative_operator {
            Some("it needs an operator that commutes")
        } else if requires.even_counts && self.uneven {
            Some("it needs equal counts on all ranks")
        } else if requires.out_of_place && self.in_place {
            Some("it needs an output apart from the input")
        } else {
            None
        }
    }

    const fn index(&self) -> usize {
        self.canonical_only as usize
            | (self.commutative_operator as usize) << 1
            | (self.uneven as usize) << 2
            | (self.in_place as usize) << 3
    }

    const COMBINATIONS: usize = 16;
}

impl Default for Admit {
    fn default() -> Self {
        Self::ANY
    }
}

/// The size in bytes from which an algorithm is the cheapest.
pub type BreakPoint = (u64, Arc<Algorithm>);

/// The cheapest algorithm of each collective by size, for one group.
///
/// The choice is a pure function of shape and cost model, in integer arithmetic, so ranks with the same shape and model
/// choose alike. The first choice of a kind computes some hundred predictions; later ones search a short list.
///
/// ```
/// use unisono_schedule::{Admit, Chooser, Collective, CostModel, Registry, Shape};
/// let chooser = Chooser::new(&Registry::built_in(), &Shape::new(8), &CostModel::LOOPBACK);
/// let small = chooser.choose(Collective::AllReduce, 64, &Admit::ANY).unwrap();
/// assert_eq!(small.name, "recursive_doubling");
/// let canonical = Admit { canonical_only: true, ..Admit::ANY };
/// assert!(chooser.choose(Collective::AllReduce, 1 << 28, &canonical).unwrap().canonical);
/// ```
#[derive(Clone, Debug)]
pub struct Chooser {
    registry: Registry,
    shape: Shape,
    model: CostModel,
    /// By collective and [`Admit::index`]. Tables are made on first use, since most groups use few.
    tables: Vec<OnceLock<Vec<BreakPoint>>>,
}

/// A candidate and the figures that predict its time.
struct Candidate {
    algorithm: Arc<Algorithm>,
    cost: Cost,
}

impl Chooser {
    /// The chooser of a group among these algorithms. Making it is cheap: algorithms from outside are examined when a
    /// table is made.
    pub fn new(registry: &Registry, shape: &Shape, model: &CostModel) -> Self {
        let tables = vec![OnceLock::new(); Collective::ALL.len() * Admit::COMBINATIONS];
        Self { registry: registry.clone(), shape: *shape, model: *model, tables }
    }

    /// The cheapest admitted algorithm for a call; `None` if none is admitted.
    ///
    /// `bytes` is the full vector: the larger of one rank's input and output. It must be equal on all ranks.
    pub fn choose(&self, collective: Collective, bytes: u64, admit: &Admit) -> Option<&Arc<Algorithm>> {
        let table = self.table(collective, admit);
        let above = table.partition_point(|(from, _)| *from <= bytes);
        above.checked_sub(1).map(|index| &table[index].1)
    }

    /// The break points, ascending from 0 bytes. Empty if no algorithm is admitted.
    pub fn table(&self, collective: Collective, admit: &Admit) -> &[BreakPoint] {
        let table = &self.tables[collective as usize * Admit::COMBINATIONS + admit.index()];
        table.get_or_init(|| self.make_table(collective, admit))
    }

    fn make_table(&self, collective: Collective, admit: &Admit) -> Vec<BreakPoint> {
        let admitted = self.registry.admitted(collective, &self.shape, admit).into_iter();
        let candidates: Vec<Candidate> =
            admitted.map(|(algorithm, cost)| Candidate { algorithm, cost }).collect();
        table(&candidates, &self.shape, &self.model)
    }
}

/// The index of the cheapest candidate; the first of equals.
fn cheapest(candidates: &[Candidate], shape: &Shape, bytes: u64, model: &CostModel) -> usize {
    let predicted =
        candidates.iter().map(|one| model.predicted_ns_of(&one.algorithm, &one.cost, shape, bytes));
    predicted.enumerate().min_by_key(|(index, ns)| (*ns, *index)).map_or(0, |(index, _)| index)
}

fn table(candidates: &[Candidate], shape: &Shape, model: &CostModel) -> Vec<BreakPoint> {
    if candidates.is_empty() {
        return Vec::new();
    }
    let winner = |bytes: u64| cheapest(candidates, shape, bytes, model);
    let (mut from, mut best) = (0, winner(0));
    let mut made = vec![(0, candidates[best].algorithm.clone())];
    let powers = std::iter::successors(Some(1_u64), |size| size.checked_mul(2));
    let bends = candidates.iter().flat_map(|one| bends(&one.algorithm, &one.cost, shape, model));
    let mut sizes: Vec<u64> = powers.chain(bends.flat_map(|bend| [bend, bend.saturating_add(1)])).collect();
    sizes.retain(|size| *size <= BYTES_MAX);
    sizes.sort_unstable();
    for size in sizes {
        while winner(size) != best {
            // Predicted times are straight between two bends, so an overtaken algorithm does not become the cheapest
            // again.
            let (mut same, mut other) = (from, size);
            while same + 1 < other {
                let middle = same.midpoint(other);
                if winner(middle) == best { same = middle } else { other = middle }
            }
            best = winner(other);
            from = other;
            made.push((other, candidates[best].algorithm.clone()));
        }
        from = size;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms;

    fn chooser(shape: &Shape, model: &CostModel) -> Chooser {
        Chooser::new(&Registry::built_in(), shape, model)
    }

    fn admit(index: usize) -> Admit {
        Admit {
            canonical_only: index & 1 != 0,
            commutative_operator: index & 2 != 0,
            uneven: index & 4 != 0,
            in_place: index & 8 != 0,
        }
    }

    fn groups() -> Vec<(Shape, CostModel)> {
        let shapes = [1, 2, 3, 4, 5, 7, 8, 12, 16, 33, 64, 128];
        let cores = [1, 2, 128];
        let both = shapes.iter().flat_map(|ranks| cores.iter().map(move |cores| (*ranks, *cores)));
        both.map(|(ranks, cores)| {
            let model = CostModel::LOOPBACK.with_ranks_on_cores(u64::from(ranks), cores);
            (Shape::new(ranks), model)
        })
        .collect()
    }

    #[test]
    fn the_choice_is_the_cheapest_at_every_size() {
        for (shape, model) in groups() {
            let chooser = chooser(&shape, &model);
            for collective in Collective::ALL {
                for bytes in (0..36).flat_map(|bit| [1_u64 << bit, (1 << bit) + (1 << bit) / 3, 10 << bit]) {
                    let chosen = chooser.choose(collective, bytes, &Admit::ANY).unwrap();
                    let same = algorithms().iter().filter(|one| one.collective == collective);
                    let least =
                        same.map(|one| model.predicted_ns(one, &shape, bytes).unwrap()).min().unwrap();
                    // Predictions are rounded to nanoseconds, so near a break point a neighbour may be 1 ns less.
                    let chosen = model.predicted_ns(chosen, &shape, bytes).unwrap();
                    assert!(chosen <= least + 1, "{collective} of {bytes} bytes, {shape:?}");
                }
            }
        }
    }

    #[test]
    fn every_call_has_an_algorithm_that_it_admits() {
        let chooser = chooser(&Shape::new(6), &CostModel::LOOPBACK);
        for index in 0..Admit::COMBINATIONS {
            let admit = admit(index);
            assert_eq!(admit.index(), index);
            for collective in Collective::ALL {
                for bytes in [0, 1, 4 << 10, 1 << 20, 1 << 30, u64::MAX] {
                    let chosen = chooser.choose(collective, bytes, &admit).unwrap();
                    assert!(
                        chosen.collective == collective && admit.refusal(chosen, chosen.canonical).is_none(),
                        "{collective} {admit:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn large_vectors_move_few_bytes_and_crowded_cores_few_messages() {
        let shape = Shape::new(8);
        let roomy = chooser(&shape, &CostModel::LOOPBACK);
        let large = roomy.choose(Collective::AllReduce, 1 << 28, &Admit::ANY).unwrap();
        assert!(large.cost_of(&shape).unwrap().sent == crate::Fraction::new(7, 4), "{}", large.name);
        let crowded = CostModel::LOOPBACK.with_ranks_on_cores(8, 1);
        let chooser = chooser(&shape, &crowded);
        let chosen = chooser.choose(Collective::AllReduce, 8, &Admit::ANY).unwrap();
        let fewest = algorithms().iter().filter(|one| one.collective == Collective::AllReduce);
        let fewest = fewest.map(|one| one.cost_of(&shape).unwrap().all.messages).min();
        assert_eq!(Some(chosen.cost_of(&shape).unwrap().all.messages), fewest, "{}", chosen.name);
    }

    /// The cost of the algorithm that the chooser takes.
    fn chosen(chooser: &Chooser, collective: Collective, shape: &Shape, bytes: u64) -> Cost {
        chooser.choose(collective, bytes, &Admit::ANY).unwrap().cost_of(shape).unwrap()
    }

    #[test]
    fn short_vectors_take_few_rounds_and_long_ones_few_bytes() {
        for ranks in [3, 6, 8, 12] {
            let (shape, rounds) = (Shape::new(ranks), u64::from(ranks.next_power_of_two().ilog2()));
            let chooser = chooser(&shape, &CostModel::LOOPBACK);
            let cost = |collective, bytes| chosen(&chooser, collective, &shape, bytes);
            assert!(cost(Collective::AllReduce, 8).rounds <= rounds, "{ranks} ranks");
            assert!(cost(Collective::Broadcast, 8).rounds <= rounds, "{ranks} ranks");
            let least = crate::Fraction::new(2 * (u64::from(ranks) - 1), u64::from(ranks));
            assert_eq!(cost(Collective::AllReduce, 1 << 30).sent, least);
            assert_eq!(cost(Collective::Broadcast, 1 << 30).sent, crate::Fraction::ONE);
        }
    }

    /// As measured with 8 ranks on 2 cores: the fewest messages win up to some 100 KiB, the fewest bytes from some MiB
    /// on.
    #[test]
    fn ranks_that_share_cores_send_few_messages() {
        let (shape, crowded) = (Shape::new(8).with_leaders(2), CostModel::LOOPBACK.with_ranks_on_cores(8, 2));
        let chooser = chooser(&shape, &crowded);
        let cost = |bytes| chosen(&chooser, Collective::AllReduce, &shape, bytes);
        assert_eq!([64, 16 << 10].map(|bytes| cost(bytes).all.messages), [2 * (8 - 1); 2]);
        assert_eq!(cost(16 << 20).sent, crate::Fraction::new(2 * 7, 8));
    }

    /// Between hosts of two ranks, as measured by `cargo xtask two-hosts`: the ranks of a host exchange first, and then
    /// fewer bytes leave it than in any algorithm that does not know of hosts.
    #[test]
    fn ranks_of_a_host_meet_before_their_bytes_leave_it() {
        for (hosts, from_bytes) in [(&[0, 0, 1, 1][..], 64 << 10), (&[0, 0, 0, 0, 1, 1, 1, 1], 256 << 10)] {
            let model = CostModel::LOOPBACK;
            let chooser = chooser(&model.shape(hosts), &model);
            let name = |collective, bytes| chooser.choose(collective, bytes, &Admit::ANY).unwrap().name;
            for bytes in [from_bytes, 1 << 20, 64 << 20] {
                assert_eq!(name(Collective::AllReduce, bytes), "halving_doubling", "{bytes}");
                assert_eq!(name(Collective::ReduceScatter, bytes), "halving", "{bytes}");
                assert_eq!(name(Collective::AllGather, bytes), "doubling", "{bytes}");
            }
            assert_eq!(name(Collective::AllReduce, 64), "recursive_doubling");
        }
    }
}
