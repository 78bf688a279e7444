// Numbers come from a vector of f32.

fn number(index: u32) -> f32 {
    return flushed(input[call.parts[0].codes + index]);
}
