//! How what a call costs is measured: in bursts of calls that follow each other, as those of a program whose device has
//! work; quartiles tell the spread.

use unisono_communicator::Result;

/// Calls of a burst.
pub const BURST: usize = 16;

/// Quartiles: the lower, the median, the upper.
///
/// # Panics
/// Without values.
pub fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

/// Makes the calls of a burst, and waits for the last one. `one` makes a call, and says what it has cost; `costs` gets
/// that of each.
///
/// # Errors
/// The first of a call, or that of the wait.
pub fn burst<C, E>(
    costs: &mut Vec<C>,
    mut one: impl FnMut() -> Result<(C, E)>,
    wait: impl FnOnce(E) -> Result<()>,
) -> Result<()> {
    for _ in 1..BURST {
        costs.push(one()?.0);
    }
    let (cost, last) = one()?;
    costs.push(cost);
    wait(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_are_those_of_the_sorted_values() {
        assert_eq!(quartiles((0..8).rev().map(f64::from).collect()), [2.0, 4.0, 6.0]);
    }

    #[test]
    fn a_burst_waits_for_its_last_call_only() {
        let (mut costs, mut calls, mut waited) = (vec![0], 0, 0);
        let one = || {
            calls += 1;
            Ok((calls, 100 + calls))
        };
        burst(&mut costs, one, |last| {
            waited = last;
            Ok(())
        })
        .unwrap();
        assert_eq!(costs, (0..=BURST).collect::<Vec<_>>());
        assert_eq!(waited, 100 + BURST);
    }
}
