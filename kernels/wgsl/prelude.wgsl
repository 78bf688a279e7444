// What all kernels share. A kernel is this text, one that says where numbers come from (`number`), one that says what
// becomes of them (`run`), and an entry point with the kernel's name.
//
// kernels/src/reference.rs defines the bytes. Numbers are kept as bits and looked at as bits: a device may flush
// subnormal numbers or not, and may take it that there is no NaN. Only + - * of f32 are used, and no product that a
// device could fuse with a sum and change. Nothing here is outside of the limits that every WebGPU device has.

// Lanes of a workgroup: element i of a block belongs to lane i % 64.
const LANES: u32 = 64u;

// The bits of an f32 that hold its exponent; all are set in a NaN and in an infinity.
const EXPONENT: u32 = 0x7f800000u;
const MAGNITUDE: u32 = 0x7fffffffu;

// The first words of a part's scales and codes in `input`.
struct Part {
    scales: u32,
    codes: u32,
}

// One dispatch. Places are in words of a binding.
struct Call {
    elements: u32,
    // Elements with a common scale.
    block: u32,
    // How many parts are summed.
    count: u32,
    // Whether `old` is added, and whether `values` gets what is left out.
    has_old: u32,
    has_new: u32,
    old_at: u32,
    magnitudes_at: u32,
    values_at: u32,
    scales_at: u32,
    codes_at: u32,
    // The number of this dispatch's first block in the whole call.
    first_block: u32,
    // Bits of a code, the binary logarithm of how many are in a word, whether they have a sign, and the numbers of
    // `IntFormat::scale`.
    width: u32,
    codes_shift: u32,
    is_symmetric: u32,
    inverse_steps: f32,
    scale_end: u32,
    // `Rounding::Stochastic`: the counter's key, and its first element divided by two, with the rest.
    is_stochastic: u32,
    key_low: u32,
    key_high: u32,
    first_pair: u32,
    first_odd: u32,
    // What every number is multiplied by, or the scale of all elements.
    weight: f32,
    // What makes a mean of the sum of a whole block, and of the last one.
    mean_factor: f32,
    last_mean_factor: f32,
    parts: array<Part>,
}

@group(0) @binding(0) var<storage, read> call: Call;
// Vectors of f32 or encoded parts.
@group(0) @binding(1) var<storage, read> input: array<u32>;
// The residual before the call.
@group(0) @binding(2) var<storage, read> old: array<u32>;
// A magnitude for each block that ranks share.
@group(0) @binding(3) var<storage, read> magnitudes: array<u32>;
// The residual after the call, or the vector that is written.
@group(0) @binding(4) var<storage, read_write> values: array<u32>;
// Numbers of blocks, and codes.
@group(0) @binding(5) var<storage, read_write> scales: array<u32>;
@group(0) @binding(6) var<storage, read_write> codes: array<u32>;
// What the host reads: the first block that is not finite, or sums of squares with their shifts.
@group(0) @binding(7) var<storage, read_write> result: array<atomic<u32>>;

// Zeros and subnormal numbers become +0.0.
fn flush(value: f32) -> f32 {
    return select(value, 0.0, (bitcast<u32>(value) & EXPONENT) == 0u);
}

// The number of these bits, flushed.
fn flushed(bits: u32) -> f32 {
    return bitcast<f32>(select(bits, 0u, (bits & EXPONENT) == 0u));
}

fn is_plus(value: f32) -> bool {
    let bits = bitcast<u32>(value);
    return (bits >> 31u) == 0u || (bits & EXPONENT) == 0u;
}

fn is_finite(bits: u32) -> bool {
    return (bits & EXPONENT) != EXPONENT;
}

// For one that is a normal number.
fn power_of_two(exponent: i32) -> f32 {
    return bitcast<f32>(u32(exponent + 127) << 23u);
}

fn divide_up(value: u32, divisor: u32) -> u32 {
    return value / divisor + select(0u, 1u, value % divisor > 0u);
}
