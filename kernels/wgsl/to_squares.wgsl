// Numbers are written to `values`, and the sums of squares of blocks of 1,024 of them to `result`, each with the shift
// that the host multiplies it by.

const SQUARES_BLOCK: u32 = 1024u;

// `format::squares_shift`.
fn squares_shift(magnitude: u32) -> i32 {
    let exponent = i32(magnitude >> 23u) - 127;
    let is_usual = exponent == -127 || (exponent >= -40 && exponent < 50);
    return select(min(exponent, 126), 0, is_usual);
}

fn run(group: u32, groups: u32, lane: u32) {
    for (var block = group; block < divide_up(call.elements, SQUARES_BLOCK); block += groups) {
        let first = block * SQUARES_BLOCK;
        let end = min(first + SQUARES_BLOCK, call.elements);
        var magnitude = 0u;
        for (var index = first + lane; index < end; index += LANES) {
            let bits = bitcast<u32>(encoded(index));
            values[call.values_at + index] = bits;
            magnitude = max(magnitude, bits & MAGNITUDE);
        }
        let shift = squares_shift(largest(lane, magnitude));
        let factor = power_of_two(-shift);
        var sum = 0.0;
        for (var index = first + lane; index < end; index += LANES) {
            let value = flush(bitcast<f32>(values[call.values_at + index]) * factor);
            sum += flush(value * value);
        }
        sum = tree(lane, sum);
        if lane == 0u {
            let at = 2u * (call.first_block + block);
            atomicStore(&result[at], bitcast<u32>(sum));
            atomicStore(&result[at + 1u], bitcast<u32>(shift));
        }
    }
}
