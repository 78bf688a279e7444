//! The figures of a machine, which a program with settings gives.

use unisono_schedule::CostModel;

/// The figures of the cost model on this machine.
#[derive(Clone, Copy, Debug)]
pub struct MachineFigures {
    /// The model.
    pub cost_model: CostModel,
    /// Whether its figures are from `UNISONO_COST_MODEL`. Else they are built in.
    pub is_measured: bool,
}

/// Gives the figures for a group of so many ranks on this host.
pub type FiguresHere = dyn Fn(u32) -> unisono_communicator::Result<MachineFigures>;
