//! The forms of a call: the same bytes with other arguments.

use std::fmt;
use std::str::FromStr;

use unisono::Collective;

use super::operations::MeasuredOperation;

/// A form of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Form {
    /// One buffer each, the same count on all ranks.
    #[default]
    Plain,
    /// A list of counts, all of them equal here.
    Uneven,
    /// A list with a buffer for each rank.
    List,
    /// Eight buffers in one call.
    Coalesced,
    /// A plan that is made once.
    Prepared,
    /// Started, and then awaited.
    Asynchronous,
    /// Objects of bytes, whose lengths travel too.
    Objects,
    /// Both messages of a pair at once.
    Exchange,
}

impl Form {
    pub(crate) const ALL: [Form; 8] = [
        Form::Plain,
        Form::Uneven,
        Form::List,
        Form::Coalesced,
        Form::Prepared,
        Form::Asynchronous,
        Form::Objects,
        Form::Exchange,
    ];

    /// The name on the command line, which follows the operation's in a row.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Form::Plain => "plain",
            Form::Uneven => "v",
            Form::List => "list",
            Form::Coalesced => "coalesced",
            Form::Prepared => "prepared",
            Form::Asynchronous => "async",
            Form::Objects => "objects",
            Form::Exchange => "exchange",
        }
    }

    /// Whether an operation has this form.
    pub(crate) fn fits(self, operation: MeasuredOperation) -> bool {
        let Some(collective) = operation.collective() else {
            return matches!(self, Form::Plain | Form::Objects | Form::Exchange);
        };
        let has_shares = match collective {
            Collective::ReduceScatter
            | Collective::AllGather
            | Collective::AllToAll
            | Collective::Gather
            | Collective::Scatter => true,
            Collective::AllReduce
            | Collective::Broadcast
            | Collective::Reduce
            | Collective::Scan
            | Collective::Exscan
            | Collective::Barrier => false,
        };
        match self {
            Form::Plain | Form::Prepared | Form::Asynchronous => true,
            Form::Uneven | Form::List => has_shares,
            Form::Coalesced => {
                matches!(collective, Collective::AllReduce | Collective::Broadcast | Collective::Reduce)
            }
            Form::Objects => matches!(
                collective,
                Collective::Broadcast | Collective::AllGather | Collective::Gather | Collective::Scatter
            ),
            Form::Exchange => false,
        }
    }

    /// The operation in this form, as a row names it.
    pub(crate) fn of(self, operation: MeasuredOperation) -> String {
        match self {
            Form::Plain => operation.name().to_owned(),
            form => format!("{}_{form}", operation.name()),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Form {
    type Err = String;

    fn from_str(name: &str) -> Result<Form, String> {
        let names = || Form::ALL.map(Form::name).join(", ");
        let found = Form::ALL.into_iter().find(|form| form.name() == name);
        found.ok_or_else(|| format!("unknown form {name:?}, one of: {}", names()))
    }
}
