// bf16, two in a word, to the nearest with ties to even.

fn narrow(index: u32) -> u32 {
    if index >= call.elements {
        return 0u;
    }
    let bits = bitcast<u32>(encoded(index));
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    if !is_finite(bits) || !is_finite(rounded << 16u) {
        note_bad(index / call.block);
    }
    return rounded & 0xffffu;
}

fn run(group: u32, groups: u32, lane: u32) {
    for (var word = group * LANES + lane; word < divide_up(call.elements, 2u); word += groups * LANES) {
        codes[call.codes_at + word] = narrow(2u * word) | (narrow(2u * word + 1u) << 16u);
    }
}
