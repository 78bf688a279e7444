//! The look of pictures of times against sizes: colours, and the labels beside an axis. The program's pictures and the
//! pictures of the comparison with other libraries look the same; who draws them is no dependency of this crate.

/// Okabe and Ito, as red, green and blue: told apart also by eyes that see fewer colours.
pub const COLOURS: [(u8, u8, u8); 8] = [
    (213, 94, 0),
    (0, 0, 0),
    (0, 114, 178),
    (0, 158, 115),
    (204, 121, 167),
    (86, 180, 233),
    (230, 159, 0),
    (150, 140, 20),
];

/// The family of all letters.
pub const FONT: &str = "sans-serif";

/// The label below a size of 2^`exponent` bytes. Sizes between powers of two have none.
pub fn power_of_two(exponent: f64) -> String {
    if exponent.fract() != 0.0 || exponent < 0.0 {
        return String::new();
    }
    let bytes = exponent.exp2();
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| exponent >= f64::from(*shift));
    unit.map_or_else(
        || format!("{bytes} B"),
        |(shift, unit)| format!("{} {unit}", bytes / f64::from(1 << shift)),
    )
}

/// A value without zeros that say nothing.
pub fn plain(value: f64) -> String {
    if value >= 10.0 { format!("{value:.0}") } else { format!("{:.1$}", value, digits_after_point(value)) }
}

fn digits_after_point(value: f64) -> usize {
    (1.0 - value.log10()).ceil().clamp(0.0, 4.0) as usize
}

/// The least and the largest; infinity and 0 of none.
pub fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high), value| (low.min(value), high.max(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_written_plainly() {
        let written = [0.01, 0.1, 1.0, 10.0, 100.0, 100_000.0].map(plain);
        assert_eq!(written, ["0.010", "0.10", "1.0", "10", "100", "100000"]);
        assert_eq!(
            [0.0, 9.0, 10.0, 10.5, 26.0, 31.0].map(power_of_two),
            ["1 B", "512 B", "1 K", "", "64 M", "2 G"]
        );
    }
}
