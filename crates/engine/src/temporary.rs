//! temporary
use unisono_schedule::*;
#[derive(Clone, Debug, Default)]
/// Temporary.
pub struct Parameters;
pub struct Admit {
    pub canonical_only: bool,
    pub commutative_operator: bool,
    pub uneven: bool,
    pub in_place: bool,
}
impl Admit {
    pub fn refusal(&self, _a: &Algorithm, _s: &Shape) -> Option<String> {
        None
    }
}
pub struct Chooser;
impl Chooser {
    pub fn new(_s: &Shape, _p: &Parameters) -> Chooser {
        Chooser
    }
    pub fn choose(&self, c: Collective, _b: u64, a: &Admit) -> Option<&'static Algorithm> {
        algorithms().iter().find(|x| x.collective == c && (!a.canonical_only || x.canonical))
    }
}
