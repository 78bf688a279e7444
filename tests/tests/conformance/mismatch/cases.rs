//! The matrix: every form of a collective call, and the calls that differ from it in one field or in two.

use unisono_communicator::{CallOptions, Collective, DType, Place, ReduceOp};
use unisono_schedule::{Admit, Registry, Shape};
use unisono_tests::case::{Amount, Case};
use unisono_tests::sample::mix;

/// Elements of the usual call.
const COUNT: usize = 6;

/// Enough of them for the streams of long calls.
const MANY: usize = 40_000;

/// Counts of a rank that deviates.
const OTHER_COUNTS: [usize; 5] = [0, 1, COUNT - 1, COUNT + 1, MANY];

/// What it adds to one of uneven counts.
const MORE: [usize; 2] = [1, MANY];

/// What a call is a part of, and that of a rank that deviates.
const PARTS: [(Option<&str>, Option<&str>); 3] =
    [(None, Some("whole")), (Some("whole"), None), (Some("whole"), Some("other"))];

/// A field in which a call can differ from those of the other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Collective,
    DtypeOfEqualSize,
    DtypeOfOtherSize,
    Count,
    Op,
    Root,
    Label,
    Algorithm,
    Part,
    Place,
    Uneven,
    Counts,
}

use Field::{
    Algorithm, Collective as Operation, Count, Counts, DtypeOfEqualSize, DtypeOfOtherSize, Label, Op, Part,
    Place as Placing, Root, Uneven,
};

const FIELDS: [Field; 12] = [
    Operation,
    DtypeOfEqualSize,
    DtypeOfOtherSize,
    Count,
    Op,
    Root,
    Label,
    Placing,
    Uneven,
    Counts,
    Algorithm,
    Part,
];

impl Field {
    /// How a report names it.
    fn name(self) -> &'static str {
        match self {
            Operation => "collective",
            DtypeOfEqualSize | DtypeOfOtherSize => "dtype",
            Count => "count",
            Op => "op",
            Root => "root",
            Label => "label",
            Algorithm => "algorithm",
            Part => "part of",
            Placing => "in place",
            Uneven => "uneven",
            Counts => "counts",
        }
    }

    /// Whether a call can differ in both.
    fn goes_with(self, other: Field) -> bool {
        let is_pair = |a, b| (self, other) == (a, b) || (other, self) == (a, b);
        let is_same = self.name() == other.name();
        !is_same && !is_pair(Uneven, Counts) && !is_pair(Uneven, Count) && !is_pair(Counts, Count)
    }
}

/// A world's call of which one rank makes another.
#[derive(Clone, Debug)]
pub(crate) struct Deviation {
    /// What the ranks but one call.
    pub(crate) usual: Case,
    /// What that one calls.
    pub(crate) odd: Case,
    /// Who it is.
    pub(crate) odd_rank: u32,
    /// Of how many.
    pub(crate) ranks: u32,
    /// In what the calls differ on purpose.
    pub(crate) fields: Vec<Field>,
}

impl Deviation {
    /// What a report must name. Uneven counts are compared link by link, so one that differs for another reason too may
    /// have equal counts.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        let is_alone = self.fields.len() == 1;
        self.fields.iter().filter(move |&&field| is_alone || field != Counts).map(|field| field.name())
    }

    /// For messages.
    pub(crate) fn title(&self) -> String {
        let form = if self.usual.amount == even() { "" } else { "_v" };
        format!("{}{form} {:?} by rank {}", self.usual.collective, self.fields, self.odd_rank)
    }
}

/// All deviations among `ranks` ranks.
pub(crate) fn deviations(ranks: u32, seed: u64) -> Vec<Deviation> {
    let mut maker = Maker { ranks, seed, made: Vec::new() };
    for collective in Collective::ALL {
        for is_uneven in [false, true] {
            if !is_uneven || has_uneven_form(collective) {
                maker.add_form(collective, is_uneven);
            }
        }
    }
    maker.made
}

