// Numbers are sums of signs with scales: parts are summed by fours, and the sums of the fours in their order.

fn number(index: u32) -> f32 {
    let block = index / call.block;
    let word = index / 32u;
    let bit = index % 32u;
    var total = 0.0;
    for (var first = 0u; first < call.count; first += 4u) {
        var sum = 0.0;
        for (var part = first; part < min(first + 4u, call.count); part++) {
            let scale = bitcast<f32>(input[call.parts[part].scales + block]);
            let plus = (input[call.parts[part].codes + word] >> bit) & 1u;
            sum = flush(sum + select(-scale, scale, plus == 1u));
        }
        total = flush(total + sum);
    }
    return total;
}
