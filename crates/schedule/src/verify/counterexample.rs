//! The faults that the verifier finds, in texts that name the rank, the step and the chunk.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Algorithm, Shape, Slot, Step, StepIndex};

/// Why an algorithm is wrong for a shape.
///
/// ```
/// use unisono_schedule::{Shape, find_by_name, verify_schedules};
/// let ring = find_by_name("all_gather/ring").unwrap();
/// let shape = Shape::new(3);
/// // Rank 2's steps, given to rank 1 as well.
/// let schedules = [0, 2, 2].map(|rank| ring.schedule(&shape, rank)).to_vec();
/// let wrong = verify_schedules(ring, &shape, &schedules).unwrap_err();
/// assert!(wrong.to_string().starts_with("all_gather/ring with 3 ranks: "), "{wrong}");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Counterexample {
    /// The qualified name of the algorithm.
    pub algorithm: String,
    /// The shape. It has one leader if the number of leaders does not matter to the algorithm.
    pub shape: Shape,
    /// "in place" or "out of place", if the fault shows only there; else empty.
    pub setting: String,
    /// The fault.
    pub fault: Box<Fault>,
}

/// The text, because `unwrap` prints this.
impl fmt::Debug for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Counterexample {
    pub(crate) fn new(algorithm: &Algorithm, shape: &Shape, setting: &str, fault: Fault) -> Self {
        // A shape always has leaders; naming them would puzzle readers where the algorithm has none.
        let is_led = shape.leaders != 1 && is_led(algorithm, shape, &fault);
        let shape = if is_led { *shape } else { shape.with_leaders(1) };
        let (algorithm, setting) = (algorithm.qualified_name(), setting.to_owned());
        Self { algorithm, shape, setting, fault: Box::new(fault) }
    }
}

/// Whether the number of leaders matters: with one leader the cost differs or, if no cost is claimed, the steps do.
fn is_led(algorithm: &Algorithm, shape: &Shape, fault: &Fault) -> bool {
    // A function that has panicked is not called again.
    if matches!(fault, Fault::Panicked { .. }) {
        return false;
    }
    let answer = |shape: Shape| {
        let cost = algorithm.cost_of(&shape);
        let steps = |rank| algorithm.schedule(&shape, rank);
        let is_told_by_cost = cost.is_some();
        (cost, if is_told_by_cost { Vec::new() } else { (0..shape.ranks).map(steps).collect() })
    };
    let caught = |shape| catch_unwind(AssertUnwindSafe(|| answer(shape))).ok();
    caught(*shape) != caught(shape.with_leaders(1))
}

impl fmt::Display for Counterexample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} with {} ranks", self.algorithm, self.shape.ranks)?;
        if self.shape.root != 0 {
            write!(formatter, ", root {}", self.shape.root)?;
        }
        if self.shape.leaders != 1 {
            write!(formatter, ", {} leaders", self.shape.leaders)?;
        }
        if !self.setting.is_empty() {
            write!(formatter, " ({})", self.setting)?;
        }
        write!(formatter, ": {}", self.fault)
    }
}

impl std::error::Error for Counterexample {}

/// A step of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepPlace {
    /// The rank.
    pub rank: u32,
    /// The index of the step in its list.
    pub index: StepIndex,
    /// The step.
    pub step: Step,
}

impl fmt::Display for StepPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.step.to_string();
        let words: Vec<&str> = text.split_whitespace().collect();
        write!(formatter, "rank {} step {} [{}]", self.rank, self.index, words.join(" "))
    }
}

/// A figure that an algorithm claims, and the count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongFigure {
    /// The claimed figure: a field of [`crate::Cost`] in words, or a size.
    pub figure: &'static str,
    /// The claimed value.
    pub claimed: String,
    /// The value that was counted.
    pub counted: String,
}

impl fmt::Display for WrongFigure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { figure, claimed, counted } = self;
        write!(formatter, "{figure}: claimed {claimed}, counted {counted}")
    }
}

