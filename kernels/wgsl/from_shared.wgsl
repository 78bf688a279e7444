// Numbers are sums of codes that were made by scales that ranks share.

fn number(index: u32) -> f32 {
    let scale = scale_of(bitcast<f32>(magnitudes[call.magnitudes_at + index / call.block]));
    let code = f32(code_at(call.parts[0].codes, index));
    return flush(code * bitcast<f32>(select(scale, 0u, scale == NO_SCALE)));
}
