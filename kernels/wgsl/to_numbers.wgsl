// Numbers times the weight, in f32.

fn run(group: u32, groups: u32, lane: u32) {
    for (var index = group * LANES + lane; index < call.elements; index += groups * LANES) {
        values[call.values_at + index] = bitcast<u32>(flush(number(index) * call.weight));
    }
}
