//! The figures of a machine, which a program with settings gives.

use unisono_schedule::CostModel;

/// The figures of the cost model on this machine.
#[derive(Clone, Copy, Debug)]
pub struct MachineFigures {
    /// The model.
    pub cost_model: CostModel,
    /// The machine on which built-in figures were measured; `None` for figures of `UNISONO_COST_MODEL`.
    pub built_in: Option<&'static str>,
}

/// Gives the figures for a group of so many ranks on this host.
pub type FiguresHere = dyn Fn(u32) -> unisono_communicator::Result<MachineFigures>;
