// Numbers come from the sum of vectors of f32; one vector is its own sum.

fn number(index: u32) -> f32 {
    var sum = 0.0;
    for (var part = 0u; part < call.count; part++) {
        sum = flush(sum + flushed(input[call.parts[part].codes + index]));
    }
    return sum;
}
