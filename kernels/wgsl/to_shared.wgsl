// Integer codes by scales that all ranks share, in integers of `call.width` bits.

fn run(group: u32, groups: u32, lane: u32) {
    let each = 1u << call.codes_shift;
    for (var word = group * LANES + lane; word < divide_up(call.elements, each); word += groups * LANES) {
        let first = word * each;
        let found = scale_of(bitcast<f32>(magnitudes[call.magnitudes_at + first / call.block]));
        let scale = select(found, 0u, found == NO_SCALE);
        let inverse = reciprocal(scale);
        var together = 0u;
        for (var index = first; index < min(first + each, call.elements); index++) {
            let value = encoded(index);
            let code = code_of(value, inverse, index);
            together |= placed(code, index);
            leave(index, value - f32(code) * bitcast<f32>(scale));
        }
        codes[call.codes_at + word] = together;
    }
}
