// Numbers are sums of vectors of f32.

fn number(index: u32) -> f32 {
    var sum = 0.0;
    for (var part = 0u; part < call.count; part++) {
        sum = flush(sum + flushed(input[call.parts[part].codes + index]));
    }
    return sum;
}
