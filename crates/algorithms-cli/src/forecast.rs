//! The library's expectations of a call: the cost of every algorithm in a group, and its choice.

use std::sync::Arc;

use unisono_schedule::{Admit, Algorithm, Choice, Chooser, Collective, Cost, CostModel, Registry, Shape};

/// The cost model of one group and the choices that follow, computed as its ranks compute them.
pub struct Forecast {
    /// The group.
    pub shape: Shape,
    /// The speed of its machines and network.
    pub cost_model: CostModel,
    registry: Registry,
    chooser: Chooser,
    /// The algorithm that the settings force for all calls that have it.
    forced: Option<String>,
}

impl Forecast {
    /// For any group, without a forced algorithm.
    pub fn new(registry: Registry, shape: Shape, cost_model: CostModel) -> Forecast {
        let chooser = Chooser::new(&registry, &shape, &cost_model);
        Forecast { shape, cost_model, registry, chooser, forced: None }
    }

    /// The same where the settings force this algorithm for all calls that have it.
    #[must_use]
    pub fn with_forced(self, forced: Option<String>) -> Forecast {
        Forecast { forced, ..self }
    }

    /// The expected microseconds of a call with `bytes` in the larger of a rank's two buffers.
    pub fn microseconds(&self, choice: &Choice, bytes: u64) -> Option<f64> {
        Some(self.microseconds_of(
            &self.registry.facts(&choice.algorithm, &choice.shape).ok()?.cost?,
            choice,
            bytes,
        ))
    }

    /// As [`Forecast::microseconds`], of a choice with this cost.
    pub(crate) fn microseconds_of(&self, cost: &Cost, choice: &Choice, bytes: u64) -> f64 {
        let Choice { algorithm, shape } = choice;
        self.cost_model.predicted_ns_of(algorithm, cost, shape, bytes) as f64 / 1e3
    }

    /// An algorithm in this group.
    pub fn choice(&self, algorithm: &Arc<Algorithm>) -> Choice {
        Choice { algorithm: algorithm.clone(), shape: self.shape }
    }

    /// The choice whose name an outcome gave. That name leaves out the number of leaders: the number of the
    /// call, else of the group.
    pub fn ran(&self, collective: Collective, asked: Option<&str>, name: &str) -> Option<Choice> {
        let named = |name| Choice::named(&self.registry, collective, name, &self.shape).ok();
        let asked = asked.or(self.forced.as_deref()).and_then(named);
        asked.filter(|asked| asked.algorithm.name == name).or_else(|| named(name))
    }

    fn forced(&self, collective: Collective) -> Option<Choice> {
        Choice::named(&self.registry, collective, self.forced.as_deref()?, &self.shape).ok()
    }

    /// The algorithm of a call that names none.
    pub fn pick(&self, collective: Collective, bytes: u64, admit: &Admit) -> Option<Choice> {
        let cheapest = || self.chooser.choose(collective, bytes, admit);
        self.forced(collective).or_else(|| cheapest().map(|algorithm| self.choice(algorithm)))
    }

    /// Every algorithm that fits such a call, in the order of the registry.
    pub fn admitted(&self, collective: Collective, admit: &Admit) -> Vec<Arc<Algorithm>> {
        let admitted = self.registry.admitted(collective, &self.shape, admit);
        admitted.into_iter().map(|(algorithm, _)| algorithm).collect()
    }
}
