//! The text form of the cost model: `unisono calibrate` prints it, and `UNISONO_COST_MODEL` takes it.
//!
//! `name=number` with commas or spaces between, any of the names in the table; the others keep their value.

use std::fmt;

use super::JobSettings;

/// The largest value of a parameter: slower than anything that exists, and no prediction overflows.
pub(super) const PARAMETER_MAX: u64 = 1_000_000_000_000;

/// The name of a parameter, and where its value is.
type Parameter = (&'static str, fn(&mut JobSettings) -> &mut u64);

/// The parameter that no measurement makes 0.
const REDUCTION: &str = "reduce_fs_per_byte";

/// The parameters that the text may set.
pub(super) const PARAMETERS: [Parameter; 12] = [
    ("latency_ns", |settings| &mut settings.cost_model.latency_ns),
    ("wire_fs_per_byte", |settings| &mut settings.cost_model.wire_fs_per_byte),
    ("network_latency_ns", |settings| &mut settings.cost_model.network_latency_ns),
    ("network_fs_per_byte", |settings| &mut settings.cost_model.network_fs_per_byte),
    (REDUCTION, |settings| &mut settings.cost_model.reduce_fs_per_byte),
    ("cpu_per_message_ns", |settings| &mut settings.cost_model.cpu_per_message_ns),
    ("cpu_fs_per_byte", |settings| &mut settings.cost_model.cpu_fs_per_byte),
    ("network_cpu_per_message_ns", |settings| &mut settings.cost_model.network_cpu_per_message_ns),
    ("network_cpu_fs_per_byte", |settings| &mut settings.cost_model.network_cpu_fs_per_byte),
    ("switch_ns", |settings| &mut settings.cost_model.switch_ns),
    ("per_peer_thousandths", |settings| &mut settings.cost_model.per_peer_thousandths),
    ("cores", |settings| &mut settings.cores),
];

impl JobSettings {
    /// These, with the parameters that the text names.
    ///
    /// # Errors
    /// The problem, for people.
    pub fn with_parameters(self, text: &str) -> Result<JobSettings, String> {
        let mut settings = self;
        for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not name=number"))?;
            let Some((_, parameter)) = PARAMETERS.iter().find(|parameter| parameter.0 == name) else {
                let names: Vec<_> = PARAMETERS.iter().map(|parameter| parameter.0).collect();
                return Err(format!("{name:?} is not one of {}", names.join(", ")));
            };
            // Reductions that take no time would make every algorithm that reduces more than others look free.
            let (least, allowed) = match name {
                REDUCTION => (1, format!("from 1 to {PARAMETER_MAX}")),
                _ => (0, format!("up to {PARAMETER_MAX}")),
            };
            let value = value.parse().ok().filter(|value| (least..=PARAMETER_MAX).contains(value));
            *parameter(&mut settings) =
                value.ok_or_else(|| format!("{name} needs a whole number {allowed}"))?;
        }
        Ok(settings)
    }
}

impl fmt::Display for JobSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut settings = *self;
        let parts = PARAMETERS.map(|(name, parameter)| format!("{name}={}", parameter(&mut settings)));
        f.write_str(&parts.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_texts_are_refused_with_their_reason() {
        let problem = |text: &str| JobSettings::default().with_parameters(text).unwrap_err();
        assert!(problem("latency=3").contains("cpu_per_message_ns"));
        assert!(problem("latency_ns").contains("not name=number"));
        assert!(problem("cores=-1").contains("a whole number up to 1000000000000"));
        // Free reductions, and texts of rates that were divided by nothing.
        for value in ["0", "-22000", "inf", "NaN", ""] {
            let expected = "reduce_fs_per_byte needs a whole number from 1 to 1000000000000";
            assert_eq!(problem(&format!("reduce_fs_per_byte={value}")), expected, "{value}");
        }
        assert!(JobSettings::default().with_parameters("latency_ns=0").is_ok());
    }
}
