//! The algorithms of a communicator: this crate's and the user's.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::verify::{check_messages, prove, schedules};
use crate::{Admit, Algorithm, Collective, Cost, Digest, Proof, Refusal, Refused, Shape, algorithms};

/// The most steps, over all ranks and roots, of a proof at registration.
pub const PROOF_STEPS_MAX: u64 = 10_000_000;

/// The most steps of a proof that a rank makes alone, when a group first uses an algorithm.
pub const FIRST_USE_STEPS_MAX: u64 = 1_000_000;

/// The number of similar names in the answer to an unknown name.
const NEAREST_MAX: usize = 3;

/// The check of an algorithm from outside, before its first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The algorithm is proved for every group that uses it.
    Prove,
    /// Only the match of sends and receives is checked; a wrong algorithm gives wrong results or hangs. For an
    /// algorithm that was proved elsewhere and is too large to prove again.
    Trusted,
}

/// The facts about an algorithm in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The cost, claimed or counted. Without it the algorithm runs only if a call names it.
    pub cost: Option<Cost>,
    /// The largest number of scratch chunks of any rank.
    pub scratch_chunks: u32,
    /// Whether every result is summed in the canonical tree.
    pub canonical: bool,
    /// The digest of all ranks' schedules; `None` for an algorithm of this crate, whose name is enough.
    pub digest: Option<u64>,
    /// The number of steps of all ranks; 0 if not counted.
    pub steps: u64,
}

impl From<Proof> for Facts {
    fn from(proof: Proof) -> Self {
        let Proof { canonical, cost, steps, scratch_chunks, digest, .. } = proof;
        Self { cost: Some(cost), scratch_chunks, canonical, digest: Some(digest), steps }
    }
}

type Known = Arc<Mutex<HashMap<Shape, Finding>>>;

/// The facts about an algorithm for one shape, or the reason to refuse it.
struct Finding {
    facts: Result<Facts, Refused>,
    /// Whether all ranks of a group found this together. Else this rank found it alone, perhaps in another group.
    is_common: bool,
}

#[derive(Clone)]
enum Origin {
    /// From this crate. Tests prove its claims.
    BuiltIn,
    Outside {
        trust: Trust,
        known: Known,
    },
}

#[derive(Clone)]
struct Entry {
    algorithm: Arc<Algorithm>,
    origin: Origin,
}

/// Algorithms by collective and name. Copies are cheap and independent.
///
/// ```
/// use std::sync::Arc;
/// use unisono_schedule::{Algorithm, Collective, Registry, Shape, Trust};
/// let star = Algorithm::new("star", Collective::Broadcast, |builder| {
///     let (root, ranks) = (builder.root(), builder.ranks());
///     if builder.rank() == root {
///         (0..ranks).filter(|rank| *rank != root).for_each(|rank| drop(builder.send(rank, 0)));
///     } else {
///         builder.recv(root, 0);
///     }
/// });
/// let mut registry = Registry::built_in();
/// registry.add(Arc::new(star), Trust::Prove)?;
/// let star = registry.find(Collective::Broadcast, "star").expect("just added");
/// assert_eq!(registry.facts(star, &Shape::new(4))?.cost.unwrap().messages, 3);
/// assert_eq!(registry.nearest(Collective::Broadcast, "stra")[0], "star");
/// # Ok::<(), unisono_schedule::Refused>(())
/// ```
#[derive(Clone)]
pub struct Registry {
    entries: Arc<[Entry]>,
}

static BUILT_IN: LazyLock<Registry> = LazyLock::new(|| {
    let entry = |algorithm: &Arc<Algorithm>| Entry { algorithm: algorithm.clone(), origin: Origin::BuiltIn };
    Registry { entries: algorithms().iter().map(entry).collect() }
});

impl Default for Registry {
    fn default() -> Self {
        Self::built_in()
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.algorithms()).finish()
    }
}

impl Registry {
    /// The algorithms of this crate.
    pub fn built_in() -> Self {
        BUILT_IN.clone()
    }

    /// All algorithms. Algorithms from outside come last.
    pub fn algorithms(&self) -> impl Iterator<Item = &Arc<Algorithm>> {
        self.entries.iter().map(|entry| &entry.algorithm)
    }

