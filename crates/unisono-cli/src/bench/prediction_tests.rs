//! The accuracy of the cost model for rows that were measured before.

use std::collections::BTreeMap;

use unisono::{Collective, Group};
use unisono_schedule::Admit;

use super::report::{PICK_TIMES_BEST_MAX, Row};

/// Compares the cost model with rows that were measured before, so that it can be tuned without measuring again:
///
/// ```text
/// for n in 2 4 8; do
///   unisono bench all_reduce,reduce_scatter,all_gather,all_to_all,broadcast,reduce,gather,scatter -n $n \
///     --sizes 64,16K,1M,16M --algorithm all --json > rows-$n.json
/// done
/// UNISONO_ROWS=rows-2.json:rows-4.json:rows-8.json UNISONO_COST_MODEL=latency_ns=5000 \
///   cargo test -p unisono-cli --bin unisono -- --ignored --nocapture predictions_choose_well
/// ```
///
/// For each cell of collective, bytes and ranks it prints the best algorithm, the choice and their ratio, then
/// every algorithm as measured/predicted microseconds.
#[test]
#[ignore = "needs rows of the bench; see above"]
#[expect(clippy::disallowed_methods, reason = "files for one test, no knob of the library")]
fn predictions_choose_well() {
    let Ok(paths) = std::env::var("UNISONO_ROWS") else {
        return eprintln!("UNISONO_ROWS names no files with rows of the bench");
    };
    let mut cells: BTreeMap<(String, u32, u64), Vec<Row>> = BTreeMap::new();
    for path in paths.split(':') {
        let rows: Vec<Row> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        for row in rows.into_iter().filter(|row| row.predicted_us.is_some()) {
            cells.entry((row.op.clone(), row.ranks, row.bytes)).or_default().push(row);
        }
    }
    let (mut good, count) = (0, cells.len());
    for ((op, ranks, bytes), mut rows) in cells {
        rows.sort_by(|a, b| a.median_us.total_cmp(&b.median_us));
        let forecast = unisono::algorithms::forecast_of_group(&Group::world(0, ranks)).unwrap();
        let collective = op.parse().unwrap();
        let predicted = |row: &Row| {
            forecast.microseconds(&forecast.ran(collective, None, &row.algorithm).unwrap(), bytes).unwrap()
        };
        let in_place = matches!(collective, Collective::AllReduce | Collective::Broadcast);
        let pick = forecast.pick(collective, bytes, &Admit { in_place, ..Admit::ANY }).unwrap();
        let Some(picked) = rows.iter().find(|row| row.algorithm == pick.algorithm.name) else {
            panic!("{op}, {ranks} ranks, {bytes} bytes: {} was not measured", pick.algorithm.name)
        };
        let times_best = picked.median_us / rows[0].median_us;
        good += usize::from(times_best <= PICK_TIMES_BEST_MAX);
        let all =
            rows.iter().map(|row| format!("{} {:.0}/{:.0}", row.algorithm, row.median_us, predicted(row)));
        let all: Vec<_> = all.collect();
        eprintln!(
            "{op} {ranks} {bytes}: best {}, pick {}, {times_best:.2}{}; {}",
            rows[0].algorithm,
            pick.algorithm.name,
            if times_best <= PICK_TIMES_BEST_MAX { "" } else { " BAD" },
            all.join(", ")
        );
    }
    eprintln!("{good} of {count} picks within {PICK_TIMES_BEST_MAX} of the best");
    assert!(good * 10 >= count * 9, "{good} of {count} picks are good, less than 90 %");
}