/// Every form of a call that differs between ranks only in what may differ.
pub(crate) fn harmless(ranks: u32, seed: u64) -> Vec<[Case; 2]> {
    let mut cases = Vec::new();
    for (number, collective) in Collective::ALL.into_iter().enumerate() {
        let root = (mix(seed ^ number as u64) % u64::from(ranks)) as u32;
        let usual = Case { root, ..Case::new(collective, dtype_of(collective), count_of(collective)) };
        let with = |options| Case { options, ..usual.clone() };
        cases.push([usual.clone(), usual.clone()]);
        cases.push([with(CallOptions::new().label("")), with(CallOptions::new().label(""))]);
        let part = || Case { part_of: Some("whole"), ..usual.clone() };
        cases.push([part(), part()]);
        cases.push([with(CallOptions::new().label("same")), with(CallOptions::new().label("same"))]);
        let timeout = CallOptions::new().timeout(std::time::Duration::from_secs(59));
        cases.push([usual.clone(), with(timeout)]);
        cases.push([usual.clone(), Case { segments: Some(seed), ..usual.clone() }]);
        if collective.place_may_differ() {
            cases.push([usual.clone(), Case { place: Place::InPlace, ..usual.clone() }]);
        }
        if collective.reduces() {
            // The factor is each rank's own.
            let op = Some(ReduceOp::PreMulSum(1.0));
            let scaled = Case { op, dtype: DType::F32, ..usual.clone() };
            cases.push([scaled.clone(), scaled]);
        }
        if has_uneven_form(collective) {
            let uneven = Case { amount: amount(collective, true, ranks), ..usual.clone() };
            cases.push([uneven.clone(), uneven]);
        }
    }
    cases
}

fn has_uneven_form(collective: Collective) -> bool {
    use Collective::{AllGather, AllToAll, Gather, ReduceScatter, Scatter};
    matches!(collective, AllGather | AllToAll | Gather | ReduceScatter | Scatter)
}

/// Whether its place is compared.
fn has_place(collective: Collective) -> bool {
    !collective.place_may_differ() && collective != Collective::Barrier
}

fn even() -> Amount {
    Amount::Even(COUNT)
}

fn count_of(collective: Collective) -> usize {
    if collective == Collective::Barrier { 0 } else { COUNT }
}

fn dtype_of(collective: Collective) -> DType {
    if collective == Collective::Barrier { DType::U8 } else { DType::U32 }
}

fn amount(collective: Collective, is_uneven: bool, ranks: u32) -> Amount {
    let share = |number: u32| COUNT - number as usize % 4;
    match (is_uneven, collective) {
        (false, _) => Amount::Even(count_of(collective)),
        (true, Collective::AllToAll) => {
            Amount::PerPair((0..ranks).map(|from| (0..ranks).map(|to| share(from + to)).collect()).collect())
        }
        (true, _) => Amount::PerRank((0..ranks).map(share).collect()),
    }
}

/// Algorithms that serve a call.
fn fitting(case: &Case, ranks: u32) -> Vec<&'static str> {
    let admit = Admit {
        uneven: !matches!(case.amount, Amount::Even(_)),
        in_place: case.place == Place::InPlace || case.collective == Collective::Broadcast,
        ..Admit::ANY
    };
    let shape = Shape::new(ranks).with_root(case.root);
    let admitted = Registry::built_in().admitted(case.collective, &shape, &admit);
    admitted.into_iter().map(|(algorithm, _)| algorithm.name).collect()
}

struct Maker {
    ranks: u32,
    seed: u64,
    made: Vec<Deviation>,
}

impl Maker {
    /// Random, and the same for the same seed and place in the matrix.
    fn random(&self, below: usize) -> usize {
        (mix(self.seed ^ mix(self.made.len() as u64)) % below as u64) as usize
    }

    /// The first, the middle and the last rank in turns.
    fn odd_rank(&self) -> u32 {
        [0, self.ranks / 2, self.ranks - 1][self.random(3)]
    }

