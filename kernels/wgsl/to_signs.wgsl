// One bit for each element, and the mean magnitude of each block.

var<workgroup> words: array<u32, LANES>;

// Packs the signs of elements `first` to `end`, and leaves what plus or minus `scale` leaves out. For all lanes at once.
//
// Each lane collects the bits of every 64th element. Then lane 32 h + k puts bit k of all lanes of half h side by side.
fn pack(lane: u32, first: u32, end: u32, scale: f32) {
    for (var base = first; base < end; base += 32u * LANES) {
        let turns = min(32u, divide_up(end - base, LANES));
        var own = 0u;
        for (var turn = 0u; turn < turns; turn++) {
            let index = base + turn * LANES + lane;
            if index < end {
                let value = encoded(index);
                let plus = is_plus(value);
                own |= select(0u, 1u, plus) << turn;
                leave(index, value - select(-scale, scale, plus));
            }
        }
        words[lane] = own;
        workgroupBarrier();
        let half = lane / 32u;
        let word = lane % 32u * 2u + half;
        if base + word * 32u < end {
            var bits = 0u;
            for (var bit = 0u; bit < 32u; bit++) {
                bits |= ((words[half * 32u + bit] >> (lane % 32u)) & 1u) << bit;
            }
            codes[call.codes_at + base / 32u + word] = bits;
        }
        workgroupBarrier();
    }
}
