// A workgroup encodes one block at a time.

fn run(group: u32, groups: u32, lane: u32) {
    for (var block = group; block < divide_up(call.elements, call.block); block += groups) {
        let first = block * call.block;
        let end = min(first + call.block, call.elements);
        var sum = 0.0;
        for (var index = first + lane; index < end; index += LANES) {
            sum += abs(encoded(index));
        }
        let factor = select(call.mean_factor, call.last_mean_factor, end - first < call.block);
        let scale = flush(tree(lane, flush(sum * 0.015625)) * factor);
        if lane == 0u {
            scales[call.scales_at + block] = bitcast<u32>(scale);
            if !is_finite(bitcast<u32>(scale)) {
                note_bad(block);
            }
        }
        pack(lane, first, end, scale);
    }
}
