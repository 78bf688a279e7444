//! An algorithm that a user names, with the shape that the name implies: `ring`, `leaders:4`.

use std::fmt;
use std::sync::Arc;

use crate::algorithms::LEADERS;
use crate::{Algorithm, Collective, NotInterned, Registry, Shape, intern};

/// An algorithm, and the shape with which it runs.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The algorithm.
    pub algorithm: Arc<Algorithm>,
    /// The group's shape, with the number of leaders in the name.
    pub shape: Shape,
}

/// Why a name cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnknownChoice {
    /// The collective has no algorithm of this name.
    Name {
        /// The name.
        name: String,
        /// The collective.
        collective: Collective,
        /// The most similar names of its algorithms, the nearest first.
        nearest: Vec<&'static str>,
    },
    /// The algorithm takes no number, or the text after the colon is no number.
    Number {
        /// The name.
        name: String,
    },
    /// The number of leaders is 0, or leaves a leader without a rank to lead.
    Leaders {
        /// The name.
        name: String,
        /// The number of ranks.
        ranks: u32,
        /// The largest number of leaders.
        most: u32,
    },
}

impl Choice {
    /// The choice that `name` means in a group of this shape. `leaders:L` sets the number of leaders, from one to half
    /// of the ranks. Every other name leaves the shape as it is.
    ///
    /// # Errors
    /// [`UnknownChoice`] gives the fault of the name, and the nearest names.
    ///
    /// ```
    /// use unisono_schedule::{Choice, Collective, Registry, Shape};
    /// let registry = Registry::built_in();
    /// let named = |name| Choice::named(&registry, Collective::AllReduce, name, &Shape::new(8));
    /// assert_eq!(named("ring").unwrap().shape, Shape::new(8));
    /// let led = named("leaders:4").unwrap();
    /// assert_eq!((led.algorithm.name, led.shape.leaders, led.to_string().as_str()), ("leaders", 4, "leaders:4"));
    /// assert_eq!(named("leaders:5").unwrap_err().to_string(), "\"leaders:5\" of 8 ranks: at most 4 of them can lead");
    /// assert!(named("ring:2").is_err() && named("polka").is_err());
    /// assert!(named("rings").unwrap_err().to_string().contains("the nearest are ring, "));
    /// ```
    pub fn named(
        registry: &Registry,
        collective: Collective,
        name: &str,
        shape: &Shape,
    ) -> Result<Choice, UnknownChoice> {
        let (plain, number) =
            name.split_once(':').map_or((name, None), |(plain, number)| (plain, Some(number)));
        let Some(algorithm) = registry.find(collective, plain).cloned() else {
            let nearest = registry.nearest(collective, plain);
            return Err(UnknownChoice::Name { name: name.to_owned(), collective, nearest });
        };
        let Some(number) = number else { return Ok(Choice { algorithm, shape: *shape }) };
        let leaders = number.parse().ok().filter(|_| plain == LEADERS);
        let Some(leaders) = leaders else { return Err(UnknownChoice::Number { name: name.to_owned() }) };
        let most = shape.leaders_max();
        if !(1..=most).contains(&leaders) {
            return Err(UnknownChoice::Leaders { name: name.to_owned(), ranks: shape.ranks, most });
        }
        Ok(Choice { algorithm, shape: shape.with_leaders(leaders) })
    }

    /// The name of this choice as static text; [`Choice::named`] turns it back.
    ///
    /// # Errors
    /// [`NotInterned`] for a new number of leaders when the process keeps too many names.
    pub fn static_name(&self) -> Result<&'static str, NotInterned> {
        if self.algorithm.name == LEADERS { intern(&self.to_string()) } else { Ok(self.algorithm.name) }
    }

    /// Whether `name` means an algorithm of some collective in some group.
    ///
    /// ```
    /// use unisono_schedule::{Choice, Registry};
    /// let is_known = |name| Choice::is_known(&Registry::built_in(), name);
    /// assert!(is_known("leaders:7") && !is_known("leaders:x") && !is_known("polka"));
    /// ```
    pub fn is_known(registry: &Registry, name: &str) -> bool {
        let widest = Shape::new(Shape::RANKS_MAX);
        Collective::ALL.iter().any(|collective| Choice::named(registry, *collective, name, &widest).is_ok())
    }
}

impl PartialEq for Choice {
    fn eq(&self, other: &Choice) -> bool {
        Arc::ptr_eq(&self.algorithm, &other.algorithm) && self.shape == other.shape
    }
}

impl Eq for Choice {}

/// The name of this choice.
impl fmt::Display for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.algorithm.name)?;
        if self.algorithm.name != LEADERS {
            return Ok(());
        }
        write!(formatter, ":{}", self.shape.leaders.clamp(1, self.shape.leaders_max()))
    }
}

impl fmt::Display for UnknownChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnknownChoice::Name { name, collective, nearest } => {
                let nearest = nearest.join(", ");
                write!(formatter, "{name:?} is no algorithm of {collective}; the nearest are {nearest}")
            }
            UnknownChoice::Number { name } => {
                write!(formatter, "{name:?}: only {LEADERS} takes a number, as in {LEADERS}:2")
            }
            UnknownChoice::Leaders { name, ranks, most } => {
                write!(formatter, "{name:?} of {ranks} ranks: at most {most} of them can lead")
            }
        }
    }
}

impl std::error::Error for UnknownChoice {}
