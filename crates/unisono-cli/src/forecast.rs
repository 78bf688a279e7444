//! What the library expects of a call: the cost of every algorithm in a group, and which one it would choose.

use std::sync::Arc;

use unisono::Group;
use unisono_schedule::{Admit, Algorithm, Choice, Chooser, Collective, CostModel, Registry, Shape};
use unisono_transport_tcp::World;
use unisono_transport_tcp::config::Config;
use unisono_transport_tcp::job_settings::JobSettings;

use crate::problem::Result;

/// The cost model of one group and the choices that follow, computed as its ranks compute them.
pub(crate) struct Forecast {
    pub(crate) shape: Shape,
    pub(crate) cost_model: CostModel,
    registry: Registry,
    chooser: Chooser,
    /// The algorithm that the settings force for all calls that have it.
    forced: Option<String>,
}

impl Forecast {
    /// For `group`: with what the job of this process uses, if it has joined one, else with this process's settings.
    pub(crate) fn of_group(group: &Group) -> Result<Forecast> {
        let config = Config::from_environment()?;
        let cost_model = match World::joined().first() {
            Some(world) => world.cost_model(group),
            None => JobSettings::from_config(&config)?.cost_model(group, &[]),
        };
        let forecast = Forecast::new(Registry::built_in(), cost_model.shape(group.hosts()), cost_model);
        Ok(Forecast { forced: config.algorithm, ..forecast })
    }

    /// For any group, without a forced algorithm.
    pub(crate) fn new(registry: Registry, shape: Shape, cost_model: CostModel) -> Forecast {
        let chooser = Chooser::new(&registry, &shape, &cost_model);
        Forecast { shape, cost_model, registry, chooser, forced: None }
    }

    /// The expected microseconds of a call with `bytes` in the larger of a rank's two buffers.
    pub(crate) fn microseconds(&self, choice: &Choice, bytes: u64) -> Option<f64> {
        let Choice { algorithm, shape } = choice;
        let cost = self.registry.facts(algorithm, shape).ok()?.cost?;
        Some(self.cost_model.predicted_ns_of(&cost, shape, algorithm.width(shape), bytes) as f64 / 1e3)
    }

    /// An algorithm in this group.
    pub(crate) fn choice(&self, algorithm: &Arc<Algorithm>) -> Choice {
        Choice { algorithm: algorithm.clone(), shape: self.shape }
    }

    /// The choice whose name an outcome gave. That name leaves out the number of leaders, which is the one that the
    /// call asked for, else the group's.
    pub(crate) fn ran(&self, collective: Collective, asked: Option<&str>, name: &str) -> Option<Choice> {
        let named = |name| Choice::named(&self.registry, collective, name, &self.shape).ok();
        let asked = asked.or(self.forced.as_deref()).and_then(named);
        asked.filter(|asked| asked.algorithm.name == name).or_else(|| named(name))
    }

    fn forced(&self, collective: Collective) -> Option<Choice> {
        Choice::named(&self.registry, collective, self.forced.as_deref()?, &self.shape).ok()
    }

    /// The algorithm of a call that names none.
    pub(crate) fn pick(&self, collective: Collective, bytes: u64, admit: &Admit) -> Option<Choice> {
        let cheapest = || self.chooser.choose(collective, bytes, admit);
        self.forced(collective).or_else(|| cheapest().map(|algorithm| self.choice(algorithm)))
    }

    /// Every algorithm that fits such a call, in the order of the registry.
    pub(crate) fn admitted(&self, collective: Collective, admit: &Admit) -> Vec<Arc<Algorithm>> {
        let admitted = self.registry.admitted(collective, &self.shape, admit);
        admitted.into_iter().map(|(algorithm, _)| algorithm).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::bench::report::{PICK_TIMES_BEST_MAX, Row};

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
        let paths = std::env::var("UNISONO_ROWS").expect("UNISONO_ROWS names files with rows of the bench");
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
            let forecast = Forecast::of_group(&Group::world(0, ranks)).unwrap();
            let collective = op.parse().unwrap();
            let predicted = |row: &Row| {
                forecast
                    .microseconds(&forecast.ran(collective, None, &row.algorithm).unwrap(), bytes)
                    .unwrap()
            };
            let in_place = matches!(collective, Collective::AllReduce | Collective::Broadcast);
            let pick = forecast.pick(collective, bytes, &Admit { in_place, ..Admit::ANY }).unwrap();
            let Some(picked) = rows.iter().find(|row| row.algorithm == pick.algorithm.name) else {
                panic!("{op}, {ranks} ranks, {bytes} bytes: {} was not measured", pick.algorithm.name)
            };
            let times_best = picked.median_us / rows[0].median_us;
            good += usize::from(times_best <= PICK_TIMES_BEST_MAX);
            let all = rows
                .iter()
                .map(|row| format!("{} {:.0}/{:.0}", row.algorithm, row.median_us, predicted(row)));
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
}