    fn add_form(&mut self, collective: Collective, is_uneven: bool) {
        for &field in &FIELDS {
            self.add_single(collective, is_uneven, field);
        }
        for (position, &first) in FIELDS.iter().enumerate() {
            for &second in FIELDS[position + 1..].iter().filter(|&&second| first.goes_with(second)) {
                self.add(collective, is_uneven, &[first, second]);
            }
        }
    }

    /// In one field, in every way that there is.
    fn add_single(&mut self, collective: Collective, is_uneven: bool, field: Field) {
        let usual = self.case(collective, is_uneven);
        let odd_rank = self.odd_rank();
        let options = |name| CallOptions::new().algorithm(name);
        match field {
            Operation => {
                for other in Collective::ALL.into_iter().filter(|&other| other != collective) {
                    let odd = self.case(other, is_uneven && has_uneven_form(other));
                    self.push(usual.clone(), odd, self.odd_rank(), &[field]);
                }
            }
            Label => {
                let labels = [None, Some("red"), Some("blue")];
                for (number, ours) in labels.into_iter().enumerate() {
                    let theirs = labels[(number + 1) % 3];
                    self.push(labelled(&usual, ours), labelled(&usual, theirs), self.odd_rank(), &[field]);
                }
            }
            Algorithm => {
                let names = fitting(&usual, self.ranks);
                for (ours, theirs) in names.iter().flat_map(|a| names.iter().map(move |b| (*a, *b))) {
                    if ours != theirs {
                        let case = |name| Case { options: options(name), ..usual.clone() };
                        self.push(case(ours), case(theirs), self.odd_rank(), &[field]);
                    }
                }
            }
            Part => {
                for (ours, theirs) in PARTS {
                    let case = |part_of| Case { part_of, ..usual.clone() };
                    self.push(case(ours), case(theirs), self.odd_rank(), &[field]);
                }
            }
            Count if usual.amount == even() => {
                for count in OTHER_COUNTS {
                    let odd = Case { amount: Amount::Even(count), ..usual.clone() };
                    self.push(usual.clone(), odd, self.odd_rank(), &[field]);
                }
            }
            Counts => {
                for more in MORE {
                    let (mut odd, odd_rank) = (usual.clone(), self.odd_rank());
                    if change_counts(&mut odd, (odd_rank, self.ranks), more) {
                        self.push(usual.clone(), odd, odd_rank, &[field]);
                    }
                }
            }
            DtypeOfEqualSize | DtypeOfOtherSize | Count | Op | Root | Placing | Uneven => {
                let (mut usual, mut odd) = (usual.clone(), usual);
                if self.vary(field, &mut usual, &mut odd, odd_rank) {
                    self.push(usual, odd, odd_rank, &[field]);
                }
            }
        }
    }

    /// In all of these fields, if a call can.
    fn add(&mut self, collective: Collective, is_uneven: bool, fields: &[Field]) {
        let odd_rank = self.odd_rank();
        let others: Vec<Collective> = match fields[0] {
            Operation => Collective::ALL.into_iter().filter(|&other| other != collective).collect(),
            _ => vec![collective],
        };
        let start = self.random(others.len());
        for number in 0..others.len() {
            let other = others[(start + number) % others.len()];
            let mut usual = self.case(collective, is_uneven);
            let mut odd = self.case(other, is_uneven && has_uneven_form(other));
            let rest = fields.iter().filter(|&&field| field != Operation);
            let mut varied = rest.map(|&field| self.vary(field, &mut usual, &mut odd, odd_rank));
            if varied.all(|is_varied| is_varied) {
                drop(varied);
                return self.push(usual, odd, odd_rank, fields);
            }
        }
    }

    fn push(&mut self, usual: Case, odd: Case, odd_rank: u32, fields: &[Field]) {
        self.made.push(Deviation { usual, odd, odd_rank, ranks: self.ranks, fields: fields.to_vec() });
    }

