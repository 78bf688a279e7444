//! The table of settings as a page for people.

use std::fmt::Write;

use unisono_communicator::settings::Knob;
use unisono_job::environment::{FOREIGN, LAUNCHERS, Launcher};

use super::table::{DEVELOPER_KNOBS, GROUPS};

const INTRODUCTION: &str = "\
# Settings

Every setting that unisono takes from the environment, as `unisono settings` prints it. Besides, unisono reads
`XDG_RUNTIME_DIR`, `TMPDIR`, `XDG_CONFIG_HOME` and `HOME` for its folders, and whether variables of oneCCL are set
(docs/backends.md).

* A variable without a value counts as not set.
* A value that cannot be used is refused when the program joins, in one line that names the variable, the value and the
  problem.
* A `UNISONO_` variable that is not on this page is reported once, with the name that is most like it.
* Where the names of other tools are accepted, ours wins, then the first that is set.
* Who a process is says the first of these that is set: the names on this page, Open MPI, MVAPICH, PMI, PMIx, Slurm. Two
  that contradict each other are refused, both by name: a `RANK` left over in a shell, for one. Launchers within others
  are not: torchrun, DeepSpeed or `unisono run` in processes of another one, mpirun in an allocation of Slurm.
* The host of rank 0 says the first of these that is set: `MASTER_ADDR`, Slurm, Azure ML or SageMaker. A `MASTER_PORT`
  that is set wins. Else the port goes with the source of the host: 29500 beside `MASTER_ADDR`.
* `unisono doctor --discovery` shows which variable has decided what. `UNISONO_DISCOVERY=off` leaves launchers and
  platforms out.
* Ranks of `mpirun` on several hosts of a Slurm allocation meet on its first host. If rank 0 is elsewhere they need
  `MASTER_ADDR` and `MASTER_PORT`.
* A field of `Config` that a program sets wins over the variable, and the options of a call win over both.
* All ranks need the same values, but for those that say who a process is, where it listens and what it says.
";

/// docs/settings.md.
pub fn settings_page() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut title = "";
    for group in GROUPS.iter().chain([&DEVELOPER_KNOBS]) {
        if group.title != title {
            title = group.title;
            let head = "| name | unit | default | also | meaning |\n| --- | --- | --- | --- | --- |";
            // Writing to a text cannot fail.
            let _ = write!(page, "\n## {title}\n\n{head}\n");
        }
        group.knobs.iter().for_each(|knob| add_row(&mut page, knob));
    }
    add_launchers(&mut page);
    page
}

/// The variables of launchers and platforms, none of which is a setting.
fn add_launchers(page: &mut String) {
    let head = "| launcher | rank | number of ranks | place on the host | ranks on the host |";
    page.push_str(&format!("\n## Launchers, in the order in which they count\n\n{head}\n"));
    page.push_str("| --- | --- | --- | --- | --- |\n");
    for row in LAUNCHERS.iter().filter(|row| row.launcher != Launcher::Named) {
        let numbers = [row.rank, row.world_size, row.local_rank, row.local_world_size].map(code);
        let cells = std::iter::once(row.launcher.name().to_owned()).chain(numbers);
        add_cells(page, cells);
    }
    page.push_str("\n## Other variables of launchers and platforms\n\n");
    page.push_str("| name | set by | meaning |\n| --- | --- | --- |\n");
    for row in &FOREIGN {
        add_cells(page, [code(row.names), row.from.to_owned(), row.doc.to_owned()]);
    }
}

/// Names in the form of code, with commas.
fn code(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

fn add_row(page: &mut String, knob: &Knob) {
    let default = if knob.default.is_empty() { String::new() } else { format!("`{}`", knob.default) };
    let cells = [format!("`{}`", knob.name), knob.unit.into(), default, code(knob.also), knob.doc.into()];
    add_cells(page, cells);
}

fn add_cells(page: &mut String, cells: impl IntoIterator<Item = String>) {
    page.push('|');
    for cell in cells {
        // An empty cell has one blank, as formatters of Markdown write it.
        page.push_str(if cell.is_empty() { "" } else { " " });
        page.push_str(&cell);
        page.push_str(" |");
    }
    page.push('\n');
}
