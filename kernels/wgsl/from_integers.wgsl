// Numbers are sums of integer codes. The product of code and scale is exact.

fn number(index: u32) -> f32 {
    let block = index / call.block;
    var sum = 0.0;
    for (var part = 0u; part < call.count; part++) {
        let code = f32(code_at(call.parts[part].codes, index));
        if call.is_symmetric != 0u {
            sum = flush(sum + code * bitcast<f32>(input[call.parts[part].scales + block]));
        } else {
            let at = call.parts[part].scales + 2u * block;
            sum = flush(sum + flush(code * bitcast<f32>(input[at]) + bitcast<f32>(input[at + 1u])));
        }
    }
    return sum;
}
