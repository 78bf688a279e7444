//! What `ncclConfig_t` says.

use unisono_double_common::In;

use crate::codes::NcclError;

const MAGIC: u32 = 0xcafe_beef;
/// NCCL_CONFIG_UNDEF_INT: as if it were not there.
const UNDEFINED: i32 = i32::MIN;
/// Before this version the struct had no setting that is read here.
const FIRST_VERSION: u32 = 21400;

/// What each version of the struct begins with.
#[derive(Clone, Copy)]
#[repr(C)]
struct ConfigHead {
    size: usize,
    magic: u32,
    version: u32,
}

/// The struct of 2.18. Later versions add to its end.
#[derive(Clone, Copy)]
#[repr(C)]
struct Config {
    head: ConfigHead,
    blocking: i32,
    cga_cluster_size: i32,
    min_ctas: i32,
    max_ctas: i32,
    net_name: usize,
    split_share: i32,
}

/// Whether the communicator's calls block. `None` without a config, or where it says nothing.
pub(crate) fn read(config: In<u8>) -> Result<Option<bool>, NcclError> {
    let Some(head) = config.cast::<ConfigHead>().get() else { return Ok(None) };
    if head.magic != MAGIC || head.size < size_of::<Config>() {
        let text = "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER";
        return Err(NcclError::argument(text));
    }
    if head.version < FIRST_VERSION {
        return Ok(None);
    }
    let invalid = |name: &str, value: i32| {
        Err(NcclError::argument(format!("Invalid config {name} attribute value {value}")))
    };
    let Some(config) = config.cast::<Config>().get() else { return Ok(None) };
    for (name, value, least) in [
        ("cgaClusterSize", config.cga_cluster_size, 0),
        ("minCTAs", config.min_ctas, 1),
        ("maxCTAs", config.max_ctas, 1),
    ] {
        if value != UNDEFINED && value < least {
            return invalid(name, value);
        }
    }
    let are_both_set = config.min_ctas != UNDEFINED && config.max_ctas != UNDEFINED;
    if are_both_set && config.min_ctas > config.max_ctas {
        return invalid("min/max CTAs", config.min_ctas);
    }
    if config.split_share != UNDEFINED && !(0..=1).contains(&config.split_share) {
        return invalid("splitShare", config.split_share);
    }
    match config.blocking {
        UNDEFINED => Ok(None),
        0 => Ok(Some(false)),
        1 => Ok(Some(true)),
        value => invalid("blocking", value),
    }
}