/// One kind of fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The claimed figures, at least one, differ from the schedules.
    Claim {
        /// The figures.
        figures: Vec<WrongFigure>,
    },
    /// A function of the algorithm panicked.
    Panicked {
        /// The rank whose schedule was built; `None` if no schedule was being built.
        rank: Option<u32>,
        /// The panic's text.
        text: String,
    },
    /// The algorithm claims that it sums in the canonical tree, and does not.
    NotCanonical,
    /// The algorithm does not keep the order of the ranks, but does not require an operator that commutes.
    NotInOrder,
    /// The number of extents is 0, or not a multiple of the number of shares.
    ExtentCount {
        /// The number that the algorithm claims.
        claimed: u32,
        /// The number of which it must be a multiple.
        unit: u32,
    },
    /// The number of schedules is not the number of ranks.
    ScheduleCount {
        /// The number of ranks.
        ranks: u32,
        /// The number of schedules.
        schedules: usize,
    },
    /// The schedule that is given for one rank belongs to another.
    WrongRank {
        /// The rank for which it is given.
        rank: u32,
        /// The rank to which it belongs.
        found: u32,
    },
    /// A step that cannot be carried out.
    Malformed {
        /// The step.
        place: StepPlace,
        /// The fault of the step, in words.
        problem: String,
    },
    /// The n-th send from one rank to another and its n-th receive do not agree.
    Unmatched {
        /// The sending rank.
        sender: u32,
        /// The receiving rank.
        receiver: u32,
        /// The number of earlier transfers, all of which agree.
        nth: u32,
        /// The n-th send, if there is one.
        sent: Option<StepPlace>,
        /// The n-th receive, if there is one.
        received: Option<StepPlace>,
    },
    /// A step reads bytes that no step has written.
    Unwritten {
        /// The step.
        place: StepPlace,
        /// The slot that it reads.
        slot: Slot,
        /// The extent that the scratch chunk holds instead, if any.
        holds: Option<u32>,
    },
    /// In place, a step reads its input after another step overwrote it.
    Overwritten {
        /// The step.
        place: StepPlace,
        /// The step that overwrote the input.
        by: StepPlace,
    },
    /// Two steps touch the same bytes, at least one of them writes, and no dependencies order them.
    Race {
        /// The earlier step in the list.
        first: StepPlace,
        /// The later step.
        second: StepPlace,
    },
    /// A deadlock: each of these steps waits for the next, and the last for the first.
    Deadlock {
        /// The cycle. A transfer is represented by its sending step.
        cycle: Vec<StepPlace>,
    },
    /// Ranks in a cycle receive into the bytes from which they send. If links keep sent bytes until they are received,
    /// each transfer waits for the next, and the last for the first.
    Unbuffered {
        /// The cycle. A transfer is represented by its sending step.
        cycle: Vec<StepPlace>,
    },
    /// A reduction whose operands both contain the same contributions.
    Twice {
        /// The step.
        place: StepPlace,
        /// The ranks whose contributions both operands contain.
        ranks: Vec<u32>,
    },
    /// A reduction is marked as completing but lacks contributions, or completes without the mark.
    Completes {
        /// The step.
        place: StepPlace,
        /// The ranks whose contributions its result lacks.
        missing: Vec<u32>,
    },
    /// A chunk of an output differs from the promise of the collective.
    Output {
        /// The rank.
        rank: u32,
        /// The extent.
        extent: u32,
        /// The ranks whose contributions it lacks.
        missing: Vec<u32>,
        /// The ranks whose contributions do not belong there.
        surplus: Vec<u32>,
    },
    /// Two ranks computed the same chunk by different sums, so their bits may differ.
    Trees {
        /// The extent.
        extent: u32,
        /// A rank and its sum.
        one: (u32, String),
        /// Another rank and its sum.
        other: (u32, String),
    },
    /// A rank leaves a barrier although other ranks may not have entered it.
    Leaves {
        /// The rank.
        rank: u32,
        /// The ranks of which it has not heard.
        unheard: Vec<u32>,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim { figures } => formatter
                .write_str(&figures.iter().map(WrongFigure::to_string).collect::<Vec<_>>().join("; ")),
            Self::Panicked { rank: Some(rank), text } => {
                write!(formatter, "building the schedule of rank {rank} panicked: {text}")
            }
            Self::Panicked { rank: None, text } => write!(formatter, "the algorithm panicked: {text}"),
            Self::NotCanonical => {
                formatter.write_str("its sums are not those of the canonical tree, as it claims")
            }
            Self::NotInOrder => formatter.write_str(
                "its sums do not keep the order of the ranks, so it must require commutative operators",
            ),
            Self::ExtentCount { claimed: 0, .. } => formatter.write_str("it cuts the vector into 0 extents"),
            Self::ExtentCount { claimed, unit } => {
                write!(formatter, "it has {claimed} extents, which is not a multiple of {unit}")
            }
            Self::ScheduleCount { ranks, schedules } => {
                write!(formatter, "there are {schedules} schedules for {ranks} ranks")
            }
            Self::WrongRank { rank, found } => {
                write!(formatter, "the schedule given for rank {rank} is that of rank {found}")
            }
            Self::Malformed { place, problem } => write!(formatter, "{place} {problem}"),
            Self::Unmatched { .. } => self.unmatched(formatter),
            Self::Unwritten { place, slot, holds: None } => {
                write!(formatter, "{place} reads {slot}, which nothing has written")
            }
            Self::Unwritten { place, slot, holds: Some(extent) } => {
                write!(formatter, "{place} reads {slot}, which holds extent {extent}")
            }
            Self::Overwritten { place, by } => {
                write!(formatter, "{place} reads its input after {by} has overwritten it")
            }
            Self::Race { first, second } => {
                write!(formatter, "{second} touches the same bytes as {first} and does not wait for it")
            }
            Self::Deadlock { cycle } => waits(formatter, "deadlock", cycle),
            Self::Unbuffered { cycle } => {
                waits(formatter, "deadlock if links do not buffer", cycle)?;
                formatter.write_str(
                    "; a send is buffered if a reduction of its extent waits for it, so receive into a scratch chunk \
                     and copy from there",
                )
            }
            Self::Twice { place, ranks } => {
                write!(formatter, "{place} adds the contribution of {} twice", list(ranks))
            }
            Self::Completes { place, missing } if missing.is_empty() => {
                write!(formatter, "{place} completes its chunk, but is not marked as completing")
            }
            Self::Completes { place, missing } => {
                write!(
                    formatter,
                    "{place} is marked as completing, but lacks the contribution of {}",
                    list(missing)
                )
            }
            Self::Output { .. } => self.output(formatter),
            Self::Trees { extent, one, other } => {
                let ((one, its), (other, theirs)) = (one, other);
                write!(formatter, "extent {extent} is {its} at rank {one} but {theirs} at rank {other}")
            }
            Self::Leaves { rank, unheard } => {
                write!(formatter, "rank {rank} leaves without having heard of {}", list(unheard))
            }
        }
    }
}

