// Numbers are sums of bf16, two in a word.

fn number(index: u32) -> f32 {
    var sum = 0.0;
    for (var part = 0u; part < call.count; part++) {
        let word = input[call.parts[part].codes + index / 2u];
        let bits = select(word << 16u, word & 0xffff0000u, (index & 1u) == 1u);
        sum = flush(sum + flushed(bits));
    }
    return sum;
}
