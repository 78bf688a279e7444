//! What the library would take a call for: the price of every algorithm in a group, and the one it would choose.

use unisono::Group;
use unisono_schedule::{
    Admit, Algorithm, Chooser, Collective, Parameters, Shape, algorithms, find, price,
};
use unisono_transport_tcp::config::Config;
use unisono_transport_tcp::prices::Prices;

use crate::problem::Result;

/// The prices of one group and what follows from them, computed as its ranks do.
pub(crate) struct Forecast {
    pub(crate) shape: Shape,
    pub(crate) parameters: Parameters,
    chooser: Chooser,
    /// The algorithm of every call that has it, in place of the cheapest.
    forced: Option<String>,
}

impl Forecast {
    /// For `group`, by the settings of this process; within a job those of rank 0 count.
    pub(crate) fn of_group(group: &Group) -> Result<Forecast> {
        let config = Config::from_environment()?;
        let parameters = Prices::from_config(&config)?.parameters(group);
        let forecast = Forecast::new(parameters.shape(group.hosts()), parameters);
        Ok(Forecast { forced: config.algorithm, ..forecast })
    }

    /// For any group, without a forced algorithm.
    pub(crate) fn new(shape: Shape, parameters: Parameters) -> Forecast {
        Forecast { shape, parameters, chooser: Chooser::new(&shape, &parameters), forced: None }
    }

    /// The expected microseconds of a call with `bytes` in the larger of a rank's two buffers.
    pub(crate) fn microseconds(&self, algorithm: &Algorithm, bytes: u64) -> f64 {
        price(algorithm, &self.shape, bytes, &self.parameters) as f64 / 1e3
    }

    /// What runs when nobody names an algorithm.
    pub(crate) fn pick(&self, collective: Collective, bytes: u64, admit: &Admit) -> Option<&'static Algorithm> {
        let forced = self.forced.as_deref().and_then(|name| find(collective, name));
        forced.or_else(|| self.chooser.choose(collective, bytes, admit))
    }

    /// Every algorithm that may serve such a call, in the order of the registry.
    pub(crate) fn admitted(&self, collective: Collective, admit: &Admit) -> Vec<&'static Algorithm> {
        let of_collective = algorithms().iter().filter(|algorithm| algorithm.collective == collective);
        of_collective.filter(|algorithm| admit.refusal(algorithm, &self.shape).is_none()).collect()
    }
}
