// Integer codes: their places in words, their scales, and how they are rounded.

// Blocks whose scale would be below this are zero: 2^-120.
const SCALE_MIN: u32 = 0x03800000u;

// No bits of a scale.
const NO_SCALE: u32 = 0xffffffffu;

// Where the code of element `index` begins in its word.
fn place(index: u32) -> u32 {
    return (index & ((1u << call.codes_shift) - 1u)) * call.width;
}

// The code of `index`, of `call.width` bits, in the words that begin at word `at` of `input`.
fn code_at(at: u32, index: u32) -> i32 {
    let word = input[at + (index >> call.codes_shift)];
    let above = 32u - call.width;
    let raised = word << (above - place(index));
    return select(i32(raised >> above), bitcast<i32>(raised) >> above, call.is_symmetric != 0u);
}

// The bits of the scale of a block of this range, or NO_SCALE.
fn scale_of(range: f32) -> u32 {
    if !is_finite(bitcast<u32>(range)) {
        return NO_SCALE;
    }
    let raised = (bitcast<u32>(range * call.inverse_steps) + 0x104u) & 0xffffff00u;
    let scale = select(raised, 0u, raised < SCALE_MIN);
    return select(NO_SCALE, scale, scale < call.scale_end);
}

// A little less than 1 / `scale`, by division of integers: `format::int_reciprocal`. Zero for zero.
fn reciprocal(scale: u32) -> f32 {
    if scale == 0u {
        return 0.0;
    }
    let exponent = i32(scale >> 23u) - 127;
    let significand = ((scale & 0x007fffffu) | 0x00800000u) >> 8u;
    let high = 0x80000000u / significand;
    let rest = 0x80000000u % significand;
    let quotient = f32((high << 8u) + (rest << 8u) / significand);
    return quotient * power_of_two(-24) * power_of_two(-exponent);
}

fn mix(word: u32) -> u32 {
    var mixed = (word ^ (word >> 16u)) * 0x21f0aaadu;
    mixed = (mixed ^ (mixed >> 15u)) * 0x735a2d97u;
    return mixed ^ (mixed >> 15u);
}

// 16 random bits for an element: `format::Counter::bits`.
fn random_bits(index: u32) -> u32 {
    let at = call.first_odd + index;
    let word = mix(mix((call.first_pair + at / 2u) ^ call.key_low) + call.key_high);
    return select(word & 0xffffu, word >> 16u, (at & 1u) == 1u);
}

// The code of what is `distance` from the value of code 0.
fn code_of(distance: f32, reciprocal: f32, index: u32) -> i32 {
    let steps = distance * reciprocal;
    if call.is_stochastic == 0u {
        return i32(round(steps));
    }
    return (i32(round(steps * 65536.0)) + i32(random_bits(index))) >> 16u;
}

// The bits of the code of element `index`, where they belong in its word.
fn placed(code: i32, index: u32) -> u32 {
    let mask = 0xffffffffu >> (32u - call.width);
    return (bitcast<u32>(code) & mask) << place(index);
}
