// The signs of one part, with its scales times the weight: a zero keeps its sign.

fn run(group: u32, groups: u32, lane: u32) {
    for (var index = group * LANES + lane; index < call.elements; index += groups * LANES) {
        let scale = flush(bitcast<f32>(input[call.parts[0].scales + index / call.block]) * call.weight);
        let plus = (input[call.parts[0].codes + index / 32u] >> (index % 32u)) & 1u;
        values[call.values_at + index] = bitcast<u32>(scale) ^ select(0x80000000u, 0u, plus == 1u);
    }
}