    /// Adds an algorithm. It is examined when a group first uses it.
    ///
    /// # Errors
    /// [`Refusal::BadName`], [`Refusal::NameTaken`], [`Refusal::PlaceMayDiffer`].
    pub fn add(&mut self, algorithm: Arc<Algorithm>, trust: Trust) -> Result<(), Refused> {
        if let Some(problem) = problem_of(algorithm.name) {
            return Err(algorithm.refused(Refusal::BadName(problem)));
        }
        if self.find(algorithm.collective, algorithm.name).is_some() {
            return Err(algorithm.refused(Refusal::NameTaken));
        }
        if algorithm.requires.out_of_place && algorithm.collective.place_may_differ() {
            return Err(algorithm.refused(Refusal::PlaceMayDiffer));
        }
        let entry = Entry { algorithm, origin: Origin::Outside { trust, known: Known::default() } };
        self.entries = self.entries.iter().cloned().chain([entry]).collect();
        Ok(())
    }

    /// The algorithm of this name for a collective.
    pub fn find(&self, collective: Collective, name: &str) -> Option<&Arc<Algorithm>> {
        self.entry(collective, name).map(|entry| &entry.algorithm)
    }

    /// The algorithm of this qualified name, such as `all_reduce/ring`.
    pub fn find_by_name(&self, qualified_name: &str) -> Option<&Arc<Algorithm>> {
        let (collective, name) = qualified_name.split_once('/')?;
        self.find(collective.parse().ok()?, name)
    }

    /// The names of the collective's algorithms that are most like `name`, the nearest first.
    pub fn nearest(&self, collective: Collective, name: &str) -> Vec<&'static str> {
        let names = self.algorithms().filter(|one| one.collective == collective).map(|one| one.name);
        nearest_names(names, unqualified(name))
    }

    /// As [`Registry::nearest`], among the names of all collectives.
    pub fn nearest_of_all(&self, name: &str) -> Vec<&'static str> {
        nearest_names(self.algorithms().map(|one| one.name), unqualified(name))
    }

    /// As [`Registry::nearest`], among the qualified names, such as `all_reduce/ring`.
    pub fn nearest_qualified(&self, name: &str) -> Vec<String> {
        nearest_names(self.algorithms().map(|one| one.qualified_name()), name)
    }

    /// The facts about an algorithm for `shape`. The first call proves an algorithm from outside.
    ///
    /// # Errors
    /// [`Refused`] if it may not be used for such a shape.
    pub fn facts(&self, algorithm: &Algorithm, shape: &Shape) -> Result<Facts, Refused> {
        let entry = self.entry(algorithm.collective, algorithm.name);
        let entry = entry.ok_or_else(|| algorithm.refused(Refusal::NotRegistered))?;
        entry.facts(shape)
    }

    /// Stores facts about an algorithm from outside that all ranks of a group have found together.
    pub fn note(&self, algorithm: &Algorithm, shape: &Shape, facts: Facts) {
        if let Some(Entry { origin: Origin::Outside { known, .. }, .. }) =
            self.entry(algorithm.collective, algorithm.name)
        {
            let common = Finding { facts: Ok(facts), is_common: true };
            known.lock().unwrap_or_else(PoisonError::into_inner).insert(*shape, common);
        }
    }

    /// The algorithms that may serve such a call in such a group with any root, and their costs.
    pub fn admitted(
        &self,
        collective: Collective,
        shape: &Shape,
        admit: &Admit,
    ) -> Vec<(Arc<Algorithm>, Cost)> {
        let of_collective = self.entries.iter().filter(|entry| entry.algorithm.collective == collective);
        let admitted = of_collective.filter_map(|entry| {
            let facts = entry.facts_of_all_roots(shape)?;
            let refusal = admit.refusal(&entry.algorithm, facts.canonical);
            refusal.is_none().then_some((entry.algorithm.clone(), facts.cost?))
        });
        admitted.collect()
    }

    fn entry(&self, collective: Collective, name: &str) -> Option<&Entry> {
        let is_meant =
            |entry: &&Entry| entry.algorithm.collective == collective && entry.algorithm.name == name;
        self.entries.iter().find(is_meant)
    }
}

