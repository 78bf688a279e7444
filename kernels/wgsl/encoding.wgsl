// What all encoders share: error feedback, and what a workgroup finds out about a block.

// What the last call owes is added.
fn compensated(value: f32, index: u32) -> f32 {
    if call.has_old == 0u {
        return value;
    }
    return flush(value + bitcast<f32>(old[call.old_at + index]));
}

// What is encoded.
fn encoded(index: u32) -> f32 {
    return compensated(number(index), index);
}

// What the code of an element leaves out.
fn leave(index: u32, value: f32) {
    if call.has_new != 0u {
        values[call.values_at + index] = bitcast<u32>(flush(value));
    }
}

fn note_bad(block: u32) {
    atomicMin(&result[0], call.first_block + block);
}

var<workgroup> lanes: array<f32, LANES>;

// The sum of all lanes' values: halves are added until one is left. For all lanes at once.
fn tree(lane: u32, value: f32) -> f32 {
    lanes[lane] = value;
    for (var width = LANES / 2u; width > 0u; width /= 2u) {
        workgroupBarrier();
        if lane < width {
            lanes[lane] += lanes[lane + width];
        }
    }
    workgroupBarrier();
    let sum = lanes[0];
    workgroupBarrier();
    return sum;
}

var<workgroup> greatest: atomic<u32>;

// The largest of all lanes' values. For all lanes at once.
fn largest(lane: u32, value: u32) -> u32 {
    if lane == 0u {
        atomicStore(&greatest, 0u);
    }
    workgroupBarrier();
    atomicMax(&greatest, value);
    workgroupBarrier();
    let all = atomicLoad(&greatest);
    workgroupBarrier();
    return all;
}
