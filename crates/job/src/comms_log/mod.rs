//! The communication log of a process, from its settings to its end: the configuration in a file of DeepSpeed's form,
//! the table that rank 0 prints when its world ends, and counts as files for a monitoring system.

mod metrics;
mod read;

use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use unisono_communicator::{CommsLogger, CommsLoggerConfig, Result};

use metrics::Metrics;
pub(crate) use read::comms_logger;

/// The logs of this process that print a table at their end, for the end of the process.
static PRINTING: Mutex<Vec<Weak<Table>>> = Mutex::new(Vec::new());

/// The communication log of a world. Dropping it ends the files of counts, and prints the table if the settings have
/// switched the log on.
pub struct WorldLog {
    logger: CommsLogger,
    table: Option<Arc<Table>>,
    /// It writes until it is dropped.
    _metrics: Option<Metrics>,
}

/// The table at the end. It is printed once.
struct Table {
    logger: CommsLogger,
    /// Held while it is printed, so that the process does not end meanwhile.
    is_printed: Mutex<bool>,
    /// A forked child prints nothing for its parent.
    pid: u32,
}

impl Table {
    /// Of the figures of this rank alone: the others may have left already, so nobody can be asked.
    fn print(&self) {
        if self.pid != std::process::id() {
            return;
        }
        let mut is_printed = self.is_printed.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *is_printed, true) {
            return;
        }
        let report = self.logger.report();
        if report.rows.is_empty() && report.without_calls.is_empty() {
            return;
        }
        let text = format!("unisono: rank 0: calls of this rank by size\n{report}");
        // One write, so that other lines do not come between. A program whose output nobody reads ends all the same.
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

impl WorldLog {
    /// The log of `rank`, as the settings say.
    ///
    /// # Errors
    /// [`unisono_communicator::Error::System`] when no thread is left for the files of counts.
    pub fn start(rank: u32, config: &CommsLoggerConfig, metrics: Option<PathBuf>) -> Result<WorldLog> {
        let logger = CommsLogger::default();
        if *config != CommsLoggerConfig::default() {
            logger.configure(config.clone());
        }
        let metrics = metrics.map(|folder| Metrics::start(folder, rank, logger.clone())).transpose()?;
        let table = (config.enabled && rank == 0).then(|| {
            let (logger, is_printed) = (logger.clone(), Mutex::new(false));
            Arc::new(Table { logger, is_printed, pid: std::process::id() })
        });
        if let Some(table) = &table {
            let mut printing = PRINTING.lock().unwrap_or_else(PoisonError::into_inner);
            printing.retain(|table| table.strong_count() > 0);
            printing.push(Arc::downgrade(table));
            drop(printing);
            crate::exit::act_at_exit();
        }
        Ok(WorldLog { logger, table, _metrics: metrics })
    }

    /// The log, for the groups of the world.
    pub fn logger(&self) -> &CommsLogger {
        &self.logger
    }
}

impl Drop for WorldLog {
    fn drop(&mut self) {
        if let Some(table) = &self.table {
            table.print();
        }
    }
}

/// Prints the tables that have not been printed, and writes the last counts: the process ends with worlds that nobody
/// has dropped.
pub(crate) fn end_all() {
    metrics::write_all();
    // A thread that the end of the process has stopped may hold the lock for ever.
    let Ok(printing) = PRINTING.try_lock() else { return };
    printing.iter().filter_map(Weak::upgrade).for_each(|table| table.print());
}
