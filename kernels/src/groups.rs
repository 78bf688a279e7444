//! Groups of 64 elements of slices, of which the last one may be short.

use crate::Stores;
use crate::format::LANES;
use crate::simd::{Group, Simd, unrolled};

/// All of a group's vectors.
#[inline(always)]
pub(crate) fn lanes<S: Simd>(simd: S, group: &Group) -> S::Lanes {
    let mut lanes = simd.zeros();
    unrolled!(for number in S {
        lanes[number] = simd.load(group, number);
    });
    lanes
}

/// The group of `slice` that begins at `at`, with zeros behind the last element.
#[inline(always)]
pub(crate) fn load<S: Simd>(simd: S, slice: &[f32], at: usize) -> S::Lanes {
    match slice[at..].first_chunk() {
        Some(group) => lanes(simd, group),
        None => lanes(simd, &padded(&slice[at..])),
    }
}

/// The distance from the groups that are loaded to the memory that is asked for: a block of signs.
const AHEAD_ELEMENTS: usize = 1024;

/// Whether memory is asked for before it is loaded. That pays for data from memory, and costs a quarter where an
/// encoder's three buffers come from the second-level cache (measured on an Intel Xeon, family 6 model 207).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ahead {
    Asked,
    NotAsked,
}

impl Ahead {
    /// For an encoder.
    pub(crate) fn of(has_residual: bool, stores: Stores) -> Ahead {
        match stores {
            Stores::Cached if has_residual => Ahead::NotAsked,
            Stores::Cached | Stores::Streaming => Ahead::Asked,
        }
    }
}

/// [`load`] from memory that is read once, from its beginning to its end.
#[inline(always)]
pub(crate) fn load_ahead<S: Simd>(simd: S, slice: &[f32], at: usize, ahead: Ahead) -> S::Lanes {
    match (slice[at..].first_chunk(), ahead) {
        (Some(group), Ahead::Asked) => simd.prefetch(group, AHEAD_ELEMENTS),
        (_, Ahead::NotAsked) | (None, _) => {}
    }
    load(simd, slice, at)
}

/// `short`, and zeros behind it.
#[cold]
#[inline(never)]
pub(crate) fn padded<T: Copy + Default, const LENGTH: usize>(short: &[T]) -> [T; LENGTH] {
    let mut group = [T::default(); LENGTH];
    group[..short.len()].copy_from_slice(short);
    group
}

/// Writes the elements of a group that belong to `slice` from `at` on.
#[inline(always)]
pub(crate) fn store<S: Simd>(simd: S, slice: &mut [f32], at: usize, lanes: S::Lanes, stores: Stores) {
    match (slice[at..].first_chunk_mut(), stores) {
        (Some(group), Stores::Cached) => store_group(simd, group, lanes),
        (Some(group), Stores::Streaming) => {
            unrolled!(for number in S {
                simd.stream(group, number, lanes[number]);
            });
        }
        (None, _) => {
            let mut group = [0.0; LANES];
            store_group(simd, &mut group, lanes);
            cut(&group, &mut slice[at..]);
        }
    }
}

#[inline(always)]
fn store_group<S: Simd>(simd: S, group: &mut Group, lanes: S::Lanes) {
    unrolled!(for number in S {
        simd.store(group, number, lanes[number]);
    });
}

/// The beginning of `group`, as long as `short`.
#[cold]
#[inline(never)]
pub(crate) fn cut<T: Copy>(group: &[T], short: &mut [T]) {
    let length = short.len();
    short.copy_from_slice(&group[..length]);
}

/// The lanes of the first `count` elements, zeros elsewhere.
#[inline(always)]
pub(crate) fn first<S: Simd>(simd: S, all: S::Lanes, count: usize) -> S::Lanes {
    if count >= LANES {
        return all;
    }
    let mut group = [0.0; LANES];
    store_group(simd, &mut group, all);
    lanes(simd, &padded(&group[..count]))
}

/// Each lane times `weight`.
#[inline(always)]
pub(crate) fn weighted<S: Simd>(simd: S, mut lanes: S::Lanes, weight: f32) -> S::Lanes {
    let weight = simd.splat(weight);
    unrolled!(for number in S {
        lanes[number] = simd.flush(simd.mul(lanes[number], weight));
    });
    lanes
}

/// The bits of the group that begins at element `at`; clear behind the last word.
#[inline(always)]
pub(crate) fn word(bits: &[u32], at: usize) -> u64 {
    match bits[at / 32..] {
        [low, high, ..] => u64::from(low) | u64::from(high) << 32,
        [low] => u64::from(low),
        [] => 0,
    }
}

/// Writes the bits of the first `count` elements of the group that begins at element `at`.
#[inline(always)]
pub(crate) fn put_word(bits: &mut [u32], at: usize, word: u64, count: usize) {
    let word = if count < LANES { word & ((1 << count) - 1) } else { word };
    match &mut bits[at / 32..] {
        [low, high, ..] => (*low, *high) = (word as u32, (word >> 32) as u32),
        [low] => *low = word as u32,
        [] => {}
    }
}

/// Adds the second half of 2 x `HALF` vectors to the first, if there are so many.
#[inline(always)]
fn halved<S: Simd, const HALF: usize>(simd: S, mut lanes: S::Lanes) -> S::Lanes {
    unrolled!(for number in S {
        if HALF < S::COUNT && number < HALF {
            lanes[number] = simd.add(lanes[number], lanes[number + HALF]);
        }
    });
    lanes
}

/// The sum of all lanes in the order of [`crate::format::tree`].
#[inline(always)]
pub(crate) fn tree<S: Simd>(simd: S, mut lanes: S::Lanes) -> f32 {
    lanes = halved::<S, 8>(simd, lanes);
    lanes = halved::<S, 4>(simd, lanes);
    lanes = halved::<S, 2>(simd, lanes);
    lanes = halved::<S, 1>(simd, lanes);
    simd.sum(lanes[0])
}

/// The largest magnitude of all lanes, which are not negative; NaN is larger than all.
#[inline(always)]
pub(crate) fn largest_lane<S: Simd>(simd: S, mut lanes: S::Lanes) -> f32 {
    unrolled!(for number in S {
        lanes[0] = simd.max_magnitude(lanes[0], lanes[number]);
    });
    simd.largest(lanes[0])
}

/// One of the lanes of a vector, by choices between two.
#[inline(always)]
pub(crate) fn fold<S: Simd>(simd: S, floats: S::Floats, choose: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [0.0; LANES];
    simd.store(&mut lanes, 0, floats);
    let mut width = LANES / S::COUNT / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = choose(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}