impl Fault {
    fn unmatched(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Unmatched { sender, receiver, nth, sent, received } = self else { return Ok(()) };
        write!(formatter, "transfer {nth} from rank {sender} to rank {receiver}: ")?;
        match (sent, received) {
            (Some(sent), Some(received)) => write!(formatter, "{sent} does not match {received}"),
            (Some(sent), None) => write!(formatter, "{sent} is never received"),
            (None, Some(received)) => write!(formatter, "{received} is never sent"),
            (None, None) => formatter.write_str("nothing"),
        }
    }

    fn output(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Output { rank, extent, missing, surplus } = self else { return Ok(()) };
        write!(formatter, "rank {rank}'s output of extent {extent}")?;
        if !missing.is_empty() {
            write!(formatter, " lacks the contribution of {}", list(missing))?;
        }
        if !surplus.is_empty() {
            let and = if missing.is_empty() { "" } else { " and" };
            write!(formatter, "{and} holds that of {}, which does not belong there", list(surplus))?;
        }
        Ok(())
    }
}

fn waits(formatter: &mut fmt::Formatter<'_>, what: &str, cycle: &[StepPlace]) -> fmt::Result {
    write!(formatter, "{what}:")?;
    for (nth, place) in cycle.iter().enumerate() {
        let link = if nth == 0 { "" } else { ", waits for" };
        write!(formatter, "{link} {place}")?;
    }
    formatter.write_str(", waits for the first")
}

/// The ranks as text; at most eight are named.
fn list(ranks: &[u32]) -> String {
    const NAMED_MAX: usize = 8;
    let named: Vec<String> = ranks.iter().take(NAMED_MAX).map(u32::to_string).collect();
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    let rest = match ranks.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{noun} {}{rest}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use crate::{Algorithm, Collective, Shape, find_by_name, prove, verify_schedules};

    /// A communicator names as many leaders as the host has cores, for any algorithm.
    #[test]
    fn leaders_are_named_only_where_they_matter() {
        let shape = Shape::new(4).with_leaders(2);
        let silent = Algorithm::new("silent", Collective::AllReduce, |_| {});
        let built = Algorithm::new("built", Collective::AllReduce, |_| panic!("no idea"));
        for (algorithm, name) in [(silent, "silent"), (built, "built")] {
            let refused = prove(&algorithm, &shape, 1_000).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("all_reduce/{name} with 4 ranks")), "{refused}");
            assert!(!refused.contains("leaders"), "{refused}");
        }
        // Without a claimed cost, the steps show whether leaders matter.
        let led = Algorithm::new("led", Collective::AllReduce, |builder| {
            if builder.rank() < builder.shape().leaders {
                builder.deliver(0);
            }
        });
        let refused = prove(&led, &shape, 1_000).unwrap_err().to_string();
        assert!(refused.starts_with("all_reduce/led with 4 ranks, 2 leaders"), "{refused}");
        let leaders = find_by_name("all_reduce/leaders").unwrap();
        let same: Vec<_> = (0..4).map(|_| leaders.schedule(&shape, 0)).collect();
        let wrong = verify_schedules(leaders, &shape, &same).unwrap_err().to_string();
        assert!(wrong.starts_with("all_reduce/leaders with 4 ranks, 2 leaders"), "{wrong}");
    }
}
