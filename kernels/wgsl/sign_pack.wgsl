// Signs with one scale for all elements. `values` holds them, and gets what the scale leaves out.

fn number(index: u32) -> f32 {
    return bitcast<f32>(values[call.values_at + index]);
}

fn run(group: u32, groups: u32, lane: u32) {
    let together = 32u * LANES;
    for (var first = group * together; first < call.elements; first += groups * together) {
        pack(lane, first, min(first + together, call.elements), call.weight);
    }
}