impl Entry {
    fn facts(&self, shape: &Shape) -> Result<Facts, Refused> {
        let algorithm = &self.algorithm;
        match &self.origin {
            Origin::BuiltIn if !algorithm.supports(shape) => {
                Err(algorithm.refused(Refusal::DoesNotFit { ranks: shape.ranks, root: shape.root }))
            }
            Origin::BuiltIn => Ok(Facts {
                cost: algorithm.cost_of(shape),
                scratch_chunks: algorithm.scratch_chunks_of(shape).unwrap_or(0),
                canonical: algorithm.canonical,
                digest: None,
                steps: 0,
            }),
            Origin::Outside { trust, known } => {
                let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
                let found = || match trust {
                    Trust::Prove => prove(algorithm, shape, FIRST_USE_STEPS_MAX).map(Facts::from),
                    Trust::Trusted => believed(algorithm, shape),
                };
                let own = || Finding { facts: found(), is_common: false };
                known.entry(*shape).or_insert_with(own).facts.clone()
            }
        }
    }

    /// The facts that hold for every root, so that the choice of an algorithm does not depend on the root. `None` if
    /// the algorithm is refused for some root, or if the proof for all roots would take too long here.
    fn facts_of_all_roots(&self, shape: &Shape) -> Option<Facts> {
        let facts = self.facts(shape).ok()?;
        if !self.algorithm.collective.is_rooted() || facts.digest.is_none() {
            return Some(facts);
        }
        let Origin::Outside { known, .. } = &self.origin else { return Some(facts) };
        let is_common = |shape: &Shape| {
            let known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(shape).is_some_and(|finding| finding.is_common)
        };
        let mut roots = (0..shape.ranks).map(|root| shape.with_root(root));
        // Facts that only this rank has found do not count: ranks without them would choose another algorithm.
        if facts.steps * u64::from(shape.ranks) > FIRST_USE_STEPS_MAX
            && !roots.clone().all(|root| is_common(&root))
        {
            return None;
        }
        // The call of `facts` stands before `all`, so that every root is examined, also after a root that is not
        // canonical.
        let canonical =
            roots.try_fold(facts.canonical, |all, root| Some(self.facts(&root).ok()?.canonical && all))?;
        Some(Facts { canonical, ..facts })
    }
}

/// The claims of a trusted algorithm, and the digest of its schedules.
fn believed(algorithm: &Algorithm, shape: &Shape) -> Result<Facts, Refused> {
    let schedules = schedules(algorithm, shape, FIRST_USE_STEPS_MAX)?;
    check_messages(algorithm, shape, &schedules)?;
    let digest = Digest::of_all(schedules.iter().map(|schedule| Digest::of(schedule).value()));
    Ok(Facts {
        cost: algorithm.try_cost_of(shape)?,
        scratch_chunks: schedules.iter().map(|schedule| schedule.scratch_chunks).max().unwrap_or(0),
        canonical: algorithm.canonical,
        digest: Some(digest.value()),
        steps: schedules.iter().map(|schedule| schedule.steps.len() as u64).sum(),
    })
}

/// The fault of a name. Names are parts of paths, settings and lists.
fn problem_of(name: &str) -> Option<&'static str> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > crate::INTERNED_BYTES_MAX {
        Some("it is too long")
    } else if !name.chars().all(is_letter) {
        Some("letters, digits and _ - . are allowed")
    } else {
        None
    }
}

/// The name without its collective, as in `all_reduce/ring`.
fn unqualified(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// The three names that are most like `name`, the nearest first.
pub fn nearest_names<T: AsRef<str> + Ord>(names: impl Iterator<Item = T>, name: &str) -> Vec<T> {
    let mut names: Vec<T> = names.collect();
    names.sort_unstable();
    names.dedup();
    let likeness = |one: &T| strsim::jaro_winkler(one.as_ref(), name);
    names.sort_by(|one, other| likeness(other).total_cmp(&likeness(one)));
    names.truncate(NEAREST_MAX);
    names
}
