//! In the largest group, the sizes, the price and one rank's schedule of every algorithm are computed without overflow.

use unisono_schedule::{Algorithm, Collective, CostModel, Layout, Shape, algorithms, find_by_name, verify};

/// The most ranks that `algorithm` supports.
fn widest(algorithm: &Algorithm) -> Shape {
    let most = match algorithm.requires.power_of_two {
        true => 1 << Shape::RANKS_MAX.ilog2(),
        false => Shape::RANKS_MAX,
    };
    let shape = Shape::new(most);
    assert!(algorithm.supports(&shape) && !algorithm.supports(&Shape::new(Shape::RANKS_MAX + 1)));
    shape
}

#[test]
fn the_extents_of_all_pairs_of_ranks_can_be_numbered() {
    let shape = Shape::new(Shape::RANKS_MAX);
    let ranks = u64::from(Shape::RANKS_MAX);
    let chunks = Layout::unit(Collective::AllToAll, &shape);
    assert_eq!(u64::from(chunks), ranks * ranks);
    // The last rank's part for itself is the last extent.
    let layout = Layout::new(Collective::AllToAll, &shape, shape.ranks - 1, chunks);
    assert_eq!(layout.input_extent(shape.ranks - 1), Some(chunks - 1));
    assert_eq!(layout.output(chunks - 1), Some(shape.ranks - 1));
}

#[test]
fn every_algorithm_has_a_size_and_a_predicted_time_for_the_largest_group() {
    for algorithm in algorithms() {
        let shape = widest(algorithm);
        for shape in [shape, shape.with_root(shape.ranks - 1), shape.with_leaders(shape.leaders_max())] {
            let name = algorithm.qualified_name();
            assert!(algorithm.chunks_of(&shape) > 0, "{name}");
            assert!(
                algorithm.scratch_chunks_of(&shape).unwrap() <= shape.ranks * shape.ranks.ilog2(),
                "{name}"
            );
            let nanoseconds = CostModel::default().predicted_ns(algorithm, &shape, u64::MAX).unwrap();
            assert!(nanoseconds > 0, "{name}");
        }
    }
}

#[test]
fn every_algorithm_builds_a_rank_of_the_largest_group() {
    for algorithm in algorithms() {
        let shape = widest(algorithm);
        let schedule = algorithm.schedule(&shape, shape.ranks - 1);
        assert!(!schedule.steps.is_empty(), "{}", algorithm.qualified_name());
    }
}

/// Every rank pays for a proof at first use. Only sets of ranks, of one bit each, grow with the square of the number.
#[test]
fn a_proof_for_thousands_of_ranks_takes_little_memory() {
    const RANKS: u32 = 4096;
    for name in ["broadcast/binomial", "gather/binomial", "scatter/binomial"] {
        let (algorithm, shape) = (find_by_name(name).unwrap(), Shape::new(RANKS));
        let mut steps = 0;
        let used = allocation_counter::measure(|| steps = verify(algorithm, &shape).unwrap().steps);
        let sets = u64::from(RANKS) * u64::from(RANKS) / 8;
        assert!(used.bytes_max < 2 * sets + 512 * (steps + u64::from(RANKS)), "{name}: {used:?}");
    }
}
