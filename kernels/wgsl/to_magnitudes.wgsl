// The largest magnitude of each block, as bits of f32; an infinity if one is not finite.

fn run(group: u32, groups: u32, lane: u32) {
    for (var block = group; block < divide_up(call.elements, call.block); block += groups) {
        let first = block * call.block;
        let end = min(first + call.block, call.elements);
        var magnitude = 0u;
        for (var index = first + lane; index < end; index += LANES) {
            magnitude = max(magnitude, bitcast<u32>(encoded(index)) & MAGNITUDE);
        }
        magnitude = largest(lane, magnitude);
        if lane == 0u {
            scales[call.scales_at + block] = min(magnitude, EXPONENT);
        }
    }
}