    fn case(&self, collective: Collective, is_uneven: bool) -> Case {
        let root = if collective.is_rooted() { self.random(self.ranks as usize) as u32 } else { 0 };
        Case {
            root,
            amount: amount(collective, is_uneven, self.ranks),
            seed: self.seed,
            ..Case::new(collective, dtype_of(collective), COUNT)
        }
    }

    /// Makes two calls differ in a field; false when they cannot.
    fn vary(&self, field: Field, usual: &mut Case, odd: &mut Case, odd_rank: u32) -> bool {
        let both = |fits: fn(Collective) -> bool| fits(usual.collective) && fits(odd.collective);
        let has_data = both(|collective| collective != Collective::Barrier);
        match field {
            Operation => usual.collective != odd.collective,
            DtypeOfEqualSize if has_data => set(&mut odd.dtype, DType::I32),
            DtypeOfOtherSize if has_data => set(&mut odd.dtype, [DType::U64, DType::U16][self.random(2)]),
            Count if has_data => match (&usual.amount, &mut odd.amount) {
                (Amount::Even(_), Amount::Even(count)) => {
                    set(count, OTHER_COUNTS[self.random(OTHER_COUNTS.len())])
                }
                _ => false,
            },
            Op if both(Collective::reduces) => set(&mut odd.op, Some(ReduceOp::Sum)),
            Root if both(Collective::is_rooted) => {
                let shift = 1 + self.random(self.ranks as usize - 1) as u32;
                set(&mut odd.root, (usual.root + shift) % self.ranks)
            }
            Placing if both(has_place) => {
                let is_odd = self.random(2) == 0;
                set(if is_odd { &mut odd.place } else { &mut usual.place }, Place::InPlace)
            }
            Uneven if both(has_uneven_form) => {
                let is_uneven = odd.amount != even();
                set(&mut odd.amount, amount(odd.collective, !is_uneven, self.ranks))
            }
            Counts => change_counts(odd, (odd_rank, self.ranks), MORE[self.random(MORE.len())]),
            Label => {
                let ours = [None, Some("red"), Some("blue")][self.random(3)];
                let theirs = [Some("green"), None][self.random(2)].filter(|_| ours.is_some());
                let theirs = theirs.or(if ours.is_some() { None } else { Some("green") });
                (*usual, *odd) = (labelled(usual, ours), labelled(odd, theirs));
                true
            }
            Part => {
                (usual.part_of, odd.part_of) = PARTS[self.random(PARTS.len())];
                true
            }
            Algorithm => {
                let (ours, theirs) = (fitting(usual, self.ranks), fitting(odd, self.ranks));
                let name = ours[self.random(ours.len())];
                let others: Vec<_> = theirs.into_iter().filter(|&other| other != name).collect();
                if others.is_empty() {
                    return false;
                }
                let other = others[self.random(others.len())];
                usual.options = usual.options.algorithm(name);
                odd.options = odd.options.algorithm(other);
                true
            }
            DtypeOfEqualSize | DtypeOfOtherSize | Count | Op | Root | Placing | Uneven => false,
        }
    }
}

fn set<T>(place: &mut T, value: T) -> bool {
    *place = value;
    true
}

fn labelled(case: &Case, label: Option<&str>) -> Case {
    let options = label.map_or_else(CallOptions::new, |text| CallOptions::new().label(text));
    Case { options, ..case.clone() }
}

/// Changes a count that a message of this rank depends on: what others have for each other is not its business.
fn change_counts(odd: &mut Case, (odd_rank, ranks): (u32, u32), more: usize) -> bool {
    let own = odd_rank as usize;
    let next = (odd_rank + 1) % ranks;
    let is_at_root = odd.collective.is_rooted() && odd.root == odd_rank;
    match &mut odd.amount {
        Amount::Even(_) => false,
        Amount::PerRank(list) => {
            list[if is_at_root { next as usize } else { own }] += more;
            true
        }
        Amount::PerPair(pairs) => {
            // Both ways, as a call in place must have it.
            pairs[own][next as usize] += more;
            pairs[next as usize][own] += more;
            true
        }
    }
}
