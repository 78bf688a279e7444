//! The use of gradients in a training, by its name in `--compress`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The optimizer is Adam in all of them; they differ in the data that travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    /// Exact gradients.
    None,
    /// 1-bit Adam: after a warm-up, the signs of the preconditioned momentum, with error feedback.
    Sign,
    /// The same without error feedback, to show the worth of it.
    SignNoFeedback,
    /// The signs of the gradients, with error feedback, in plain Adam: 1-bit Adam exists to avoid this.
    SignGradient,
    /// Gradients in 8 bits.
    Int8,
    /// Gradients in 4 bits.
    Int4,
    /// Gradients as bf16.
    Bf16,
}

impl Method {
    const ALL: [Method; 7] = [
        Method::None,
        Method::Sign,
        Method::SignNoFeedback,
        Method::SignGradient,
        Method::Int8,
        Method::Int4,
        Method::Bf16,
    ];
    /// The methods behind `all`: the recommended ones, without the two that only show an effect.
    const RECOMMENDED: [Method; 5] = [Method::None, Method::Sign, Method::Int8, Method::Int4, Method::Bf16];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Method::None => "none",
            Method::Sign => "sign",
            Method::SignNoFeedback => "sign-no-feedback",
            Method::SignGradient => "sign-gradient",
            Method::Int8 => "int8",
            Method::Int4 => "int4",
            Method::Bf16 => "bf16",
        }
    }

    /// Whether the accuracy must be as good as without compression. The others are there to show that theirs is not.
    pub(crate) fn is_recommended(self) -> bool {
        Method::RECOMMENDED.contains(&self)
    }
}

impl FromStr for Method {
    type Err = String;

    fn from_str(text: &str) -> Result<Method, String> {
        Method::ALL.into_iter().find(|method| method.name() == text).ok_or_else(|| {
            let names = Method::ALL.map(Method::name).join(", ");
            format!("unknown codec {text:?}, one of: {names}; or all")
        })
    }
}

impl fmt::Display for Method {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The value of `--compress`: names with commas between, or `all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Methods(Vec<Method>);

impl Methods {
    /// Exact first, because the others are compared with it; each once.
    pub(crate) fn in_order(&self) -> Vec<Method> {
        Method::ALL.into_iter().filter(|method| *method == Method::None || self.0.contains(method)).collect()
    }
}

impl FromStr for Methods {
    type Err = String;

    fn from_str(text: &str) -> Result<Methods, String> {
        let all = Method::RECOMMENDED.to_vec();
        if text == "all" {
            Ok(Methods(all))
        } else {
            text.split(',').map(str::parse).collect::<Result<_, _>>().map(Methods)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lists_and_all_are_understood_and_exact_comes_first() {
        let order = |text: &str| text.parse::<Methods>().unwrap().in_order();
        assert_eq!(order("all"), Method::RECOMMENDED);
        assert_eq!(order("bf16,sign,bf16"), [Method::None, Method::Sign, Method::Bf16]);
        assert_eq!(order("none"), [Method::None]);
        for method in Method::ALL {
            assert_eq!(method.to_string().parse(), Ok(method));
            assert_eq!(serde_json::to_value(method).unwrap(), method.name());
        }
        for wrong in ["", "sign,", "all,sign", "int2", "Sign"] {
            let problem = wrong.parse::<Methods>().unwrap_err();
            assert!(problem.contains("none, sign,") && problem.contains("or all"), "{problem}");
        }
    }
}
