// Integer codes, with a scale for each block. A workgroup encodes one block at a time.

// Unsigned numbers in the order of the f32 whose bits are given: no zero but +0.0 comes.
fn ordered(bits: u32) -> u32 {
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

fn from_ordered(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & MAGNITUDE, (key >> 31u) == 1u));
}

// The bits of the scale of a block, or NO_SCALE, and its smallest element. For all
// lanes at once.
fn measure(lane: u32, first: u32, end: u32, smallest: ptr<function, f32>) -> u32 {
    var magnitude = 0u;
    var low = 0u;
    var high = 0u;
    for (var index = first + lane; index < end; index += LANES) {
        let bits = bitcast<u32>(encoded(index));
        magnitude = max(magnitude, bits & MAGNITUDE);
        if call.is_symmetric == 0u {
            low = max(low, ~ordered(bits));
            high = max(high, ordered(bits));
        }
    }
    magnitude = largest(lane, magnitude);
    if call.is_symmetric != 0u {
        return scale_of(bitcast<f32>(magnitude));
    }
    let least = from_ordered(~largest(lane, low));
    let most = from_ordered(largest(lane, high));
    *smallest = least;
    return select(NO_SCALE, scale_of(flush(most - least)), is_finite(magnitude));
}

fn run(group: u32, groups: u32, lane: u32) {
    for (var block = group; block < divide_up(call.elements, call.block); block += groups) {
        let first = block * call.block;
        let end = min(first + call.block, call.elements);
        var smallest = 0.0;
        let scale = measure(lane, first, end, &smallest);
        if scale != NO_SCALE {
            if lane == 0u {
                put_scale(block, scale, smallest);
            }
            encode(lane, first, end, scale, smallest);
        } else if lane == 0u {
            note_bad(block);
        }
    }
}

fn put_scale(block: u32, scale: u32, smallest: f32) {
    if call.is_symmetric != 0u {
        scales[call.scales_at + block] = scale;
    } else {
        scales[call.scales_at + 2u * block] = scale;
        scales[call.scales_at + 2u * block + 1u] = bitcast<u32>(smallest);
    }
}

// Words of codes; each is one lane's.
fn encode(lane: u32, first: u32, end: u32, scale: u32, smallest: f32) {
    let step = bitcast<f32>(scale);
    let inverse = reciprocal(scale);
    let each = 1u << call.codes_shift;
    for (var begin = first + lane * each; begin < end; begin += LANES * each) {
        var word = 0u;
        for (var index = begin; index < min(begin + each, end); index++) {
            let value = encoded(index);
            if call.is_symmetric != 0u {
                let code = code_of(value, inverse, index);
                word |= placed(code, index);
                leave(index, value - f32(code) * step);
            } else {
                let code = code_of(flush(value - smallest), inverse, index);
                word |= placed(code, index);
                leave(index, value - flush(f32(code) * step + smallest));
            }
        }
        codes[call.codes_at + (begin >> call.codes_shift)] = word;
    }
}
