// Moves `old` towards `values` by the part `call.weight` of their distance, a power of two; the result is in `values`.

fn run(group: u32, groups: u32, lane: u32) {
    for (var index = group * LANES + lane; index < call.elements; index += groups * LANES) {
        let at = call.values_at + index;
        let before = bitcast<f32>(old[call.old_at + index]);
        let moved = flush(flush(bitcast<f32>(values[at]) - before) * call.weight);
        values[at] = bitcast<u32>(flush(before + moved));
    }
}
